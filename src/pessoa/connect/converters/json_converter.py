"""JsonConverter: JSON with its schema in an envelope, or JSON alone.

    {"schema": {"type": "struct", "fields": [{"field": "id", "type": "int32", "optional": false}], "optional": false},
     "payload": {"id": 7}}

`schemas.enable` is true by default, as in Kafka. Within the payload bytes are base64, a decimal is base64 of its
unscaled number (or a number, `decimal.format=NUMERIC`), dates and times are numbers; a map whose keys are no strings
is an array of pairs.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from pessoa.base.config_values import at_least, one_of_ignoring_case
from pessoa.connect.converters.converter import Converter
from pessoa.connect.data import (
    DECIMAL,
    Binary,
    ConnectValue,
    DataFailure,
    Field,
    Schema,
    Type,
    decimal_to_bytes,
    from_plain,
    scale_of,
    to_plain,
    with_facts,
)
from pessoa.connect.definition import BOOLEAN, HIGH, INT, LOW, STRING, Config, Table, key

_TEXT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_NUMBERS = (Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64)
_FLOATS = {Type.FLOAT32: "float", Type.FLOAT64: "double"}
_FROM_FLOATS = {"float": Type.FLOAT32, "double": Type.FLOAT64, "float32": Type.FLOAT32, "float64": Type.FLOAT64}


T = TypeVar("T")


class JsonConverter(Converter):
    CONFIG = Table(
        key("schemas.enable", BOOLEAN, True, HIGH, "Whether schemas stand beside the data.", group="Schemas"),
        key("schemas.cache.size", INT, 1000, at_least(0), HIGH, "How many schemas are remembered.", group="Schemas"),
        key("schema.content", STRING, None, HIGH, "The schema of data that comes without one.", group="Schemas"),
        key("decimal.format", STRING, "BASE64", one_of_ignoring_case("BASE64", "NUMERIC"), LOW,
            "How decimals are written.", group="Serialization"),
        key("replace.null.with.default", BOOLEAN, True, LOW, "Whether null in a field with a default is the default.",
            group="Serialization"),
    )  # fmt: skip

    def configure(self, config: Config) -> None:
        self._with_schemas = config.boolean("schemas.enable")
        self._is_numeric = config.string("decimal.format").upper() == "NUMERIC"
        self._replace_null = config.boolean("replace.null.with.default")
        content = config.optional_string("schema.content")
        self._fixed_schema = schema_from_json(_parse(content)) if content else None
        self._texts: dict[Schema, str] = {}
        self._schemas: dict[str, Schema | None] = {}
        # What was seen last, since record after record has the same schema.
        self._last_written: tuple[Schema, str] | None = None
        self._last_envelope: tuple[bytes, Schema | None] | None = None

    # Writing.

    def to_bytes(self, topic: str, schema: Schema | None, value: ConnectValue) -> bytes | None:
        if schema is None and value is None:
            return None
        payload = self.to_json(schema, value)
        try:
            text = self._text(payload)
        except TypeError as wrong:
            raise DataFailure(f"the value cannot be written as JSON: {wrong}") from None
        if not self._with_schemas:
            return text.encode()
        return f'{{"schema":{self._schema_text(schema)},"payload":{text}}}'.encode()

    def _text(self, payload: object) -> str:
        if self._is_numeric:
            # The only one that writes a decimal with the digits that it has.
            return msgspec.json.Encoder(decimal_format="number").encode(payload).decode()
        return _TEXT.encode(payload)

    def _schema_text(self, schema: Schema | None) -> str:
        if schema is None:
            return "null"
        if self._last_written is not None and self._last_written[0] is schema:
            return self._last_written[1]
        known = self._texts.get(schema)
        if known is None:
            tree = schema_to_json(schema, self.to_json)
            known = self._texts[schema] = self._text(tree)
        self._last_written = schema, known
        return known

    def to_json(self, schema: Schema | None, value: ConnectValue) -> Any:
        """Return the value as JSON; with `decimal.format=NUMERIC` a Decimal stays a Decimal, for the encoder."""
        if value is None:
            if schema is None:
                return None
            if schema.default is not None and self._replace_null:
                return self.to_json(schema, schema.default)
            if schema.optional:
                return None
            raise DataFailure("Conversion error: null value for field that is required and has no default value")
        if schema is None:
            return self._schemaless(value)
        if schema.name == DECIMAL and isinstance(value, Decimal):
            return value if self._is_numeric else base64.b64encode(decimal_to_bytes(value, scale_of(schema))).decode()
        value = to_plain(schema, value)
        try:
            return self._to_json_by_type(schema, value)
        except TypeError:
            kind = type(value).__name__
            raise DataFailure(
                f"Conversion error: a value of type {kind} where the schema demands {schema.type}"
            ) from None

    def _to_json_by_type(self, schema: Schema, value: ConnectValue) -> object:
        """Return the JSON of a value that is not logical; TypeError if it is of another type than the schema's."""
        match schema.type:
            case Type.BYTES if isinstance(value, Binary):
                return base64.b64encode(value).decode()
            case Type.ARRAY if isinstance(value, list | tuple):
                return [self.to_json(schema.values, one) for one in value]
            case Type.STRUCT if isinstance(value, dict):
                return {each.name: self.to_json(each.schema, value.get(each.name)) for each in schema.fields}
            case Type.MAP if isinstance(value, dict):
                if schema.keys is not None and schema.keys.type is Type.STRING and not schema.keys.optional:
                    return {name: self.to_json(schema.values, one) for name, one in value.items()}
                return [
                    [self.to_json(schema.keys, name), self.to_json(schema.values, one)] for name, one in value.items()
                ]
            case Type.STRING if isinstance(value, str):
                return value
            case Type.BOOLEAN if isinstance(value, bool):
                return value
            case kind if kind in _NUMBERS and isinstance(value, int | float) and not isinstance(value, bool):
                return value
        raise TypeError

    def _schemaless(self, value: ConnectValue) -> object:
        match value:
            case dict():
                if all(isinstance(name, str) for name in value):
                    return {name: self._schemaless(one) for name, one in value.items()}
                return [[self._schemaless(name), self._schemaless(one)] for name, one in value.items()]
            case list() | tuple():
                return [self._schemaless(one) for one in value]
            case bytes():
                return base64.b64encode(value).decode()
            case Decimal() | datetime() | date() | time():
                raise DataFailure(
                    f"a {type(value).__name__} without a schema has no form in JSON; give it one, or cast it"
                )
        return value

    # Reading.

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, ConnectValue]:
        if data is None or (not data and self._with_schemas):
            return None, None
        if self._last_envelope is not None and data.startswith(self._last_envelope[0]):
            start, schema = self._last_envelope
            try:
                payload = json.loads(data[len(start) : -1])
            except (ValueError, RecursionError):
                # The envelope has more than the payload behind its schema, or is broken: it is parsed whole.
                pass
            else:
                return schema, self.from_json(schema, payload)
        tree = _parse(data)
        if not self._with_schemas:
            return self._fixed_schema, self.from_json(self._fixed_schema, tree)
        if self._fixed_schema is not None:
            return self._fixed_schema, self.from_json(self._fixed_schema, tree)
        if not isinstance(tree, dict) or len(tree) != 2 or "schema" not in tree or "payload" not in tree:
            raise DataFailure(
                'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain '
                "additional "
                "fields. If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter "
                "configuration."
            )
        schema = self._schema(tree["schema"])
        self._remember_envelope(data, tree["schema"], schema)
        return schema, self.from_json(schema, tree["payload"])

    def _remember_envelope(self, data: bytes, tree: ConnectValue, schema: Schema | None) -> None:
        """Cache the bytes before the payload if Connect itself wrote them, so that the next record's are not parsed."""
        start, mark = b'{"schema":', b',"payload":'
        end = data.find(mark)
        if data.startswith(start) and end > 0 and data.endswith(b"}"):
            try:
                if json.loads(data[len(start) : end]) == tree:
                    self._last_envelope = data[: end + len(mark)], schema
            except ValueError:
                # The mark stands within the schema.
                return

    def _schema(self, tree: ConnectValue) -> Schema | None:
        text = json.dumps(tree)
        if text not in self._schemas:
            if len(self._schemas) > 1000:
                self._schemas.clear()
            self._schemas[text] = None if tree is None else schema_from_json(tree)
        return self._schemas[text]

    def from_json(self, schema: Schema | None, tree: ConnectValue) -> ConnectValue:
        if schema is None:
            return tree
        if tree is None:
            if schema.default is not None and self._replace_null:
                return schema.default
            if schema.optional:
                return None
            raise DataFailure(f"Invalid null value for required {schema.type.name} field")
        try:
            return self._value(schema, tree)
        except (TypeError, ValueError, AttributeError, binascii.Error) as wrong:
            raise DataFailure(f"Invalid value for {schema.name or schema.type}: {tree!r} ({wrong})") from None

    def _value(self, schema: Schema, tree: ConnectValue) -> ConnectValue:
        match schema.type:
            case Type.BYTES:
                if schema.name == DECIMAL and isinstance(tree, int | float):
                    return Decimal(str(tree))
                return from_plain(schema, base64.b64decode(_expect_type(tree, str), validate=True))
            case Type.ARRAY:
                return [self.from_json(schema.values, one) for one in _expect_type(tree, list)]
            case Type.STRUCT:
                fields = _expect_type(tree, dict)
                return {each.name: self.from_json(each.schema, fields.get(each.name)) for each in schema.fields}
            case Type.MAP:
                if isinstance(tree, dict):
                    return {name: self.from_json(schema.values, one) for name, one in tree.items()}
                pairs = map(_pair, _expect_type(tree, list))
                return {self.from_json(schema.keys, name): self.from_json(schema.values, one) for name, one in pairs}
            case Type.STRING:
                return _expect_type(tree, str)
            case Type.BOOLEAN:
                return _expect_type(tree, bool)
            case Type.FLOAT32 | Type.FLOAT64:
                return float(_number(tree))
        return from_plain(schema, int(_number(tree)))


