"""Documents, ids and settings of the MongoDB sink."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Any

import pytest

from pessoa.connect.connectors.mongo_documents import document_of, id_of
from pessoa.connect.connectors.mongo_sink import MongoSinkConnector
from pessoa.connect.data import DataFailure, Record


def record(**changes: Any) -> Record:
    return Record("pedidos", 2, None, {"_id": "k", "n": 1}, None, {"_id": 7}, offset=42).but(**changes)


def test_connect_values_become_bson_values() -> None:
    value: Any = {"d": date(2026, 11, 17), "t": time(0, 0, 1), "b": bytearray(b"x"), "l": (1, {"a": None}), 5: True}
    assert document_of(value) == {
        "d": datetime(2026, 11, 17, tzinfo=UTC), "t": 1000, "b": b"x", "l": [1, {"a": None}], "5": True,
    }  # fmt: skip
    with pytest.raises(DataFailure, match="64 bits"):
        document_of(2**63)


def test_a_document_id_is_made_by_its_strategy_and_is_deterministic() -> None:
    assert id_of(record(), "BsonOidStrategy") == id_of(record(value=None), "BsonOidStrategy")
    assert id_of(record(), "BsonOidStrategy") != id_of(record(offset=43), "BsonOidStrategy")
    assert id_of(record(), "KafkaMetaDataStrategy") == "pedidos#2#42"
    assert id_of(record(), "FullKeyStrategy") == {"_id": "k", "n": 1}
    assert id_of(record(), "ProvidedInKeyStrategy") == "k"
    assert id_of(record(), "ProvidedInValueStrategy") == 7


@pytest.mark.parametrize("strategy", ["FullKeyStrategy", "ProvidedInKeyStrategy", "ProvidedInValueStrategy"])
def test_a_record_without_a_document_id_is_refused(strategy: str) -> None:
    with pytest.raises(DataFailure, match=strategy):
        id_of(record(key=None, value={}), strategy)


def test_a_tombstone_can_delete_by_its_key_alone() -> None:
    settings = {"database": "d", "delete.on.null.values": "true"}
    assert "document.id.strategy" in MongoSinkConnector.check(settings)["delete.on.null.values"]
    full = "com.mongodb.kafka.connect.sink.processor.id.strategy.FullKeyStrategy"
    assert MongoSinkConnector.check({**settings, "document.id.strategy": full}) == {}
