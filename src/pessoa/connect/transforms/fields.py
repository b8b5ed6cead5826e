"""Transforms that move, add, remove and hide fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from pessoa.base.config_values import NOT_EMPTY, SOME_ENTRIES, Value
from pessoa.connect.data import (
    EPOCH,
    EPOCH_DAY,
    INT32,
    INT64,
    TIMESTAMP_SCHEMA,
    ConnectValue,
    DataFailure,
    Field,
    Record,
    Schema,
    Struct,
    Type,
    from_millis,
    struct,
)
from pessoa.connect.data import STRING as STRING_SCHEMA
from pessoa.connect.definition import BOOLEAN, HIGH, LIST, MEDIUM, REQUIRED, STRING, Config, Settings, Table, key
from pessoa.connect.transforms.paths import parse_path, schema_at, syntax_key, value_at
from pessoa.connect.transforms.transform import Sided, Transform, with_default

REPLACE_NULL = key(
    "replace.null.with.default",
    BOOLEAN,
    True,
    MEDIUM,
    "Whether a null in a field with a default counts as the default.",
)


class ExtractField(Sided):
    """Replaces the key or value by one of its fields."""

    PURPOSE = "field extraction"
    CONFIG = Table(key("field", STRING, REQUIRED, MEDIUM, "Field name to extract."), syntax_key(), REPLACE_NULL)

    def configure(self, config: Config) -> None:
        self._name = config.string("field")
        self._path = parse_path(self._name, config.string("field.syntax.version"))
        self._replace_null = config.boolean("replace.null.with.default")

    def apply(self, record: Record) -> Record:
        schema, value = self.schema_of(record), self.value_of(record)
        if schema is None:
            found = None if value is None else value_at(self.fields_of(None, value), self._path)
            return self.changed(record, None, found)
        inner = schema_at(schema, self._path)
        if inner is None:
            raise DataFailure(f"Unknown field: {self._name}")
        found = None if value is None else value_at(self.fields_of(schema, value), self._path)
        return self.changed(record, inner, with_default(inner, found, self._replace_null))


class HoistField(Sided):
    """Puts the key or value into a new struct as its only field."""

    CONFIG = Table(key("field", STRING, REQUIRED, MEDIUM, "Field name for the single field that will be created."))

    def configure(self, config: Config) -> None:
        self._name = config.string("field")

    def apply(self, record: Record) -> Record:
        schema = self.schema_of(record)
        hoisted = None if schema is None else struct({self._name: schema})
        return self.changed(record, hoisted, {self._name: self.value_of(record)})


class _Insertion(NamedTuple):
    name: str
    is_optional: bool


def _insertion(text: str | None) -> _Insertion | None:
    if text is None:
        return None
    if text.endswith("?"):
        return _Insertion(text[:-1], True)
    if text.endswith("!"):
        return _Insertion(text[:-1], False)
    return _Insertion(text, True)


class InsertField(Sided):
    """Adds fields with the record's topic, partition, offset or timestamp, or with a fixed text."""

    PURPOSE = "field insertion"
    _SUFFIX = (
        "Suffix with <code>!</code> to make this a required field, or <code>?</code> to keep it optional (the default)."
    )
    CONFIG = Table(
        key("topic.field", STRING, None, MEDIUM, f"Field name for Kafka topic. {_SUFFIX}"),
        key("partition.field", STRING, None, MEDIUM, f"Field name for Kafka partition. {_SUFFIX}"),
        key("offset.field", STRING, None, MEDIUM, f"Field name for Kafka offset, for sinks alone. {_SUFFIX}"),
        key("timestamp.field", STRING, None, MEDIUM, f"Field name for record timestamp. {_SUFFIX}"),
        key("static.field", STRING, None, MEDIUM, f"Field name for static data field. {_SUFFIX}"),
        key("static.value", STRING, None, MEDIUM, "Static field value, if field name configured."),
        REPLACE_NULL,
    )

    def configure(self, config: Config) -> None:
        static = config.optional_string("static.value")
        if config["static.field"] is not None and static is None:
            raise DataFailure("No value specified for static field: static.value")
        specs: list[tuple[_Insertion | None, Schema, Callable[[Record, bool], ConnectValue]]] = [
            (_insertion(config.optional_string("topic.field")), STRING_SCHEMA, lambda record, _: record.topic),
            (_insertion(config.optional_string("partition.field")), INT32, lambda record, _: record.partition),
            (_insertion(config.optional_string("offset.field")), INT64, lambda record, _: record.offset),
            (_insertion(config.optional_string("timestamp.field")), TIMESTAMP_SCHEMA, _timestamp),
            (_insertion(config.optional_string("static.field")), STRING_SCHEMA, lambda _, __: static),
        ]
        self._specs = [(spec, schema, look) for spec, schema, look in specs if spec is not None]
        if not self._specs:
            raise DataFailure("No field insertion configured")
        self._schemas: dict[Schema, Schema] = {}

    def apply(self, record: Record) -> Record:
        value = self.value_of(record)
        if value is None:
            return record
        schema = self.schema_of(record)
        updated = dict(self.fields_of(schema, value))
        for spec, _, look in self._specs:
            found = look(record, schema is not None)
            if found is not None or schema is not None:
                updated[spec.name] = found
        return self.changed(record, None if schema is None else self._schema_with_fields(schema), updated)

    def _schema_with_fields(self, schema: Schema) -> Schema:
        known = self._schemas.get(schema)
        if known is None:
            added = [Field(spec.name, replace(kind, optional=spec.is_optional)) for spec, kind, _ in self._specs]
            known = self._schemas[schema] = replace(schema, fields=(*schema.fields, *added))
        return known


