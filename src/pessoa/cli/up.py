"""`pessoa up`: the supervisor with its default table, talking to the terminal."""

from __future__ import annotations

import click

EPILOG = """\b
Data and logs go to $PESSOA_HOME (default ~/.pessoa).
Ctrl-C stops everything in reverse order; a second Ctrl-C stops it at once.
"""


@click.command(help="Start the platform on this machine and keep it running until Ctrl-C.", epilog=EPILOG)
@click.pass_context
def up(ctx: click.Context) -> None:
    from pessoa.platform.home import pessoa_home
    from pessoa.platform.services import default_services
    from pessoa.platform.supervisor import Supervisor

    supervisor = Supervisor(default_services(), pessoa_home(), tell=click.echo)
    ctx.exit(supervisor.run_until_signalled())
