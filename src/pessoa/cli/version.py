"""`pessoa version`: the three facts that every bug report should open with."""

from __future__ import annotations

import platform

import click

from pessoa import __version__
from pessoa.cli.examples import for_click


@click.command(help="Say which Pessoa, Python and machine this is.", epilog=for_click("pessoa version"))
def version() -> None:
    click.echo(f"pessoa {__version__}")
    click.echo(f"python {platform.python_version()} ({platform.python_implementation()})")
    click.echo(f"system {platform.system()} {platform.release()} {platform.machine()}")
