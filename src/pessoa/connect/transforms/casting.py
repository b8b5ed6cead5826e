"""Cast: fields, or the whole key or value, converted to another type.

Numbers are narrowed as Java narrows them: a whole number keeps its lowest bits, a fraction is cut towards zero and
stays within the limits of an int or a long. Text becomes a number if it is one, and a boolean if it is `true`.
"""

from __future__ import annotations

import base64
import math
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal

from pessoa.base.config_values import Value
from pessoa.connect.data import (
    LOGICAL,
    ConnectValue,
    DataFailure,
    Field,
    Record,
    Schema,
    Type,
    as_single,
    java_text,
    to_plain,
)
from pessoa.connect.definition import HIGH, LIST, REQUIRED, Config, Settings, Table, key
from pessoa.connect.transforms.fields import REPLACE_NULL
from pessoa.connect.transforms.transform import Sided, with_default
from pessoa.connect.values import to_text

_TARGETS = {
    Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64, Type.BOOLEAN, Type.STRING,
}  # fmt: skip
_BITS = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}


def _parse_spec(entries: tuple[str, ...]) -> tuple[dict[str, Type], Type | None]:
    """Return the target types by field, and the target type of the whole key or value, or None."""
    fields: dict[str, Type] = {}
    whole: Type | None = None
    for entry in entries:
        # A field's name may have colons in it.
        name, colon, kind = entry.rpartition(":")
        try:
            target = Type(kind.strip().lower())
        except ValueError:
            raise DataFailure(f"Invalid type found in casting spec: {kind.strip()}") from None
        if target not in _TARGETS:
            raise DataFailure(f"Cast transformation does not support casting to {target}; supported types are "
                              f"{', '.join(sorted(_TARGETS))}")  # fmt: skip
        if colon:
            fields[name.strip()] = target
        else:
            whole = target
    if whole is not None and len(entries) > 1:
        raise DataFailure(
            "Cast transformations that specify a type to cast the entire value to may ONLY specify a single cast"
        )
    return fields, whole


def _complaint(value: Value, _: Settings) -> str | None:
    if not isinstance(value, tuple) or not value:
        return "Must specify at least one field to cast."
    try:
        _parse_spec(value)
    except DataFailure as wrong:
        return str(wrong)
    return None


class Cast(Sided):
    PURPOSE = "cast types"
    CONFIG = Table(
        key("spec", LIST, REQUIRED, _complaint, HIGH, "Fields and the types to cast them to, as a:type,b:type, "
            "or one type alone, for the whole. Types are int8 to int64, float32, float64, boolean and string."),
        REPLACE_NULL,
    )  # fmt: skip

    def configure(self, config: Config) -> None:
        self._fields, self._whole_type = _parse_spec(config.entries("spec"))
        self._replace_null = config.boolean("replace.null.with.default")
        self._schemas: dict[Schema, Schema] = {}

    def apply(self, record: Record) -> Record:
        schema, value = self.schema_of(record), self.value_of(record)
        if value is None and schema is None:
            return record
        if self._whole_type is not None:
            target = None if schema is None else _changed_schema(schema, self._whole_type)
            plain = value if schema is None else with_default(schema, value, self._replace_null)
            return self.changed(record, target, cast(plain, self._whole_type, schema))
        if value is None:
            return record
        fields = self.fields_of(schema, value)
        if schema is None:
            # A field that is named and missing is added, as null.
            named = {name: cast(fields.get(name), kind) for name, kind in self._fields.items()}
            return self.changed(record, None, {**fields, **named})
        updated = {}
        for each in schema.fields:
            one = with_default(each.schema, fields.get(each.name), self._replace_null)
            kind = self._fields.get(each.name)
            updated[each.name] = one if kind is None else cast(one, kind, each.schema)
        return self.changed(record, self._cast_schema(schema), updated)

    def _cast_schema(self, schema: Schema) -> Schema:
        known = self._schemas.get(schema)
        if known is None:
            fields = (
                Field(each.name, _changed_schema(each.schema, self._fields[each.name]))
                if each.name in self._fields
                else each
                for each in schema.fields
            )
            known = self._schemas[schema] = replace(schema, fields=tuple(fields))
        return known


def _changed_schema(schema: Schema, target: Type) -> Schema:
    default = None if schema.default is None else cast(schema.default, target, schema)
    return Schema(target, optional=schema.optional, default=default)


def cast(value: ConnectValue, target: Type, schema: Schema | None = None) -> ConnectValue:
    """Return the value converted to the target type; DataFailure if it cannot be converted."""
    if value is None:
        return None
    if target is Type.STRING:
        return _to_string(value, schema)
    if schema is not None and schema.name in LOGICAL and schema.type is not Type.BYTES:
        value = to_plain(schema, value)
    elif isinstance(value, datetime | date | time):
        raise DataFailure(f"Unexpected value in Cast transformation: {value!r}")
    try:
        if target is Type.BOOLEAN:
            return _to_boolean(value)
        if target in _BITS:
            return _to_whole(value, _BITS[target])
        return _to_fraction(value, is_single=target is Type.FLOAT32)
    except (ValueError, OverflowError, TypeError):
        shown = str(value)
        raise DataFailure(f"Value ({shown}) was out of range or not of a type that can become {target}") from None


def _to_string(value: ConnectValue, schema: Schema | None) -> str:
    if isinstance(value, datetime | date | time):
        return str(to_text(schema, value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return java_text(schema, value)


def _to_boolean(value: ConnectValue) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value.lower() == "true"
    if isinstance(value, int | float | Decimal):
        # As a long, so that 0.5 is false.
        return int(value) != 0
    raise TypeError


def _to_whole(value: ConnectValue, bits: int) -> int:
    limit = 1 << (bits - 1)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, str):
        number = int(value)
        if not -limit <= number < limit:
            raise ValueError
        return number
    if isinstance(value, float):
        if math.isnan(value):
            return 0
        wide = 1 << (63 if bits == 64 else 31)
        value = max(-wide, min(wide - 1, value if math.isinf(value) else int(value)))
    if not isinstance(value, int | float | Decimal):
        raise TypeError
    return (int(value) + limit) % (2 * limit) - limit


def _to_fraction(value: ConnectValue, *, is_single: bool) -> float:
    if not isinstance(value, bool | str | int | float | Decimal):
        raise TypeError
    number = float(value)
    if not is_single:
        return number
    return as_single(number)
