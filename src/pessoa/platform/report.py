"""What the user sees of the platform: a table of what is where.

In a terminal it is drawn by rich; anywhere else (a log, a pipe, a test) it is plain aligned lines that grep and awk
can read, and rich is not even imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

HEADINGS = ("service", "address", "pid", "log")


def plain_table(rows: Sequence[Sequence[str]]) -> str:
    table = [HEADINGS, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table)
    return "\n".join(line.rstrip() for line in lines)


def drawn_table(rows: Sequence[Sequence[str]], width: int) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold", style="bold" if heading == "service" else None)
    for row in rows:
        table.add_row(*row)
    # Into a string, not onto the terminal: the supervisor has one way of speaking.
    page = StringIO()
    Console(file=page, force_terminal=True, width=width).print(table)
    return page.getvalue().rstrip("\n")
