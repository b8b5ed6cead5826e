"""Rows of a query as they come: a box whose columns share the width of the terminal equally.

+----------+----------+
|USERID    |PAGEID    |
+----------+----------+
|User_1    |Page_7    |
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_LEAST_WIDTH = 5
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class RowBox:
    """A table of rows with equal columns. With `wrap` a long value continues on the next line; without it, it is
    shortened with three dots."""

    def __init__(self, names: Sequence[str], width: int, *, wrap: bool = True) -> None:
        self._names = names
        self._width = max(_LEAST_WIDTH, (width - 1) // max(1, len(names)) - 1)
        self._wrap = wrap

    def head(self) -> list[str]:
        line = "+" + "+".join("-" * self._width for _ in self._names) + "+"
        return [line, *self._lines(self._names), line]

    def row(self, values: Sequence[object]) -> list[str]:
        return self._lines([cell_text(one) for one in values])

    def _lines(self, cells: Sequence[str]) -> list[str]:
        parts = [self._fit(cell) for cell in cells]
        height = max((len(one) for one in parts), default=1)
        return [
            "|" + "|".join((one[index] if index < len(one) else "").ljust(self._width) for one in parts) + "|"
            for index in range(height)
        ]

    def _fit(self, cell: str) -> list[str]:
        lines = []
        for line in cell.split("\n"):
            if len(line) <= self._width:
                lines.append(line)
            elif not self._wrap:
                lines.append(line[: self._width - 3] + "...")
            else:
                lines += [line[start : start + self._width] for start in range(0, len(line), self._width)]
        return lines if self._wrap else lines[:1]


def cell_text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{printable(str(name))}={cell_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(cell_text(one) for one in value) + "]"
    return printable(value) if isinstance(value, str) else json.dumps(value)


def printable(text: str) -> str:
    r"""Return the text with control characters as JSON writes them (\u001b), except tabs and line ends: the value of
    a record must not control the terminal."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
