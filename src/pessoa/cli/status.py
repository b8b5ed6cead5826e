"""`pessoa status`: which services run and whether each answers; every service is probed anew.

Exit codes are those that init scripts use: 0 when everything answers, 1 when something does not, 3 when nothing runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pessoa.platform.run_file import RunningService
    from pessoa.platform.service_rows import Probe

NOT_RUNNING = 3
# On a busy machine one question may time out; silence to several is an answer.
ATTEMPTS = 3


EPILOG = """\b
Examples:
  pessoa status                      what runs, where, and where its log is
  pessoa status && run-my-tests      go on only if everything answers
"""


@click.command(help="Say what of the platform runs and answers.", epilog=EPILOG)
@click.pass_context
def status(ctx: click.Context) -> None:
    import asyncio

    from pessoa.base.home_folder import pessoa_home
    from pessoa.platform.report import seconds, table_for_here
    from pessoa.platform.run_file import is_running, read_run

    home = pessoa_home()
    run = read_run(home)
    if not is_running(home) or run is None:
        click.echo(f"Pessoa is not running in {home}.")
        ctx.exit(NOT_RUNNING)

    async def ask() -> list[str]:
        return await asyncio.gather(*(_state(service) for service in run.services))

    states = asyncio.run(ask())
    rows = [
        (one.name, one.address, state, seconds(one.ready_after_s), str(one.pid), one.log)
        for one, state in zip(run.services, states, strict=True)
    ]
    click.echo(table_for_here(rows))
    ctx.exit(0 if set(states) == {"ready"} else 1)


async def _state(service: RunningService) -> str:
    host, _, port = service.address.rpartition(":")
    kind, _, number = service.name.partition("-")
    probe = _broker_probe(int(number), service.name) if kind == "broker" else _service_probe()
    for _ in range(ATTEMPTS):
        if await probe("127.0.0.1" if host == "localhost" else host, int(port)):
            return "ready"
    return service.state if service.state != "ready" else "not answering"


def _service_probe() -> Probe:
    from pessoa.base.home_folder import pessoa_home
    from pessoa.platform.secured_home import is_secured, secured_files
    from pessoa.platform.service_rows import answers_health

    home = pessoa_home()
    return answers_health(secured_files(home).authority if is_secured(home) else None)


def _broker_probe(node_id: int, name: str) -> Probe:
    from pessoa.base.home_folder import pessoa_home
    from pessoa.platform.secured_home import is_secured, secured_files
    from pessoa.platform.service_rows import answers_as_broker, answers_as_secured_broker

    home = pessoa_home()
    if is_secured(home):
        return answers_as_secured_broker(node_id, secured_files(home).client(name))
    return answers_as_broker(node_id)
