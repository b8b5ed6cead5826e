"""Standard error of a broker, with a bound for warnings that clients can cause as often as they like.

Such are connections that break the protocol, and failed logins. The first MAX_LINES of a kind in a minute are written.
Those behind them are counted, and the first line of that kind in a later minute says how many there were. A kind is a
logger and the text that it is called with, before names are put into it; so there are as many as there are calls in the
source. What a broker says at INFO is not about strangers, and is written whole.

`pessoa up` keeps standard error in a file: without a bound a stranger that connects and is refused a thousand times a
second would write 13 GB a day.
"""

from __future__ import annotations

import logging
from copy import copy
from dataclasses import dataclass
from typing import TextIO

MAX_LINES = 100
WINDOW_S = 60.0
# For calls whose text is made before they are made.
MAX_KINDS = 1_000


@dataclass(slots=True)
class _Kind:
    since_s: float
    count: int = 0


class BoundedStderr(logging.StreamHandler[TextIO]):
    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def __repr__(self) -> str:
        return f"<BoundedStderr of {len(self._kinds)} kinds of warnings>"

    def emit(self, record: logging.LogRecord) -> None:
        """Called with the handler's lock held."""
        if record.levelno < logging.WARNING:
            super().emit(record)
            return
        key = (record.name, str(record.msg))
        if key not in self._kinds and len(self._kinds) >= MAX_KINDS:
            key = ("", "")
        kind = self._kinds.setdefault(key, _Kind(record.created))
        left_out = 0
        if not 0 <= record.created - kind.since_s < WINDOW_S:
            left_out = max(0, kind.count - MAX_LINES)
            kind.since_s, kind.count = record.created, 0
        kind.count += 1
        if left_out:
            # Other handlers have the record as it is. Its arguments are in the message then, signs of percent too.
            text = f"{record.getMessage()} ({left_out} such lines before it were left out)"
            record = copy(record)
            record.msg, record.args = text, None
        if kind.count <= MAX_LINES:
            super().emit(record)
