"""Records as documents of MongoDB: values, ids, and the names of the strategies for both. Pure.

document.id.strategy    BsonOidStrategy          made from topic, partition and offset: a second time is the same id
                        KafkaMetaDataStrategy    topic#partition#offset
                        FullKeyStrategy          the key, whole
                        ProvidedInKeyStrategy    the key's _id          ProvidedInValueStrategy   the value's _id
writemodel.strategy     ReplaceOneDefaultStrategy (the default), InsertOneDefaultStrategy, UpdateOneDefaultStrategy,
                        UpdateOneTimestampsStrategy (with _insertedTS and _modifiedTS), DeleteOneDefaultStrategy
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from hashlib import sha256

from pessoa.connect.data import Binary, ConnectValue, DataFailure, Record, time_to_millis

PACKAGE = "com.mongodb.kafka.connect.sink."
ID_STRATEGIES = (
    "BsonOidStrategy", "KafkaMetaDataStrategy", "FullKeyStrategy", "ProvidedInKeyStrategy", "ProvidedInValueStrategy",
)  # fmt: skip
# The strategies by which a tombstone has an id.
KEY_STRATEGIES = ("FullKeyStrategy", "ProvidedInKeyStrategy")
WRITE_STRATEGIES = (
    "DefaultWriteModelStrategy", "ReplaceOneDefaultStrategy", "InsertOneDefaultStrategy", "UpdateOneDefaultStrategy",
    "UpdateOneTimestampsStrategy", "DeleteOneDefaultStrategy",
)  # fmt: skip


def short_name(strategy: str) -> str:
    """Return the last part of a class name."""
    return strategy.rpartition(".")[2]


def document_of(value: ConnectValue) -> object:
    """Return a value as BSON has it. `Decimal` becomes Decimal128 in `mongo_sink.py`, which has the driver."""
    match value:
        case datetime():
            return value
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case time():
            return time_to_millis(value)
        case dict():
            return {str(key): document_of(one) for key, one in value.items()}
        case list() | tuple():
            return [document_of(one) for one in value]
        case bytearray() | memoryview():
            return bytes(value)
        case bool():
            return value
        case int():
            if not -(2**63) <= value < 2**63:
                raise DataFailure(f"{value} does not fit into 64 bits")
            return value
    return value


def id_of(record: Record, strategy: str) -> object:
    """Return the `_id` of a record's document; bytes are those of an ObjectId. DataFailure if it has none."""
    match strategy:
        case "BsonOidStrategy":
            return sha256(f"{record.topic}\0{record.partition}\0{record.offset}".encode()).digest()[:12]
        case "KafkaMetaDataStrategy":
            return f"{record.topic}#{record.partition}#{record.offset}"
        case "FullKeyStrategy":
            if record.key is None:
                raise DataFailure("a record has no key, and document.id.strategy is FullKeyStrategy")
            return bytes(record.key) if isinstance(record.key, Binary) else document_of(record.key)
    side, value = ("key", record.key) if strategy == "ProvidedInKeyStrategy" else ("value", record.value)
    if not isinstance(value, dict) or value.get("_id") is None:
        raise DataFailure(f"a record's {side} has no _id, and document.id.strategy is {strategy}")
    return document_of(value["_id"])
