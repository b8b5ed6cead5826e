r"""What the console producer makes of a line: `headers<TAB>key<TAB>value`, of which the first two may be left out.

parse.key, parse.headers      whether they are there
key.separator                 a tab
headers.delimiter             between the headers and the rest, a tab
headers.separator             between two headers, a comma
headers.key.separator         between the name of a header and its value, a colon
null.marker                   what stands for no value, no key or no headers; nothing does by default
ignore.error                  take a line without separators for a value instead of ending with an error
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Headers = list[tuple[str, str | bytes | None]]


class BadLine(Exception):
    """A line of input lacks a separator or cannot be encoded, or a property of the line reader is invalid."""


class Line(NamedTuple):
    headers: Headers
    key: bytes | None
    value: bytes | None


class LineReader:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self._parses_key = _is_true(properties, "parse.key")
        self._parses_headers = _is_true(properties, "parse.headers")
        self._ignores_errors = _is_true(properties, "ignore.error")
        self._key_separator = properties.get("key.separator", "\t")
        self._headers_delimiter = properties.get("headers.delimiter", "\t")
        self._headers_separator = properties.get("headers.separator", ",")
        self._header_key_separator = properties.get("headers.key.separator", ":")
        self._null_marker = properties.get("null.marker")
        self._check()

    def _check(self) -> None:
        """Raise BadLine if two separators are equal: they could not be told apart."""
        pairs = (
            ("headers.delimiter", self._headers_delimiter, "headers.separator", self._headers_separator),
            ("headers.delimiter", self._headers_delimiter, "headers.key.separator", self._header_key_separator),
            ("headers.separator", self._headers_separator, "headers.key.separator", self._header_key_separator),
        )
        for one, first, other, second in pairs:
            if first == second:
                raise BadLine(f"{one} and {other} may not be equal")
        if self._null_marker is not None and self._null_marker == self._key_separator:
            raise BadLine("null.marker and key.separator may not be equal")

    def parse(self, line: str, number: int) -> Line:
        start = 0
        headers: Headers = []
        key: str | None = None
        if self._parses_headers:
            found, start = self._split_at(line, start, self._headers_delimiter, "headers delimiter", number)
            if found is not None and found != self._null_marker:
                headers = self._headers(found, number)
        if self._parses_key:
            key, start = self._split_at(line, start, self._key_separator, "key separator", number)
        return Line(headers, self._bytes(key), self._bytes(line[start:]))

    def _split_at(self, line: str, start: int, separator: str, name: str, number: int) -> tuple[str | None, int]:
        position = line.find(separator, start)
        if position >= 0:
            return line[start:position], position + len(separator)
        if self._ignores_errors:
            return None, start
        raise BadLine(f"No {name} found on line number {number}: '{line}'")

    def _headers(self, text: str, number: int) -> Headers:
        headers: Headers = []
        for pair in text.split(self._headers_separator):
            name, separator, value = pair.partition(self._header_key_separator)
            if separator:
                headers.append((name, self._bytes(value)))
            elif self._ignores_errors:
                headers.append((pair, None))
            else:
                raise BadLine(f"No header key separator found in pair '{pair}' on line number {number}")
        return headers

    def _bytes(self, text: str | None) -> bytes | None:
        if text is None or text == self._null_marker:
            return None
        return text.encode("utf-8", "surrogateescape")


def _is_true(properties: Mapping[str, str], key: str) -> bool:
    return properties.get(key, "false").strip().lower() == "true"
