"""`pessoa top`: processor, memory and uptime of every process of the platform.

In a terminal the table is drawn anew every second until Ctrl-C; elsewhere there is one table. Numbers come from
`/proc`, where a processor's share is what was used between two looks; so the first table takes a moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from pessoa.cli.examples import for_click

if TYPE_CHECKING:
    from pessoa.platform.run_file import Run

HEADINGS = ("service", "pid", "cpu", "memory", "uptime", "restarts")
INTERVAL_S = 1.0
# The first look at the processor compares over so long.
FIRST_INTERVAL_S = 0.2


class Look(NamedTuple):
    cpu_s: float
    resident_bytes: int
    uptime_s: float


@click.command(help="Show what the processes of the platform use.", epilog=for_click("pessoa top"))
@click.option("--once", is_flag=True, help="One table, also in a terminal.")
@click.pass_context
def top(ctx: click.Context, once: bool) -> None:
    import sys
    import time
    from pathlib import Path

    from pessoa.base.home_folder import pessoa_home
    from pessoa.platform.report import rich_table, table_for_here
    from pessoa.platform.run_file import is_running, read_run

    home = pessoa_home()
    run = read_run(home)
    if run is None or not is_running(home):
        click.echo(f"Pessoa is not running in {home}.")
        ctx.exit(3)
    if not Path("/proc/self/stat").exists():
        raise click.ClickException("this needs /proc, which only Linux has")
    before, at_s = _sample_processes(run), time.monotonic()
    time.sleep(FIRST_INTERVAL_S)
    if once or not sys.stdout.isatty():
        click.echo(table_for_here(_rows(run, before, _sample_processes(run), time.monotonic() - at_s), HEADINGS))
        return
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        try:
            while (run := read_run(home)) is not None:
                now, now_s = _sample_processes(run), time.monotonic()
                live.update(rich_table(_rows(run, before, now, now_s - at_s), HEADINGS), refresh=True)
                before, at_s = now, now_s
                time.sleep(INTERVAL_S)
        except KeyboardInterrupt:
            pass  # how it is meant to end


def _sample_processes(run: Run) -> dict[int, Look]:
    found = {pid: _sample_process(pid) for pid in (run.pid, *(service.pid for service in run.services))}
    return {pid: look for pid, look in found.items() if look is not None}


def _sample_process(pid: int) -> Look | None:
    import os
    import time
    from pathlib import Path

    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # proc(5): the second field is a name in brackets that may hold blanks; these are counted from the third.
    fields = text.rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    uptime_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / ticks
    return Look((int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), uptime_s)


def _rows(run: Run, before: dict[int, Look], now: dict[int, Look], passed_s: float) -> list[tuple[str, ...]]:
    names = [*((one.name, one.pid, one.restarts) for one in run.services), ("supervisor", run.pid, 0)]
    rows: list[tuple[str, ...]] = []
    for name, pid, restarts in names:
        look = now.get(pid)
        if look is None:
            rows.append((name, str(pid), "-", "-", "-", str(restarts)))
            continue
        used_s = look.cpu_s - before.get(pid, look).cpu_s
        share, memory = f"{100 * used_s / passed_s:.0f} %", f"{look.resident_bytes / 2**20:.0f} MB"
        rows.append((name, str(pid), share, memory, _duration(look.uptime_s), str(restarts)))
    return rows


def _duration(time_s: float) -> str:
    minutes, seconds = divmod(int(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
