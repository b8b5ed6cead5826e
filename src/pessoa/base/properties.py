"""Java's properties files, which is what every file of settings is in Kafka's world: `key=value`, a line each.

    # a comment, and with ! as well
    key=value            or `key: value`, or `key value`
    list=one,\\
         two             an odd number of backslashes at the end goes on in the next line, past its white space
    odd\\ key=a\\tb\\u00e9  escapes, in keys and in values

`parse_properties` and `render_properties` are `load` and `store` of java.util.Properties, to the letter: a white space
at the end of a value belongs to it. In a file that a person wrote it never means anything, and a caller that asks for a
number or a flag would stumble over it; so `read_properties` takes it off.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# Java prints dates in the words of its locale, and Kafka's is English wherever it was looked at.
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

_WHITE = " \t\f"
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES = {character: f"\\{letter}" for letter, character in _ESCAPED.items()} | {
    character: f"\\{character}" for character in "\\=:#!"
}
_UNICODE_DIGITS = 4


class MalformedProperties(ValueError):
    """The text is not a properties file; the message says what is wrong in it."""


def read_properties(path: str | Path) -> dict[str, str]:
    """Return the settings in a file; white space at the end of a value is dropped. Raises `MalformedProperties` and
    OSError."""
    try:
        # Without pathlib, which takes four milliseconds of a start.
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            text = file.read()
    except UnicodeDecodeError as problem:
        raise MalformedProperties(f"byte {problem.start} is not UTF-8") from problem
    return {_unescape(key): _unescape(_trim(value)) for key, value in _pairs(text)}


# ---- Reading ----


def parse_properties(text: str) -> dict[str, str]:
    """Return the properties in a text, as Java's `load` reads them; a key that occurs twice has its last value."""
    return {_unescape(key): _unescape(value) for key, value in _pairs(text)}


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    """Yield keys and values, still escaped."""
    for line in _logical_lines(text):
        end = _key_end(line)
        value_start = end
        while value_start < len(line) and line[value_start] in _WHITE:
            value_start += 1
        if value_start < len(line) and line[value_start] in "=:":
            value_start += 1
        yield line[:end], line[value_start:].lstrip(_WHITE)


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines without comments and blank ones; a line that ends in an odd number of backslashes continues in
    the next."""
    logical = ""
    continues = False
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(_WHITE)
        if not continues and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        logical += line[:-1] if continues else line
        if not continues:
            yield logical
            logical = ""
    if logical:
        yield logical


def _key_end(line: str) -> int:
    """Return where the key ends: at the first separator that no backslash stands before."""
    position = 0
    while position < len(line) and line[position] not in _WHITE + "=:":
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _trim(value: str) -> str:
    """Return the value without the white space at its end, unless a backslash escapes it."""
    trimmed = value.rstrip(_WHITE)
    backslashes = len(trimmed) - len(trimmed.rstrip("\\"))
    return value[: len(trimmed) + backslashes % 2]


def _unescape(text: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            if character != "\\":
                parts.append(character)
            continue
        letter = text[position]
        position += 1
        if letter != "u":
            parts.append(_ESCAPED.get(letter, letter))
            continue
        digits = text[position : position + _UNICODE_DIGITS]
        position += _UNICODE_DIGITS
        if not re.fullmatch(r"[0-9a-fA-F]{4}", digits):
            raise MalformedProperties(f"\\u{digits} is not a character")
        parts.append(chr(int(digits, 16)))
    # Characters beyond the first plane come as two halves.
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# ---- Writing ----


def render_properties(properties: Mapping[str, str], now_ms: int) -> str:
    """Return the text that Java's `store` writes with an empty comment: a line for the comment, one for the date,
    one for each property."""
    lines = ["#", f"#{java_date(now_ms)}", *(f"{_escape_key(key)}={_escape(properties[key])}" for key in properties)]
    return "".join(f"{line}\n" for line in lines)


def render_settings(properties: Mapping[str, str], comment: str) -> str:
    """Return the text of a file that people read and copy from: a comment, and values with as few escapes as
    possible."""
    lines = [f"# {comment}", *(f"{_escape_key(key)}={_escape_minimally(value)}" for key, value in properties.items())]
    return "".join(f"{line}\n" for line in lines)


def java_date(now_ms: int) -> str:
    """Return the time as java.util.Date prints it, in UTC."""
    now = time.gmtime(now_ms // 1000)
    clock = f"{now.tm_hour:02}:{now.tm_min:02}:{now.tm_sec:02}"
    return f"{_DAYS[now.tm_wday]} {_MONTHS[now.tm_mon - 1]} {now.tm_mday:02} {clock} UTC {now.tm_year}"


def _escape(text: str) -> str:
    escaped = "".join(
        _ESCAPES.get(character) or (character if " " <= character <= "~" else _unicode_escape(character))
        for character in text
    )
    # A leading space would be taken for a part of the separator.
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escape_minimally(text: str) -> str:
    """Return the escaped text, but without escapes of = : # !, which are ordinary characters in a value."""
    return re.sub(r"\\([=:#!])", r"\1", _escape(text))


def _escape_key(key: str) -> str:
    # In a key every space must be escaped, because a space is a separator; in a value only the first.
    return "\\ ".join(map(_escape, key.split(" ")))


def _unicode_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex().upper()}" for i in range(0, len(units), 2))
