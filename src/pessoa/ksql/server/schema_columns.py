"""Columns of a schema of the registry: what CREATE STREAM without columns takes. Names are upper-cased.

| Avro | JSON Schema | Protobuf | SQL |
|---|---|---|---|
| boolean | boolean | bool | BOOLEAN |
| int | integer, connect.type int32 | int32, sint32, sfixed32 | INTEGER |
| long | integer | int64, uint32, … | BIGINT |
| float, double | number | float, double | DOUBLE |
| string, enum | string | string, enums | STRING |
| bytes, fixed | string, connect.type bytes | bytes | BYTES |
| decimal, date, time-millis, timestamp-millis | Connect's | Timestamp, … | DECIMAL, DATE, TIME, TIMESTAMP |
| array, map, record | array, object | repeated, map, message | ARRAY, MAP, STRUCT |

A union with null is its other branch. A key that is no record is one column: ROWKEY.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pessoa.ksql.operators.schema_source import AVRO, JSON, KnownSchema
from pessoa.ksql.server.ksql_problems import BAD_STATEMENT, KsqlProblem
from pessoa.ksql.types.sql_types import (
    BIGINT,
    BOOLEAN,
    BYTES,
    DATE,
    DOUBLE,
    INTEGER,
    STRING,
    TIME,
    TIMESTAMP,
    Array,
    Decimal,
    Map,
    SqlType,
    Struct,
)

Columns = list[tuple[str, SqlType]]
_AVRO = {"boolean": BOOLEAN, "int": INTEGER, "long": BIGINT, "float": DOUBLE, "double": DOUBLE, "string": STRING,
         "enum": STRING, "bytes": BYTES, "fixed": BYTES}  # fmt: skip
_LOGICAL = {"date": DATE, "time-millis": TIME, "timestamp-millis": TIMESTAMP}
_CONNECT = {"int8": INTEGER, "int16": INTEGER, "int32": INTEGER, "int64": BIGINT, "bytes": BYTES, "float32": DOUBLE,
            "float64": DOUBLE}  # fmt: skip
_CONNECT_NAMES = {"org.apache.kafka.connect.data.Date": DATE, "org.apache.kafka.connect.data.Time": TIME,
                  "org.apache.kafka.connect.data.Timestamp": TIMESTAMP}  # fmt: skip
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_DEEPEST = 64


class _Unusable(Exception):
    """A schema cannot be expressed as SQL columns; the message says why."""


def columns_of_schema(schema: KnownSchema, *, is_key: bool) -> Columns:
    """Return the columns of a schema. Raises KsqlProblem if SQL types cannot express it."""
    try:
        if schema.type == AVRO:
            kind = _avro(json.loads(schema.text), {}, schema, 0)
        elif schema.type == JSON:
            root = json.loads(schema.text)
            kind = _json(root, root, 0)
        else:
            kind = _protobuf(schema)
    except (_Unusable, ValueError) as wrong:
        raise KsqlProblem(BAD_STATEMENT, f"The schema with id {schema.id} cannot be used: {wrong}") from None
    if isinstance(kind, Struct) and not is_key:
        return list(kind.fields)
    if isinstance(kind, Struct) and schema.type not in (AVRO, JSON):
        return list(kind.fields)
    return [("ROWKEY" if is_key else "ROWVAL", kind)]


def _struct(fields: list[tuple[str, SqlType]]) -> Struct:
    return Struct(tuple((name.upper(), kind) for name, kind in fields))


# Avro.


def _avro(node: Any, known: dict[str, Any], schema: KnownSchema, depth: int) -> SqlType:
    if depth > _DEEPEST:
        raise _Unusable("it is nested too deeply, or refers to itself")
    if isinstance(node, list):
        branches = [one for one in node if one != "null"]
        if len(branches) != 1:
            raise _Unusable("a union of several types has no type of SQL")
        return _avro(branches[0], known, schema, depth + 1)
    if isinstance(node, str):
        if node in _AVRO:
            return _AVRO[node]
        return _avro(_find_named_type(node, known, schema), known, schema, depth + 1)
    logical, kind = node.get("logicalType"), node.get("type")
    connect = node.get("connect.name")
    if logical == "decimal" or connect == _DECIMAL:
        return Decimal(int(node.get("precision") or 64), int(node.get("scale") or 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    match kind:
        case "array":
            items = node["items"]
            if isinstance(items, dict) and items.get("connect.internal.type") == "MapEntry":
                entry = _avro(items, known, schema, depth + 1)
                assert isinstance(entry, Struct)
                return Map(entry.fields[0][1], entry.fields[1][1])
            return Array(_avro(items, known, schema, depth + 1))
        case "map":
            return Map(STRING, _avro(node["values"], known, schema, depth + 1))
        case "record":
            known[_full_name(node)] = node
            return _struct([(one["name"], _avro(one["type"], known, schema, depth + 1)) for one in node["fields"]])
        case "enum" | "fixed":
            known[_full_name(node)] = node
            return _AVRO[kind]
    return _avro(kind, known, schema, depth + 1)


def _full_name(node: Mapping[str, Any]) -> str:
    space = node.get("namespace")
    return f"{space}.{node['name']}" if space else str(node["name"])


def _find_named_type(name: str, known: Mapping[str, Any], schema: KnownSchema) -> Any:
    for full, node in known.items():
        if full == name or full.rpartition(".")[2] == name:
            return node
    for text in schema.references.values():
        node = json.loads(text)
        if isinstance(node, dict) and name in (_full_name(node), node.get("name")):
            return node
    raise _Unusable(f"the type {name} is not there")


# JSON Schema.


def _json(node: Any, root: Any, depth: int) -> SqlType:
    if depth > _DEEPEST:
        raise _Unusable("it is nested too deeply, or refers to itself")
    if "$ref" in node:
        target = root
        for part in str(node["$ref"]).lstrip("#/").split("/"):
            target = target[part] if part else target
        return _json(target, root, depth + 1)
    for word in ("oneOf", "anyOf"):
        if word in node:
            branches = [one for one in node[word] if one.get("type") != "null"]
            if len(branches) != 1:
                raise _Unusable(f"{word} of several types has no type of SQL")
            return _json(branches[0], root, depth + 1)
    title = node.get("title") or node.get("connect.name")
    if title == _DECIMAL:
        parameters = node.get("connect.parameters", {})
        return Decimal(int(parameters.get("connect.decimal.precision", 64)), int(parameters.get("scale", 0)))
    if title in _CONNECT_NAMES:
        return _CONNECT_NAMES[title]
    if node.get("connect.type") in _CONNECT:
        return _CONNECT[node["connect.type"]]
    kinds = node.get("type")
    kind = next((one for one in kinds if one != "null"), None) if isinstance(kinds, list) else kinds
    return _json_type(node, kind, root, depth)


def _json_type(node: Any, kind: Any, root: Any, depth: int) -> SqlType:
    match kind:
        case "boolean":
            return BOOLEAN
        case "integer":
            return BIGINT
        case "number":
            return DOUBLE
        case "string":
            return STRING
        case "array":
            return Array(_json(node.get("items", {"type": "string"}), root, depth + 1))
        case "object":
            more = node.get("additionalProperties")
            if node.get("connect.type") == "map" or (isinstance(more, dict) and not node.get("properties")):
                return Map(STRING, _json(more or {"type": "string"}, root, depth + 1))
            fields = node.get("properties", {})
            ordered = sorted(fields.items(), key=lambda one: one[1].get("connect.index", 0))
            return _struct([(name, _json(one, root, depth + 1)) for name, one in ordered])
    raise _Unusable(f"the type {kind!r} has no type of SQL")


# Protobuf.

_PROTOBUF: dict[int, SqlType] = {
    1: DOUBLE, 2: DOUBLE, 3: BIGINT, 4: BIGINT, 5: INTEGER, 6: BIGINT, 7: BIGINT, 8: BOOLEAN, 9: STRING, 12: BYTES,
    13: BIGINT, 14: STRING, 15: INTEGER, 16: BIGINT, 17: INTEGER, 18: BIGINT,
}  # fmt: skip
_WELL_KNOWN = {"google.protobuf.Timestamp": TIMESTAMP, "google.type.Date": DATE, "google.type.TimeOfDay": TIME}
_WRAPPERS = "google.protobuf."


def _protobuf(schema: KnownSchema) -> SqlType:
    from pessoa.serde.protobuf.linking import link, read_proto

    imports = {name: read_proto(each, name) for name, each in schema.references.items()}
    messages = link(read_proto(schema.text), imports).descriptor.message_types_by_name
    return _message(next(iter(messages.values())), 0)


def _message(descriptor: Any, depth: int) -> SqlType:
    if depth > _DEEPEST:
        raise _Unusable("a message refers to itself")
    return _struct([(one.name, _field(one, depth)) for one in descriptor.fields])


def _field(field: Any, depth: int) -> SqlType:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        return Map(_single_type(entry["key"], depth), _single_type(entry["value"], depth))
    kind = _single_type(field, depth)
    repeated = getattr(field, "is_repeated", None)
    return Array(kind) if (repeated if repeated is not None else field.label == field.LABEL_REPEATED) else kind


def _single_type(field: Any, depth: int) -> SqlType:
    if field.message_type is None:
        return _PROTOBUF[field.type]
    name = field.message_type.full_name
    if name in _WELL_KNOWN:
        return _WELL_KNOWN[name]
    if name.startswith(_WRAPPERS) and name.endswith("Value"):
        return _PROTOBUF[field.message_type.fields_by_name["value"].type]
    return _message(field.message_type, depth + 1)
