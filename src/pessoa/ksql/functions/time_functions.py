"""Dates, times and timestamps: formatting and parsing with Java's patterns, adding, zones."""

from __future__ import annotations

from datetime import UTC, datetime

from pessoa.ksql.functions.function_rows import EvaluationContext, Function, function, variant
from pessoa.ksql.functions.java_time_patterns import time_pattern, zone_of
from pessoa.ksql.syntax.sql_tokens import UNIT_MS
from pessoa.ksql.types.sql_types import EvaluationFailure
from pessoa.ksql.types.time_text import DAY_MS, date_day, day_date, moment_ms, ms_moment

_CATEGORY = "DATE / TIME"
_PATTERN = "yyyy-MM-dd"


def _format_timestamp(ms: int, pattern: str, zone: str = "UTC") -> str:
    return time_pattern(pattern).format(ms_moment(ms).astimezone(zone_of(zone)))


def _parse_timestamp(text: str, pattern: str, zone: str = "UTC") -> int:
    return moment_ms(time_pattern(pattern).parse(text, zone_of(zone)))


def _format_date(days: int, pattern: str) -> str:
    compiled = time_pattern(pattern)
    if compiled.has_time:
        raise EvaluationFailure(f"a DATE has no time to format with '{pattern}'")
    found = day_date(days)
    return compiled.format(datetime(found.year, found.month, found.day, tzinfo=UTC))


def _parse_date(text: str, pattern: str) -> int:
    compiled = time_pattern(pattern)
    if compiled.has_time:
        raise EvaluationFailure(f"Date format contains time field: {pattern}")
    return date_day(compiled.parse(text, UTC).date())


def _format_time(ms: int, pattern: str) -> str:
    compiled = time_pattern(pattern)
    if compiled.has_date:
        raise EvaluationFailure(f"a TIME has no date to format with '{pattern}'")
    return compiled.format(ms_moment(ms % DAY_MS))


def _parse_time(text: str, pattern: str) -> int:
    compiled = time_pattern(pattern)
    if compiled.has_date:
        raise EvaluationFailure(f"Time format contains date field: {pattern}")
    return moment_ms(compiled.parse(text, UTC)) % DAY_MS


def _convert_zone(ms: int, source: str, target: str) -> int:
    """Return the timestamp whose clock in UTC shows what the target zone's shows when the source zone's shows `ms`."""
    local = ms_moment(ms).replace(tzinfo=zone_of(source))
    try:
        return moment_ms(local.astimezone(zone_of(target)).replace(tzinfo=UTC))
    except OverflowError:
        raise EvaluationFailure(f"the timestamp {ms} is out of range") from None


def _add_ms(sign: int, unit: str, count: int, ms: int) -> int:
    return moment_ms(ms_moment(ms + sign * count * UNIT_MS[unit]))


