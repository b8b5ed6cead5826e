"""JsonSchemaConverter: Connect's schemas as JSON Schema (draft 7), and back.

Types that JSON does not tell apart are told by `connect.type`, and the order of fields by `connect.index`. Optional
means `oneOf` with null. A decimal is base64 as in plain JSON, dates and times are numbers, each with its name as
`title`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.client.registry_client import ResolvedSchema
from pessoa.connect.converters.avro_converter import schema_of
from pessoa.connect.converters.json_converter import PLAIN_JSON
from pessoa.connect.converters.registry_converter import Reader, RegistryConverter, Writer
from pessoa.connect.data import ConnectValue, Field, Schema, Type, connect_value, with_facts
from pessoa.serde.json_schema import JsonSchema, parse_json

_TO_JSON = {
    Type.BOOLEAN: "boolean", Type.STRING: "string", Type.BYTES: "string", Type.FLOAT32: "number",
    Type.FLOAT64: "number",
    Type.INT8: "integer", Type.INT16: "integer", Type.INT32: "integer", Type.INT64: "integer",
}  # fmt: skip
_TYPES = set(Type)
_FROM_JSON = {"boolean": Type.BOOLEAN, "string": Type.STRING, "number": Type.FLOAT64, "integer": Type.INT64}


class JsonSchemaConverter(RegistryConverter):
    SCHEMA_TYPE = "JSON"

    def schema_text_of(self, schema: Schema | None, value: ConnectValue) -> str:
        return json.dumps(json_tree(schema or schema_of(value)), separators=(",", ":"))

    def writer(self, text: str, schema: Schema | None) -> Writer:
        codec = JsonSchema(parse_json(text))
        return lambda value: codec.encode(PLAIN_JSON.to_json(schema, value))

    def reader(self, stored: ResolvedSchema) -> tuple[Schema | None, Reader]:
        tree = parse_json(stored.text)
        codec = JsonSchema(tree, {name: parse_json(text) for name, text in stored.references.items()})
        schema = connect_schema(tree, tree, stored.references)
        return schema, lambda payload: PLAIN_JSON.from_json(
            schema, connect_value(codec.decode(payload, validate=False))
        )


def json_tree(schema: Schema, index: int | None = None) -> dict[str, object]:
    tree: dict[str, object] = {}
    if schema.name is not None:
        tree["title"] = schema.name
    match schema.type:
        case Type.STRUCT:
            tree["type"] = "object"
            tree["properties"] = {each.name: json_tree(each.schema, order) for order, each in enumerate(schema.fields)}
        case Type.ARRAY:
            assert schema.values is not None
            tree |= {"type": "array", "items": json_tree(schema.values)}
        case Type.MAP:
            assert schema.values is not None
            tree |= {"type": "object", "connect.type": "map", "additionalProperties": json_tree(schema.values)}
        case _:
            tree["type"] = _TO_JSON[schema.type]
            if schema.type not in (Type.STRING, Type.BOOLEAN):
                tree["connect.type"] = schema.type.value
    if schema.version is not None:
        tree["connect.version"] = schema.version
    if schema.parameters:
        tree["connect.parameters"] = dict(schema.parameters)
    if schema.doc is not None:
        tree["description"] = schema.doc
    if schema.default is not None:
        tree["default"] = PLAIN_JSON.to_json(schema, schema.default)
    order = {} if index is None else {"connect.index": index}
    return {"oneOf": [{"type": "null"}, tree], **order} if schema.optional else {**tree, **order}


def connect_schema(tree: JsonValue, root: JsonValue, references: Mapping[str, str]) -> Schema | None:
    """Return Connect's schema for a JSON Schema; None if Connect has no type for it."""
    if not isinstance(tree, dict):
        return None
    reference = tree.get("$ref")
    if isinstance(reference, str):
        return _resolve(reference, root, references)
    for word in ("oneOf", "anyOf"):
        branches = tree.get(word)
        if isinstance(branches, list):
            others = [each for each in branches if not (isinstance(each, dict) and each.get("type") == "null")]
            inner = connect_schema(others[0], root, references) if len(others) == 1 else None
            return inner.as_optional if inner is not None else None
    kind = tree.get("type")
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        inner = connect_schema({**tree, "type": others[0]}, root, references) if len(others) == 1 else None
        return inner.as_optional if inner is not None else None
    schema = _bare_schema(tree, root, references)
    if schema is None:
        return None
    version, parameters = tree.get("connect.version"), tree.get("connect.parameters")
    schema = with_facts(schema, tree.get("title"), version, tree.get("description"), parameters)
    default = tree.get("default")
    return schema if default is None else replace(schema, default=PLAIN_JSON.from_json(schema, connect_value(default)))


def _bare_schema(tree: JsonObject, root: JsonValue, references: Mapping[str, str]) -> Schema | None:
    """Return Connect's schema for the `type` alone, without title, default and so on; None if Connect has no type
    for it."""
    kind = tree.get("type")
    if kind == "array":
        items = connect_schema(tree.get("items"), root, references)
        return None if items is None else Schema(Type.ARRAY, values=items)
    if kind == "object":
        properties = tree.get("properties")
        if isinstance(properties, dict):
            return _struct(properties, tree.get("required"), root, references)
        values = connect_schema(tree.get("additionalProperties"), root, references)
        return None if values is None else Schema(Type.MAP, keys=Schema(Type.STRING), values=values)
    if not isinstance(kind, str) or kind not in _FROM_JSON:
        return None
    connect_type = tree.get("connect.type")
    return Schema(Type(connect_type) if connect_type in _TYPES else _FROM_JSON[kind])


def _struct(
    properties: JsonObject, required: JsonValue, root: JsonValue, references: Mapping[str, str]
) -> Schema | None:
    fields = []
    for name, inner in sorted(properties.items(), key=_index):
        schema = connect_schema(inner, root, references)
        if schema is None:
            return None
        # A schema that was written by hand says what is required; Connect says what may be null.
        is_optional = isinstance(required, list) and name not in required
        fields.append(Field(name, schema.as_optional if is_optional else schema))
    return Schema(Type.STRUCT, fields=tuple(fields))


def _index(named: tuple[str, JsonValue]) -> int:
    index = named[1].get("connect.index") if isinstance(named[1], dict) else None
    return index if isinstance(index, int) else 0


def _resolve(reference: str, root: JsonValue, references: Mapping[str, str]) -> Schema | None:
    if reference.startswith("#/"):
        tree = root
        for part in reference[2:].split("/"):
            tree = tree.get(part) if isinstance(tree, dict) else None
        return connect_schema(tree, root, references)
    text = references.get(reference)
    if text is None:
        return None
    tree = parse_json(text)
    return connect_schema(tree, tree, references)
