"""The entries of a broker's logs as people read them: one line each, the columns one below the other.

A column is as wide as its widest value so far, up to a limit; what is wider stands out to the right. Entries come as
JSON, whose names are those of `pessoa.broker.logs`; a line that is none, of a log in the form of text, is shown as it
is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pessoa.base.printable import printable

Entry = dict[str, Any]
Cells = Callable[[Entry], list[str]]

# Wider than most names, and two of them fit on a line.
MAX_WIDTH = 32


def _text(entry: Entry, name: str) -> str:
    value = entry.get(name)
    return "-" if value is None or value == "" else printable(str(value))


def _time_text(entry: Entry) -> str:
    return _text(entry, "time").replace("T", " ").removesuffix("Z")


def _client_cells(entry: Entry) -> list[str]:
    return [_time_text(entry), _text(entry, "host"), _text(entry, "principal"), _text(entry, "client_id")]


def _access(entry: Entry) -> list[str]:
    topics = [printable(str(one)) for one in entry.get("topics") or ()]
    if entry.get("more_topics"):
        topics.append(f"+{entry['more_topics']}")
    return [
        *_client_cells(entry),
        f"{_text(entry, 'api')} v{_text(entry, 'version')}",
        ",".join(topics) or "-",
        f"{_text(entry, 'bytes_in')} in",
        f"{_text(entry, 'bytes_out')} out",
        f"{_text(entry, 'ms')} ms",
        "ok" if entry.get("result") == "NONE" else _text(entry, "result"),
    ]


def _agent(entry: Entry) -> list[str]:
    return [*_client_cells(entry), _text(entry, "software"), _text(entry, "software_version"), _text(entry, "listener")]


def _referrer(entry: Entry) -> list[str]:
    return [*_client_cells(entry), _text(entry, "service"), _text(entry, "name"), _text(entry, "listener")]


def _audit(entry: Entry) -> list[str]:
    outcome = "ok" if entry.get("outcome") == "NONE" else _text(entry, "outcome")
    return [*_client_cells(entry), _text(entry, "event"), outcome, _plain_text(entry.get("about"))]


def _plain_text(about: Any) -> str:
    """Return JSON as text without most of its punctuation: `topics name=orders num_partitions=3`."""
    if isinstance(about, dict):
        return " ".join(f"{name} {_plain_text(one)}" if isinstance(one, list | dict) else f"{name}={_plain_text(one)}"
                        for name, one in about.items())  # fmt: skip
    if isinstance(about, list):
        return ", ".join(map(_plain_text, about))
    return printable(str(about))


def _error(entry: Entry) -> list[str]:
    message = _text(entry, "message")
    lines = str(entry.get("traceback") or "").split("\n")
    trace = "".join(f"\n  | {printable(line)}" for line in lines) if lines != [""] else ""
    return [_time_text(entry), _text(entry, "level"), _text(entry, "logger"), message + trace]


def _authorizer(entry: Entry) -> list[str]:
    return [_time_text(entry), _text(entry, "message")]


CELLS: dict[str, Cells] = {
    "access": _access,
    "error": _error,
    "agent": _agent,
    "referrer": _referrer,
    "audit": _audit,
    "authorizer": _authorizer,
}


class Columns:
    """The column layout of one log, which renders its lines."""

    def __init__(self, log: str) -> None:
        self._cells = CELLS[log]
        self._widths: list[int] = []

    def __repr__(self) -> str:
        return f"<Columns {self._widths}>"

    def render(self, lines: list[str]) -> list[str]:
        rows = [self._row(line) for line in lines]
        for row in rows:
            self._widen(row)
        return [self._align(row) for row in rows]

    def _row(self, line: str) -> list[str]:
        try:
            entry = json.loads(line)
        except ValueError:
            return [printable(line)]
        if not isinstance(entry, dict):
            return [printable(line)]
        if "dropped" in entry:
            return [f"{_time_text(entry)}  {_text(entry, 'dropped')} lines were dropped: the disk did not take them"]
        return self._cells(entry)

    def _widen(self, row: list[str]) -> None:
        # The last column is followed by nothing; a row of one cell is no row of the table.
        for place, cell in enumerate(row[:-1]):
            if place == len(self._widths):
                self._widths.append(0)
            self._widths[place] = max(self._widths[place], min(len(cell), MAX_WIDTH))

    def _align(self, row: list[str]) -> str:
        return "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], self._widths, strict=False)), row[-1]])
