"""In which encoding a JSON text comes, by its first bytes. Pure.

Jackson, behind every service of the JVM, looks at nothing else: not at the `charset` of a Content-Type. A byte order
mark says it, and where there is none, the zeros do: a JSON text begins with ASCII characters (RFC 4627, section 3).

    EF BB BF          UTF-8            xx xx xx xx    UTF-8
    00 00 FE FF       UTF-32BE         00 00 00 xx    UTF-32BE
    FF FE 00 00       UTF-32LE         xx 00 00 00    UTF-32LE
    FE FF             UTF-16BE         00 xx          UTF-16BE
    FF FE             UTF-16LE         xx 00          UTF-16LE
"""

from __future__ import annotations

import codecs

# The longer marks first: that of UTF-32LE begins like that of UTF-16LE.
_MARKS = (
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF8, "utf-8"),
)
_UTF8 = "utf-8"
_LOOKED_AT = 4


def as_utf8(body: bytes) -> bytes:
    """Return the body in UTF-8, without a byte order mark. UnicodeDecodeError if it is not in the encoding that its
    first bytes show."""
    encoding, mark_size = _encoding_of(body[:_LOOKED_AT])
    if encoding == _UTF8:
        return body[mark_size:] if mark_size else body
    return body[mark_size:].decode(encoding).encode()


class Utf8Stream:
    """Converts a body that arrives in chunks, as `as_utf8` does: `feed` each chunk, `end` after the last."""

    def __init__(self) -> None:
        self._begin = b""
        # None until enough has come to tell; then None again if nothing is to be done.
        self._decoder: codecs.IncrementalDecoder | None = None
        self._is_known = False

    def feed(self, chunk: bytes) -> bytes:
        if not self._is_known:
            self._begin += chunk
            if len(self._begin) < _LOOKED_AT:
                return b""
            chunk = self._decide()
        return chunk if self._decoder is None else self._decoder.decode(chunk).encode()

    def end(self) -> bytes:
        left = b"" if self._is_known else self._decide()
        return left if self._decoder is None else self._decoder.decode(left, final=True).encode()

    def _decide(self) -> bytes:
        encoding, mark_size = _encoding_of(self._begin[:_LOOKED_AT])
        self._is_known = True
        if encoding != _UTF8:
            self._decoder = codecs.getincrementaldecoder(encoding)()
        return self._begin[mark_size:]


def _encoding_of(begin: bytes) -> tuple[str, int]:
    """Return the encoding, and the size of the byte order mark."""
    for mark, encoding in _MARKS:
        if begin.startswith(mark):
            return encoding, len(mark)
    if b"\0" not in begin:
        return _UTF8, 0
    zeros = [byte == 0 for byte in begin]
    if zeros == [True, True, True, False]:
        return "utf-32-be", 0
    if zeros == [False, True, True, True]:
        return "utf-32-le", 0
    if zeros[:2] == [True, False]:
        return "utf-16-be", 0
    if zeros[:2] == [False, True]:
        return "utf-16-le", 0
    return _UTF8, 0
