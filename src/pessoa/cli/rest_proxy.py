"""`pessoa rest-proxy`, and the JVM proxy's own command `kafka-rest-start`: the REST proxy in the foreground.

Settings come from a `kafka-rest.properties`, then from `--override key=value`, then from the two options that every
proxy needs. Without any of them the proxy listens on 8082 and looks for brokers on localhost:9092.
"""

from __future__ import annotations

from pathlib import Path

import click

from pessoa.cli.examples import for_click
from pessoa.cli.service_settings import OVERRIDE, PROPERTIES, config_of, settings_of


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Run the REST proxy (port 8082) in the foreground.",
    epilog=for_click("pessoa rest-proxy"),
)
@PROPERTIES
@click.option("--bootstrap-server", metavar="HOST:PORT,…", help="Brokers to begin with; default localhost:9092.")
@click.option("--schema-registry", metavar="URL", help="The schema registry; default http://localhost:8081.")
@click.option("--host", help="The address to listen on; default 127.0.0.1.")
@click.option("--port", type=int, help="The port to listen on; default 8082, and 0 for any that is free.")
@OVERRIDE
@click.pass_context
def rest_proxy(
    ctx: click.Context,
    properties: Path | None,
    bootstrap_server: str | None,
    schema_registry: str | None,
    host: str | None,
    port: int | None,
    overrides: tuple[str, ...],
) -> None:
    from dataclasses import replace

    from pessoa.rest_proxy.proxy_config import from_properties

    chosen = {"bootstrap.servers": bootstrap_server, "schema.registry.url": schema_registry}
    config = config_of(from_properties, settings_of(properties, overrides, chosen))

    from pessoa.rest_proxy.proxy_app import rest_proxy_app
    from pessoa.web.asgi_app import App
    from pessoa.web.http_settings import serve_service

    listener = config.http.listener
    listener = replace(listener, host=host or listener.host, port=listener.port if port is None else port)

    async def make(_: int) -> App:
        return rest_proxy_app(config)

    ctx.exit(serve_service(make, replace(config.http, listener=listener), click.echo))


def main() -> None:
    """The entry point of `kafka-rest-start`."""
    rest_proxy(prog_name="kafka-rest-start")