def _timestamp(record: Record, has_schema: bool) -> ConnectValue:
    if record.timestamp is None:
        return None
    return from_millis(record.timestamp) if has_schema else record.timestamp


class MaskField(Sided):
    """Empties fields, or replaces them by a text."""

    PURPOSE = "mask fields"
    CONFIG = Table(
        key("fields", LIST, REQUIRED, SOME_ENTRIES, HIGH, "Names of fields to mask."),
        key(
            "replacement",
            STRING,
            None,
            NOT_EMPTY,
            "A value for all the fields, numbers or strings, instead of nothing.",
        ),
        REPLACE_NULL,
    )

    def configure(self, config: Config) -> None:
        self._names = config.entries("fields")
        self._replacement = config.optional_string("replacement")

    def apply(self, record: Record) -> Record:
        schema, value = self.schema_of(record), self.value_of(record)
        fields = self.fields_of(schema, value)
        # Without a schema, a field that is named and missing is added, as null.
        named = [name for name in self._names if schema is None or name in fields]
        masked = {name: self._mask(name, fields.get(name)) for name in named}
        return self.changed(record, schema, {**fields, **masked})

    def _mask(self, name: str, value: ConnectValue) -> ConnectValue:
        if value is None:
            return None
        if self._replacement is None:
            for kind, make_empty in _EMPTY:
                if isinstance(value, kind):
                    return make_empty()
            raise DataFailure(f"Cannot mask value of type: {type(value).__name__}")
        for replaceable in (str, int, float, Decimal):
            if isinstance(value, replaceable) and not isinstance(value, bool):
                try:
                    return replaceable(self._replacement)
                except (ValueError, InvalidOperation):
                    raise DataFailure(f"Unable to convert {self._replacement} to number for field {name}") from None
        raise DataFailure(f"Cannot mask value of type {type(value).__name__} with custom replacement.")


# bool before int and datetime before date: each is also the other.
_EMPTY: list[tuple[type, Callable[[], ConnectValue]]] = [
    (bool, bool),
    (int, int),
    (float, float),
    (str, str),
    (Decimal, Decimal),
    (datetime, lambda: EPOCH),
    (date, lambda: EPOCH_DAY),
    (time, time),
    (list, list),
    (dict, dict),
]


