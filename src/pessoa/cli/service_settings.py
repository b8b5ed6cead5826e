"""Where the command of a service has its settings from: a properties file, and `--override key=value` on top of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from pessoa.base.properties import MalformedProperties, read_properties


def settings_of(properties: Path | None, overrides: Sequence[str]) -> dict[str, str]:
    settings = {} if properties is None else settings_in(properties)
    for each in overrides:
        key, equals, value = each.partition("=")
        if not equals:
            raise click.UsageError(f"--override {each}: write KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings


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
