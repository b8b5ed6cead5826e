"""`pessoa connect`, also `connect-distributed` and `connect-standalone`: one Connect worker in the foreground.

    pessoa connect --bootstrap-server localhost:9092
    connect-distributed etc/connect-distributed.properties
    connect-standalone worker.properties connector1.properties connector2.json …

A distributed worker keeps everything in Kafka's internal topics. A standalone one keeps its connectors in memory, and
runs those whose files it is given.
"""

from __future__ import annotations

from pathlib import Path

import click

from pessoa.cli.examples import for_click
from pessoa.cli.service_settings import (
    OVERRIDE,
    PROPERTIES,
    config_of,
    listen_at,
    log_service,
    settings_in,
    settings_of,
)

PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
CONTEXT = {"help_option_names": ["-h", "--help"]}


@click.command(help="Run a Connect worker (port 8083).", context_settings=CONTEXT, epilog=for_click("pessoa connect"))
@PROPERTIES
@click.option("--bootstrap-server", help="Where Kafka is: host:port,…")
@click.option("--port", type=click.IntRange(0, 65535), help="Where to listen; 0 lets the system choose.")
@click.option("--host", help="The address to listen on, and by which other workers reach this one.")
@click.option("--schema-registry", help="The schema registry for converters that need one and name none.")
@OVERRIDE
@click.pass_context
def connect(
    ctx: click.Context,
    properties: Path | None,
    bootstrap_server: str | None,
    port: int | None,
    host: str | None,
    schema_registry: str | None,
    overrides: tuple[str, ...],
) -> None:
    settings = settings_of(properties, overrides, {"bootstrap.servers": bootstrap_server})
    if schema_registry is not None:
        for side in ("key", "value"):
            settings.setdefault(f"{side}.converter.schema.registry.url", schema_registry)
    listen_at(settings, host, port, 8083)
    ctx.exit(run_worker(settings))


@click.command(
    help="Run a Connect worker by itself, with these connectors.",
    context_settings=CONTEXT,
    epilog=for_click("connect-standalone"),
)
@click.argument("properties", type=PATH)
@click.argument("connectors", nargs=-1, type=PATH)
@click.pass_context
def standalone(ctx: click.Context, properties: Path, connectors: tuple[Path, ...]) -> None:
    found = {}
    for path in connectors:
        settings = _read_connector(path)
        if "name" not in settings:
            raise click.ClickException(f"{path} names no connector: write name=…")
        found[settings["name"]] = settings
    ctx.exit(run_worker(settings_in(properties), found))


def run_worker(settings: dict[str, str], connectors: dict[str, dict[str, str]] | None = None) -> int:
    """Run a worker until it is signalled to stop: a distributed one, or a standalone one with these connectors."""
    from functools import partial

    from pessoa.connect.worker_config import make_config

    log_service()
    config = config_of(partial(make_config, is_standalone=connectors is not None), settings)
    from pessoa.connect.worker_service import run

    return run(config, click.echo, connectors)


def _read_connector(path: Path) -> dict[str, str]:
    """Return the settings in a properties file, or in a JSON file of the form that the REST API takes."""
    if path.suffix != ".json":
        return settings_in(path)
    import json

    content = json.loads(path.read_text(encoding="utf-8"))
    settings = content.get("config", content)
    if "name" in content:
        settings.setdefault("name", content["name"])
    return {str(key): str(value) for key, value in settings.items()}


def distributed_main() -> None:
    connect(prog_name="connect-distributed")


def standalone_main() -> None:
    standalone(prog_name="connect-standalone")
