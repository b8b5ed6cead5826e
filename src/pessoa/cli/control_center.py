"""`pessoa control-center`: the control centre in the foreground.

Settings come from a properties file, then from `--override key=value`, then from the options. Without any of them it
listens on 9021 and looks for brokers on localhost:9092 and for services on their usual ports.
"""

from __future__ import annotations

from pathlib import Path

import click

from pessoa.cli.examples import for_click
from pessoa.cli.service_settings import OVERRIDE, PROPERTIES, config_of, listen_at, settings_of


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run the control centre (port 9021) in the foreground.",
    epilog=for_click("pessoa control-center"),
)
@PROPERTIES
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="Brokers to begin with; default localhost:9092.")
@click.option("--schema-registry", metavar="URL", help="The schema registry; default http://localhost:8081.")
@click.option("--host", help="The address to listen on; default 127.0.0.1.")
@click.option("--port", type=int, help="The port to listen on; default 9021, and 0 for any that is free.")
@OVERRIDE
@click.pass_context
def control_center(
    ctx: click.Context,
    properties: Path | None,
    bootstrap_server: str | None,
    schema_registry: str | None,
    host: str | None,
    port: int | None,
    overrides: tuple[str, ...],
) -> None:
    from importlib.util import find_spec

    if find_spec("nicegui") is None:
        raise click.ClickException("The control centre needs more: pip install 'pessoa[console]'.")
    from pessoa.control_center.center_config import DEFAULT_PORT, from_properties

    chosen = {
        "bootstrap.servers": bootstrap_server,
        "confluent.controlcenter.schema.registry.url": schema_registry,
    }
    settings = settings_of(properties, overrides, chosen)
    listen_at(settings, host or ("127.0.0.1" if port is not None else None), port, DEFAULT_PORT)
    config = config_of(from_properties, settings)

    from pessoa.control_center.center_app import serve

    ctx.exit(serve(config, click.echo))
