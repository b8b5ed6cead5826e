"""A message of Kafka's as the one line of JSON that Apache's tools print for it.

The rules, which are those of the converters that Apache generates from its schemas:

- the fields that the version has, in the order of their declaration, under their names in camel case;
- a tagged field only where it differs from its default;
- bytes in base64, UUIDs in Kafka's text form, int64 as a number, a null as null;
- no blanks. Strings keep every character except quotes, backslashes and control characters.

Python's `json` would do but for two details in which Jackson, which prints for Apache, is different: the digits of
`\\u001B` are capitals, and floats look as in Java.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from pessoa.wire.codec_compiler import Layout

if TYPE_CHECKING:
    from pessoa.wire.schema import Field, Message, Struct

_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}

# Java writes floats from a thousandth up to ten million without an exponent.
_PLAIN_FLOATS = (1e-3, 1e7)


def as_json(message: Message, version: int) -> str:
    return json_text(as_values(message, version))


def as_values(message: Message, version: int) -> dict[str, object]:
    """Return the values of `as_json` before they become text, for callers that change parts of them."""
    return _struct_values(message, Layout(type(message), version))


def json_text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_string(name)}:{json_text(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    if isinstance(value, float):
        return _float(value)
    return str(value) if isinstance(value, int) else _string(_text(value))


def _struct_values(value: Struct, layout: Layout) -> dict[str, object]:
    values: dict[str, object] = {}
    for field in value.fields:
        if not layout.has(field):
            continue
        part = getattr(value, field.name)
        if layout.is_tagged(field) and _is_default(field, part):
            continue
        values[_camel_case(field.name)] = _part_values(field, part, layout)
    return values


def _part_values(field: Field, part: Any, layout: Layout) -> object:
    if part is None:
        return None
    if field.kind == "struct":
        return _struct_values(part, layout)
    if field.kind == "array" and field.item == "struct":
        return [_struct_values(item, layout) for item in part]
    return part


def _is_default(field: Field, part: Any) -> bool:
    if field.kind == "struct":
        # None is the default struct, but for a field that may be null, where it is that.
        if part is None:
            return field.nullable == "none"
        return all(_is_default(inner, getattr(part, inner.name)) for inner in part.fields)
    if part is None or field.zero is None:
        return part is None and field.zero is None
    return not part if field.kind == "array" else bool(part == field.zero)


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    # The one name in Kafka's schemas in which a word has two capitals: KRaft.
    return "".join(("kRaft" if first == "kraft" else first, *(word.capitalize() for word in others)))


def _text(value: object) -> str:
    # A Uuid is bytes as well, and has a text form of its own.
    if type(value) is bytes or isinstance(value, bytearray | memoryview):
        return b64encode(value).decode("ascii")
    return str(value)


def _string(text: str) -> str:
    return '"' + _ESCAPED.sub(lambda found: _SHORT_ESCAPES.get(found[0]) or f"\\u{ord(found[0]):04X}", text) + '"'


def _float(value: float) -> str:
    # Hardly a message has one, and a dump has no time for what it does not need.
    from decimal import Decimal
    from math import isfinite

    if not isfinite(value):
        return '"NaN"' if value != value else f'"{"-" if value < 0 else ""}Infinity"'
    if value == 0 or _PLAIN_FLOATS[0] <= abs(value) < _PLAIN_FLOATS[1]:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).rstrip("0")
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{len(digits) - 1 + exponent}"
