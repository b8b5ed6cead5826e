"""AvroConverter: Connect's schemas as Avro's, and back.

    struct → record, named after the schema or `ConnectDefault`      optional → a union with null
    int8, int16 → int with `connect.type`     a map with string keys → map, another → an array of entries
    Decimal, Date, Time, Timestamp → Avro's logical types decimal, date, time-millis, timestamp-millis

Name, version, documentation and parameters of a schema travel as `connect.*` properties, so that what comes back is
what went in. An enum comes in as a string that remembers what it was; a union of more than null becomes a struct with
one optional field for each branch.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.client.registry_client import ResolvedSchema
from pessoa.connect.converters.registry_converter import Reader, RegistryConverter, Writer
from pessoa.connect.data import (
    DATE,
    DATE_SCHEMA,
    DECIMAL,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    ConnectValue,
    DataFailure,
    Field,
    Schema,
    Type,
    as_single,
    connect_value,
    decimal_schema,
    infer_schema,
    scale_of,
    to_plain,
)
from pessoa.serde.avro.avro_schema import (
    Array,
    AvroType,
    EnumType,
    Fixed,
    Map,
    Missing,
    NamedType,
    Primitive,
    Record,
    Union,
    simple_name,
)
from pessoa.serde.avro.avro_schema import Field as AvroField
from pessoa.serde.avro.codec import AvroCodec
from pessoa.serde.avro.parsing import parse_avro
from pessoa.serde.avro.printing import AvroTree

_TO_AVRO = {
    Type.INT8: "int", Type.INT16: "int", Type.INT32: "int", Type.INT64: "long", Type.FLOAT32: "float",
    Type.FLOAT64: "double", Type.BOOLEAN: "boolean", Type.STRING: "string", Type.BYTES: "bytes",
}  # fmt: skip
_FROM_AVRO = {
    "int": Type.INT32, "long": Type.INT64, "float": Type.FLOAT32, "double": Type.FLOAT64, "boolean": Type.BOOLEAN,
    "string": Type.STRING, "bytes": Type.BYTES,
}  # fmt: skip
_LOGICAL = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis"}
_FROM_LOGICAL = {"date": DATE_SCHEMA, "time-millis": TIME_SCHEMA, "timestamp-millis": TIMESTAMP_SCHEMA}
# Avro demands a precision, which Connect does not know.
_PRECISION = 64
_UNION = "io.confluent.connect.avro.Union"
_ENUM = "io.confluent.connect.avro.Enum"


class AvroConverter(RegistryConverter):
    SCHEMA_TYPE = "AVRO"

    def schema_text_of(self, schema: Schema | None, value: ConnectValue) -> str:
        schema = schema or schema_of(value)
        return json.dumps(avro_tree(schema), separators=(",", ":"))

    def writer(self, text: str, schema: Schema | None) -> Writer:
        codec = AvroCodec(parse_avro(text)[0])
        return lambda value: codec.encode(to_fastavro(schema, value))

    def reader(self, stored: ResolvedSchema) -> tuple[Schema | None, Reader]:
        known: dict[str, NamedType] = {}
        for each in stored.references.values():
            known.update(parse_avro(each, known)[1])
        avro = parse_avro(stored.text, known)[0]
        codec = AvroCodec(avro)
        schema = connect_schema(avro)
        return schema, lambda payload: _from_fastavro(schema, codec.decode(payload))


def schema_of(value: ConnectValue) -> Schema:
    """Return a schema for data that has none: a map becomes a struct of optional fields."""
    if isinstance(value, dict):
        return Schema(Type.STRUCT, fields=tuple(Field(name, schema_of(one).as_optional) for name, one in value.items()))
    if isinstance(value, list):
        return Schema(
            Type.ARRAY, values=schema_of(value[0]).as_optional if value else Schema(Type.STRING, optional=True)
        )
    if value is None:
        return Schema(Type.STRING, optional=True)
    found = infer_schema(value)
    if found is None:
        raise DataFailure(f"a value of type {type(value).__name__} has no Avro form")
    return found


# Connect → Avro.


def avro_tree(schema: Schema, seen: set[str] | None = None, name: str = "ConnectDefault") -> AvroTree:
    seen = set() if seen is None else seen
    tree = _bare_tree(schema, seen, name)
    if not schema.optional:
        return tree
    # The branch of the default comes first.
    return [tree, "null"] if schema.default is not None else ["null", tree]


def _bare_tree(schema: Schema, seen: set[str], name: str) -> AvroTree:
    match schema.type:
        case Type.STRUCT:
            full = schema.name or name
            if full in seen:
                return full
            seen.add(full)
            fields: list[JsonValue] = [_field(each, seen, f"{full}_{each.name}") for each in schema.fields]
            tree: JsonObject = {"type": "record", "name": full, "fields": fields}
        case Type.ARRAY:
            assert schema.values is not None
            tree = {"type": "array", "items": avro_tree(schema.values, seen, name)}
        case Type.MAP:
            assert schema.keys is not None
            assert schema.values is not None
            if schema.keys.type is Type.STRING:
                tree = {"type": "map", "values": avro_tree(schema.values, seen, name)}
            else:
                pair = (Field("key", schema.keys), Field("value", schema.values))
                entry = Schema(Type.STRUCT, name=f"{name}MapEntry", fields=pair)
                tree = {"type": "array", "items": avro_tree(entry, seen)}
        case _:
            if schema.name == _ENUM:
                enum: AvroTree = json.loads(schema.parameters["avro"])
                return enum
            tree = {"type": _TO_AVRO[schema.type]}
    return _with_facts(schema, tree)


def _with_facts(schema: Schema, tree: JsonObject) -> AvroTree:
    if schema.name == DECIMAL:
        scale = scale_of(schema)
        precision = int(schema.parameters.get("connect.decimal.precision", _PRECISION))
        tree |= {"logicalType": "decimal", "precision": max(precision, scale, 1), "scale": scale}
    elif schema.name in _LOGICAL:
        tree["logicalType"] = _LOGICAL[schema.name]
    if schema.type in (Type.INT8, Type.INT16):
        tree["connect.type"] = schema.type.value
    if schema.doc is not None:
        tree["connect.doc"] = schema.doc
    if schema.version is not None:
        tree["connect.version"] = schema.version
    if schema.parameters:
        tree["connect.parameters"] = {**schema.parameters}
    if schema.name is not None:
        tree["connect.name"] = schema.name
    kind = tree["type"]
    return kind if len(tree) == 1 and isinstance(kind, str) else tree


def _field(each: Field, seen: set[str], name: str) -> JsonObject:
    tree: JsonObject = {"name": each.name, "type": avro_tree(each.schema, seen, name)}
    if each.schema.default is not None:
        tree["default"] = _json_default(to_plain(each.schema, each.schema.default))
    elif each.schema.optional:
        tree["default"] = None
    return tree


def _json_default(value: ConnectValue) -> JsonValue:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, list | tuple):
        return [_json_default(one) for one in value]
    if isinstance(value, dict):
        return {str(name): _json_default(one) for name, one in value.items()}
    raise TypeError(f"a default of type {type(value).__name__} has no form in an Avro schema")


def to_fastavro(schema: Schema | None, value: ConnectValue) -> ConnectValue:
    """Return the value as fastavro encodes it: a map whose keys are not strings becomes a list of entries."""
    if schema is None or value is None:
        return value
    if schema.type is Type.STRUCT and isinstance(value, dict):
        return {
            each.name: to_fastavro(each.schema, value.get(each.name, each.schema.default)) for each in schema.fields
        }
    if schema.type is Type.ARRAY and isinstance(value, list | tuple):
        return [to_fastavro(schema.values, one) for one in value]
    if schema.type is Type.MAP and isinstance(value, dict):
        if schema.keys is not None and schema.keys.type is Type.STRING:
            return {name: to_fastavro(schema.values, one) for name, one in value.items()}
        return [{"key": name, "value": to_fastavro(schema.values, one)} for name, one in value.items()]
    return value


# Avro → Connect.


def connect_schema(avro: AvroType, pending: tuple[str, ...] = ()) -> Schema:
    match avro:
        case Union(branches=branches):
            others = [each for each in branches if each.kind != "null"]
            has_null = len(others) < len(branches)
            if len(others) == 1:
                inner = connect_schema(others[0], pending)
                return inner.as_optional if has_null else inner
            fields = tuple(Field(_branch_name(each), connect_schema(each, pending).as_optional) for each in others)
            return Schema(Type.STRUCT, optional=has_null, name=_UNION, fields=fields)
        case Record():
            if avro.name in pending:
                raise DataFailure(f"{avro.name} contains itself, which Connect's schemas cannot")
            fields = tuple(Field(each.name, _field_schema(each, (*pending, avro.name))) for each in avro.fields)
            return _with_connect_facts(Schema(Type.STRUCT, name=avro.name, fields=fields, doc=avro.doc), avro)
        case EnumType():
            tree = {"type": "enum", "name": avro.name, "symbols": list(avro.symbols)}
            return Schema(Type.STRING, name=_ENUM, parameters={"avro": json.dumps(tree)})
        case Fixed():
            return _with_logical_type(avro.properties, Schema(Type.BYTES, name=avro.name))
        case Array():
            items = connect_schema(avro.items, pending)
            if items.name is not None and items.name.endswith("MapEntry"):
                return Schema(Type.MAP, keys=items.field("key"), values=items.field("value"))
            return _with_connect_facts(Schema(Type.ARRAY, values=items), avro)
        case Map():
            return _with_connect_facts(
                Schema(Type.MAP, keys=Schema(Type.STRING), values=connect_schema(avro.values, pending)), avro
            )
        case Primitive():
            if avro.kind == "null":
                return Schema(Type.STRING, optional=True)
            return _with_connect_facts(_with_logical_type(avro.properties, Schema(_FROM_AVRO[avro.kind])), avro)


def _with_logical_type(properties: JsonObject, schema: Schema) -> Schema:
    kind = properties.get("logicalType")
    if kind == "decimal" and schema.type is Type.BYTES:
        precision, scale = properties.get("precision"), properties.get("scale", 0)
        known = precision if isinstance(precision, int) and precision != _PRECISION else None
        return decimal_schema(scale if isinstance(scale, int) else 0, known)
    return _FROM_LOGICAL.get(kind, schema) if isinstance(kind, str) else schema


def _with_connect_facts(schema: Schema, avro: Record | Array | Map | Primitive) -> Schema:
    """Return the schema with the name, version and parameters from its `connect.*` properties."""
    if schema.name == "ConnectDefault" or (schema.name or "").startswith("ConnectDefault_"):
        schema = replace(schema, name=None)
    for word, fact in avro.properties.items():
        match word, fact:
            case "connect.type", "int8" | "int16":
                schema = replace(schema, type=Type(fact))
            case "connect.name", str() | None:
                schema = replace(schema, name=fact)
            case "connect.version", int() | None:
                schema = replace(schema, version=fact)
            case "connect.doc", str() | None:
                schema = replace(schema, doc=fact)
            case "connect.parameters", dict():
                schema = replace(schema, parameters={name: str(text) for name, text in fact.items()})
    return schema


def _field_schema(each: AvroField, pending: tuple[str, ...]) -> Schema:
    schema = connect_schema(each.type, pending)
    default = each.default
    if isinstance(default, Missing | dict | list) or schema.name in (DECIMAL, DATE, TIME, TIMESTAMP):
        return schema
    if schema.type is Type.BYTES and isinstance(default, str):
        return replace(schema, default=default.encode("latin-1"))
    return replace(schema, default=default)


def _branch_name(avro: AvroType) -> str:
    if isinstance(avro, Record | EnumType | Fixed):
        return simple_name(avro.name)
    return avro.kind


def _from_fastavro(schema: Schema, value: object) -> ConnectValue:
    """Return Connect's value for a value that fastavro has decoded."""
    if schema.name == _UNION and value is not None:
        return {each.name: connect_value(value) if _is_branch(each, value) else None for each in schema.fields}
    match value:
        case None | str() | int():
            return value
        case dict() if schema.type is Type.STRUCT:
            return {each.name: _from_fastavro(each.schema, value.get(each.name)) for each in schema.fields}
        case list() if schema.type is Type.ARRAY and schema.values is not None:
            inner = schema.values
            return [_from_fastavro(inner, one) for one in value]
        case list() if schema.type is Type.MAP and schema.values is not None:
            return {each["key"]: _from_fastavro(schema.values, each["value"]) for each in value}
        case dict() if schema.type is Type.MAP and schema.values is not None:
            return {name: _from_fastavro(schema.values, one) for name, one in value.items()}
        case float() if schema.type is Type.FLOAT32:
            return as_single(value)
        case datetime() if value.tzinfo is None:
            return value.replace(tzinfo=UTC)
    return connect_value(value)


def _is_branch(branch: Field, value: object) -> bool:
    kinds: dict[Type, type | tuple[type, ...]] = {
        Type.STRING: str, Type.INT32: int, Type.INT64: int, Type.FLOAT32: float, Type.FLOAT64: float,
        Type.BOOLEAN: bool, Type.BYTES: bytes, Type.STRUCT: dict, Type.MAP: dict, Type.ARRAY: list,
    }  # fmt: skip
    kind = kinds.get(branch.schema.type, object)
    return isinstance(value, kind) and not (isinstance(value, bool) and kind is int)
