"""Hostile records in sinks to PostgreSQL and MongoDB: each is written or reported, and valid ones are written."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pessoa.connect.connectors.jdbc_sink import JdbcSinkConnector
from pessoa.connect.connectors.mongo_sink import MongoSinkConnector
from tests.connect.postgres import binaries, postgres
from tests.connect.servers import mongo
from tests.unit.connect.test_connectors import opened
from tests.unit.connect.test_hostile_records import GOOD, HOSTILE, records


@pytest.mark.skipif(binaries() is None, reason="there is no PostgreSQL here (Debian: postgresql)")
def test_the_jdbc_sink_writes_or_reports_every_hostile_record_and_writes_the_valid_ones() -> None:
    with postgres() as server, psycopg.connect(server.url().removeprefix("jdbc:"), autocommit=True) as connection:
        settings = {"connection.url": server.url(), "auto.create": "true", "auto.evolve": "true", "max.retries": "0"}
        for name, hostile in HOSTILE.items():
            sink = opened(JdbcSinkConnector, settings)
            sink.put(records(hostile))
            sink.stop()
            rows = connection.execute("SELECT id, name FROM items ORDER BY id").fetchall()
            assert {(6, "first"), (7, "good")} <= set(rows), (name, sink.refused)
            assert len(rows) + len(sink.refused) == 4, (name, rows, sink.refused)
            connection.execute("DROP TABLE items")


@pytest.mark.apache
def test_the_mongo_sink_writes_or_reports_every_hostile_record_and_writes_the_valid_ones() -> None:
    from pymongo import MongoClient

    with mongo() as url, MongoClient[dict[str, Any]](url) as client:
        for number, (name, hostile) in enumerate(HOSTILE.items()):
            settings = {"connection.uri": url, "database": "loja", "collection": f"c{number}"}
            sink = opened(MongoSinkConnector, settings)
            sink.put(records(hostile))
            sink.stop()
            found = list(client["loja"][f"c{number}"].find({}, {"_id": False}))
            assert GOOD in found, (name, sink.refused)
            expected = 4 - 2 * (hostile is None)
            assert len(found) + len(sink.refused) == expected, (name, found, sink.refused)
