"""An entry of a log as one line: JSON, or text as `time key=value key="two words"`.

Names come from clients. In JSON everything outside of ASCII is escaped, and in text all that is not printable: no name
begins a line of its own, moves a terminal's cursor, or ends the quotes around it. Long names are cut.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping

from pessoa.base.json_value import JsonValue
from pessoa.base.printable import printable

Entry = Mapping[str, JsonValue]

# Client ids may have 32 kB; the names of topics have at most 249 characters.
LONGEST_NAME = 256
# Of a name in a line that would be too long.
LONGEST_CUT_NAME = 64
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"


def cut_names(value: JsonValue) -> JsonValue:
    """Return the value with all names in it shortened to `LONGEST_CUT_NAME`."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST_CUT_NAME else value[: LONGEST_CUT_NAME - 1] + "…"
    if isinstance(value, list):
        return [cut_names(one) for one in value]
    return {name: cut_names(one) for name, one in value.items()} if isinstance(value, dict) else value


def render_json(entry: Entry) -> bytes:
    return _encode(entry).encode("ascii") + b"\n"


def render_text(entry: Entry) -> bytes:
    """Return the line of an entry: the time, then `name=value` for each value that is not None."""
    parts = [
        f"{name}={_quote_if_needed(value)}" for name, value in entry.items() if name != "time" and value is not None
    ]
    return " ".join([str(entry["time"]), *parts]).encode("utf-8", "replace") + b"\n"


def _quote_if_needed(value: JsonValue) -> str:
    text = value if isinstance(value, str) else _encode(value)
    if text and text.isprintable() and not set(text) & _QUOTED:
        return text
    return '"' + printable(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


_QUOTED = frozenset(' "=\\')


class TimeText:
    """Renders milliseconds since 1970 as UTC, with the text of the last second cached."""

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""

    def __repr__(self) -> str:
        return f"<TimeText at {self._prefix}>"

    def of(self, now_ms: int) -> str:
        second, millis = divmod(now_ms, 1000)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._prefix}.{millis:03d}Z"


class EscapingFormatter(logging.Formatter):
    """Python's formatter, made safe against forged lines: unprintable characters of a message are escaped, and the
    lines of a traceback begin with a bar."""

    def format(self, record: logging.LogRecord) -> str:
        first, *others = super().format(record).split("\n")
        if record.exc_info is None and record.stack_info is None:
            return printable("\n".join([first, *others]))
        return "\n".join([printable(first), *(f"  | {printable(one)}" for one in others)])
