"""Java's SimpleDateFormat: moments as text by a pattern of letters, in UTC.

    yyyy-MM-dd'T'HH:mm:ss.SSSZ        letters in quotes stand for themselves, '' is a quote

Letters: y M d D H k K h m s S E u a z Z X G w. Months and weekdays in text are English. Reading goes by a
regular expression made of the same pattern; what follows the matched text is left alone, as Java does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

from pessoa.connect.data import DataFailure

_MONTHS = "January February March April May June July August September October November December".split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_LETTERS = "yYMLdDHkKhmsSEuazZXGw"


class JavaDateFormat:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts = list(_split_pattern(pattern))
        self._regex: re.Pattern[str] | None = None

    def __repr__(self) -> str:
        return f"<JavaDateFormat {self.pattern}>"

    def format(self, moment: datetime) -> str:
        moment = moment.astimezone(UTC)
        return "".join(
            text if not letter else _format_letter(letter, len(text), moment) for letter, text in self._parts
        )

    def parse(self, text: str) -> datetime:
        if self._regex is None:
            self._regex = re.compile(_regex(self._parts))
        match = self._regex.match(text)
        if match is None:
            raise DataFailure(f"Could not parse timestamp: value ({text}) does not match pattern ({self.pattern})")
        return _moment({name: one for name, one in match.groupdict().items() if one is not None})


def _split_pattern(pattern: str) -> Iterator[tuple[str, str]]:
    """Yield (letter, its repetitions) for each pattern field, ("", text) for literal text."""
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == "'":
            end = pattern.find("'", position + 1)
            if end < 0:
                raise ValueError("Unterminated quote")
            if end == position + 1:
                yield "", "'"
            else:
                yield "", pattern[position + 1 : end]
            position = end + 1
        elif character.isascii() and character.isalpha():
            if character not in _LETTERS:
                raise ValueError(f"Illegal pattern character '{character}'")
            end = position
            while end < len(pattern) and pattern[end] == character:
                end += 1
            yield character, pattern[position:end]
            position = end
        else:
            yield "", character
            position += 1


def _format_letter(letter: str, count: int, moment: datetime) -> str:
    match letter:
        case "y" | "Y":
            return f"{moment.year % 100:02d}" if count == 2 else f"{moment.year:0{count}d}"
        case "M" | "L":
            name = _MONTHS[moment.month - 1]
            return f"{moment.month:0{count}d}" if count < 3 else name[:3] if count == 3 else name
        case "E":
            name = _DAYS[moment.weekday()]
            return name if count > 3 else name[:3]
        case "a":
            return "AM" if moment.hour < 12 else "PM"
        case "G":
            return "AD"
        case "z":
            return "UTC" if count < 4 else "Coordinated Universal Time"
        case "Z":
            return "+0000"
        case "X":
            return "Z"
    number = {
        "d": moment.day,
        "D": moment.timetuple().tm_yday,
        "H": moment.hour,
        "k": moment.hour or 24,
        "K": moment.hour % 12,
        "h": moment.hour % 12 or 12,
        "m": moment.minute,
        "s": moment.second,
        "S": moment.microsecond // 1000,
        "u": moment.isoweekday(),
        "w": moment.isocalendar().week,
    }[letter]
    return f"{number:0{count}d}"


_ZONE = r"(?:Z|UTC|GMT)(?![+-])|(?:GMT|UTC)?[+-]\d{1,2}:?(?:\d\d)?"
_GROUPS = {
    "y": r"(?P<y>\d+)", "M": r"(?P<M>\d{1,2})", "d": r"(?P<d>\d{1,2})", "D": r"(?P<D>\d{1,3})",
    "H": r"(?P<H>\d{1,2})", "k": r"(?P<k>\d{1,2})", "K": r"(?P<K>\d{1,2})", "h": r"(?P<h>\d{1,2})",
    "m": r"(?P<m>\d{1,2})", "s": r"(?P<s>\d{1,2})", "S": r"(?P<S>\d+)", "a": r"(?P<a>AM|PM|am|pm)",
    "E": r"[A-Za-z]+", "u": r"\d", "G": r"AD", "w": r"\d{1,2}",
}  # fmt: skip


def _regex(parts: list[tuple[str, str]]) -> str:
    out: list[str] = []
    for index, (letter, text) in enumerate(parts):
        if not letter:
            out.append(re.escape(text))
        elif letter in "zZX":
            out.append(f"(?P<zone>{_ZONE})")
        elif letter in "ML" and len(text) > 2:
            out.append(r"(?P<month>[A-Za-z]+)")
        else:
            group = _GROUPS["y" if letter == "Y" else "M" if letter == "L" else letter]
            # Numbers that touch have the width of their letters.
            if index + 1 < len(parts) and parts[index + 1][0] and "?P<" in group and letter != "a":
                group = re.sub(r"\\d(\+|\{[\d,]+\})", rf"\\d{{{len(text)}}}", group)
            out.append(group)
    return "".join(out)


def _moment(found: dict[str, str]) -> datetime:
    year = int(found.get("y", "1970"))
    if len(found.get("y", "")) == 2:
        # Within eighty years before and twenty after now; the century that this rule gives for our time.
        year += 2000 if year < 46 else 1900
    if "month" in found:
        month = next((n for n, name in enumerate(_MONTHS, 1) if name.lower().startswith(found["month"][:3].lower())), 0)
        if not month:
            raise DataFailure(f"{found['month']} is no month")
    else:
        month = int(found.get("M", "1"))
    hour = int(found.get("H", found.get("k", "0"))) % 24
    if "h" in found or "K" in found:
        hour = int(found.get("h", found.get("K", "0"))) % 12 + (12 if found.get("a", "").upper() == "PM" else 0)
    zone = _zone(found.get("zone", "Z"))
    # Java's calendar is lenient: the 32nd of January is the 1st of February.
    try:
        start = datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=zone)
    except ValueError as wrong:
        raise DataFailure(str(wrong)) from None
    days = int(found["D"]) - 1 if "D" in found else int(found.get("d", "1")) - 1
    return (
        start
        + timedelta(
            days=days,
            hours=hour,
            minutes=int(found.get("m", "0")),
            seconds=int(found.get("s", "0")),
            milliseconds=int(found.get("S", "0")),
        )
    ).astimezone(UTC)


def _zone(text: str) -> timezone:
    digits = re.sub(r"[^0-9+-]", "", text)
    if not digits:
        return UTC
    sign = -1 if digits[0] == "-" else 1
    number = digits.lstrip("+-")
    hours, minutes = (int(number[:-2]), int(number[-2:])) if len(number) > 2 else (int(number), 0)
    return timezone(sign * timedelta(hours=hours, minutes=minutes))
