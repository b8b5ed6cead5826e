"""The properties of WITH: which there are, and their values.

`read_properties` checks names and types of all, so that what uses one only asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pessoa.ksql.analysis.source_catalogue import FormatOptions
from pessoa.ksql.ksql_errors import NOWHERE, Position, SemanticFailure
from pessoa.ksql.suggestions import did_you_mean
from pessoa.ksql.syntax.query_nodes import WindowKind
from pessoa.ksql.syntax.sql_tokens import UNIT_MS, UNIT_WORDS
from pessoa.ksql.syntax.statement_nodes import Property

TEXT, NUMBER, TRUTH = "STRING", "INTEGER", "BOOLEAN"

SOURCE_PROPERTIES = {
    "KAFKA_TOPIC": TEXT, "VALUE_FORMAT": TEXT, "KEY_FORMAT": TEXT, "FORMAT": TEXT, "PARTITIONS": NUMBER,
    "REPLICAS": NUMBER, "RETENTION_MS": NUMBER, "CLEANUP_POLICY": TEXT, "TIMESTAMP": TEXT, "TIMESTAMP_FORMAT": TEXT,
    "WRAP_SINGLE_VALUE": TRUTH, "VALUE_DELIMITER": TEXT, "KEY_DELIMITER": TEXT, "VALUE_AVRO_SCHEMA_FULL_NAME": TEXT,
    "KEY_SCHEMA_FULL_NAME": TEXT, "VALUE_SCHEMA_FULL_NAME": TEXT, "KEY_SCHEMA_ID": NUMBER, "VALUE_SCHEMA_ID": NUMBER,
    "KEY_PROTOBUF_NULLABLE_REPRESENTATION": TEXT, "VALUE_PROTOBUF_NULLABLE_REPRESENTATION": TEXT, "WINDOW_TYPE": TEXT,
    "WINDOW_SIZE": TEXT, "SOURCED_BY_CONNECTOR": TEXT, "KEY": TEXT,
}  # fmt: skip
# AS SELECT takes columns and window from the query.
SINK_PROPERTIES = {
    name: kind
    for name, kind in SOURCE_PROPERTIES.items()
    if name not in ("WINDOW_TYPE", "WINDOW_SIZE", "SOURCED_BY_CONNECTOR", "KEY")
}
INSERT_PROPERTIES = {"QUERY_ID": TEXT}
# Words that stand for a delimiter.
_DELIMITERS = {"SPACE": " ", "TAB": "\t"}
_NULLABLE = ("OPTIONAL", "WRAPPER")
_SIZE = re.compile(r"\s*(\d{1,15})\s+([A-Za-z]+)\s*")


@dataclass(frozen=True)
class Properties:
    values: Mapping[str, str | int | bool]
    places: Mapping[str, Position]

    def text(self, name: str) -> str | None:
        found = self.values.get(name)
        return None if found is None else str(found)

    def number(self, name: str) -> int | None:
        found = self.values.get(name)
        return None if found is None else int(found)

    def place(self, name: str) -> Position:
        return self.places.get(name, NOWHERE)

    def formats(self) -> tuple[str | None, str | None]:
        """Return the key's and the value's format, None where none is given."""
        both = self.text("FORMAT")
        for name in ("VALUE_FORMAT", "KEY_FORMAT"):
            if both is not None and name in self.values:
                raise SemanticFailure(
                    f"Cannot supply both '{name}' and 'FORMAT' properties, "
                    "as 'FORMAT' sets both key and value formats.",
                    self.place(name),
                    hint="Either use just 'FORMAT', or use 'KEY_FORMAT' and 'VALUE_FORMAT'.",
                )
        key, value = self.text("KEY_FORMAT") or both, self.text("VALUE_FORMAT") or both
        return (None if key is None else key.upper()), (None if value is None else value.upper())

    def options(self, side: str) -> FormatOptions:
        """Return the format options of KEY or VALUE."""
        delimiter = self.text(f"{side}_DELIMITER") or ","
        wrap = self.values.get("WRAP_SINGLE_VALUE") if side == "VALUE" else None
        nullable = self.text(f"{side}_PROTOBUF_NULLABLE_REPRESENTATION")
        if nullable is not None and nullable.upper() not in _NULLABLE:
            name = f"{side}_PROTOBUF_NULLABLE_REPRESENTATION"
            raise SemanticFailure(
                f"Invalid value {nullable} for property {name}: must be {' or '.join(_NULLABLE)}", self.place(name)
            )
        full_name = self.text(f"{side}_SCHEMA_FULL_NAME")
        if full_name is None and side == "VALUE":
            full_name = self.text("VALUE_AVRO_SCHEMA_FULL_NAME")
        return FormatOptions(
            _DELIMITERS.get(delimiter.upper(), delimiter),
            None if wrap is None else bool(wrap),
            full_name,
            self.number(f"{side}_SCHEMA_ID"),
            None if nullable is None else nullable.upper(),
        )

    def window(self) -> tuple[WindowKind, int | None] | None:
        """Return WINDOW_TYPE and WINDOW_SIZE in milliseconds."""
        kind, size = self.text("WINDOW_TYPE"), self.text("WINDOW_SIZE")
        if kind is None:
            if size is not None:
                raise SemanticFailure("WINDOW_SIZE needs WINDOW_TYPE", self.place("WINDOW_SIZE"))
            return None
        words = [one.value for one in WindowKind]
        if kind.upper() not in words:
            raise SemanticFailure(
                f"Unknown window type: {kind}", self.place("WINDOW_TYPE"), hint=did_you_mean(kind, words)
            )
        found = WindowKind(kind.upper())
        if found is WindowKind.SESSION:
            if size is not None:
                raise SemanticFailure("'WINDOW_SIZE' should not be set for SESSION windows.", self.place("WINDOW_SIZE"))
            return found, None
        if size is None:
            raise SemanticFailure(
                f"{found.value} windows require 'WINDOW_SIZE' to be provided in the WITH clause.",
                self.place("WINDOW_TYPE"),
                hint="For example: 'WINDOW_SIZE'='10 SECONDS'",
            )
        return found, self._size_ms(size)

    def _size_ms(self, text: str) -> int:
        match = _SIZE.fullmatch(text)
        unit = None if match is None else UNIT_WORDS.get(match[2].upper())
        if match is None or unit is None or int(match[1]) == 0:
            raise SemanticFailure(
                f"Error in WITH clause property 'WINDOW_SIZE': Invalid duration: '{text}'", self.place("WINDOW_SIZE"),
                hint="For example: '10 SECONDS'",
            )  # fmt: skip
        return int(match[1]) * UNIT_MS[unit]


def read_properties(given: tuple[Property, ...], allowed: Mapping[str, str]) -> Properties:
    """Return the properties by name. Raises SemanticFailure for unknown names and for values of the wrong type."""
    values: dict[str, str | int | bool] = {}
    for one in given:
        name = one.name.upper()
        if name not in allowed:
            raise SemanticFailure(
                f"Invalid config variable(s) in the WITH clause: {one.name}", one.at, length=len(one.name),
                hint=did_you_mean(name, allowed),
            )  # fmt: skip
        values[name] = _value(name, one, allowed[name])
    found = Properties(values, {one.name.upper(): one.at for one in given})
    for name in ("PARTITIONS", "REPLICAS"):
        number = found.number(name)
        if number is not None and number < 1 and (name, number) != ("REPLICAS", -1):
            raise SemanticFailure(f"{name} must be at least 1, but it is {number}", found.place(name))
    for name in ("VALUE_DELIMITER", "KEY_DELIMITER"):
        delimiter = found.text(name)
        if delimiter is not None and len(delimiter) != 1 and delimiter.upper() not in _DELIMITERS:
            raise SemanticFailure(
                f"Invalid delimiter value: '{delimiter}'", found.place(name),
                hint="A delimiter is one character, or SPACE or TAB.",
            )  # fmt: skip
    return found


def _value(name: str, given: Property, kind: str) -> str | int | bool:
    value = given.value.value
    if kind == TEXT and isinstance(value, str):
        return value
    if kind == NUMBER and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind == NUMBER and isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        return int(value)
    if kind == TRUTH and isinstance(value, bool):
        return value
    if kind == TRUTH and isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise SemanticFailure(f"Invalid value for '{name}' property: expected {kind}, got {value!r}", given.value.at)
