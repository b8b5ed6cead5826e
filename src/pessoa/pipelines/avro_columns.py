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

import re
from typing import Any

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.pipelines.columns import write_columns
from pessoa.pipelines.plan import PlanRefused
from pessoa.serde.avro.avro_schema import Array, AvroType, EnumType, Fixed, Map, Primitive, Record, Union

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
_FROM_SPARK: dict[str, JsonValue] = {
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


def avro_columns(schema: AvroType, plain_name: str) -> str:
    """Return the columns of a schema. A schema that is no record is one column."""
    if isinstance(schema, Record):
        return _fields(schema, ())
    return write_columns([(plain_name, _type(schema, ()))])


def _fields(record: Record, within: tuple[str, ...]) -> str:
    if record.name in within:
        raise PlanRefused(f"the Avro record {record.name} contains itself, and no type of Spark does")
    inside = (*within, record.name)
    return write_columns((field.name, _type(field.type, inside)) for field in record.fields)


def _type(schema: AvroType, within: tuple[str, ...]) -> str:
    if isinstance(schema, Union):
        members = [each for each in schema.branches if each.kind != "null"]
        if len(members) != 1:
            kinds = ", ".join(each.kind for each in schema.branches)
            raise PlanRefused(f"an Avro union of {kinds} is of several types, and a column has one")
        return _type(members[0], within)
    logical = schema.properties.get("logicalType")
    if logical == "decimal":
        return f"DECIMAL({schema.properties['precision']},{schema.properties.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    match schema:
        case Record():
            return f"STRUCT<{_fields(schema, within)}>"
        case Array():
            return f"ARRAY<{_type(schema.items, within)}>"
        case Map():
            return f"MAP<STRING, {_type(schema.values, within)}>"
        case EnumType():
            return "STRING"
        case Fixed():
            return "BINARY"
        case Primitive():
            return _PRIMITIVES[schema.kind]


def avro_schema(struct: dict[str, Any], name: str) -> JsonObject:
    """Return an Avro record for a Spark struct, given as Spark's own JSON for schemas."""
    fields: list[JsonValue] = []
    for field in struct["fields"]:
        if not _NAME.match(field["name"]):
            raise PlanRefused(f"{field['name']!r} is no name in Avro: letters, digits and underscores are")
        kind: list[JsonValue] = ["null", _avro_type(field["type"], f"{name}_{field['name']}")]
        fields.append({"name": field["name"], "type": kind, "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _avro_type(kind: Any, name: str) -> JsonValue:
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
