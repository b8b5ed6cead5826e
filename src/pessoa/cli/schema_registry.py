"""`pessoa schema-registry`, also `schema-registry-start`: one registry in the foreground.

Takes the properties file of the JVM registry, if one is given, and overrides of single keys:

    pessoa schema-registry --bootstrap-server localhost:9092
    schema-registry-start etc/schema-registry.properties --override schema.compatibility.level=full
"""

from __future__ import annotations

from pathlib import Path

import click

from pessoa.cli.examples import for_click
from pessoa.cli.service_settings import OVERRIDE, PROPERTIES, config_of, listen_at, log_service, settings_of


@click.command(
    help="Run a schema registry in the foreground.",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=for_click("pessoa schema-registry"),
)
@PROPERTIES
@click.option("--bootstrap-server", help="Where Kafka is: host:port,…")
@click.option("--port", type=click.IntRange(0, 65535), help="Where to listen; 0 lets the system choose.")
@click.option("--host", help="The address to listen on, and by which other instances reach this one.")
@OVERRIDE
@click.pass_context
def schema_registry(
    ctx: click.Context,
    properties: Path | None,
    bootstrap_server: str | None,
    port: int | None,
    host: str | None,
    overrides: tuple[str, ...],
) -> None:
    from pessoa.schema_registry.registry_config import make_config

    settings = settings_of(properties, overrides, {"kafkastore.bootstrap.servers": bootstrap_server})
    listen_at(settings, host, port, 8081)
    if host is not None:
        settings.setdefault("host.name", host)
    log_service()
    config = config_of(make_config, settings)
    from pessoa.schema_registry.registry_service import run

    ctx.exit(run(config, tell=click.echo))


def main() -> None:
    schema_registry(prog_name="schema-registry-start")
