"""JsonSchemaConverter: Connect's schemas as JSON Schema (draft 7), and back.

Types that JSON does not tell apart are told by `connect.type`, and the order of fields by `connect.index`. Optional
means `oneOf` with null. A decimal is base64 as in plain JSON, dates and times are numbers, each with its name as
`title`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pessoa.connect.converters.avro import schema_of
from pessoa.connect.converters.json import JsonConverter
from pessoa.connect.converters.registry import RegistryConverter, Stored
from pessoa.connect.data import Field, Schema, Type
from pessoa.serde.json_schema import JsonSchema, parse_json

_TO_JSON = {
    Type.BOOLEAN: "boolean", Type.STRING: "string", Type.BYTES: "string", Type.FLOAT32: "number",
    Type.FLOAT64: "number",
    Type.INT8: "integer", Type.INT16: "integer", Type.INT32: "integer", Type.INT64: "integer",
}  # fmt: skip
_FROM_JSON = {"boolean": Type.BOOLEAN, "string": Type.STRING, "number": Type.FLOAT64, "integer": Type.INT64}


class JsonSchemaConverter(RegistryConverter):
    SCHEMA_TYPE = "JSON"

    def text_of(self, schema: Schema | None, value: Any) -> str:
        return json.dumps(json_tree(schema or schema_of(value)), separators=(",", ":"))

    def writer(self, text: str, schema: Schema | None) -> Callable[[Any], bytes]:
        codec = JsonSchema(parse_json(text))
        plain = JsonConverter({"schemas.enable": "false"})
        return lambda value: codec.encode(plain.to_json(schema, value))

    def reader(self, stored: Stored) -> tuple[Schema | None, Callable[[bytes], Any]]:
        tree = parse_json(stored.text)
        codec = JsonSchema(tree, {name: parse_json(text) for name, text in stored.references.items()})
        schema = connect_schema(tree, tree, stored.references)
        plain = JsonConverter({"schemas.enable": "false"})
        return schema, lambda payload: plain.from_json(schema, codec.decode(payload, validate=False))


def json_tree(schema: Schema, index: int | None = None) -> dict[str, Any]:
    tree: dict[str, Any] = {}
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
        tree["default"] = JsonConverter({"schemas.enable": "false"}).to_json(schema, schema.default)
    order = {} if index is None else {"connect.index": index}
    return {"oneOf": [{"type": "null"}, tree], **order} if schema.optional else {**tree, **order}


def connect_schema(tree: Any, root: Any, references: Any) -> Schema | None:
    """None where the schema says nothing that Connect could use."""
    if not isinstance(tree, dict):
        return None
    reference = tree.get("$ref")
    if isinstance(reference, str):
        return _referred(reference, root, references)
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
    facts: dict[str, Any] = {
        "name": tree.get("title"),
        "version": tree.get("connect.version"),
        "doc": tree.get("description"),
        "parameters": tree.get("connect.parameters") or {},
    }
    schema = _plain(tree, kind, root, references, facts)
    if schema is None or tree.get("default") is None:
        return schema
    return replace(schema, default=JsonConverter({"schemas.enable": "false"}).from_json(schema, tree["default"]))


def _plain(tree: dict[str, Any], kind: Any, root: Any, references: Any, facts: dict[str, Any]) -> Schema | None:
    if kind == "array":
        items = connect_schema(tree.get("items"), root, references)
        return None if items is None else Schema(Type.ARRAY, values=items, **facts)
    if kind == "object":
        if "properties" not in tree:
            values = connect_schema(tree.get("additionalProperties"), root, references)
            return None if values is None else Schema(Type.MAP, keys=Schema(Type.STRING), values=values, **facts)
        ordered = sorted(tree["properties"].items(), key=lambda pair: pair[1].get("connect.index", 0))
        required = tree.get("required")
        fields = []
        for name, inner in ordered:
            schema = connect_schema(inner, root, references)
            if schema is None:
                return None
            # Those who write by hand say what is required; Connect says what may be null.
            is_optional = isinstance(required, list) and name not in required
            fields.append(Field(name, schema.as_optional if is_optional else schema))
        return Schema(Type.STRUCT, fields=tuple(fields), **facts)
    if kind not in _FROM_JSON:
        return None
    try:
        return Schema(Type(tree["connect.type"]) if "connect.type" in tree else _FROM_JSON[kind], **facts)
    except ValueError:
        return Schema(_FROM_JSON[kind], **facts)


def _referred(reference: str, root: Any, references: Any) -> Schema | None:
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
