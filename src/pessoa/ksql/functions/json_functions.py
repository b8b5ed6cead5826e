"""JSON in text: pieces of it, lists of it, and values written as it.

Numbers keep the digits that they were written with. Text that is not JSON is a failure for EXTRACTJSONFIELD and null
for the others. A path is `$.name.name[3]["any name"]`.
"""

from __future__ import annotations

import decimal
import json
import re
from collections.abc import Callable

from pessoa.ksql.functions.function_rows import Function, function, variant
from pessoa.ksql.types import time_text
from pessoa.ksql.types.sql_types import DATE, TIME, TIMESTAMP, Array, EvaluationFailure, Map, SqlType, Struct, Value
from pessoa.ksql.types.value_text import plain_text

_CATEGORY = "JSON"
_STEP = re.compile(r"""\.([^.\[\]]+)|\[(-?\d{1,9})\]|\[["']([^"']*)["']\]""")


class NotJson(EvaluationFailure):
    """The text is not JSON."""


def _refuse(constant: str) -> Value:
    raise NotJson(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_float=decimal.Decimal, parse_constant=_refuse)


def parse_json(text: str) -> Value:
    try:
        found: Value = json.loads(text, parse_float=decimal.Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError, decimal.DecimalException) as wrong:
        raise NotJson(f"invalid JSON: {wrong}") from None
    return found


def _first_value(text: str) -> Value:
    """Return the JSON value that the text begins with; text behind it is ignored, as Jackson does."""
    try:
        found: Value = _DECODER.raw_decode(text.lstrip(" \t\r\n"))[0]
    except (ValueError, RecursionError, decimal.DecimalException) as wrong:
        raise NotJson(f"invalid JSON: {wrong}") from None
    return found


def write_json(value: Value) -> str:
    """Return the value as compact JSON, decimals with all their digits."""
    match value:
        case None:
            return "null"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{','.join(map(write_json, value))}]"
        case dict():
            pairs = (f"{json.dumps(str(key), ensure_ascii=False)}:{write_json(one)}" for key, one in value.items())
            return f"{{{','.join(pairs)}}}"
        case bytes():
            return f'"{plain_text(value)}"'
        case float():
            return json.dumps(value) if value == value and abs(value) != float("inf") else f'"{plain_text(value)}"'
    return plain_text(value)


def _follow(path: str) -> list[str | int]:
    if not path.startswith("$"):
        raise EvaluationFailure(f"Invalid JSON path: {path}. It begins with $")
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise EvaluationFailure(f"Invalid JSON path: {path}")
        steps.append(int(match[2]) if match[2] is not None else match[1] if match[1] is not None else match[3])
        position = match.end()
    return steps


def _extract(text: str, path: str) -> str | None:
    value = _first_value(text)
    for step in _follow(path):
        if isinstance(step, int):
            if not isinstance(value, list) or not 0 <= step < len(value):
                return None
            value = value[step]
        elif not isinstance(value, dict) or step not in value:
            return None
        else:
            value = value[step]
    return value if isinstance(value, str) else write_json(value)


def _lenient(compute: Callable[..., Value]) -> Callable[..., Value]:
    """Return the function with null as its result for text that is not JSON."""

    def quiet(*arguments: Value) -> Value:
        try:
            return compute(*arguments)
        except NotJson:
            return None

    return quiet


def _is_json(text: str | None) -> bool:
    try:
        return text is not None and (parse_json(text), True)[1]
    except NotJson:
        return False


def _length(text: str) -> int | None:
    value = parse_json(text)
    return len(value) if isinstance(value, list) else None


def _keys(text: str) -> Value:
    value = parse_json(text)
    return list(value) if isinstance(value, dict) else None


def _text_of(value: Value) -> str:
    return value if isinstance(value, str) else write_json(value)


def _records(text: str) -> Value:
    value = parse_json(text)
    return {key: _text_of(one) for key, one in value.items()} if isinstance(value, dict) else None


def _items(text: str) -> Value:
    value = parse_json(text)
    return [write_json(one) for one in value] if isinstance(value, list) else None


def _concat(*texts: str | None) -> str | None:
    if not texts or any(text is None for text in texts):
        return None
    values = [parse_json(text) for text in texts if text is not None]
    if all(isinstance(value, dict) for value in values):
        merged: dict[Value, Value] = {}
        for value in values:
            assert isinstance(value, dict)
            merged.update(value)
        return write_json(merged)
    return write_json([one for value in values for one in (value if isinstance(value, list) else [value])])


def _contains(text: str, wanted: Value) -> bool:
    """Return whether the array contains the value, of the very same type: 1 is not 1.0."""
    value = parse_json(text)
    if not isinstance(value, list):
        return False
    kind = decimal.Decimal if isinstance(wanted, float) else type(wanted)
    own = decimal.Decimal(repr(wanted)) if isinstance(wanted, float) else wanted
    return any(type(one) is kind and one == own for one in value)


