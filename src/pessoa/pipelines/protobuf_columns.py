"""A Protobuf message as columns of Spark, and columns as a .proto file.

    int32, sint32, sfixed32    INT              bool      BOOLEAN     string, enums           STRING
    int64 …, uint32            BIGINT           float     FLOAT       bytes                   BINARY
    uint64, fixed64            DECIMAL(20,0)    double    DOUBLE      google.protobuf.Timestamp    TIMESTAMP
    repeated                   ARRAY            map       MAP         messages                STRUCT

Columns become `optional` fields, numbered in their order. A message within itself is refused, as in Avro.
"""

from __future__ import annotations

import datetime
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from pessoa.pipelines.columns import write_columns
from pessoa.pipelines.plan import PlanRefused

_TIMESTAMP = "google.protobuf.Timestamp"
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
    "timestamp": _TIMESTAMP,
}


def message_columns(descriptor: Any, within: tuple[str, ...] = ()) -> str:
    if descriptor.full_name in within:
        raise PlanRefused(f"the message {descriptor.full_name} contains itself, and no type of Spark does")
    inside = (*within, descriptor.full_name)
    return write_columns((field.name, _type(field, inside)) for field in descriptor.fields)


def _type(field: Any, within: tuple[str, ...]) -> str:
    if is_map(field):
        entry = field.message_type.fields_by_name
        return f"MAP<{_single(entry['key'], within)}, {_single(entry['value'], within)}>"
    return f"ARRAY<{_single(field, within)}>" if field.is_repeated else _single(field, within)


def _single(field: Any, within: tuple[str, ...]) -> str:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return "TIMESTAMP"
        return f"STRUCT<{message_columns(field.message_type, within)}>"
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return "BINARY" if field.type == FieldDescriptor.TYPE_BYTES else "STRING"
    return _CPP[field.cpp_type]


def is_map(field: Any) -> bool:
    return bool(
        field.is_repeated
        and field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        and field.message_type.GetOptions().map_entry
    )


def as_dict(message: Any) -> dict[str, Any]:
    """A message as plain values. A field that says whether it is there, and is not, is None."""
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if is_map(field):
            of_value = field.message_type.fields_by_name["value"]
            row[field.name] = {key: _plain(of_value, value[key]) for key in value}
        elif field.is_repeated:
            row[field.name] = [_plain(field, each) for each in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = _plain(field, value)
    return row


def _plain(field: Any, value: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        if field.message_type.full_name == _TIMESTAMP:
            return value.ToDatetime(tzinfo=datetime.UTC)
        return as_dict(value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return value


def fill(message: Any, row: dict[str, Any]) -> Any:
    """The message with the values of a row; what is None stays unset."""
    for name, value in row.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise ValueError(f"the message {message.DESCRIPTOR.full_name} has no field {name}")
        if value is None:
            continue
        if is_map(field):
            target = getattr(message, name)
            of_value = field.message_type.fields_by_name["value"]
            for key, each in dict(value).items():
                if of_value.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                    _put_message(target[key], each)
                else:
                    target[key] = _scalar(of_value, each)
        elif field.is_repeated:
            for each in value:
                if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                    _put_message(getattr(message, name).add(), each)
                else:
                    getattr(message, name).append(_scalar(field, each))
        elif field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            _put_message(getattr(message, name), value)
        else:
            setattr(message, name, _scalar(field, value))
    return message


def _put_message(target: Any, value: Any) -> None:
    if target.DESCRIPTOR.full_name == _TIMESTAMP:
        target.FromDatetime(value)
        return
    target.SetInParent()
    fill(target, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM and isinstance(value, str):
        named = field.enum_type.values_by_name.get(value)
        if named is None:
            raise ValueError(f"the enum {field.enum_type.full_name} has no value {value}")
        return named.number
    if field.cpp_type in (FieldDescriptor.CPPTYPE_UINT64, FieldDescriptor.CPPTYPE_INT64):
        return int(value)
    return value


def proto_text(struct: dict[str, Any], name: str) -> str:
    """A .proto file for a Spark struct, given as Spark's own JSON for schemas."""
    lines = _message(struct, name, "")
    imports = [f'import "{_TIMESTAMP_FILE}";'] if any(_TIMESTAMP in line for line in lines) else []
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
