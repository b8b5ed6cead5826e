"""The records of `_schemas`: keys and values as JSON, byte for byte as the JVM registry writes them.

The topic is compacted, and compaction compares keys as bytes; so the order of the properties in a key is part of the
format:

    {"keytype":"SCHEMA","subject":"s","version":1,"magic":1}      → the version, or nothing: gone for good
    {"keytype":"CONFIG","subject":"s","magic":0}                  → the configuration; without subject: of everything
    {"keytype":"MODE","subject":"s","magic":0}                    → the mode
    {"keytype":"DELETE_SUBJECT","subject":"s","magic":0}          → soft deletion of all versions up to one
    {"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}           → forgets a deletion of the subject
    {"keytype":"CONTEXT","tenant":"default","context":".c"}       → a context exists
    {"keytype":"NOOP","magic":0}                                  → nothing: marks where the log ends

Reading is lenient: a null subject, other orders of properties, unknown key types and unknown properties are accepted,
because registries of several makes and ages have written such topics.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import msgspec

from pessoa.base.json_value import JsonObject
from pessoa.schema_registry.model import AVRO, ConfigValue, DeleteSubjectValue, ModeValue, SchemaValue

Value = SchemaValue | ConfigValue | ModeValue | DeleteSubjectValue


class SchemaKey(NamedTuple):
    subject: str
    version: int


class ConfigKey(NamedTuple):
    # None: everything.
    subject: str | None


class ModeKey(NamedTuple):
    subject: str | None


class DeleteSubjectKey(NamedTuple):
    subject: str


class ClearSubjectKey(NamedTuple):
    subject: str


class ContextKey(NamedTuple):
    context: str
    tenant: str = "default"


class NoopKey(NamedTuple):
    pass


Key = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | ContextKey | NoopKey


class Record(NamedTuple):
    key: Key
    value: Value | None
    # When it was written, of a record that was read.
    timestamp_ms: int | None = None


def encode_key(key: Key) -> bytes:
    match key:
        case SchemaKey():
            tree: JsonObject = {"keytype": "SCHEMA", "subject": key.subject, "version": key.version, "magic": 1}
        case ConfigKey():
            tree = {"keytype": "CONFIG", "subject": key.subject, "magic": 0}
        case ModeKey():
            tree = {"keytype": "MODE", "subject": key.subject, "magic": 0}
        case DeleteSubjectKey():
            tree = {"keytype": "DELETE_SUBJECT", "subject": key.subject, "magic": 0}
        case ClearSubjectKey():
            tree = {"keytype": "CLEAR_SUBJECT", "subject": key.subject, "magic": 0}
        case ContextKey():
            tree = {"keytype": "CONTEXT", "tenant": key.tenant, "context": key.context}
        case NoopKey():
            tree = {"keytype": "NOOP", "magic": 0}
    return _dump(tree)


def encode_value(value: Value | None) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, SchemaValue):
        return _dump(_schema_tree(value))
    return msgspec.json.encode(value)


def _schema_tree(value: SchemaValue) -> JsonObject:
    # AVRO goes unsaid, as it was before there were other types, so that old readers understand it.
    tree: JsonObject = {"subject": value.subject, "version": value.version, "id": value.id}
    if value.schemaType != AVRO:
        tree["schemaType"] = value.schemaType
    if value.references:
        tree["references"] = msgspec.to_builtins(value.references)
    if value.metadata is not None:
        tree["metadata"] = msgspec.to_builtins(value.metadata)
    if value.ruleSet is not None:
        tree["ruleSet"] = msgspec.to_builtins(value.ruleSet)
    return tree | {"schema": value.schema, "deleted": value.deleted}


def decode(key: bytes | None, value: bytes | None) -> Record | None:
    """Return the record, or None for a key or value that is not one of the registry's."""
    try:
        tree = json.loads(key or b"")
        found = _key(tree) if isinstance(tree, dict) else None
        if found is None:
            return None
        return Record(found, _value(found, value) if value else None)
    except (ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError, RecursionError):
        return None


def _key(tree: dict[str, Any]) -> Key | None:
    match tree.get("keytype"):
        case "SCHEMA":
            return SchemaKey(tree["subject"], int(tree["version"]))
        case "CONFIG":
            return ConfigKey(tree.get("subject"))
        case "MODE":
            return ModeKey(tree.get("subject"))
        case "DELETE_SUBJECT":
            return DeleteSubjectKey(tree["subject"])
        case "CLEAR_SUBJECT":
            return ClearSubjectKey(tree["subject"])
        case "CONTEXT":
            return ContextKey(tree["context"], tree.get("tenant", "default"))
        case "NOOP":
            return NoopKey()
    return None


def _value(key: Key, data: bytes) -> Value | None:
    # Some writers spell out what is not there as null.
    tree = {name: value for name, value in json.loads(data).items() if value is not None}
    match key:
        case SchemaKey():
            return msgspec.convert(tree, SchemaValue)
        case ConfigKey():
            return msgspec.convert(tree, ConfigValue)
        case ModeKey():
            return msgspec.convert(tree, ModeValue)
        case DeleteSubjectKey():
            return msgspec.convert(tree, DeleteSubjectValue)
    return None


def _dump(tree: JsonObject) -> bytes:
    return json.dumps({key: value for key, value in tree.items() if value is not None}, separators=(",", ":"),
                      ensure_ascii=False).encode("utf-8", "surrogatepass")  # fmt: skip
