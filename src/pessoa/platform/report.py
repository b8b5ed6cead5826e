"""What the user sees of the platform: a table of what is where, and how far it is.

In a terminal it is drawn by rich, and while the platform starts it is drawn again at every change; anywhere else (a
log, a pipe, a test) it is plain aligned lines that grep and awk can read, and rich is not even imported.

An address that is broken in two cannot be copied. So where a terminal is too narrow, columns are left out from the
right, the logs first; a line below says where these are.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from pessoa.platform.child import Child

HEADINGS = ("service", "address", "state", "ready after", "pid", "log")
# What stands between two columns of a drawn table, and at its edges.
_GAP, _EDGES = 3, 2
_COLOURS = {"ready": "green", "down": "red", "starting": "yellow", "stopping": "yellow", "not answering": "red"}


def seconds(time_s: float | None) -> str:
    return "-" if time_s is None else f"{time_s:.2f} s"


def rows_of(children: Sequence[Child]) -> list[tuple[str, ...]]:
    return [
        (
            child.service.name,
            child.service.address,
            child.state,
            seconds(child.ready_after_s),
            child.shown_pid,
            str(child.log_path),
        )
        for child in children
    ]


def table_for_here(rows: Sequence[Sequence[str]], headings: Sequence[str] = HEADINGS) -> str:
    """Return a drawn table if standard output is a terminal, plain lines otherwise."""
    if sys.stdout.isatty():
        return drawn_table(rows, shutil.get_terminal_size().columns, headings)
    return plain_table(rows, headings)


def plain_table(rows: Sequence[Sequence[str]], headings: Sequence[str] = HEADINGS) -> str:
    table = [headings, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(headings))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table)
    return "\n".join(line.rstrip() for line in lines)


def drawn_table(rows: Sequence[Sequence[str]], width: int, headings: Sequence[str] = HEADINGS) -> str:
    from rich.console import Console

    # Into a string, not onto the terminal: the supervisor has one way of speaking.
    page = StringIO()
    Console(file=page, force_terminal=True, width=width).print(rich_table(rows, headings, width))
    if rows and headings[-1] == "log" and _count_fitting_columns(rows, headings, width) < len(headings):
        page.write(f"The logs are in {Path(rows[0][-1]).parent}.\n")
    return page.getvalue().rstrip("\n")


def _count_fitting_columns(rows: Sequence[Sequence[str]], headings: Sequence[str], width: int) -> int:
    """Return how many columns fit into the width, each in one line; never fewer than the first two."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    count = len(headings)
    while count > 2 and _EDGES + sum(widths[:count]) + _GAP * (count - 1) > width:
        count -= 1
    return count


def rich_table(rows: Sequence[Sequence[str]], headings: Sequence[str] = HEADINGS, width: int | None = None) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    count = _count_fitting_columns(rows, headings, shutil.get_terminal_size().columns if width is None else width)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings[:count]:
        table.add_column(heading, overflow="fold", style="bold" if heading == "service" else None)
    for row in rows:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row[:count]))
    return table


class PlainView:
    """Prints a line for each service that becomes ready."""

    def tell(self, text: str) -> None:
        print(text, flush=True)

    def changed(self, children: Sequence[Child], changed: Child) -> None:
        if changed.state == "ready" and not changed.restart_count:
            self.tell(
                f"{changed.service.name} is ready at {changed.service.address} after {seconds(changed.ready_after_s)}"
            )


class LiveView:
    """A table at the foot of the terminal while services start or stop; it is removed when all have settled."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def tell(self, text: str) -> None:
        self._end()
        print(text, flush=True)

    def changed(self, children: Sequence[Child], changed: Child) -> None:
        from rich.live import Live

        if all(child.state in ("ready", "down", "stopped") for child in children):
            self._end()
            return
        if self._live is None:
            # Without its own thread: it is drawn at changes, and no faster.
            self._live = Live(auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(rich_table(rows_of(children)), refresh=True)

    def _end(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def view_for_here() -> PlainView | LiveView:
    return LiveView() if sys.stdout.isatty() else PlainView()