def json_value(value: Value, kind: SqlType) -> Value:
    """Return the value with dates and times as text, as it is written to JSON."""
    if value is None:
        return None
    match kind:
        case Array(element) if isinstance(value, list):
            return [json_value(one, element) for one in value]
        case Map(_, inner) if isinstance(value, dict):
            return {key: json_value(one, inner) for key, one in value.items()}
        case Struct(fields) if isinstance(value, dict):
            return {name: json_value(value.get(name), inner) for name, inner in fields}
    if kind in _TIMES:
        assert isinstance(value, int)
        return _TIMES[kind](value)
    return value


_TIMES: dict[SqlType, Callable[[int], str]] = {
    DATE: time_text.format_date,
    TIME: time_text.format_time,
    TIMESTAMP: time_text.format_timestamp,
}


def _to_json(types: tuple[SqlType, ...], value: Value) -> str:
    return write_json(json_value(value, types[0]))


ROWS: list[Function] = [
    function(
        "EXTRACTJSONFIELD",
        _CATEGORY,
        "The field at a path: text without quotes, anything else as JSON.",
        [
            """EXTRACTJSONFIELD('{"a": {"b": [1, "x"]}}', '$.a.b[1]') = 'x'""",
            """EXTRACTJSONFIELD('{"a": {"b": 1.50}}', '$.a') = '{"b":1.50}'""",
            """EXTRACTJSONFIELD('{"a": null}', '$.a') = 'null'""",
            """EXTRACTJSONFIELD('{"a": 1.50}}', '$.a') = '1.50'""",
            """EXTRACTJSONFIELD('{}', '$.a') IS NULL""",
        ],
        variant("(STRING, STRING) STRING", _extract),
    ),
    function(
        "IS_JSON_STRING",
        _CATEGORY,
        "Whether a text is JSON.",
        ["IS_JSON_STRING('[1]')", "NOT IS_JSON_STRING('[1')"],
        variant("(STRING) BOOLEAN", _is_json, sees_null=True),
    ),
    function(
        "JSON_ARRAY_LENGTH",
        _CATEGORY,
        "The number of elements of a JSON array.",
        ["JSON_ARRAY_LENGTH('[1, 2]') = 2", "JSON_ARRAY_LENGTH('{}') IS NULL"],
        variant("(STRING) INTEGER", _lenient(_length)),
    ),
    function(
        "JSON_ARRAY_CONTAINS",
        _CATEGORY,
        "Whether a JSON array has the value, of the very type.",
        [
            "JSON_ARRAY_CONTAINS('[1, 2]', 2)",
            "NOT JSON_ARRAY_CONTAINS('[1.0]', 1)",
            """JSON_ARRAY_CONTAINS('["a"]', 'a')""",
        ],
        variant(
            "(STRING, T) BOOLEAN",
            lambda text, wanted: False if text is None else _lenient(_contains)(text, wanted) or False,
            sees_null=True,
        ),
    ),
    function(
        "JSON_CONCAT",
        _CATEGORY,
        "JSON objects merged (the last wins), anything else as one array.",
        ["""JSON_CONCAT('{"a": 1}', '{"a": 2, "b": 3}') = '{"a":2,"b":3}'""", "JSON_CONCAT('[1]', '2') = '[1,2]'"],
        variant("(STRING...) STRING", _lenient(_concat), sees_null=True),
    ),
    function(
        "JSON_KEYS",
        _CATEGORY,
        "The names of the fields of a JSON object.",
        ["""JSON_KEYS('{"a": 1}') = ARRAY['a']"""],
        variant("(STRING) ARRAY<STRING>", _lenient(_keys)),
    ),
    function(
        "JSON_RECORDS",
        _CATEGORY,
        "The fields of a JSON object, values as text.",
        ["""JSON_RECORDS('{"a": 1, "b": "x"}') = MAP('a' := '1', 'b' := 'x')"""],
        variant("(STRING) MAP<STRING, STRING>", _lenient(_records)),
    ),
    function(
        "JSON_ITEMS",
        _CATEGORY,
        "The elements of a JSON array, each as JSON.",
        ["""JSON_ITEMS('[1, {"a": "x"}]') = ARRAY['1', '{"a":"x"}']"""],
        variant("(STRING) ARRAY<STRING>", _lenient(_items)),
    ),
    function(
        "TO_JSON_STRING",
        _CATEGORY,
        "A value as JSON.",
        [
            'TO_JSON_STRING(STRUCT(a := 1, b := ARRAY[\'x\'])) = \'{"A":1,"B":["x"]}\'',
            """TO_JSON_STRING(ARRAY[TO_BYTES('!', 'utf8')]) = '["IQ=="]'""",
            "TO_JSON_STRING(DATE '2026-11-17') = '\"2026-11-17\"'",
            "TO_JSON_STRING(CAST(NULL AS INT)) = 'null'",
        ],
        variant("(T) STRING", _to_json, typed=True, sees_null=True),
    ),
]
