"""A Protobuf message as columns of Spark, and columns as a .proto file.

    int32, sint32, sfixed32    INT              bool      BOOLEAN     string, enums           STRING
    int64 …, uint32            BIGINT           float     FLOAT       bytes                   BINARY
    uint64, fixed64            DECIMAL(20,0)    double    DOUBLE      google.protobuf.Timestamp    TIMESTAMP
    repeated                   ARRAY            map       MAP         messages                STRUCT

Columns become `optional` fields, numbered in their order. A message within itself is refused, as in Avro.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from pessoa.pipelines.columns import write_columns
from pessoa.pipelines.plan import PlanRefused
from pessoa.serde.protobuf.plain_values import TIMESTAMP, Field, MessageType, map_entry

_CPP = {
    FieldDescriptor.CPPTYPE_INT32: "INT",
    FieldDescriptor.CPPTYPE_INT64: "BIGINT",
    FieldDescriptor.CPPTYPE_UINT32: "BIGINT",
    FieldDescriptor.CPPTYPE_UINT64: "DECIMAL(20,0)",
    FieldDescriptor.CPPTYPE_DOUBLE: "DOUBLE",
    FieldDescriptor.CPPTYPE_FLOAT: "FLOAT",
    FieldDescriptor.CPPTYPE_BOOL: "BOOLEAN",
    FieldDescriptor.CPPTYPE_ENUM: "STRING",
}
_FROM_SPARK = {
    "boolean": "bool",
    "byte": "int32",
    "short": "int32",
    "integer": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "binary": "bytes",
    "string": "string",
    "timestamp": TIMESTAMP,
}


def message_columns(descriptor: MessageType, within: tuple[str, ...] = ()) -> str:
    if descriptor.full_name in within:
        raise PlanRefused(f"the message {descriptor.full_name} contains itself, and no type of Spark does")
    inside = (*within, descriptor.full_name)
    return write_columns((field.name, _type(field, inside)) for field in descriptor.fields)


def _type(field: Field, within: tuple[str, ...]) -> str:
    entry = map_entry(field)
    if entry is not None:
        of_key, of_value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return f"MAP<{_single_type(of_key, within)}, {_single_type(of_value, within)}>"
    return f"ARRAY<{_single_type(field, within)}>" if field.is_repeated else _single_type(field, within)


def _single_type(field: Field, within: tuple[str, ...]) -> str:
    if field.message_type is not None:
        if field.message_type.full_name == TIMESTAMP:
            return "TIMESTAMP"
        return f"STRUCT<{message_columns(field.message_type, within)}>"
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return "BINARY" if field.type == FieldDescriptor.TYPE_BYTES else "STRING"
    return _CPP[field.cpp_type]


def proto_text(struct: dict[str, Any], name: str) -> str:
    """Return a .proto file for a Spark struct, given as Spark's own JSON for schemas."""
    lines = _message(struct, name, "")
    imports = [f'import "{_TIMESTAMP_FILE}";'] if any(TIMESTAMP in line for line in lines) else []
    return "\n".join(['syntax = "proto3";', *imports, *lines]) + "\n"


_TIMESTAMP_FILE = "google/protobuf/timestamp.proto"


def _message(struct: dict[str, Any], name: str, indent: str) -> list[str]:
    lines, nested = [], []
    for number, field in enumerate(struct["fields"], start=1):
        kind, label = field["type"], "optional "
        if isinstance(kind, dict) and kind["type"] == "array":
            kind, label = kind["elementType"], "repeated "
        if isinstance(kind, dict) and kind["type"] == "map":
            kind, label = f"map<{_scalar_name(kind['keyType'])}, {_scalar_name(kind['valueType'])}>", ""
        elif isinstance(kind, dict) and kind["type"] == "struct":
            inner = field["name"].title().replace("_", "")
            nested += _message(kind, inner, indent + "  ")
            kind = inner
        else:
            kind = _scalar_name(kind)
        lines.append(f"{indent}  {label}{kind} {field['name']} = {number};")
    return [f"{indent}message {name} {{", *nested, *lines, f"{indent}}}"]


def _scalar_name(kind: Any) -> str:
    if not isinstance(kind, str) or kind not in _FROM_SPARK:
        raise PlanRefused(f"a column of type {kind} has no field in Protobuf")
    return _FROM_SPARK[kind]
