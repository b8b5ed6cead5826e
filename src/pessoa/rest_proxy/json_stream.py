"""JSON values one after the other, cut out of chunks that end anywhere. Pure.

v3's produce is one long request whose body is a row of objects, with or without white space between them; an array of
objects is the same row with brackets and commas around it. The cutter keeps a depth and looks only at the characters
that can change it, so a value is walked once however many chunks it comes in, and parsed once, by the caller.

It does not check what it cuts: `{]}` comes out whole, and fails where it is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_OUTSIDE_STRING = re.compile(rb'["{}\[\]]')
_INSIDE_STRING = re.compile(rb'["\\]')
_SPACE = b" \t\r\n"
_OPENING = b"{["


class NotAnObject(ValueError):
    """The stream has something else where an object should begin; the rest of it cannot be read."""


class TooLong(ValueError):
    """A value in the stream is longer than the limit."""


class JsonCutter:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held = bytearray()
        self._position = 0
        self._depth = 0
        self._in_string = False
        self._in_array = False

    def __repr__(self) -> str:
        return f"<JsonCutter holds {len(self._held)} bytes at depth {self._depth}>"

    @property
    def is_between_values(self) -> bool:
        return self._depth == 0 and not self._held.strip(_SPACE)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the values that this chunk completes, in order. Raises NotAnObject or TooLong after them, if the
        rest is invalid."""
        self._held += chunk
        while self._has_begun() and self._has_ended():
            value = bytes(self._held[: self._position])
            self._drop(self._position)
            yield value
        if len(self._held) > self._max_bytes:
            raise TooLong(f"a record is longer than {self._max_bytes} bytes")

    def _has_begun(self) -> bool:
        """Whether a value has begun; skips white space and the commas and brackets of an array before it."""
        if self._depth:
            return True
        skipped = len(self._held) - len(self._held.lstrip(_SPACE + (b",]" if self._in_array else b"")))
        self._drop(skipped)
        if not self._held:
            return False
        first = self._held[:1]
        if first == b"[" and not self._in_array:
            self._in_array = True
            self._drop(1)
            return self._has_begun()
        if first != b"{":
            raise NotAnObject(f"an object should begin where {bytes(self._held[:20])!r} stands")
        return True

    def _has_ended(self) -> bool:
        """Whether the value has ended; `_position` is then just after it."""
        while True:
            pattern = _INSIDE_STRING if self._in_string else _OUTSIDE_STRING
            match = pattern.search(self._held, self._position)
            if match is None:
                self._position = len(self._held)
                return False
            character = match[0]
            if character == b"\\":
                # The escaped character may be in the next chunk: then come back to the backslash.
                if match.end() == len(self._held):
                    self._position = match.start()
                    return False
                self._position = match.end() + 1
                continue
            self._position = match.end()
            if character == b'"':
                self._in_string = not self._in_string
            elif character in _OPENING:
                self._depth += 1
            else:
                self._depth -= 1
                if self._depth == 0:
                    return True

    def _drop(self, count: int) -> None:
        del self._held[:count]
        self._position = 0