def _renames(text: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in text:
        old, colon, new = each.partition(":")
        if not colon or not old.strip() or not new.strip():
            raise DataFailure(f"Invalid rename mapping: {each}")
        found[old.strip()] = new.strip()
    return found


def _renames_complaint(value: Value, _: Settings) -> str | None:
    try:
        _renames(value if isinstance(value, tuple) else ())
    except DataFailure:
        return "should be colon-delimited pairs, example: <code>foo:bar,abc:xyz</code>"
    return None


class ReplaceField(Sided):
    """Drops fields, keeps only some, or renames them."""

    PURPOSE = "field replacement"
    CONFIG = Table(
        key("exclude", LIST, (), MEDIUM, "Fields to exclude. This takes precedence over the fields to include."),
        key("include", LIST, (), MEDIUM, "Fields to include. If specified, only these fields will be used."),
        key("renames", LIST, (), _renames_complaint, MEDIUM, "Field rename mappings: old:new."),
        REPLACE_NULL,
    )

    def __init__(self, settings: Mapping[str, str]) -> None:
        # The names that these keys had before.
        old = {"blacklist": "exclude", "whitelist": "include"}
        super().__init__({old.get(name, name): text for name, text in settings.items()})

    def configure(self, config: Config) -> None:
        self._exclude = set(config.entries("exclude"))
        self._include = set(config.entries("include"))
        self._renames = _renames(config.entries("renames"))
        self._schemas: dict[Schema, Schema] = {}

    def _keeps(self, name: str) -> bool:
        return name not in self._exclude and (not self._include or name in self._include)

    def apply(self, record: Record) -> Record:
        schema, value = self.schema_of(record), self.value_of(record)
        if value is None:
            return record
        fields = self.fields_of(schema, value)
        renames = self._renames
        updated = {renames.get(name, name): one for name, one in fields.items() if self._keeps(name)}
        if schema is None:
            return self.changed(record, None, updated)
        known = self._schemas.get(schema)
        if known is None:
            kept = (
                Field(renames.get(each.name, each.name), each.schema)
                for each in schema.fields
                if self._keeps(each.name)
            )
            known = self._schemas[schema] = replace(schema, fields=tuple(kept))
        return self.changed(record, known, updated)


class ValueToKey(Transform):
    """Makes the key of fields of the value."""

    CONFIG = Table(
        key(
            "fields",
            LIST,
            REQUIRED,
            SOME_ENTRIES,
            HIGH,
            "Field names on the record value to extract as the record key.",
        ),
        REPLACE_NULL,
    )

    def configure(self, config: Config) -> None:
        self._names = config.entries("fields")
        # The schemas of the last value and its key: record after record has the same.
        self._schemas: tuple[Schema, Schema] | None = None

    def apply(self, record: Record) -> Record:
        value, schema = record.value, record.value_schema
        if not isinstance(value, dict):
            kind = "null" if value is None else type(value).__name__
            raise DataFailure(f"Only Map objects supported for [copying fields from value to key], found: {kind}")
        taken = {name: value.get(name) for name in self._names}
        if schema is None:
            return record.but(key_schema=None, key=taken)
        if self._schemas is None or self._schemas[0] is not schema:
            self._schemas = schema, self._key_schema(schema)
        return record.but(key_schema=self._schemas[1], key=taken)

    def _key_schema(self, schema: Schema) -> Schema:
        fields: dict[str, Schema] = {}
        for name in self._names:
            inner = schema.field(name)
            if inner is None:
                raise DataFailure(f"Field does not exist: {name}")
            fields[name] = inner
        return struct(fields)


class Flatten(Sided):
    """Moves nested fields to the top, under joined names."""

    PURPOSE = "flattening"
    CONFIG = Table(
        key(
            "delimiter", STRING, ".", MEDIUM, "What stands between the names of the parts in the name of the new field."
        )
    )

    def configure(self, config: Config) -> None:
        self._delimiter = config.string("delimiter")
        self._schemas: dict[Schema, Schema] = {}

    def apply(self, record: Record) -> Record:
        schema, value = self.schema_of(record), self.value_of(record)
        if value is None:
            return record
        fields = self.fields_of(schema, value)
        if schema is None:
            flat: Struct = {}
            self._flatten_map(fields, "", flat)
            return self.changed(record, None, flat)
        known = self._schemas.get(schema)
        if known is None:
            found: list[Field] = []
            self._flatten_schema(schema, "", schema.optional, found)
            known = self._schemas[schema] = replace(schema, fields=tuple(found))
        flat = {}
        self._flatten_struct(schema, fields, "", flat)
        return self.changed(record, known, flat)

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self._delimiter}{name}" if prefix else name

    def _flatten_map(self, fields: Struct, prefix: str, flat: Struct) -> None:
        for name, value in fields.items():
            full = self._name(prefix, name)
            if isinstance(value, dict):
                self._flatten_map(value, full, flat)
            else:
                flat[full] = value

    def _flatten_schema(self, schema: Schema, prefix: str, is_optional: bool, found: list[Field]) -> None:
        for each in schema.fields:
            full = self._name(prefix, each.name)
            if each.schema.type is Type.STRUCT:
                self._flatten_schema(each.schema, full, is_optional or each.schema.optional, found)
            elif each.schema.type is Type.MAP:
                kind = each.schema.type.name
                raise DataFailure(
                    f"Flatten transformation does not support {kind} for record with schemas (for field {full})."
                )
            else:
                found.append(Field(full, each.schema.as_optional if is_optional else each.schema))

    def _flatten_struct(self, schema: Schema, value: Struct | None, prefix: str, flat: Struct) -> None:
        for each in schema.fields:
            full = self._name(prefix, each.name)
            inner = None if value is None else value.get(each.name)
            if each.schema.type is Type.STRUCT:
                nested = None if inner is None else self.fields_of(each.schema, inner)
                self._flatten_struct(each.schema, nested, full, flat)
            else:
                flat[full] = inner
