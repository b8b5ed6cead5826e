"""`pessoa logs`: what the services have printed, one of them or all; `-f` goes on as they print more.

With `--access`, `--error`, `--agent`, `--referrer`, `--audit` or `--authorizer` it is a log that brokers write
themselves (`pessoa.logs`), in columns. With several services each line begins with the name of its service.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from pessoa.cli.log_tail import LogTail

# How often -f looks for more; quick enough to seem immediate.
POLL_S = 0.1

EPILOG = """\b
Examples:
  pessoa logs                   the last lines of every service
  pessoa logs broker            those of all brokers
  pessoa logs broker-1 -f       one broker, going on as it logs more
  pessoa logs broker-1 --audit  who has changed what
  pessoa logs broker --agent    the software of clients, on all brokers
  pessoa logs up -n 200         what the supervisor itself has said
"""

# The logger by which a log is turned on until the next start, and its level (`pessoa.broker.logs`); None: the setting.
_LOGGERS = {
    "access": "kafka.request.logger=DEBUG",
    "error": "pessoa.error=WARN",
    "agent": "pessoa.agent=INFO",
    "referrer": "pessoa.referrer=INFO",
    "audit": "pessoa.audit=INFO",
    "authorizer": None,
}

Render = Callable[[list[str]], list[str]]


@click.command(help="Print what a service, or every service, has logged.", epilog=EPILOG)
@click.argument("service", required=False)
@click.option("--access", "log", flag_value="access", help="Every request that brokers have served.")
@click.option("--error", "log", flag_value="error", help="Warnings and errors of brokers.")
@click.option("--agent", "log", flag_value="agent", help="Which software clients are, by connection.")
@click.option("--referrer", "log", flag_value="referrer", help="On whose behalf clients connect.")
@click.option("--audit", "log", flag_value="audit", help="Who has changed what in the cluster.")
@click.option("--authorizer", "log", flag_value="authorizer", help="What the authorizer has allowed or denied.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--lines", "-n", type=click.IntRange(0), default=50, metavar="N", help="The last N lines; default 50.")
def logs(service: str | None, log: str | None, follow: bool, lines: int) -> None:
    from pessoa.cli.log_tail import LogTail

    chosen = _output_files(service) if log is None else _log_files(service, log)
    width = 3 + max(map(len, chosen))
    prefixes = {name: "" if len(chosen) == 1 else f"{name} | ".rjust(width) for name in chosen}
    tails = {prefixes[name]: LogTail(path) for name, path in chosen.items()}
    render = _renderer(log)
    try:
        last = {prefix: tail.last(lines) for prefix, tail in tails.items()}
        for prefix, found in last.items():
            _show(prefix, render(found))
        if follow:
            _follow(tails, render)
    except KeyboardInterrupt:
        pass  # how -f is meant to end
    finally:
        for tail in tails.values():
            tail.close()


def _renderer(log: str | None) -> Render:
    if log is None:
        return lambda lines: lines
    from pessoa.cli.log_columns import Columns

    return Columns(log).render


def _output_files(service: str | None) -> dict[str, Path]:
    """Return the files with the output of services, by service."""
    from pessoa.base.home_folder import pessoa_home

    folder = pessoa_home() / "logs"
    paths = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if not paths:
        raise click.ClickException(f"nothing has been logged in {folder}; `pessoa up` starts the platform")
    return _select(service, paths)


def _log_files(service: str | None, log: str) -> dict[str, Path]:
    """Return the files of one of the logs that brokers write, by broker."""
    from pessoa.base.home_folder import pessoa_home

    folder = pessoa_home() / "logs"
    brokers = {path.stem: folder / path.stem / f"{log}.log" for path in sorted(folder.glob("broker-*.log"))}
    if not brokers:
        raise click.ClickException(f"no broker has logged anything in {folder}; `pessoa up` starts the platform")
    chosen = _select(service, brokers)
    existing = {name: path for name, path in chosen.items() if path.exists()}
    if not existing:
        raise click.ClickException(_how_to_turn_on(log, next(iter(chosen))))
    return existing


def _how_to_turn_on(log: str, broker: str) -> str:
    from pessoa.cli.tool_run import default_cluster

    node_id = broker.rpartition("-")[2]
    logger = _LOGGERS[log]
    kind, setting = ("brokers", f"pessoa.logs=[{log}]") if logger is None else ("broker-loggers", logger)
    return (
        f"{broker} has written nothing to its {log} log. If it is off, this turns it on:\n"
        f"  kafka-configs --bootstrap-server {default_cluster()} --alter "
        f"--entity-type {kind} --entity-name {node_id} --add-config {setting}"
    )


def _select(service: str | None, paths: dict[str, Path]) -> dict[str, Path]:
    # `broker` means all of them, as broker-1, broker-2 and so on are one service to most people.
    chosen = {name: path for name, path in paths.items() if service in (None, name, name.rpartition("-")[0])}
    if not chosen:
        raise click.ClickException(f"there is no log of {service}; there are {', '.join(paths)}")
    return chosen


def _show(prefix: str, lines: list[str]) -> None:
    for line in lines:
        click.echo(prefix + line)


def _follow(tails: dict[str, LogTail], render: Render) -> None:
    import time

    while True:
        for prefix, tail in tails.items():
            _show(prefix, render(tail.more()))
        time.sleep(POLL_S)
