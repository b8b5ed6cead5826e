"""A log that requests are written to: the time, the form of its lines, its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.logs.log_file import LogFile, Rotation
from pessoa.broker.logs.log_lines import TimeText, cut_names, render_json, render_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.clock import Clock
    from pessoa.base.json_value import JsonValue
    from pessoa.broker.logs.log_lines import Entry
    from pessoa.log.files import Disk

# Of an entry whose names are whole.
MAX_LINE_BYTES = 16 * 1024
JSON, TEXT = "json", "text"
_RENDER: dict[str, Callable[[Entry], bytes]] = {JSON: render_json, TEXT: render_text}


class LogWriter:
    def __init__(self, disk: Disk, path: str, form: str, rotation: Rotation, clock: Clock) -> None:
        self._clock = clock
        self._render = _RENDER[form]
        self._time = TimeText()
        self.file = LogFile(disk, path, rotation, clock, lambda count: self._line({"dropped": count}))

    def __repr__(self) -> str:
        return f"<LogWriter of {self.file!r}>"

    def write(self, entry: dict[str, JsonValue]) -> None:
        self.file.append(self._line(entry))

    def write_names(self, entry: dict[str, JsonValue]) -> None:
        """Write an entry that consists of names; if its line is too long, they are shortened."""
        line = self._line(entry)
        if len(line) > MAX_LINE_BYTES:
            line = self._line({name: cut_names(value) for name, value in entry.items()})
        self.file.append(line)

    def _line(self, entry: dict[str, JsonValue]) -> bytes:
        return self._render({"time": self._time.of(self._clock.now_ms()), **entry})
