"""Patterns of java.time.format.DateTimeFormatter: times to text and back.

    yyyy-MM-dd'T'HH:mm:ss.SSS[XXX]     letters in quotes are themselves, '' is a quote, [ ] may be missing

Letters: y u M L d D H k K h m s S A n a E e G Q q z V O X x Z. Names of months and days are English, in any case. What
a text does not say is 1970-01-01 00:00 in the zone that is given. A field that has another's width beside it, as in
yyyyMMdd, is read with its own width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import NamedTuple

from pessoa.ksql.types.sql_types import EvaluationFailure

_MONTHS = "January February March April May June July August September October November December".split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_LETTERS = frozenset("yuMLdDHkKhmsSAnaEeGQqzVOXxZ")
_TIME_LETTERS = frozenset("HkKhmsSAna")
_DATE_LETTERS = frozenset("yuMLdDEeGQq")
_LONGEST_PATTERN = 200
# Short names that people write, for the zones that java.time takes them for.
_SHORT_ZONES = {
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "MST": "America/Denver", "MDT": "America/Denver",
    "CST": "America/Chicago", "CDT": "America/Chicago", "EST": "America/New_York", "EDT": "America/New_York",
    "CET": "Europe/Paris", "CEST": "Europe/Paris", "WET": "Europe/Lisbon", "WEST": "Europe/Lisbon",
    "BST": "Europe/London", "MSK": "Europe/Moscow", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",
    "BRT": "America/Sao_Paulo",
}  # fmt: skip


class _Part(NamedTuple):
    # A letter, "" for text that stands for itself, "[" or "]".
    letter: str
    text: str


class JavaTimePattern:
    """A parsed pattern of Java's DateTimeFormatter. Raises EvaluationFailure for a malformed pattern."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > _LONGEST_PATTERN:
            raise EvaluationFailure(f"a pattern of {len(pattern)} characters is too long")
        self.pattern = pattern
        self._parts = list(_split(pattern))
        letters = {part.letter for part in self._parts}
        self.has_time = bool(letters & _TIME_LETTERS)
        self.has_date = bool(letters & _DATE_LETTERS)
        self._regex = re.compile(_regex(self._parts), re.IGNORECASE | re.ASCII)

    def __repr__(self) -> str:
        return f"<JavaTimePattern {self.pattern}>"

    def format(self, moment: datetime) -> str:
        return "".join(
            part.text if not part.letter else _format(part.letter, len(part.text), moment)
            for part in self._parts
            if part.letter not in ("[", "]")
        )

    def parse(self, text: str, zone: tzinfo) -> datetime:
        """Return the time in the text, in the given zone unless the text has its own."""
        match = self._regex.fullmatch(text)
        if match is None:
            raise EvaluationFailure(f"Text '{text}' could not be parsed with the pattern '{self.pattern}'")
        found: dict[str, str] = {}
        for name, value in match.groupdict().items():
            if value is not None:
                found.setdefault(name.rstrip("0123456789"), value)
        try:
            return _moment(found, zone)
        except (ValueError, OverflowError) as wrong:
            raise EvaluationFailure(f"Text '{text}' could not be parsed: {wrong}") from None


@lru_cache(maxsize=256)
def time_pattern(pattern: str) -> JavaTimePattern:
    return JavaTimePattern(pattern)


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """Return the zone of a name (America/Sao_Paulo) or an offset (+03:00)."""
    if name in ("Z", "UTC", "GMT"):
        return UTC
    match = re.fullmatch(r"(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?", name, re.ASCII)
    if match is not None and int(match[2]) <= 18:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return timezone(-offset if match[1] == "-" else offset)
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(_SHORT_ZONES.get(name, name))
    except (KeyError, ValueError, OSError):
        raise EvaluationFailure(f"Unknown time-zone ID: {name}") from None


def _split(pattern: str) -> Iterator[_Part]:
    position, depth = 0, 0
    while position < len(pattern):
        character = pattern[position]
        if character == "'":
            end = pattern.find("'", position + 1)
            if end < 0:
                raise EvaluationFailure(f"Pattern ends with an incomplete string literal: {pattern}")
            yield _Part("", pattern[position + 1 : end] or "'")
            position = end + 1
            continue
        if character in "[]":
            depth += 1 if character == "[" else -1
            if depth < 0:
                raise EvaluationFailure(f"Pattern invalid as it contains ] without previous [: {pattern}")
            yield _Part(character, "")
            position += 1
            continue
        end = position + 1
        if character.isascii() and character.isalpha():
            while end < len(pattern) and pattern[end] == character:
                end += 1
            if character not in _LETTERS:
                raise EvaluationFailure(f"Unknown pattern letter: {character}")
            yield _Part(character, pattern[position:end])
        else:
            yield _Part("", character)
        position = end
    if depth:
        raise EvaluationFailure(f"Pattern ends inside of [ ]: {pattern}")


