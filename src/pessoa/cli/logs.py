"""`pessoa logs`: what the services have printed, one of them or all; `-f` goes on as they print more.

With several services each line begins with the name of its service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import click

if TYPE_CHECKING:
    from pathlib import Path

# How often -f looks for more; quick enough to seem immediate.
POLL_S = 0.1
# Enough for many lines, and a log of gigabytes stays out of memory.
TAIL_BYTES = 1024 * 1024


EPILOG = """\b
Examples:
  pessoa logs                  the last lines of every service
  pessoa logs broker           those of all brokers
  pessoa logs broker-1 -f      one broker, going on as it logs more
  pessoa logs up -n 200        what the supervisor itself has said
"""


@click.command(help="Print what a service, or every service, has logged.", epilog=EPILOG)
@click.argument("service", required=False)
@click.option("--follow", "-f", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--lines", "-n", type=click.IntRange(0), default=50, metavar="N", help="The last N lines; default 50.")
def logs(service: str | None, follow: bool, lines: int) -> None:
    from pessoa.platform.home import pessoa_home

    folder = pessoa_home() / "logs"
    there = {path.stem: path for path in sorted(folder.glob("*.log"))}
    if not there:
        raise click.ClickException(f"nothing has been logged in {folder}; `pessoa up` starts the platform")
    # `broker` means all of them, as broker-1, broker-2 and so on are one service to most people.
    chosen = {name: path for name, path in there.items() if service in (None, name, name.rpartition("-")[0])}
    if not chosen:
        raise click.ClickException(f"there is no log of {service}; there are {', '.join(there)}")
    width = 3 + max(map(len, chosen))
    prefixes = {name: "" if len(chosen) == 1 else f"{name} | ".rjust(width) for name in chosen}
    files = {prefixes[name]: _print_tail(path, prefixes[name], lines) for name, path in chosen.items()}
    try:
        if follow:
            _follow(files)
    except KeyboardInterrupt:
        pass  # how -f is meant to end
    finally:
        for file in files.values():
            file.close()


def _print_tail(path: Path, prefix: str, count: int) -> BinaryIO:
    file = path.open("rb")
    file.seek(max(0, path.stat().st_size - TAIL_BYTES))
    found = file.read().decode(errors="replace").splitlines()
    for line in found[len(found) - min(count, len(found)) :]:
        click.echo(prefix + line)
    return file


def _follow(files: dict[str, BinaryIO]) -> None:
    import time

    unfinished = dict.fromkeys(files, b"")
    while True:
        for prefix, file in files.items():
            *whole, unfinished[prefix] = (unfinished[prefix] + file.read()).split(b"\n")
            for line in whole:
                click.echo(prefix + line.decode(errors="replace"))
        time.sleep(POLL_S)
