"""Records as documents of Elasticsearch and OpenSearch: ids, bodies, mappings, and the lines of a bulk request. Pure.

    POST /_bulk        {"index": {"_index": "pedidos", "_id": "7", "version": 42, "version_type": "external"}}
                       {"id": 7, "total": 12.5}
                       {"delete": {"_index": "pedidos", "_id": "8", "version": 43, "version_type": "external"}}

The version is the record's offset: what is written a second time, or comes late, changes nothing. All records of a key
are in one partition, so their offsets can be compared.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal

from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.connect.data import (
    DATE,
    DECIMAL,
    EPOCH_DAY,
    TIME,
    TIMESTAMP,
    Binary,
    ConnectValue,
    DataFailure,
    Record,
    Schema,
    Type,
    time_to_millis,
    to_millis,
)

_DAY_MS = 86_400_000
_TYPES = {
    Type.INT8: "byte", Type.INT16: "short", Type.INT32: "integer", Type.INT64: "long", Type.FLOAT32: "float",
    Type.FLOAT64: "double", Type.BOOLEAN: "boolean", Type.BYTES: "binary",
}  # fmt: skip
_LOGICAL = {DECIMAL: "double", DATE: "date", TIMESTAMP: "date", TIME: "date"}


@dataclass(frozen=True, slots=True)
class DocumentRules:
    """How records become documents, from the configuration."""

    ignores_keys: bool = False
    upserts: bool = False
    # Maps with keys of text are objects; otherwise, and with other keys, lists of {"key", "value"}.
    compacts_maps: bool = True
    # With a data stream, documents are only ever added.
    is_data_stream: bool = False
    timestamp_fields: tuple[str, ...] = ()


def body_of(schema: Schema | None, value: ConnectValue, rules: DocumentRules) -> JsonValue:
    """Return a value as JSON: times are milliseconds since 1970, decimals numbers, bytes text of base64."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if value != value or value in (float("inf"), float("-inf")):
                raise DataFailure(f"{value} is no number that JSON has")
            return value
        case Decimal():
            return float(value)
        case datetime():
            return to_millis(value)
        case date():
            return (value - EPOCH_DAY).days * _DAY_MS
        case time():
            return time_to_millis(value)
        case list() | tuple():
            return [body_of(None if schema is None else schema.values, one, rules) for one in value]
        case dict():
            return _object(schema, value, rules)
    if not isinstance(value, Binary):
        raise DataFailure(f"a value of the type {type(value).__name__} is nothing that JSON has")
    return base64.b64encode(value).decode()


def _object(schema: Schema | None, value: Mapping[object, ConnectValue], rules: DocumentRules) -> JsonValue:
    if schema is not None and schema.type is Type.STRUCT:
        return {
            each.name: body_of(
                each.schema, each.schema.default if value.get(each.name) is None else value[each.name], rules
            )
            for each in schema.fields
        }
    inside = None if schema is None else schema.values
    if schema is None or (rules.compacts_maps and (schema.keys is None or schema.keys.type is Type.STRING)):
        return {str(key): body_of(inside, one, rules) for key, one in value.items()}
    keys = schema.keys
    return [{"key": body_of(keys, key, rules), "value": body_of(inside, one, rules)} for key, one in value.items()]  # type: ignore[arg-type]


def id_of(record: Record, rules: DocumentRules) -> str:
    """Return the id of a record's document; DataFailure if the record's key cannot be an id."""
    if rules.ignores_keys:
        return f"{record.topic}+{record.partition}+{record.offset}"
    key = record.key
    if key is None:
        raise DataFailure("a record has no key, so its document has no id: set key.ignore=true, or give records keys")
    if isinstance(key, bool | dict | list | tuple | float | Binary):
        raise DataFailure(f"a key of the type {type(key).__name__} is no id: take a field of it (ExtractField$Key)")
    text = str(key)
    if not text or len(text.encode()) > 512:
        raise DataFailure("an id has 1 to 512 bytes")
    return text


def lines_of(record: Record, index: str, rules: DocumentRules) -> bytes:
    """Return a record's lines in a bulk request. DataFailure if the record cannot become a document."""
    where: JsonObject = {"_index": index, "_id": id_of(record, rules)}
    is_versioned = (
        not rules.ignores_keys and not rules.is_data_stream and not rules.upserts and record.offset is not None
    )
    if is_versioned:
        where |= {"version": record.offset, "version_type": "external"}
    if record.value is None:
        return _line({"delete": where})
    body = body_of(record.value_schema, record.value, rules)
    if not isinstance(body, dict):
        raise DataFailure(
            f"a value of the type {type(record.value).__name__} is no document: wrap it (HoistField$Value)"
        )
    if rules.is_data_stream:
        body = {**body, "@timestamp": _moment(body, record, rules)}
        return _line({"create": where}) + _line(body)
    if rules.upserts:
        return _line({"update": {**where, "retry_on_conflict": 5}}) + _line({"doc": body, "doc_as_upsert": True})
    return _line({"create" if rules.ignores_keys else "index": where}) + _line(body)


def _moment(body: JsonObject, record: Record, rules: DocumentRules) -> JsonValue:
    for name in rules.timestamp_fields:
        if body.get(name) is not None:
            return body[name]
    return body.get("@timestamp", record.timestamp)


def _line(value: JsonValue) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def mapping_of(schema: Schema, rules: DocumentRules) -> JsonObject:
    """Return the mapping of a schema: the types of an index's fields."""
    if schema.name in _LOGICAL:
        return {"type": _LOGICAL[schema.name]}
    match schema.type:
        case Type.STRUCT:
            return {"properties": {each.name: mapping_of(each.schema, rules) for each in schema.fields}}
        case Type.ARRAY:
            assert schema.values is not None
            return mapping_of(schema.values, rules)
        case Type.MAP:
            if rules.compacts_maps and schema.keys is not None and schema.keys.type is Type.STRING:
                return {"type": "object"}
            assert schema.keys is not None
            assert schema.values is not None
            inside: JsonObject = {"key": mapping_of(schema.keys, rules), "value": mapping_of(schema.values, rules)}
            return {"type": "nested", "properties": inside}
        case Type.STRING:
            return {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
    return {"type": _TYPES[schema.type]}
