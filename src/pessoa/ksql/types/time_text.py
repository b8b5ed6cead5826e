"""Dates, times and timestamps as ISO text, whole or in part: `2020`, `2020-05`, `2020-05-26T23`, `…:58.123+0100`.

Values are numbers (days, milliseconds), as the formats have them; what is outside of the years 1 to 9999 is a failure.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

from pessoa.ksql.types.sql_types import EvaluationFailure

DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()

_DATE = r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2}))?)?"
_TIME = r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?)?)?"
_ZONE = r"(?P<zone>Z|[+-]\d{2}:?\d{2})"
_TIMESTAMP_TEXT = re.compile(rf"{_DATE}(?:[T ](?:{_TIME})?)?{_ZONE}?", re.ASCII)
_DATE_TEXT = re.compile(_DATE, re.ASCII)
_TIME_TEXT = re.compile(_TIME, re.ASCII)


def parse_timestamp(text: str) -> int:
    """Return milliseconds since 1970; UTC unless the text has a zone."""
    match = _TIMESTAMP_TEXT.fullmatch(text.strip())
    if match is None:
        raise EvaluationFailure(
            f"Failed to parse timestamp '{text}': Required format is: \"yyyy-MM-dd'T'HH:mm:ss.SSS\", with an optional"
            " timezone in the form '+HHMM', '-HHMM', 'Z'. Partials are also supported, for example \"2020-05-26\""
        )
    try:
        moment = datetime(
            int(match["year"]),
            int(match["month"] or 1),
            int(match["day"] or 1),
            int(match["hour"] or 0),
            int(match["minute"] or 0),
            int(match["second"] or 0),
            tzinfo=fixed_zone(match["zone"] or "Z"),
        )
    except ValueError as wrong:
        raise EvaluationFailure(f"Failed to parse timestamp '{text}': {wrong}") from None
    return moment_ms(moment) + int((match["fraction"] or "0")[:3].ljust(3, "0"))


def fixed_zone(text: str) -> tzinfo:
    if text == "Z":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    if hours > 18:
        raise EvaluationFailure(f"the zone {text} is out of range")
    return timezone((-1 if text[0] == "-" else 1) * timedelta(hours=hours, minutes=minutes))


def moment_ms(moment: datetime) -> int:
    """Return the milliseconds since 1970, without the rounding of a float."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def ms_moment(ms: int) -> datetime:
    """Return the time in UTC of milliseconds since 1970."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        raise EvaluationFailure(f"the timestamp {ms} is out of range") from None


def format_timestamp(ms: int) -> str:
    moment = ms_moment(ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}".rjust(19, "0") + f".{moment.microsecond // 1000:03d}"


def parse_date(text: str) -> int:
    """Return days since 1970."""
    match = _DATE_TEXT.fullmatch(text.strip())
    if match is None:
        raise EvaluationFailure(
            f"Failed to parse date '{text}': Required format is: \"yyyy-MM-dd\", Partials are also supported"
        )
    try:
        found = date(int(match["year"]), int(match["month"] or 1), int(match["day"] or 1))
    except ValueError as wrong:
        raise EvaluationFailure(f"Failed to parse date '{text}': {wrong}") from None
    return found.toordinal() - _EPOCH_DAY


def day_date(days: int) -> date:
    """Return the date of days since 1970."""
    try:
        return date.fromordinal(days + _EPOCH_DAY)
    except (ValueError, OverflowError):
        raise EvaluationFailure(f"the date {days} is out of range") from None


def date_day(found: date) -> int:
    return found.toordinal() - _EPOCH_DAY


def format_date(days: int) -> str:
    return day_date(days).isoformat()


def parse_time(text: str) -> int:
    """Return the milliseconds since midnight."""
    match = _TIME_TEXT.fullmatch(text.strip())
    parts = [int(match[part] or 0) for part in ("hour", "minute", "second")] if match else []
    if match is None or parts[0] > 23 or parts[1] > 59 or parts[2] > 59:
        raise EvaluationFailure(
            f"Failed to parse time '{text}': Required format is: \"HH:mm:ss.SSS\", Partials are also supported"
        )
    hours, minutes, seconds = parts
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + int((match["fraction"] or "0")[:3].ljust(3, "0"))


def format_time(ms: int) -> str:
    """Return `HH:mm`, with seconds if there are any; milliseconds are dropped."""
    if not 0 <= ms < DAY_MS:
        raise EvaluationFailure(f"the time {ms} is out of range")
    seconds = ms // 1000
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    return text if seconds % 60 == 0 else f"{text}:{seconds % 60:02d}"
