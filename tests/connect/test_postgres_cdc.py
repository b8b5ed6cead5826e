"""The change-data source on a real PostgreSQL, polled as its task would poll it: no Kafka and no Spark."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pessoa.connect.connector import Offsets
from pessoa.connect.connectors.databases import DatabaseFailure
from pessoa.connect.connectors.postgres_cdc import PostgresConnector
from pessoa.connect.data import Record, check
from tests.connect.postgres import Postgres, binaries, postgres
from tests.connect.serving import wait_until

PART = {"server": "loja"}


class Source:
    """A connector and the source offset that its task would keep."""

    def __init__(self, settings: dict[str, str], offset: dict[str, Any] | None = None) -> None:
        self.connector = PostgresConnector()
        self.offset: dict[str, Any] = dict(offset or {})
        self.connector.start(PostgresConnector.CONFIG.parse(PostgresConnector.adapted(settings)), self.offsets())

    def offsets(self) -> Offsets:
        return Offsets({Offsets.name(PART): self.offset} if self.offset else {})

    def poll(self) -> list[Record]:
        records = list(self.connector.poll())
        for each in records:
            if each.key_schema is not None:
                check(each.key_schema, each.key)
            if each.value_schema is not None:
                check(each.value_schema, each.value)
        if records:
            assert records[-1].source_offset is not None
            self.offset = dict(records[-1].source_offset)
        return records

    def read(self, count: int) -> list[Record]:
        found: list[Record] = []

        def enough() -> bool:
            found.extend(self.poll())
            return len(found) >= count

        wait_until(enough, f"{count} records came, not only {len(found)}", 60)
        assert len(found) == count, [each.value for each in found]
        return found

    def commit(self) -> None:
        self.connector.commit(self.offsets())


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    if binaries() is None:
        pytest.skip("there is no PostgreSQL (initdb) on this machine")
    with postgres() as running:
        yield running


class Database:
    def __init__(self, server: Postgres, name: str) -> None:
        self.name = name
        self.address = server.create(name).removeprefix("jdbc:")
        self.connection = psycopg.connect(self.address, autocommit=True)
        self.settings = {
            "connector.class": "PostgresConnector", "database.hostname": "127.0.0.1", "database.port": str(server.port),
            "database.user": "pessoa", "database.dbname": name, "topic.prefix": "loja", "slot.name": f"slot_{name}",
            "publication.name": f"pub_{name}",
        }  # fmt: skip

    def sql(self, statement: str, *values: object) -> list[Any]:
        cursor = self.connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def confirmed_lsn(self) -> int:
        statement = "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = %s"
        return int(self.sql(statement, self.settings["slot.name"])[0][0])


@pytest.fixture
def database(server: Postgres, request: pytest.FixtureRequest) -> Iterator[Database]:
    made = Database(server, f"db{zlib.crc32(request.node.name.encode())}")
    yield made
    made.connection.close()


def value(record: Record) -> dict[str, Any]:
    assert isinstance(record.value, dict)
    return record.value


def test_the_cdc_source_emits_the_rows_of_the_snapshot_and_then_every_change_in_debeziums_envelope(
    database: Database,
) -> None:
    database.sql("CREATE TABLE contas (id INT PRIMARY KEY, nome TEXT NOT NULL, saldo NUMERIC(10,2))")
    database.sql("INSERT INTO contas VALUES (1, 'ana', 1.5), (2, 'rui', NULL)")
    source = Source(database.settings)
    first, second = source.read(2)
    assert first.topic == "loja.public.contas"
    assert first.key == {"id": 1}
    assert value(first)["op"] == "r"
    assert value(first)["after"]["nome"] == "ana"
    assert str(value(first)["after"]["saldo"]) == "1.50"
    assert [value(each)["source"]["snapshot"] for each in (first, second)] == ["true", "last"]
    database.sql("INSERT INTO contas VALUES (3, 'eva', 7)")
    database.sql("UPDATE contas SET nome = 'ana maria' WHERE id = 1")
    database.sql("UPDATE contas SET id = 20 WHERE id = 2")
    database.sql("DELETE FROM contas WHERE id = 3")
    created, updated, moved, tombstone, recreated, deleted, last_tombstone = source.read(7)
    assert value(created)["op"] == "c"
    assert value(created)["before"] is None
    assert value(created)["source"]["table"] == "contas"
    assert (value(updated)["op"], value(updated)["before"]) == ("u", None)
    assert value(updated)["after"]["nome"] == "ana maria"
    assert (value(moved)["op"], moved.key, recreated.key) == ("d", {"id": 2}, {"id": 20})
    assert (tombstone.key, tombstone.value) == ({"id": 2}, None)
    assert value(recreated)["op"] == "c"
    assert (value(deleted)["op"], value(deleted)["before"]) == ("d", {"id": 3, "nome": "", "saldo": None})
    assert (last_tombstone.key, last_tombstone.value) == ({"id": 3}, None)
    lsns = [value(each)["source"]["lsn"] for each in (created, updated, deleted)]
    assert lsns == sorted(lsns)
    source.connector.stop()


def test_a_restarted_cdc_source_continues_within_a_transaction_after_the_last_change(database: Database) -> None:
    database.sql("CREATE TABLE contas (id INT PRIMARY KEY)")
    source = Source({**database.settings, "max.batch.size": "3"})
    assert source.poll() == []
    database.sql("INSERT INTO contas SELECT generate_series(1, 10)")
    three = source.read(3)
    source.commit()
    source.connector.stop()
    again = Source({**database.settings, "max.batch.size": "3"}, source.offset)
    seven = again.read(7)
    assert [value(each)["after"]["id"] for each in three + seven] == list(range(1, 11))
    again.connector.stop()


def test_changes_whose_offset_was_not_committed_are_read_again_after_a_crash(database: Database) -> None:
    database.sql("CREATE TABLE contas (id INT PRIMARY KEY)")
    database.sql("INSERT INTO contas VALUES (1)")
    source = Source(database.settings)
    source.read(1)
    source.commit()
    written = source.offset
    database.sql("INSERT INTO contas VALUES (2)")
    database.sql("INSERT INTO contas VALUES (3)")
    lost = source.read(2)
    # The connection is lost before anything is committed.
    source.connector._disconnect()
    again = Source(database.settings, written)
    assert [each.key for each in again.read(2)] == [each.key for each in lost] == [{"id": 2}, {"id": 3}]
    again.connector.stop()


def test_an_interrupted_snapshot_continues_after_the_last_key_and_later_changes_follow_from_the_log(
    database: Database,
) -> None:
    database.sql("CREATE TABLE b (x INT, y TEXT, PRIMARY KEY (y, x))")
    database.sql("CREATE TABLE a (id INT PRIMARY KEY)")
    database.sql("CREATE TABLE sem_chave (n INT)")
    database.sql("INSERT INTO a SELECT generate_series(1, 5)")
    database.sql("INSERT INTO b SELECT n, 'y' || n / 2 FROM generate_series(1, 4) n")
    database.sql("INSERT INTO sem_chave VALUES (1), (2)")
    settings = {**database.settings, "max.batch.size": "7"}
    source = Source(settings)
    seven = source.read(7)
    assert [each.topic for each in seven] == ["loja.public.a"] * 5 + ["loja.public.b"] * 2
    source.connector._disconnect()
    database.sql("DELETE FROM a WHERE id = 1")
    database.sql("INSERT INTO b VALUES (9, 'y9')")
    again = Source(settings, source.offset)
    rest = again.read(8)
    keys = [each.key for each in seven[5:] + rest[:3]]
    assert keys == [
        {"x": 1, "y": "y0"},
        {"x": 2, "y": "y1"},
        {"x": 3, "y": "y1"},
        {"x": 4, "y": "y2"},
        {"x": 9, "y": "y9"},
    ]
    assert [each.key for each in rest[3:5]] == [None, None]
    assert [(value(each)["op"] if each.value else None) for each in rest[5:]] == ["d", None, "c"]
    again.connector.stop()


def test_the_slot_advances_only_on_commit_and_by_heartbeats_while_only_other_tables_change(
    database: Database,
) -> None:
    database.sql("CREATE TABLE contas (id INT PRIMARY KEY)")
    database.sql("CREATE TABLE outra (id INT)")
    source = Source({**database.settings, "table.include.list": "public.contas", "heartbeat.interval.ms": "1"})
    database.sql("INSERT INTO contas VALUES (1)")
    assert [each.topic for each in source.read(1)] == ["loja.public.contas"]
    before = database.confirmed_lsn()
    database.sql("INSERT INTO outra SELECT generate_series(1, 1000)")
    for _ in range(5):
        # Nothing was committed, so there is no heartbeat, and the slot does not advance.
        assert source.poll() == []
    assert database.confirmed_lsn() == before
    source.commit()
    beats: list[Record] = []

    def beaten() -> bool:
        beats.extend(source.poll())
        source.commit()
        return database.confirmed_lsn() > int(database.sql("SELECT (pg_current_wal_lsn() - '0/0')::int8 - 1000")[0][0])

    wait_until(beaten, "the slot is where the server is", 30)
    assert beats[-1].topic == "__debezium-heartbeat.loja"
    assert beats[-1].key == {"serverName": "loja"}
    assert PostgresConnector.is_beyond(beats[-1].source_offset or {}, {"lsn": before, "event": 1})
    source.connector.stop()


def test_every_postgresql_type_is_mapped_as_in_debezium_from_the_snapshot_and_from_the_log(database: Database) -> None:
    database.sql("CREATE TYPE humor AS ENUM ('bom', 'mau')")
    database.sql("CREATE DOMAIN codigo AS VARCHAR(5)")
    columns = {
        "b": ("BOOLEAN", "true", True), "i2": ("SMALLINT", "-7", -7), "i8": ("BIGINT", str(2**60), 2**60),
        "f4": ("REAL", "1.5", 1.5), "f8": ("DOUBLE PRECISION", "0.1", 0.1), "t": ("TEXT", "'olá'", "olá"),
        "c": ("CHAR(4)", "'ab'", "ab  "), "v": ("codigo", "'xyz'", "xyz"), "by": ("BYTEA", "'\\x00ff'", b"\0\xff"),
        "d": ("DATE", "'2026-11-17'", 20774), "t0": ("TIME(3)", "'01:02:03.5'", 3_723_500),
        "t6": ("TIME", "'01:02:03.000005'", 3_723_000_005), "s3": ("TIMESTAMP(3)", "'1970-01-01 00:00:01.5'", 1500),
        "s6": ("TIMESTAMP", "'1970-01-01 00:00:01.5'", 1_500_000),
        "sz": ("TIMESTAMPTZ", "'2026-11-17 10:00:00.25+02'", "2026-11-17T08:00:00.25Z"),
        "tz": ("TIMETZ", "'10:15:30+02'", "08:15:30Z"), "iv": ("INTERVAL", "'1 day 00:00:01'", 86_401_000_000),
        "j": ("JSONB", "'{\"a\": 1}'", '{"a": 1}'),
        "u": ("UUID", "'01234567-89ab-cdef-0123-456789abcdef'", "01234567-89ab-cdef-0123-456789abcdef"),
        "h": ("humor", "'mau'", "mau"), "ai": ("INT[]", "'{1,NULL,3}'", [1, None, 3]),
        "at": ("TEXT[]", "ARRAY['a \"b\"', 'c,d', '']", ['a "b"', "c,d", ""]),
        "n": ("NUMERIC", "12.345", {"scale": 3, "value": (12345).to_bytes(2, "big")}),
        "ip": ("INET", "'10.0.0.1'", "10.0.0.1"),
    }  # fmt: skip
    database.sql(
        f"CREATE TABLE tipos (id INT PRIMARY KEY, {', '.join(f'{n} {kind}' for n, (kind, _, _) in columns.items())})"
    )
    insert = f"INSERT INTO tipos VALUES (%s, {', '.join(text for _, text, _ in columns.values())})"
    database.sql(insert, 1)
    source = Source(database.settings)
    (snapshot,) = source.read(1)
    database.sql(insert, 2)
    (logged,) = source.read(1)
    expected = {name: wanted for name, (_, _, wanted) in columns.items()}
    assert value(snapshot)["after"] == {"id": 1, **expected}
    assert value(logged)["after"] == {"id": 2, **expected}
    source.connector.stop()


def test_changes_contain_an_added_column_and_a_placeholder_for_an_unchanged_toasted_value(database: Database) -> None:
    database.sql("CREATE TABLE contas (id INT PRIMARY KEY, foto TEXT)")
    database.sql("ALTER TABLE contas ALTER foto SET STORAGE EXTERNAL")
    source = Source(database.settings)
    source.poll()
    database.sql("INSERT INTO contas VALUES (1, repeat('x', 100000))")
    database.sql("ALTER TABLE contas ADD nome TEXT")
    database.sql("UPDATE contas SET nome = 'ana'")
    database.sql("ALTER TABLE contas REPLICA IDENTITY FULL")
    database.sql("UPDATE contas SET nome = 'rui'")
    _, first, second = source.read(3)
    assert value(first)["after"] == {"id": 1, "foto": "__debezium_unavailable_value", "nome": "ana"}
    assert value(second)["after"] == {"id": 1, "foto": "x" * 100000, "nome": "rui"}
    assert value(second)["before"]["nome"] == "ana"
    source.connector.stop()


def test_a_dropped_slot_fails_the_cdc_task_unless_snapshot_mode_allows_a_new_snapshot(database: Database) -> None:
    database.sql("CREATE TABLE contas (id INT PRIMARY KEY)")
    database.sql("INSERT INTO contas VALUES (1)")
    source = Source(database.settings)
    source.read(1)
    database.sql("INSERT INTO contas VALUES (2)")
    source.read(1)
    source.connector.stop()
    dropping = Source({**database.settings, "slot.drop.on.stop": "true"}, source.offset)
    dropping.poll()
    dropping.connector.stop()
    assert database.sql("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", database.settings["slot.name"]) == []
    with pytest.raises(DatabaseFailure, match=r"snapshot\.mode=when_needed"):
        Source(database.settings, source.offset).poll()
    again = Source({**database.settings, "snapshot.mode": "when_needed"}, source.offset)
    assert [value(each)["op"] for each in again.read(2)] == ["r", "r"]
    again.connector.stop()


def test_the_config_check_reports_a_slot_with_another_plugin_and_conflicting_table_lists(database: Database) -> None:
    assert PostgresConnector.check(database.settings) == {}
    database.sql("SELECT pg_create_logical_replication_slot('outro', 'test_decoding')")
    assert "test_decoding" in PostgresConnector.check({**database.settings, "slot.name": "outro"})["slot.name"]
    both = {**database.settings, "table.include.list": "a", "table.exclude.list": "b"}
    assert "table.exclude.list" in PostgresConnector.check(both)
    database.sql("SELECT pg_drop_replication_slot('outro')")


def test_the_cdc_source_reconnects_to_a_restarted_server_and_continues(server: Postgres, database: Database) -> None:
    database.sql("CREATE TABLE contas (id INT PRIMARY KEY)")
    source = Source({**database.settings, "slot.retry.delay.ms": "100", "slot.max.retries": "100"})
    source.poll()
    database.sql("INSERT INTO contas VALUES (1)")
    source.read(1)
    database.connection.close()
    server.stop()
    assert source.poll() == []
    server.start()
    with psycopg.connect(database.address, autocommit=True) as connection:
        connection.execute("INSERT INTO contas VALUES (2)")
    assert [each.key for each in source.read(1)] == [{"id": 2}]
    source.connector.stop()
