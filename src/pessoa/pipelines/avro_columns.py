"""An Avro schema as columns of Spark, and columns as an Avro schema.

    null | boolean | int | long | float | double | bytes | string    BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, BINARY, STRING
    enum, uuid                                                       STRING
    array, map, record                                               ARRAY, MAP<STRING, …>, STRUCT
    [null, X]                                                        X: everything may be null in Spark
    date, timestamp-millis, timestamp-micros, decimal                DATE, TIMESTAMP, DECIMAL(p,s)

A union of several types has no type in Spark, and a record within itself neither: such schemas are refused.

Columns become a record whose fields may all be null, as any expression's result may.

Pure.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pessoa.pipelines.columns import write_columns
from pessoa.pipelines.plan import PlanRefused

_PRIMITIVES = {
    "null": "VOID",
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
}
_LOGICAL = {
    "date": "DATE",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP_NTZ",
    "uuid": "STRING",
}
_FROM_SPARK: dict[str, Any] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "binary": "bytes",
    "string": "string",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def avro_columns(schema: Any, plain_name: str) -> str:
    """The columns of a schema (as parsed JSON, references inlined). One that is no record is one column."""
    seen: dict[str, Any] = {}
    if is_record(schema):
        return write_columns(_fields(schema, seen, ()))
    return write_columns([(plain_name, _type(schema, seen, ()))])


def is_record(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type") == "record"


def _fields(record: dict[str, Any], seen: dict[str, Any], within: tuple[str, ...]) -> list[tuple[str, str]]:
    name = _full_name(record)
    seen[name] = seen[record["name"]] = record
    inside = (*within, name, record["name"])
    return [(field["name"], _type(field["type"], seen, inside)) for field in record["fields"]]


def _type(schema: Any, seen: dict[str, Any], within: tuple[str, ...]) -> str:
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return _PRIMITIVES[schema]
        if schema in within:
            raise PlanRefused(f"the Avro record {schema} contains itself, and no type of Spark does")
        return _type(seen[schema], seen, within)
    if isinstance(schema, list):
        members = [each for each in schema if each != "null"]
        if len(members) != 1:
            raise PlanRefused(f"the Avro union {json.dumps(schema)} is of several types, and a column has one")
        return _type(members[0], seen, within)
    logical = schema.get("logicalType")
    if logical == "decimal":
        return f"DECIMAL({schema['precision']},{schema.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    match schema["type"]:
        case "record":
            return "STRUCT<" + write_columns(_fields(schema, seen, within)) + ">"
        case "array":
            return f"ARRAY<{_type(schema['items'], seen, within)}>"
        case "map":
            return f"MAP<STRING, {_type(schema['values'], seen, within)}>"
        case "enum" | "fixed":
            seen[_full_name(schema)] = seen[schema["name"]] = schema
            return "STRING" if schema["type"] == "enum" else "BINARY"
        case other:
            return _type(other, seen, within)


def _full_name(named: dict[str, Any]) -> str:
    name: str = named["name"]
    return name if "." in name or not named.get("namespace") else f"{named['namespace']}.{name}"


def avro_schema(struct: dict[str, Any], name: str) -> dict[str, Any]:
    """A record for a Spark struct, given as Spark's own JSON for schemas."""
    fields = []
    for field in struct["fields"]:
        if not _NAME.match(field["name"]):
            raise PlanRefused(f"{field['name']!r} is no name in Avro: letters, digits and underscores are")
        fields.append({"name": field["name"], "type": ["null", _avro_type(field["type"], f"{name}_{field['name']}")]})
    return {"type": "record", "name": name, "fields": [{**field, "default": None} for field in fields]}


def _avro_type(kind: Any, name: str) -> Any:
    if isinstance(kind, dict):
        match kind["type"]:
            case "struct":
                return avro_schema(kind, name)
            case "array":
                return {"type": "array", "items": ["null", _avro_type(kind["elementType"], name)]}
            case "map":
                if kind["keyType"] != "string":
                    raise PlanRefused(f"a map in Avro has strings for keys, and {name} has {kind['keyType']}")
                return {"type": "map", "values": ["null", _avro_type(kind["valueType"], name)]}
    if match := _DECIMAL.match(str(kind)):
        return {"type": "bytes", "logicalType": "decimal", "precision": int(match[1]), "scale": int(match[2])}
    if kind not in _FROM_SPARK:
        raise PlanRefused(f"{name} is of type {kind}, which Avro does not have")
    return _FROM_SPARK[kind]
