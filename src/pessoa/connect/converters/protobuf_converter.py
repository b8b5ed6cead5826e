"""ProtobufConverter: Connect's schemas as proto3 messages, and back.

    struct → message, fields numbered from 1      optional → `optional`      array → repeated      map → map<…>
    int8, int16, int32 → int32      Decimal, Date, Time, Timestamp → string, int32, int32, google.protobuf.Timestamp

Only a struct can be a message, so other values are wrapped into one with the single field `value`. What Protobuf
cannot say (names of logical types) is lost on the way, except for timestamps.
"""

from __future__ import annotations

import re
from decimal import Decimal

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from pessoa.client.registry_client import ResolvedSchema
from pessoa.connect.converters.avro_converter import schema_of
from pessoa.connect.converters.registry_converter import Reader, RegistryConverter, Writer
from pessoa.connect.data import (
    DECIMAL,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    ConnectValue,
    DataFailure,
    Field,
    Schema,
    Struct,
    Type,
    connect_value,
    to_plain,
)
from pessoa.serde.framing import encode_message_indexes
from pessoa.serde.protobuf.codec import ProtobufCodec
from pessoa.serde.protobuf.linking import ProtoFile, link, read_proto
from pessoa.serde.protobuf.plain_values import TIMESTAMP as MOMENT
from pessoa.serde.protobuf.plain_values import as_dict, fill, is_map
from pessoa.serde.schema_problems import DataProblem

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
_WRAPPED = "value"


class ProtobufConverter(RegistryConverter):
    SCHEMA_TYPE = "PROTOBUF"

    def schema_text_of(self, schema: Schema | None, value: ConnectValue) -> str:
        return proto_text(_message_schema(schema or schema_of(value)))

    def writer(self, text: str, schema: Schema | None) -> Writer:
        file = link(read_proto(text))
        descriptor = next(iter(file.descriptor.message_types_by_name.values()))
        kind = GetMessageClass(descriptor)
        is_wrapped = schema is not None and schema.type is not Type.STRUCT

        def write(value: ConnectValue) -> bytes:
            shape = _message_schema(schema or schema_of(value))
            try:
                data: bytes = fill(kind(), _row(shape, {_WRAPPED: value} if is_wrapped else value)).SerializeToString()
            except (AttributeError, TypeError, ValueError) as wrong:
                raise DataFailure(f"the value does not fit the message {descriptor.full_name}: {wrong}") from None
            return encode_message_indexes((0,)) + data

        return write

    def reader(self, stored: ResolvedSchema) -> tuple[Schema | None, Reader]:
        file = link(read_proto(stored.text), {name: read_proto(text, name) for name, text in stored.references.items()})
        codec = ProtobufCodec(file)

        def read(payload: bytes) -> ConnectValue:
            try:
                return connect_value(as_dict(codec.read(payload)))
            except DataProblem as wrong:
                raise DataFailure(str(wrong)) from None

        return _first_schema(file), read


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
        return MOMENT
    return "string" if schema.name == DECIMAL else _TO_PROTO[schema.type]


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    return text if not text[:1].isdigit() else f"_{text}"


def _row(schema: Schema, value: ConnectValue) -> Struct:
    """Return the message's fields by their Protobuf names; fields that the schema lacks are left out."""
    if not isinstance(value, dict):
        raise TypeError(f"a message is made of a struct, and not of {type(value).__name__}")
    return {_identifier(each.name): _to_message_value(each.schema, value.get(each.name)) for each in schema.fields}


def _to_message_value(schema: Schema, value: ConnectValue) -> ConnectValue:
    if value is None or schema.name == TIMESTAMP:
        return value
    inner = schema.values
    if schema.type is Type.STRUCT:
        return _row(schema, value)
    if schema.type is Type.ARRAY and inner is not None and isinstance(value, list | tuple):
        return [_to_message_value(inner, one) for one in value]
    if schema.type is Type.MAP and inner is not None and isinstance(value, dict):
        return {key: _to_message_value(inner, one) for key, one in value.items()}
    return str(value) if isinstance(value, Decimal) else to_plain(schema, value)


# Protobuf → Connect.


def _first_schema(file: ProtoFile) -> Schema:
    return _schema_of(next(iter(file.descriptor.message_types_by_name.values())), ())


def _schema_of(descriptor: Descriptor, pending: tuple[str, ...]) -> Schema:
    if descriptor.full_name in pending:
        raise DataFailure(f"{descriptor.full_name} contains itself, which Connect's schemas cannot")
    inside = (*pending, descriptor.full_name)
    fields = tuple(Field(each.name, _field_schema(each, inside)) for each in descriptor.fields)
    return Schema(Type.STRUCT, name=descriptor.full_name, fields=fields)


def _field_schema(each: FieldDescriptor, pending: tuple[str, ...]) -> Schema:
    message = each.message_type
    if message is not None and is_map(each):
        keys = _single_value_schema(message.fields_by_name["key"], pending)
        return Schema(Type.MAP, keys=keys, values=_single_value_schema(message.fields_by_name["value"], pending))
    schema = _single_value_schema(each, pending)
    if each.is_repeated:
        return Schema(Type.ARRAY, values=schema)
    return schema.as_optional if each.has_presence else schema


def _single_value_schema(each: FieldDescriptor, pending: tuple[str, ...]) -> Schema:
    if each.message_type is not None:
        if each.message_type.full_name == MOMENT:
            return TIMESTAMP_SCHEMA
        return _schema_of(each.message_type, pending)
    if each.type == FieldDescriptor.TYPE_BYTES:
        return Schema(Type.BYTES)
    return Schema(_FROM_PROTO.get(each.cpp_type, Type.STRING))