def _expect_type(value: ConnectValue, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"not a {kind.__name__}")
    return value


def _number(value: ConnectValue) -> float | str:
    """Return the value if `int` and `float` accept its type, text included; else raise TypeError."""
    if not isinstance(value, int | float | str):
        raise TypeError(f"not a number, but {type(value).__name__}")
    return value


def _pair(entry: ConnectValue) -> tuple[ConnectValue, ConnectValue]:
    """Return key and value of an entry of a map whose keys are no strings."""
    key, value = _expect_type(entry, list)
    return key, value


def _parse(data: bytes | str) -> ConnectValue:
    try:
        found: ConnectValue = json.loads(data)
    except (ValueError, RecursionError) as wrong:
        raise DataFailure(
            f"Converting byte[] to Kafka Connect data failed due to serialization error: {wrong}"
        ) from None
    return found


# JSON alone.
PLAIN_JSON = JsonConverter({"schemas.enable": "false"})

# Schemas as JSON.


def schema_to_json(schema: Schema, value_to_json: Callable[[Schema, ConnectValue], object]) -> dict[str, object]:
    tree: dict[str, object] = {"type": _FLOATS.get(schema.type, schema.type.value)}
    if schema.type is Type.ARRAY and schema.values is not None:
        tree["items"] = schema_to_json(schema.values, value_to_json)
    elif schema.type is Type.MAP and schema.keys is not None and schema.values is not None:
        tree["keys"] = schema_to_json(schema.keys, value_to_json)
        tree["values"] = schema_to_json(schema.values, value_to_json)
    elif schema.type is Type.STRUCT:
        tree["fields"] = [schema_to_json(each.schema, value_to_json) | {"field": each.name} for each in schema.fields]
    tree["optional"] = schema.optional
    facts = {"name": schema.name, "version": schema.version, "doc": schema.doc}
    tree |= {word: fact for word, fact in facts.items() if fact is not None}
    if schema.parameters:
        tree["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        tree["default"] = value_to_json(schema, schema.default)
    return tree


def schema_from_json(tree: ConnectValue) -> Schema:
    word = tree.get("type") if isinstance(tree, dict) else None
    if not isinstance(tree, dict) or not isinstance(word, str):
        raise DataFailure("Schema must contain 'type' field")
    try:
        kind = _FROM_FLOATS.get(word) or Type(word)
    except ValueError:
        raise DataFailure(f"Unknown schema type: {word}") from None
    schema = Schema(kind, optional=bool(tree.get("optional", False)))
    if kind is Type.ARRAY:
        schema = replace(schema, values=schema_from_json(tree.get("items")))
    elif kind is Type.MAP:
        keys, values = schema_from_json(tree.get("keys")), schema_from_json(tree.get("values"))
        schema = replace(schema, keys=keys, values=values)
    elif kind is Type.STRUCT:
        fields = tree.get("fields")
        if not isinstance(fields, list):
            raise DataFailure('Struct schema\'s "fields" argument is not an array.')
        schema = replace(schema, fields=tuple(_field_from_json(each) for each in fields))
    schema = with_facts(schema, tree.get("name"), tree.get("version"), tree.get("doc"), tree.get("parameters"))
    default = tree.get("default")
    return schema if default is None else replace(schema, default=PLAIN_JSON.from_json(schema, default))


def _field_from_json(tree: ConnectValue) -> Field:
    schema = schema_from_json(tree)
    assert isinstance(tree, dict)
    return Field(str(tree.get("field")), schema)