def _format(letter: str, count: int, moment: datetime) -> str:
    match letter:
        case "y" | "u":
            return f"{moment.year % 100:02d}" if count == 2 else f"{moment.year:0{count}d}"
        case "M" | "L":
            name = _MONTHS[moment.month - 1]
            return (
                f"{moment.month:0{count}d}"
                if count < 3
                else name[:3]
                if count == 3
                else name
                if count == 4
                else name[0]
            )
        case "E":
            name = _DAYS[moment.weekday()]
            return name[:3] if count < 4 else name if count == 4 else name[0]
        case "S":
            return f"{moment.microsecond:06d}".ljust(9, "0")[:count].ljust(count, "0")
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "G":
            return "AD"
        case "Q" | "q":
            quarter = (moment.month + 2) // 3
            return f"{quarter:0{count}d}" if count < 3 else f"Q{quarter}"
        case "z" | "V":
            return str(moment.tzinfo) if letter == "V" else moment.tzname() or ""
        case "O" | "X" | "x" | "Z":
            return _format_offset(letter, count, moment)
    return f"{_number(letter, moment):0{count}d}"


def _number(letter: str, moment: datetime) -> int:
    return {
        "d": moment.day,
        "D": moment.timetuple().tm_yday,
        "H": moment.hour,
        "k": moment.hour or 24,
        "K": moment.hour % 12,
        "h": moment.hour % 12 or 12,
        "m": moment.minute,
        "s": moment.second,
        "A": ((moment.hour * 60 + moment.minute) * 60 + moment.second) * 1000 + moment.microsecond // 1000,
        "n": moment.microsecond * 1000,
        "e": moment.isoweekday() % 7 + 1,
    }[letter]


def _format_offset(letter: str, count: int, moment: datetime) -> str:
    minutes = int((moment.utcoffset() or timedelta()).total_seconds()) // 60
    sign, hours, rest = "-" if minutes < 0 else "+", abs(minutes) // 60, abs(minutes) % 60
    if letter == "O" or (letter == "Z" and count == 4):
        return "GMT" if minutes == 0 else f"GMT{sign}{hours:02d}:{rest:02d}"
    if minutes == 0 and (letter == "X" or (letter == "Z" and count == 5)):
        return "Z"
    if letter != "Z" and count == 1:
        return f"{sign}{hours:02d}" + (f"{rest:02d}" if rest else "")
    colon = ":" if (letter != "Z" and count in (3, 5)) or (letter == "Z" and count == 5) else ""
    return f"{sign}{hours:02d}{colon}{rest:02d}"


def _regex(parts: list[_Part]) -> str:
    out: list[str] = []
    for index, (letter, text) in enumerate(parts):
        following = parts[index + 1].letter if index + 1 < len(parts) else ""
        if letter == "":
            out.append(re.escape(text))
        elif letter in "[]":
            out.append("(?:" if letter == "[" else ")?")
        else:
            out.append(_letter_regex(letter, len(text), index, following not in ("", "[", "]")))
    return "".join(out)


def _letter_regex(letter: str, count: int, index: int, touching: bool) -> str:
    name = f"(?P<{letter}{index}>"
    match letter:
        case "M" | "L" if count > 2:
            return f"(?P<month{index}>[a-z]+)"
        case "E" | "G":
            return "[a-z]+"
        case "a":
            return name + "AM|PM)"
        case "S":
            return f"{name}\\d{{{count}}})"
        case "z" | "V":
            return f"(?P<zone{index}>[a-z][a-z0-9_+/:-]*|[+-][0-9:]+)"
        case "X" | "x" | "Z" | "O":
            return f"(?P<zone{index}>Z|(?:GMT|UTC)?[+-]\\d{{1,2}}:?(?:\\d\\d)?|GMT|UTC)"
        case "Q" | "q":
            return r"Q?\d"
    width = count if touching or count == 2 else 0
    if width:
        return f"{name}\\d{{{width}}})"
    return f"{name}\\d{{{min(count, 4)},{9 if letter in 'yuAn' else 4}}})"


def _moment(found: dict[str, str], zone: tzinfo) -> datetime:
    year_text = found.get("y", found.get("u", "1970"))
    # Two digits are of this century, as java.time has it.
    year = int(year_text) + (2000 if len(year_text) == 2 else 0)
    if "month" in found:
        start = found["month"].lower()
        months = [n for n, name in enumerate(_MONTHS, 1) if start in (name.lower(), name[:3].lower())]
        if not months:
            raise ValueError(f"{found['month']} is no month")
        month = months[0]
    else:
        month = int(found.get("M", found.get("L", "1")))
    day = date(year, month, int(found.get("d", "1")))
    if "D" in found:
        day = date(year, 1, 1) + timedelta(days=int(found["D"]) - 1)
    hour = int(found.get("H", "0"))
    if "k" in found:
        hour = int(found["k"]) % 24
    if "h" in found or "K" in found:
        hour = int(found.get("h", found.get("K", "0"))) % 12 + (12 if found.get("a", "AM").upper() == "PM" else 0)
    fraction = int(found.get("S", "0")[:6].ljust(6, "0")) if "S" in found else int(found.get("n", "0")) // 1000
    own = zone_of(found["zone"].upper() if len(found["zone"]) <= 3 else found["zone"]) if "zone" in found else zone
    moment = datetime(
        day.year, day.month, day.day, hour, int(found.get("m", "0")), int(found.get("s", "0")), fraction, tzinfo=own
    )
    return moment + timedelta(milliseconds=int(found["A"])) if "A" in found else moment