def _add_days(sign: int, unit: str, count: int, days: int) -> int:
    if unit != "DAYS":
        # Whole days remain: the date of midnight and so many hours.
        return date_day(day_date((days * DAY_MS + sign * count * UNIT_MS[unit]) // DAY_MS))
    return date_day(day_date(days + sign * count))


def _add_time(sign: int, unit: str, count: int, ms: int) -> int:
    return (ms + sign * count * UNIT_MS[unit]) % DAY_MS


def _now(around: EvaluationContext) -> int:
    return around.now_ms


def _today(around: EvaluationContext) -> int:
    return around.now_ms // DAY_MS


_STAMP = "TIMESTAMP '2026-11-17T10:30:15.123'"

ROWS: list[Function] = [
    function(
        "FORMAT_TIMESTAMP",
        _CATEGORY,
        "A timestamp as text by a Java pattern, in UTC or a zone.",
        [
            f"FORMAT_TIMESTAMP({_STAMP}, 'yyyy/MM/dd HH:mm:ss.SSS') = '2026/11/17 10:30:15.123'",
            f"FORMAT_TIMESTAMP({_STAMP}, 'EEE d MMM yy h:mm a', 'America/Sao_Paulo') = 'Tue 17 Nov 26 7:30 AM'",
            f"FORMAT_TIMESTAMP({_STAMP}, 'yyyy-MM-dd''T''HH:mm:ssX') = '2026-11-17T10:30:15Z'",
        ],
        variant("(TIMESTAMP, STRING) STRING", _format_timestamp),
        variant("(TIMESTAMP, STRING, STRING) STRING", _format_timestamp),
    ),
    function(
        "PARSE_TIMESTAMP",
        _CATEGORY,
        "A timestamp of text by a Java pattern, in UTC or a zone.",
        [
            "PARSE_TIMESTAMP('17.11.2026 10:30', 'dd.MM.yyyy HH:mm') = TIMESTAMP '2026-11-17T10:30'",
            "PARSE_TIMESTAMP('2026-11-17 10:30', 'yyyy-MM-dd HH:mm', 'Asia/Tokyo') = TIMESTAMP '2026-11-17T01:30'",
            "PARSE_TIMESTAMP('2018-05-11T21:58 PST', 'yyyy-MM-dd''T''HH:mm zzz') = TIMESTAMP '2018-05-12T04:58'",
            "PARSE_TIMESTAMP('20261117', 'yyyyMMdd') = TIMESTAMP '2026-11-17'",
        ],
        variant("(STRING, STRING) TIMESTAMP", _parse_timestamp),
        variant("(STRING, STRING, STRING) TIMESTAMP", _parse_timestamp),
    ),
    function(
        "FORMAT_DATE",
        _CATEGORY,
        "A date as text by a Java pattern.",
        ["FORMAT_DATE(DATE '2026-11-17', 'dd.MM.yyyy') = '17.11.2026'"],
        variant("(DATE, STRING) STRING", _format_date),
    ),
    function(
        "PARSE_DATE",
        _CATEGORY,
        "A date of text by a Java pattern, which has no time in it.",
        ["PARSE_DATE('17 Nov 2026', 'd MMM yyyy') = DATE '2026-11-17'"],
        variant("(STRING, STRING) DATE", _parse_date),
    ),
    function(
        "FORMAT_TIME",
        _CATEGORY,
        "A time as text by a Java pattern.",
        ["FORMAT_TIME(TIME '10:30:15', 'HH-mm') = '10-30'"],
        variant("(TIME, STRING) STRING", _format_time),
    ),
    function(
        "PARSE_TIME",
        _CATEGORY,
        "A time of text by a Java pattern, which has no date in it.",
        ["PARSE_TIME('10h30', 'HH''h''mm') = TIME '10:30'"],
        variant("(STRING, STRING) TIME", _parse_time),
    ),
    function(
        "CONVERT_TZ",
        _CATEGORY,
        "A timestamp's clock in one zone, shown in another.",
        ["CONVERT_TZ(TIMESTAMP '2026-11-17', 'America/Los_Angeles', 'America/New_York') = TIMESTAMP '2026-11-17T03'"],
        variant("(TIMESTAMP, STRING, STRING) TIMESTAMP", _convert_zone),
    ),
    function(
        "DATEADD",
        _CATEGORY,
        "A date so many units later.",
        ["DATEADD(DAYS, 3, DATE '2026-12-30') = DATE '2027-01-02'"],
        variant("(UNIT, INTEGER, DATE) DATE", lambda unit, count, value: _add_days(1, unit, count, value)),
    ),
    function(
        "DATESUB",
        _CATEGORY,
        "A date so many units earlier.",
        ["DATESUB(DAYS, 3, DATE '2027-01-02') = DATE '2026-12-30'"],
        variant("(UNIT, INTEGER, DATE) DATE", lambda unit, count, value: _add_days(-1, unit, count, value)),
    ),
    function(
        "TIMEADD",
        _CATEGORY,
        "A time so many units later, around midnight.",
        ["TIMEADD(HOURS, 3, TIME '23:00') = TIME '02:00'"],
        variant("(UNIT, INTEGER, TIME) TIME", lambda unit, count, value: _add_time(1, unit, count, value)),
    ),
    function(
        "TIMESUB",
        _CATEGORY,
        "A time so many units earlier, around midnight.",
        ["TIMESUB(HOURS, 3, TIME '02:00') = TIME '23:00'"],
        variant("(UNIT, INTEGER, TIME) TIME", lambda unit, count, value: _add_time(-1, unit, count, value)),
    ),
    function(
        "TIMESTAMPADD",
        _CATEGORY,
        "A timestamp so many units later.",
        ["TIMESTAMPADD(MINUTES, 90, TIMESTAMP '2026-11-17') = TIMESTAMP '2026-11-17T01:30'"],
        variant("(UNIT, INTEGER, TIMESTAMP) TIMESTAMP", lambda unit, count, value: _add_ms(1, unit, count, value)),
    ),
    function(
        "TIMESTAMPSUB",
        _CATEGORY,
        "A timestamp so many units earlier.",
        ["TIMESTAMPSUB(SECONDS, 1, TIMESTAMP '2026-11-17') = TIMESTAMP '2026-11-16T23:59:59'"],
        variant("(UNIT, INTEGER, TIMESTAMP) TIMESTAMP", lambda unit, count, value: _add_ms(-1, unit, count, value)),
    ),
    function(
        "FROM_DAYS",
        _CATEGORY,
        "The date of days since 1970.",
        ["FROM_DAYS(1) = DATE '1970-01-02'"],
        variant("(INTEGER) DATE", lambda days: days),
    ),
    function(
        "FROM_UNIXTIME",
        _CATEGORY,
        "The timestamp of milliseconds since 1970.",
        ["FROM_UNIXTIME(1000) = TIMESTAMP '1970-01-01T00:00:01'"],
        variant("(BIGINT) TIMESTAMP", lambda ms: ms),
    ),
    function(
        "UNIX_TIMESTAMP",
        _CATEGORY,
        "Milliseconds since 1970, of now or of a timestamp.",
        ["UNIX_TIMESTAMP(TIMESTAMP '1970-01-01T00:00:01') = 1000", "UNIX_TIMESTAMP() > 0"],
        variant("() BIGINT", _now, takes_context=True),
        variant("(TIMESTAMP) BIGINT", lambda ms: ms),
    ),
    function(
        "UNIX_DATE",
        _CATEGORY,
        "Days since 1970, of today or of a date.",
        ["UNIX_DATE(DATE '1970-01-02') = 1", "UNIX_DATE() > 0"],
        variant("() INTEGER", _today, takes_context=True),
        variant("(DATE) INTEGER", lambda days: days),
    ),
    function(
        "DATETOSTRING",
        _CATEGORY,
        "Days since 1970 as text by a Java pattern; FORMAT_DATE is newer.",
        [f"DATETOSTRING(1, '{_PATTERN}') = '1970-01-02'"],
        variant("(INTEGER, STRING) STRING", _format_date),
    ),
    function(
        "STRINGTODATE",
        _CATEGORY,
        "Days since 1970 of text by a Java pattern; PARSE_DATE is newer.",
        [f"STRINGTODATE('1970-01-02', '{_PATTERN}') = 1"],
        variant(
            "(STRING, STRING) INTEGER", lambda text, pattern: date_day(time_pattern(pattern).parse(text, UTC).date())
        ),
    ),
    function(
        "STRINGTOTIMESTAMP",
        _CATEGORY,
        "Milliseconds since 1970 of text by a Java pattern; PARSE_TIMESTAMP is newer.",
        [f"STRINGTOTIMESTAMP('1970-01-02', '{_PATTERN}') = 86400000"],
        variant("(STRING, STRING) BIGINT", _parse_timestamp),
        variant("(STRING, STRING, STRING) BIGINT", _parse_timestamp),
    ),
    function(
        "TIMESTAMPTOSTRING",
        _CATEGORY,
        "Milliseconds since 1970 as text by a Java pattern; FORMAT_TIMESTAMP is newer.",
        [
            f"TIMESTAMPTOSTRING(86400000, '{_PATTERN}') = '1970-01-02'",
            "TIMESTAMPTOSTRING(0, 'HH:mm', 'America/Sao_Paulo') = '21:00'",
        ],
        variant("(BIGINT, STRING) STRING", _format_timestamp),
        variant("(BIGINT, STRING, STRING) STRING", _format_timestamp),
    ),
]
