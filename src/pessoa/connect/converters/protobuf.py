"""ProtobufConverter: Connect's schemas as proto3 messages, and back.

    struct → message, fields numbered from 1      optional → `optional`      array → repeated      map → map<…>
    int8, int16, int32 → int32      Decimal, Date, Time, Timestamp → string, int32, int32, google.protobuf.Timestamp

Only a struct can be a message, so other values are wrapped into one with the single field `value`. What Protobuf
cannot say (names of logical types) is lost on the way, except for timestamps.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from pessoa.connect.converters.avro import schema_of
from pessoa.connect.converters.registry import RegistryConverter, Stored
from pessoa.connect.data import DECIMAL, TIMESTAMP, TIMESTAMP_SCHEMA, DataFailure, Field, Schema, Type, to_plain
from pessoa.serde.framing import decode_message_indexes, encode_message_indexes
from pessoa.serde.protobuf.linking import ProtoFile, link, read_proto

_TO_PROTO = {
    Type.INT8: "int32", Type.INT16: "int32", Type.INT32: "int32", Type.INT64: "int64", Type.FLOAT32: "float",
    Type.FLOAT64: "double", Type.BOOLEAN: "bool", Type.STRING: "string", Type.BYTES: "bytes",
}  # fmt: skip
_FROM_PROTO = {
    FieldDescriptor.CPPTYPE_INT32: Type.INT32, FieldDescriptor.CPPTYPE_INT64: Type.INT64,
    # Unsigned numbers of 32 bits need a long in Java.
    FieldDescriptor.CPPTYPE_UINT32: Type.INT64, FieldDescriptor.CPPTYPE_UINT64: Type.INT64,
    FieldDescriptor.CPPTYPE_FLOAT: Type.FLOAT32, FieldDescriptor.CPPTYPE_DOUBLE: Type.FLOAT64,
    FieldDescriptor.CPPTYPE_BOOL: Type.BOOLEAN, FieldDescriptor.CPPTYPE_ENUM: Type.STRING,
}  # fmt: skip
_MOMENT = "google.protobuf.Timestamp"
_WRAPPED = "value"


class ProtobufConverter(RegistryConverter):
    SCHEMA_TYPE = "PROTOBUF"

    def text_of(self, schema: Schema | None, value: Any) -> str:
        return proto_text(_message_schema(schema or schema_of(value)))

    def writer(self, text: str, schema: Schema | None) -> Callable[[Any], bytes]:
        file = link(read_proto(text))
        descriptor = next(iter(file.descriptor.message_types_by_name.values()))
        kind = GetMessageClass(descriptor)
        is_wrapped = schema is not None and schema.type is not Type.STRUCT

        def write(value: Any) -> bytes:
            shape = _message_schema(schema or schema_of(value))
            message = kind()
            try:
                _fill(message, shape, {_WRAPPED: value} if is_wrapped else value)
            except (TypeError, ValueError) as wrong:
                raise DataFailure(f"the value does not fit the message {descriptor.full_name}: {wrong}") from None
            return encode_message_indexes((0,)) + message.SerializeToString()

        return write

    def reader(self, stored: Stored) -> tuple[Schema | None, Callable[[bytes], Any]]:
        file = link(read_proto(stored.text), {name: read_proto(text, name) for name, text in stored.references.items()})
        return _first_schema(file), lambda payload: _read_payload(file, payload)


def _message_schema(schema: Schema) -> Schema:
    if schema.type is Type.STRUCT:
        return schema
    return Schema(Type.STRUCT, name="ConnectDefault1", fields=(Field(_WRAPPED, schema),))


# Connect → Protobuf.


def proto_text(schema: Schema) -> str:
    package, _, name = (schema.name or "ConnectDefault1").rpartition(".")
    lines = ['syntax = "proto3";']
    if package:
        lines.append(f"package {package};")
    if _has_moment(schema):
        lines.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*lines, *_message(_identifier(name), schema, "")]) + "\n"


def _has_moment(schema: Schema) -> bool:
    inside = [each.schema for each in schema.fields] + [
        each for each in (schema.keys, schema.values) if each is not None
    ]
    return schema.name == TIMESTAMP or any(_has_moment(each) for each in inside)


def _message(name: str, schema: Schema, indent: str) -> list[str]:
    lines = [f"{indent}message {name} {{"]
    for number, each in enumerate(schema.fields, start=1):
        kind, label = each.schema, ""
        if kind.type is Type.ARRAY and kind.values is not None:
            kind, label = kind.values, "repeated "
        elif kind.optional and kind.type is not Type.MAP:
            label = "optional "
        word = _kind(kind, each.name, lines, f"{indent}  ")
        lines.append(f"{indent}  {label}{word} {_identifier(each.name)} = {number};")
    lines.append(f"{indent}}}")
    return lines


def _kind(schema: Schema, name: str, lines: list[str], indent: str) -> str:
    if schema.type is Type.MAP:
        assert schema.keys is not None
        assert schema.values is not None
        return f"map<{_TO_PROTO[schema.keys.type]}, {_kind(schema.values, name, lines, indent)}>"
    if schema.type is Type.STRUCT:
        inner = _identifier((schema.name or "").rpartition(".")[2] or f"{name[:1].upper()}{name[1:]}Message")
        lines += _message(inner, schema, indent)
        return inner
    if schema.type is Type.ARRAY:
        raise DataFailure("an array of arrays has no form in Protobuf")
    if schema.name == TIMESTAMP:
        return _MOMENT
    return "string" if schema.name == DECIMAL else _TO_PROTO[schema.type]


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    return text if not text[:1].isdigit() else f"_{text}"


def _fill(message: Any, schema: Schema, value: dict[str, Any]) -> None:
    for each in schema.fields:
        inner = value.get(each.name)
        if inner is None:
            continue
        name = _identifier(each.name)
        if each.schema.type is Type.ARRAY and each.schema.values is not None:
            for one in inner:
                _add(message, name, each.schema.values, one)
        elif each.schema.type is Type.MAP and each.schema.values is not None:
            target = getattr(message, name)
            for key, one in inner.items():
                if each.schema.values.type is Type.STRUCT:
                    _fill(target[key], each.schema.values, one)
                else:
                    target[key] = _scalar(each.schema.values, one)
        elif each.schema.type is Type.STRUCT:
            target = getattr(message, name)
            target.SetInParent()
            _fill(target, each.schema, inner)
        elif each.schema.name == TIMESTAMP:
            getattr(message, name).FromDatetime(inner)
        else:
            setattr(message, name, _scalar(each.schema, inner))


def _add(message: Any, name: str, schema: Schema, value: Any) -> None:
    if schema.type is Type.STRUCT:
        _fill(getattr(message, name).add(), schema, value)
    elif schema.name == TIMESTAMP:
        getattr(message, name).add().FromDatetime(value)
    else:
        getattr(message, name).append(_scalar(schema, value))


def _scalar(schema: Schema, value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else to_plain(schema, value)


# Protobuf → Connect.


def _first_schema(file: ProtoFile) -> Schema:
    return _schema_of(next(iter(file.descriptor.message_types_by_name.values())), ())


def _schema_of(descriptor: Any, pending: tuple[str, ...]) -> Schema:
    if descriptor.full_name in pending:
        raise DataFailure(f"{descriptor.full_name} contains itself, which Connect's schemas cannot")
    inside = (*pending, descriptor.full_name)
    fields = tuple(Field(each.name, _field_schema(each, inside)) for each in descriptor.fields)
    return Schema(Type.STRUCT, name=descriptor.full_name, fields=fields)


def _field_schema(each: Any, pending: tuple[str, ...]) -> Schema:
    message = each.message_type
    if message is not None and message.GetOptions().map_entry:
        keys = _bare(message.fields_by_name["key"], pending)
        return Schema(Type.MAP, keys=keys, values=_bare(message.fields_by_name["value"], pending))
    schema = _bare(each, pending)
    if each.is_repeated:
        return Schema(Type.ARRAY, values=schema)
    return schema.as_optional if each.has_presence else schema


def _bare(each: Any, pending: tuple[str, ...]) -> Schema:
    if each.message_type is not None:
        if each.message_type.full_name == _MOMENT:
            return TIMESTAMP_SCHEMA
        return _schema_of(each.message_type, pending)
    if each.type == FieldDescriptor.TYPE_BYTES:
        return Schema(Type.BYTES)
    return Schema(_FROM_PROTO.get(each.cpp_type, Type.STRING))


def _read_payload(file: ProtoFile, payload: bytes) -> Any:
    indexes, data = decode_message_indexes(payload)
    messages = list(file.descriptor.message_types_by_name.values())
    descriptor: Any = None
    for index in indexes:
        if index >= len(messages):
            raise DataFailure(f"the schema has no message at {list(indexes)}")
        descriptor = messages[index]
        messages = descriptor.nested_types
    try:
        message = GetMessageClass(descriptor).FromString(bytes(data))
    except DecodeError as wrong:
        raise DataFailure(f"the bytes are no message {descriptor.full_name}: {wrong}") from None
    return _value_of(message)


def _value_of(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in message.DESCRIPTOR.fields:
        inner = getattr(message, each.name)
        if each.message_type is not None and each.message_type.GetOptions().map_entry:
            value = each.message_type.fields_by_name["value"]
            found[each.name] = {key: _one(value, inner[key]) for key in inner}
        elif each.is_repeated:
            found[each.name] = [_one(each, one) for one in inner]
        elif each.has_presence and not message.HasField(each.name):
            found[each.name] = None
        else:
            found[each.name] = _one(each, inner)
    return found


def _one(each: Any, value: Any) -> Any:
    if each.message_type is not None:
        if each.message_type.full_name == _MOMENT:
            moment: datetime = value.ToDatetime(tzinfo=UTC)
            return moment
        return _value_of(value)
    if each.enum_type is not None:
        known = each.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return value
