"""Standard error of a broker, with a bound for lines that clients can cause as often as they like.

Such are warnings about connections that break the protocol and about failed logins, and what is said at INFO of groups
and of transactional ids. The first MAX_LINES of a kind in a minute are written, or MAX_INFO_LINES at INFO. Those behind
them are counted, and the first line of that kind in a later minute says how many there were. A kind is a logger and the
text that it is called with, before names are put into it; so there are as many as there are calls in the source.

`pessoa up` keeps standard error in a file: without a bound a stranger that connects and is refused a thousand times a
second would write 13 GB a day.
"""

from __future__ import annotations

import logging
from copy import copy
from typing import TextIO

MAX_LINES = 100
# More, since a start says some things once for each of its partitions.
MAX_INFO_LINES = 1_000
WINDOW_S = 60.0
# For calls whose text is made before they are made.
MAX_KINDS = 1_000


class _Kind:
    __slots__ = ("count", "since_s")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.count = 0


class BoundedStderr(logging.StreamHandler[TextIO]):
    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def __repr__(self) -> str:
        return f"<BoundedStderr of {len(self._kinds)} kinds of lines>"

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, unless such lines come too often. Called with the handler's lock held."""
        max_lines = MAX_LINES if record.levelno >= logging.WARNING else MAX_INFO_LINES
        key = (record.name, str(record.msg))
        if key not in self._kinds and len(self._kinds) >= MAX_KINDS:
            key = ("", "")
        kind = self._kinds.setdefault(key, _Kind(record.created))
        left_out = 0
        if not 0 <= record.created - kind.since_s < WINDOW_S:
            left_out = max(0, kind.count - max_lines)
            kind.since_s, kind.count = record.created, 0
        kind.count += 1
        if left_out:
            # Other handlers have the record as it is. Its arguments are in the message then, signs of percent too.
            text = f"{record.getMessage()} ({left_out} such lines before it were left out)"
            record = copy(record)
            record.msg, record.args = text, None
        if kind.count <= max_lines:
            super().emit(record)
