"""How a transform names a field: by its name, or (`field.syntax.version=V2`, KIP-821) by a path with dots.

a.b       the field b of the field a         `a.b`.c    in backticks a dot is part of the name
"""

from __future__ import annotations

from pessoa.base.config_values import one_of
from pessoa.connect.data import ConnectValue, Schema
from pessoa.connect.definition import HIGH, STRING, Key, key


def syntax_key() -> Key:
    return key(
        "field.syntax.version",
        STRING,
        "V1",
        one_of("V1", "V2"),
        HIGH,
        "How fields are named: V1 by their name alone, V2 by paths with dots into nested fields.",
    )


def parse_path(text: str, version: str) -> tuple[str, ...]:
    if version == "V1" or ("." not in text and "`" not in text):
        return (text,)
    parts: list[str] = []
    position = 0
    while position <= len(text):
        if text[position : position + 1] == "`":
            end = position + 1
            # A backtick closes only before a dot or at the end; inside it is itself.
            while end < len(text) and not (text[end] == "`" and (end + 1 == len(text) or text[end + 1] == ".")):
                end += 1
            if end >= len(text):
                raise ValueError(f"Incomplete backtick pair in path: {text}")
            parts.append(text[position + 1 : end])
            position = end + 2
        else:
            end = text.find(".", position)
            end = len(text) if end < 0 else end
            parts.append(text[position:end])
            position = end + 1
    return tuple(parts)


def value_at(value: ConnectValue, path: tuple[str, ...]) -> ConnectValue:
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def schema_at(schema: Schema | None, path: tuple[str, ...]) -> Schema | None:
    for name in path:
        if schema is None:
            return None
        schema = schema.field(name)
    return schema
