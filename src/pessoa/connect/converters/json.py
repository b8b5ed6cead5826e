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
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec

from pessoa.base.config_values import at_least, one_of_ignoring_case
from pessoa.connect.converters.converter import Converter
from pessoa.connect.data import (
    DECIMAL,
    SCALE,
    DataFailure,
    Field,
    Schema,
    Type,
    decimal_to_bytes,
    from_plain,
    to_plain,
)
from pessoa.connect.definition import BOOLEAN, HIGH, INT, LOW, STRING, Table, key

_TEXT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_FLOATS = {Type.FLOAT32: "float", Type.FLOAT64: "double"}
_FROM_FLOATS = {"float": Type.FLOAT32, "double": Type.FLOAT64, "float32": Type.FLOAT32, "float64": Type.FLOAT64}


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

    def configure(self, config: dict[str, Any]) -> None:
        self._with_schemas: bool = config["schemas.enable"]
        self._is_numeric = config["decimal.format"].upper() == "NUMERIC"
        self._replace_null: bool = config["replace.null.with.default"]
        content = config["schema.content"]
        self._fixed = schema_from_json(_parsed(content)) if content else None
        self._texts: dict[Schema, str] = {}
        self._schemas: dict[str, Schema | None] = {}
        # What was seen last, since record after record has the same schema.
        self._last_written: tuple[Schema, str] | None = None
        self._last_envelope: tuple[bytes, Schema | None] | None = None

    # Writing.

    def to_bytes(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:
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

    def _text(self, payload: Any) -> str:
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

    def to_json(self, schema: Schema | None, value: Any) -> Any:
        """The value as JSON knows it."""
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
            scale = int(schema.parameters.get(SCALE, "0"))
            return value if self._is_numeric else base64.b64encode(decimal_to_bytes(value, scale)).decode()
        value = to_plain(schema, value)
        try:
            return self._plain(schema, value)
        except (TypeError, AttributeError):
            kind = type(value).__name__
            raise DataFailure(
                f"Conversion error: a value of type {kind} where the schema demands {schema.type}"
            ) from None

    def _plain(self, schema: Schema, value: Any) -> Any:
        match schema.type:
            case Type.BYTES:
                return base64.b64encode(value).decode()
            case Type.ARRAY:
                return [self.to_json(schema.values, one) for one in value]
            case Type.STRUCT:
                return {each.name: self.to_json(each.schema, value.get(each.name)) for each in schema.fields}
            case Type.MAP:
                if schema.keys is not None and schema.keys.type is Type.STRING and not schema.keys.optional:
                    return {name: self.to_json(schema.values, one) for name, one in value.items()}
                return [
                    [self.to_json(schema.keys, name), self.to_json(schema.values, one)] for name, one in value.items()
                ]
            case Type.STRING:
                if not isinstance(value, str):
                    raise TypeError
            case Type.BOOLEAN:
                if not isinstance(value, bool):
                    raise TypeError
            case _:
                if not isinstance(value, int | float) or isinstance(value, bool):
                    raise TypeError
        return value

    def _schemaless(self, value: Any) -> Any:
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

    def from_bytes(self, topic: str, data: bytes | None) -> tuple[Schema | None, Any]:
        if data is None or (not data and self._with_schemas):
            return None, None
        if self._last_envelope is not None and data.startswith(self._last_envelope[0]):
            start, schema = self._last_envelope
            try:
                payload = json.loads(data[len(start) : -1])
            except (ValueError, RecursionError):
                # Something stands behind the payload, or it is broken: looked at whole.
                pass
            else:
                return schema, self.from_json(schema, payload)
        tree = _parsed(data)
        if not self._with_schemas:
            return self._fixed, self.from_json(self._fixed, tree)
        if self._fixed is not None:
            return self._fixed, self.from_json(self._fixed, tree)
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

    def _remember_envelope(self, data: bytes, tree: Any, schema: Schema | None) -> None:
        """The bytes up to the payload, if they are what Connect itself writes: then the next need not be parsed."""
        start, mark = b'{"schema":', b',"payload":'
        end = data.find(mark)
        if data.startswith(start) and end > 0 and data.endswith(b"}"):
            try:
                if json.loads(data[len(start) : end]) == tree:
                    self._last_envelope = data[: end + len(mark)], schema
            except ValueError:
                # The mark stands within the schema.
                return

    def _schema(self, tree: Any) -> Schema | None:
        text = json.dumps(tree)
        if text not in self._schemas:
            if len(self._schemas) > 1000:
                self._schemas.clear()
            self._schemas[text] = None if tree is None else schema_from_json(tree)
        return self._schemas[text]

    def from_json(self, schema: Schema | None, tree: Any) -> Any:
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

    def _value(self, schema: Schema, tree: Any) -> Any:
        match schema.type:
            case Type.BYTES:
                if schema.name == DECIMAL and isinstance(tree, int | float):
                    return Decimal(str(tree))
                return from_plain(schema, base64.b64decode(tree, validate=True))
            case Type.ARRAY:
                return [self.from_json(schema.values, one) for one in _of(tree, list)]
            case Type.STRUCT:
                fields = _of(tree, dict)
                return {each.name: self.from_json(each.schema, fields.get(each.name)) for each in schema.fields}
            case Type.MAP:
                if isinstance(tree, dict):
                    return {name: self.from_json(schema.values, one) for name, one in tree.items()}
                pairs = _of(tree, list)
                return {self.from_json(schema.keys, name): self.from_json(schema.values, one) for name, one in pairs}
            case Type.STRING:
                return _of(tree, str)
            case Type.BOOLEAN:
                return _of(tree, bool)
            case Type.FLOAT32 | Type.FLOAT64:
                return float(tree)
        return from_plain(schema, int(tree))


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"not a {kind.__name__}")
    return value


def _parsed(data: bytes | str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as wrong:
        raise DataFailure(
            f"Converting byte[] to Kafka Connect data failed due to serialization error: {wrong}"
        ) from None


# Schemas as JSON.


def schema_to_json(schema: Schema, value_to_json: Any = None) -> dict[str, Any]:
    tree: dict[str, Any] = {"type": _FLOATS.get(schema.type, schema.type.value)}
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
        tree["default"] = value_to_json(schema, schema.default) if value_to_json else schema.default
    return tree


def schema_from_json(tree: Any) -> Schema:
    if not isinstance(tree, dict) or not isinstance(tree.get("type"), str):
        raise DataFailure("Schema must contain 'type' field")
    word = tree["type"]
    try:
        kind = _FROM_FLOATS.get(word) or Type(word)
    except ValueError:
        raise DataFailure(f"Unknown schema type: {word}") from None
    fields: tuple[Field, ...] = ()
    keys = values = None
    if kind is Type.ARRAY:
        values = schema_from_json(tree.get("items"))
    elif kind is Type.MAP:
        keys, values = schema_from_json(tree.get("keys")), schema_from_json(tree.get("values"))
    elif kind is Type.STRUCT:
        if not isinstance(tree.get("fields"), list):
            raise DataFailure('Struct schema\'s "fields" argument is not an array.')
        fields = tuple(Field(str(each.get("field")), schema_from_json(each)) for each in tree["fields"])
    schema = Schema(
        kind,
        optional=bool(tree.get("optional", False)),
        name=tree.get("name"),
        version=tree.get("version"),
        doc=tree.get("doc"),
        parameters=tree.get("parameters") or {},
        fields=fields,
        keys=keys,
        values=values,
    )
    if tree.get("default") is not None:
        from dataclasses import replace

        schema = replace(schema, default=JsonConverter({"schemas.enable": "false"}).from_json(schema, tree["default"]))
    return schema
