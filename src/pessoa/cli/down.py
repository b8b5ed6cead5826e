"""`pessoa down`: ask the supervisor to stop the platform, and wait until it has."""

from __future__ import annotations

import click

# The supervisor takes twenty seconds at most; more means that it hangs.
TIMEOUT_S = 30.0


EPILOG = """\b
Examples:
  pessoa down                    stop everything in order; data stays
  PESSOA_HOME=/data pessoa down  the same for another home
"""


@click.command(help="Stop the platform that `pessoa up` started.", epilog=EPILOG)
def down() -> None:
    import os
    import signal
    import time

    from pessoa.base.home_folder import pessoa_home
    from pessoa.platform.run_file import is_running, read_run, stop_orphans

    home = pessoa_home()
    run = read_run(home)
    if not is_running(home) or run is None:
        left = stop_orphans(home)
        (home / "run.json").unlink(missing_ok=True)
        if left:
            click.echo(f"The last `pessoa up` was killed and left {', '.join(left)} running; stopped them.")
        else:
            click.echo(f"Pessoa is not running in {home}.")
        return
    began = time.monotonic()
    os.kill(run.pid, signal.SIGTERM)
    while is_running(home):
        if time.monotonic() - began > TIMEOUT_S:
            raise click.ClickException(
                f"process {run.pid} has not stopped within {TIMEOUT_S:g} s; see `pessoa logs up`"
            )
        time.sleep(0.02)
    click.echo(f"Stopped {', '.join(one.name for one in run.services)} in {time.monotonic() - began:.1f} s.")
