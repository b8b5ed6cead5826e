"""MongoSink: records as documents of MongoDB's collections, with the keys of MongoDB's own connector.

A collection is named after its topic unless `collection` says otherwise. Documents are replaced by their id, so a batch
that comes again changes nothing (`mongo_documents.py` has the strategies). With `delete.on.null.values` a tombstone
deletes the document of its key. One bulk write takes `max.batch.size` records, in their order; a document that the
server refuses is reported, and those behind it are written.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pessoa.base.config_values import Value, at_least
from pessoa.connect.connector import RetriableFailure, SinkConnector
from pessoa.connect.connectors.mongo_documents import (
    ID_STRATEGIES,
    KEY_STRATEGIES,
    PACKAGE,
    WRITE_STRATEGIES,
    document_of,
    id_of,
    short_name,
)
from pessoa.connect.data import MISFITS, DataFailure, Record
from pessoa.connect.definition import BOOLEAN, HIGH, INT, LOW, MEDIUM, REQUIRED, STRING, Config, Settings, Table, key

if TYPE_CHECKING:
    from pymongo import MongoClient
    from pymongo.operations import DeleteOne, InsertOne, ReplaceOne, UpdateOne

    # What a document has in it is the driver's own affair.
    Document = dict[str, Any]
    Write = InsertOne[Document] | ReplaceOne[Document] | UpdateOne | DeleteOne

log = logging.getLogger("pessoa.connect")

DUPLICATE = 11000


def _uri_complaint(value: Value, _: Settings) -> str | None:
    text = str(value)
    return None if text.startswith(("mongodb://", "mongodb+srv://", "${")) else "it must be mongodb://host:27017"


def _one_of_strategies(names: Sequence[str]) -> Any:
    def complaint(value: Value, _: Settings) -> str | None:
        return None if short_name(str(value)) in names else f"it must be one of {', '.join(names)}"

    return complaint


class MongoSinkConnector(SinkConnector):
    NAMES = ("com.mongodb.kafka.connect.MongoSinkConnector",)
    CONFIG = Table(
        key("connection.uri", STRING, "mongodb://localhost:27017", _uri_complaint, HIGH, "Where the server is.",
            group="Connection"),
        key("database", STRING, REQUIRED, HIGH, "The database.", group="Namespace"),
        key("collection", STRING, "", HIGH, "The collection; the topic's name if empty.", group="Namespace"),
        key("document.id.strategy", STRING, f"{PACKAGE}processor.id.strategy.BsonOidStrategy",
            _one_of_strategies(ID_STRATEGIES), HIGH, "What documents have as _id.", group="Writes"),
        key("writemodel.strategy", STRING, f"{PACKAGE}writemodel.strategy.DefaultWriteModelStrategy",
            _one_of_strategies(WRITE_STRATEGIES), LOW, "How they are written.", group="Writes"),
        key("delete.on.null.values", BOOLEAN, False, MEDIUM, "Whether a tombstone deletes.", group="Writes"),
        key("max.batch.size", INT, 0, at_least(0), MEDIUM, "The most records of one write; 0 for no limit.",
            group="Writes"),
        key("server.selection.timeout.ms", INT, 10000, at_least(1), LOW, "How long a server is looked for.",
            group="Connection"),
    )  # fmt: skip

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        try:
            import pymongo  # noqa: F401
        except ImportError:
            return {"connector.class": "it needs pymongo: pip install 'pessoa[mongodb]'"}
        strategy = short_name(settings.get("document.id.strategy", ""))
        deletes = settings.get("delete.on.null.values", "false").lower() == "true"
        if deletes and strategy not in KEY_STRATEGIES:
            wanted = " or ".join(KEY_STRATEGIES)
            return {
                "delete.on.null.values": f"a tombstone has nothing but its key: set document.id.strategy to {wanted}"
            }
        return {}

    def start(self, config: Config) -> None:
        self._config = config
        self._ids = short_name(config.string("document.id.strategy"))
        self._writes = short_name(config.string("writemodel.strategy"))
        self._client: MongoClient[Document] | None = None

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def put(self, records: Sequence[Record]) -> None:
        by_collection: dict[str, list[tuple[Record, Write]]] = {}
        for record in records:
            try:
                write = self._write_of(record)
            except MISFITS as wrong:
                self.report(record, wrong)
                continue
            if write is not None:
                name = self._config.string("collection") or record.topic
                by_collection.setdefault(name, []).append((record, write))
        size = self._config.integer("max.batch.size") or len(records)
        for name, writes in by_collection.items():
            for first in range(0, len(writes), size):
                self._write_all(name, writes[first : first + size])

    def _write_of(self, record: Record) -> Write | None:
        from pymongo.operations import DeleteOne, InsertOne, ReplaceOne, UpdateOne

        if record.value is None:
            return DeleteOne({"_id": self._id(record)}) if self._config.boolean("delete.on.null.values") else None
        where = {"_id": self._id(record)}
        if self._writes == "DeleteOneDefaultStrategy":
            return DeleteOne(where)
        body = _with_decimals(document_of(record.value))
        if not isinstance(body, dict):
            raise DataFailure(f"a value of the type {type(record.value).__name__} is no document (HoistField$Value)")
        body = {**body, **where}
        if self._writes == "InsertOneDefaultStrategy":
            return InsertOne(body)
        if self._writes.startswith("UpdateOne"):
            body.pop("_id")
            changes: dict[str, object] = {"$set": body}
            if self._writes == "UpdateOneTimestampsStrategy":
                now = datetime.now(UTC)
                changes = {"$set": {**body, "_modifiedTS": now}, "$setOnInsert": {"_insertedTS": now}}
            return UpdateOne(where, changes, upsert=True)
        return ReplaceOne(where, body, upsert=True)

    def _id(self, record: Record) -> object:
        from bson import ObjectId

        found = id_of(record, self._ids)
        if self._ids == "BsonOidStrategy":
            assert isinstance(found, bytes)
            return ObjectId(found)
        return _with_decimals(found)

    def _write_all(self, name: str, writes: list[tuple[Record, Write]]) -> None:
        from bson.errors import BSONError
        from pymongo import MongoClient
        from pymongo.errors import BulkWriteError, ConnectionFailure, ExecutionTimeout, PyMongoError

        if self._client is None:
            timeout_ms = self._config.integer("server.selection.timeout.ms")
            uri = self._config.string("connection.uri")
            self._client = MongoClient(uri, serverSelectionTimeoutMS=timeout_ms, appname="pessoa-connect")
        collection = self._client[self._config.string("database")][name]
        while writes:
            try:
                collection.bulk_write([write for _, write in writes], ordered=True)
            except BulkWriteError as refused:
                # An ordered write ends with the first error.
                error = refused.details["writeErrors"][0]
                record, rest = writes[error["index"]][0], writes[error["index"] + 1 :]
                is_repeated = error["code"] == DUPLICATE and self._ids == "BsonOidStrategy"
                if not is_repeated:
                    self.report(record, DataFailure(f"the server has refused a document: {error['errmsg']}"))
                writes = rest
            except (ConnectionFailure, ExecutionTimeout) as gone:
                raise RetriableFailure(f"MongoDB does not answer: {gone}") from None
            except (PyMongoError, BSONError, *MISFITS) as failure:
                if len(writes) == 1:
                    self.report(writes[0][0], DataFailure(f"MongoDB has refused a write: {failure}"))
                    return
                # A document that cannot be written at all keeps the others out of the request. What was written is
                # written once more, which changes nothing.
                for write in writes:
                    self._write_all(name, [write])
                return
            else:
                return


def _with_decimals(value: object) -> object:
    """Return a document whose decimals are MongoDB's."""
    if isinstance(value, Decimal):
        from bson import Decimal128
        from bson.decimal128 import create_decimal128_context

        with_limits = create_decimal128_context().create_decimal(value)
        if with_limits != value:
            raise DataFailure(f"{value} has more digits than MongoDB's decimals (34)")
        return Decimal128(with_limits)
    if isinstance(value, dict):
        return {key: _with_decimals(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_decimals(one) for one in value]
    return value
