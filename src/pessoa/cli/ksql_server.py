"""`pessoa ksql-server`, also `ksql-server-start`: one ksql server in the foreground.

pessoa ksql-server --bootstrap-server localhost:9092 --schema-registry http://localhost:8081
ksql-server-start etc/ksql-server.properties
"""

from __future__ import annotations

from pathlib import Path

import click

from pessoa.cli.examples import for_click
from pessoa.cli.service_settings import OVERRIDE, PROPERTIES, config_of, listen_at, log_service, settings_of


@click.command(
    help="Run a ksql server (port 8088).",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=for_click("pessoa ksql-server"),
)
@PROPERTIES
@click.option("--bootstrap-server", help="Where Kafka is: host:port,…")
@click.option("--port", type=click.IntRange(0, 65535), help="Where to listen; 0 lets the system choose.")
@click.option("--host", help="The address to listen on.")
@click.option("--schema-registry", help="The schema registry, for formats that need one.")
@click.option("--connect", help="Where Connect is, for statements about connectors.")
@click.option("--queries-file", type=click.Path(exists=True, dir_okay=False), help="Run these statements, no others.")
@OVERRIDE
@click.pass_context
def ksql_server(
    ctx: click.Context,
    properties: Path | None,
    bootstrap_server: str | None,
    port: int | None,
    host: str | None,
    schema_registry: str | None,
    connect: str | None,
    queries_file: str | None,
    overrides: tuple[str, ...],
) -> None:
    from pessoa.ksql.server.server_config import make_config

    chosen = {
        "bootstrap.servers": bootstrap_server,
        "ksql.schema.registry.url": schema_registry,
        "ksql.connect.url": connect,
        "ksql.queries.file": queries_file,
    }
    settings = settings_of(properties, overrides, chosen)
    listen_at(settings, host, port, 8088)
    log_service()
    config = config_of(make_config, settings)
    from pessoa.ksql.server.ksql_service import run

    ctx.exit(run(config, tell=click.echo))


def main() -> None:
    ksql_server(prog_name="ksql-server-start")
