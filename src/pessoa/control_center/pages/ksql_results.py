"""The rows of a ksql query as they come: the last of them in a table, as bars by key, or as a line.

Bars show the newest value of each key, which is what a table's changes mean; the line shows values in the order of
their arrival. Both take the first column of numbers unless another is chosen.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any

import msgspec

from pessoa.control_center.pages.frame import Visit
from pessoa.control_center.pages.parts import Cell, Html, bar, card, chart, compact, join, table, tag
from pessoa.control_center.sample_history import Sample

ROWS = 200
BARS = 24
VIEWS = (("table", "Table"), ("bars", "Bars"), ("line", "Line"))
Value = Any


class QueryRows:
    """The columns of a query, its last rows, and the number of all rows."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.rows: deque[tuple[float, Sequence[Value]]] = deque(maxlen=ROWS)
        self.count = 0
        self.notes: list[str] = []
        self.is_done = False
        # PRINT answers in lines of text.
        self.lines: deque[str] = deque(maxlen=ROWS)

    def take(self, line: str) -> str | None:
        """Take a line of the server's response; return its error message, None if it is none."""
        text = line.strip().strip(",").removeprefix("[").strip()
        if text.endswith("}]"):
            text = text[:-1]
        if not text or text == "]":
            return None
        try:
            found = msgspec.json.decode(text) if text.startswith("{") else None
        except msgspec.DecodeError:
            found = None
        if not isinstance(found, dict):
            self.count += 1
            self.lines.appendleft(line)
        elif isinstance(found.get("header"), dict):
            self.columns = column_names(str(found["header"].get("schema", "")))
        elif isinstance(found.get("row"), dict):
            self.count += 1
            self.rows.appendleft((time.time() * 1000, found["row"].get("columns") or []))
        elif "finalMessage" in found:
            self.notes.append(str(found["finalMessage"]))
        elif "errorMessage" in found or "message" in found:
            return str(found.get("errorMessage") or found.get("message"))
        return None

    def number_columns(self) -> list[str]:
        """Return the columns that have a number in at least one of the shown rows."""
        return [
            name
            for at, name in enumerate(self.columns)
            if any(_number(row, at) is not None for _, row in self.rows)
        ]  # fmt: skip

    def label_column(self, chosen: str) -> int:
        """Return the column whose values label the bars: the first that is no number, or else the first other than
        `chosen`."""
        numbers = self.number_columns()
        return next(
            (at for at, name in enumerate(self.columns) if name not in numbers),
            next((at for at, name in enumerate(self.columns) if name != chosen), 0),
        )

    def bars(self, column: str) -> list[tuple[str, float]]:
        """Return the newest value of each label, the largest value first."""
        at, label = self.columns.index(column), self.label_column(column)
        found: OrderedDict[str, float] = OrderedDict()
        for _, row in self.rows:
            number = _number(row, at)
            if number is not None and label < len(row):
                found.setdefault(cell_text(row[label]), number)
        return sorted(found.items(), key=lambda one: -one[1])[:BARS]

    def line(self, column: str) -> list[Sample]:
        at = self.columns.index(column)
        found = [(when, _number(row, at)) for when, row in reversed(self.rows)]
        return [Sample(int(when), number) for when, number in found if number is not None]


def draw_rows(visit: Visit, found: QueryRows, view: str, column: str | None) -> Html:
    t = visit.t
    words = t("{n} rows; the last {m} are shown.", n=f"{found.count:,}", m=min(found.count, ROWS))
    summary = tag("p", words, *(f" {one}." for one in found.notes), cls="dim")
    numbers = found.number_columns()
    chosen = column if column in numbers else numbers[0] if numbers else None
    empty = t("No row fits.") if found.is_done else t("No row yet.")
    if found.lines and not found.rows:
        return card(t("Result"), summary, tag("pre", "\n".join(found.lines)))
    if view != "table" and chosen is None:
        no_numbers = tag("p", t("There is no column of numbers to draw."), cls="empty")
        return card(t("Result"), summary, no_numbers if found.rows else tag("p", empty, cls="empty"))
    if view == "bars" and chosen is not None:
        return card(t("Result"), summary, _draw_bars(found, chosen))
    if view == "line" and chosen is not None:
        return card(t("Result"), summary, chart(chosen, found.line(chosen), "", "b", empty))
    cells: list[list[Cell]] = [[cell_text(one) for one in row] for _, row in found.rows]
    right = tuple(at for at, name in enumerate(found.columns) if name in numbers)
    return card(t("Result"), summary, table(found.columns, cells, empty=empty, numbers=right))


def _draw_bars(found: QueryRows, column: str) -> Html:
    drawn = found.bars(column)
    top = max([abs(number) for _, number in drawn] or [1.0]) or 1.0
    rows = [
        tag("div", tag("span", label, cls="bar-label"), bar(abs(number) / top), tag("strong", compact(number)),
            cls="bar-row")
        for label, number in drawn
    ]  # fmt: skip
    head = tag("div", tag("span", found.columns[found.label_column(column)]), tag("span", column), cls="chart-head")
    return tag("div", head, join(rows), cls="bars")


def column_names(schema: str) -> list[str]:
    """Return the names in "`ID` INTEGER KEY, `NAME` STRING"; commas within the types of structs do not separate
    columns."""
    names, depth, start = [], 0, 0
    for at, letter in enumerate(schema + ","):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            if name := schema[start:at].strip():
                names.append(name.split("`")[1] if name.startswith("`") else name.split(" ")[0])
            start = at + 1
    return names


def cell_text(value: Value) -> str:
    return value if isinstance(value, str) else "null" if value is None else msgspec.json.encode(value).decode()


def _number(row: Sequence[Value], at: int) -> float | None:
    if at >= len(row) or isinstance(row[at], bool) or not isinstance(row[at], int | float):
        return None
    return float(row[at])
