"""Where the command of a service has its settings from: a properties file, `--override key=value` on top of it, and
what options say on top of both. A wrong setting is the error of the command.

    @PROPERTIES
    @click.option("--bootstrap-server")
    @OVERRIDE
    def command(properties, bootstrap_server, overrides):
        settings = settings_of(properties, overrides, {"bootstrap.servers": bootstrap_server})
        config = config_of(make_config, settings)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click

from pessoa.base.config_values import ConfigProblem
from pessoa.base.properties import MalformedProperties, read_properties

C = TypeVar("C")

PROPERTIES = click.argument("properties", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
OVERRIDE = click.option(
    "--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one key; may be repeated."
)


def settings_of(
    properties: Path | None, overrides: Sequence[str], chosen: Mapping[str, str | None] | None = None
) -> dict[str, str]:
    """Return the settings; `chosen` are those that options have set, None for an option that was not given."""
    settings = {} if properties is None else settings_in(properties)
    for each in overrides:
        key, equals, value = each.partition("=")
        if not equals:
            raise click.UsageError(f"--override {each}: write KEY=VALUE")
        settings[key.strip()] = value.strip()
    settings.update({key: value for key, value in (chosen or {}).items() if value is not None})
    return settings


def config_of(make: Callable[[Mapping[str, str]], C], settings: Mapping[str, str]) -> C:
    """Return what `make` makes of the settings; its `ConfigProblem` is the error of the command."""
    try:
        return make(settings)
    except ConfigProblem as wrong:
        raise click.ClickException(str(wrong)) from None


def log_service() -> None:
    """Write the log of a service to standard error, without what its libraries say of each request."""
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for logger_name in ("httpx", "py4j", "pyspark"):
        logging.getLogger(logger_name).setLevel(logging.WARNING)


def listen_at(settings: dict[str, str], host: str | None, port: int | None, default_port: int) -> None:
    """Set the listener to --host and --port; it stays https if the settings have an https listener."""
    if port is None and host is None:
        return
    scheme = "https" if settings.get("listeners", "").lower().startswith("https:") else "http"
    settings["listeners"] = f"{scheme}://{host or '0.0.0.0'}:{default_port if port is None else port}"  # noqa: S104


def settings_in(path: Path) -> dict[str, str]:
    try:
        return read_properties(path)
    except OSError as problem:
        raise click.ClickException(f"{path}: {problem.strerror}") from None
    except MalformedProperties as problem:
        raise click.ClickException(f"{path}: {problem}") from None
