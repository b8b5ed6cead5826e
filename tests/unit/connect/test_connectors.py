"""Connectors without Kafka and Spark: the tests call start, poll and put as a worker does."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet
import pytest

from pessoa.connect.connector import Offsets, SinkConnector, SourceConnector
from pessoa.connect.connectors.datagen import DatagenConnector
from pessoa.connect.connectors.datagen_schemas import QUICKSTARTS
from pessoa.connect.connectors.file_stream import FileStreamSinkConnector, FileStreamSourceConnector
from pessoa.connect.connectors.http_sink import HttpSinkConnector
from pessoa.connect.connectors.jdbc_sink import JdbcSinkConnector
from pessoa.connect.connectors.jdbc_source import JdbcSourceConnector
from pessoa.connect.connectors.object_sink import FileSystemSinkConnector
from pessoa.connect.data import INT64, STRING, Record, check, struct
from tests.connect.receivers import receiver


def started(kind: type[SourceConnector], settings: Mapping[str, str], offsets: Offsets | None = None) -> Any:
    source = kind()
    source.start(kind.CONFIG.parse(kind.adapted(settings)), offsets or Offsets())
    return source


def opened(kind: type[SinkConnector], settings: Mapping[str, str]) -> Any:
    sink = kind()
    refused: list[tuple[Record, Exception]] = []
    sink.report = lambda record, error: refused.append((record, error))
    sink.start(kind.CONFIG.parse(kind.adapted(settings)))
    sink.refused = refused  # type: ignore[attr-defined]
    return sink


def column(records: Sequence[Record], name: str) -> list[Any]:
    values = [each.value for each in records]
    return [value[name] for value in values if isinstance(value, dict)]


def reached(records: Sequence[Record]) -> Offsets:
    """Return the source offsets of a task after these records."""
    known = {}
    for each in records:
        assert each.source_partition is not None
        assert each.source_offset is not None
        known[Offsets.name(each.source_partition)] = each.source_offset
    return Offsets(known)


def test_a_file_source_reads_lines_and_continues_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "log"
    source = started(FileStreamSourceConnector, {"file": str(path), "topic": "t"})
    assert source.poll() == []
    path.write_bytes(b"um\r\ndois\nmeia li")
    records = source.poll()
    assert [each.value for each in records] == ["um", "dois"]
    assert records[-1].source_offset == {"position": 9}
    source.stop()
    with path.open("ab") as file:
        file.write(b"nha\n")
    again = started(FileStreamSourceConnector, {"file": str(path), "topic": "t"}, reached(records))
    assert [each.value for each in again.poll()] == ["meia linha"]
    again.stop()


def test_a_file_sink_writes_values_as_java_prints_them(tmp_path: Path) -> None:
    sink = opened(FileStreamSinkConnector, {"file": str(tmp_path / "out")})
    schema = struct({"a": INT64, "b": STRING.as_optional})
    sink.put([Record("t", value_schema=schema, value={"a": 1, "b": None}), Record("t", value={"x": True}), Record("t")])
    sink.stop()
    assert (tmp_path / "out").read_text() == "Struct{a=1}\n{x=true}\nnull\n"


@pytest.mark.parametrize("name", QUICKSTARTS)
def test_every_datagen_quickstart_makes_records_that_fit_its_schema_and_have_its_key(name: str) -> None:
    settings = {"kafka.topic": "t", "quickstart": name, "max.interval": "0", "iterations": "20", "random.seed": "3"}
    assert DatagenConnector.check(settings) == {}
    records = started(DatagenConnector, settings).poll()
    assert len(records) == 20
    for each in records:
        assert each.value_schema is not None
        check(each.value_schema, each.value)
        assert each.key is not None


def test_a_datagen_source_continues_after_a_restart_as_without_one() -> None:
    settings = {"kafka.topic": "t", "quickstart": "orders", "max.interval": "0", "random.seed": "5"}
    whole = started(DatagenConnector, {**settings, "iterations": "30"}).poll()
    first = started(DatagenConnector, {**settings, "iterations": "10"}).poll()
    rest = started(DatagenConnector, {**settings, "iterations": "30"}, reached(first)).poll()
    assert [each.value for each in first + rest] == [each.value for each in whole]


def test_a_datagen_source_uses_a_custom_schema_and_names_a_wrong_one() -> None:
    schema = """{"type": "record", "name": "r", "fields": [
        {"name": "n", "type": {"type": "int", "arg.properties": {"range": {"min": 3, "max": 5}}}},
        {"name": "code", "type": {"type": "string", "arg.properties": {"regex": "[A-C]{2}-(x|y)\\\\d?"}}},
        {"name": "maybe", "type": ["null", "boolean"]}]}"""
    settings = {"kafka.topic": "t", "schema.string": schema, "max.interval": "0", "iterations": "50"}
    for each in started(DatagenConnector, settings).poll():
        assert each.value["n"] in (3, 4)
        assert each.value["code"][2] == "-"
    assert "schema.string" in DatagenConnector.check({"schema.string": "{"})
    assert "schema.keyfield" in DatagenConnector.check({**settings, "schema.keyfield": "nothing"})
    errors = {row.key.name: row.errors for row in DatagenConnector.CONFIG.validate({"kafka.topic": "t"})}
    assert "Set exactly one of" in errors["quickstart"][0]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL, at TEXT NOT NULL, n REAL)")
    connection.close()
    return path


def fill(path: Path, rows: list[tuple[int, str, str]]) -> None:
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT OR REPLACE INTO items (id, name, at) VALUES (?, ?, ?)", rows)
    connection.close()


def source_settings(path: Path, mode: str, **more: str) -> dict[str, str]:
    texts = {name.replace("_", "."): text for name, text in more.items()}
    return {"connection.url": f"jdbc:sqlite:{path}", "mode": mode, "topic.prefix": "db-", "poll.interval.ms": "0",
            "validate.non.null": "false", **texts}  # fmt: skip


def drained(source: Any) -> list[Record]:
    found: list[Record] = []
    while records := source.poll():
        found += records
    return found


MIDNIGHT = "2024-01-01 00:00:00.000"
LATER = "2024-01-02 00:00:00.000"


def test_incrementing_mode_reads_rows_with_larger_ids(database: Path) -> None:
    fill(database, [(number, f"item {number}", MIDNIGHT) for number in range(1, 8)])
    settings = source_settings(database, "incrementing", batch_max_rows="3")
    source = started(JdbcSourceConnector, settings)
    records = drained(source)
    assert column(records, "id") == [1, 2, 3, 4, 5, 6, 7]
    assert records[0].topic == "db-items"
    fill(database, [(8, "item 8", MIDNIGHT), (2, "changed", LATER)])
    assert column(drained(source), "id") == [8]
    source.stop()
    again = started(JdbcSourceConnector, settings, reached(records))
    assert column(drained(again), "id") == [8]
    again.stop()


def test_timestamp_mode_reads_changed_rows_and_keeps_rows_with_one_timestamp_together(database: Path) -> None:
    fill(database, [(number, "x", MIDNIGHT) for number in range(1, 6)] + [(6, "x", LATER)])
    source = started(JdbcSourceConnector, source_settings(database, "timestamp", timestamp_column_name="at",
                                                          batch_max_rows="2"))  # fmt: skip
    assert sorted(column(drained(source), "id")) == [1, 2, 3, 4, 5, 6]
    fill(database, [(2, "changed", "2024-01-03 00:00:00.000")])
    assert column(drained(source), "name") == ["changed"]
    source.stop()


def test_a_page_that_ends_between_two_timestamps_is_followed_by_the_next_at_once(database: Path) -> None:
    fill(database, [(number, "x", f"2024-01-0{number} 00:00:00.000") for number in range(1, 8)])
    settings = source_settings(database, "timestamp", timestamp_column_name="at", batch_max_rows="3",
                               poll_interval_ms="3600000")  # fmt: skip
    source = started(JdbcSourceConnector, settings)
    assert column(drained(source), "id") == [1, 2, 3, 4, 5, 6, 7]
    source.stop()


def test_with_several_timestamp_columns_the_first_that_is_not_null_orders_the_pages(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE moves (id INTEGER PRIMARY KEY, changed TEXT, made TEXT NOT NULL)")
        days = [f"2024-01-0{number} 00:00:00.000" for number in range(1, 6)]
        rows = [(1, None, days[0]), (2, days[1], days[0]), (3, None, days[2]), (4, None, days[3]),
                (5, None, days[4]), (6, days[4], days[0]), (7, None, days[4]), (8, days[4], days[1])]  # fmt: skip
        connection.executemany("INSERT INTO moves VALUES (?, ?, ?)", rows)
    connection.close()
    settings = source_settings(database, "timestamp", timestamp_column_name="changed,made", batch_max_rows="3",
                               table_whitelist="moves")  # fmt: skip
    source = started(JdbcSourceConnector, settings)
    assert sorted(column(drained(source), "id")) == [1, 2, 3, 4, 5, 6, 7, 8]
    source.stop()


def test_a_custom_query_keeps_rows_with_one_timestamp_together(database: Path) -> None:
    fill(database, [(number, "x", MIDNIGHT) for number in range(1, 6)] + [(6, "x", LATER), (7, "x", LATER)])
    settings = source_settings(database, "timestamp", timestamp_column_name="at", batch_max_rows="3",
                               table_whitelist="", query="SELECT id, at FROM items")  # fmt: skip
    source = started(JdbcSourceConnector, settings)
    assert sorted(column(drained(source), "id")) == [1, 2, 3, 4, 5, 6, 7]
    source.stop()


def test_timestamp_incrementing_mode_misses_no_row(database: Path) -> None:
    fill(database, [(number, "x", MIDNIGHT) for number in (1, 3)])
    settings = source_settings(database, "timestamp+incrementing", timestamp_column_name="at",
                               incrementing_column_name="id", batch_max_rows="1")  # fmt: skip
    source = started(JdbcSourceConnector, settings)
    assert column(drained(source), "id") == [1, 3]
    fill(database, [(4, "late", MIDNIGHT), (1, "changed", LATER)])
    assert column(drained(source), "id") == [4, 1]
    source.stop()


def test_bulk_mode_reads_the_whole_table_at_every_poll(database: Path) -> None:
    fill(database, [(number, "x", MIDNIGHT) for number in (1, 2, 3)])
    source = started(JdbcSourceConnector, source_settings(database, "bulk", batch_max_rows="2"))
    assert [each.value["id"] for _ in range(4) for each in source.poll()] == [1, 2, 3, 1, 2, 3]
    source.stop()


def test_a_custom_query_is_read_in_place_of_tables(database: Path) -> None:
    fill(database, [(1, "a", MIDNIGHT), (2, "b", MIDNIGHT)])
    query = "SELECT * FROM (SELECT id, upper(name) AS grande FROM items)"
    source = started(JdbcSourceConnector, source_settings(database, "incrementing", query=query,
                                                          incrementing_column_name="id",
                                                          topic_prefix="all"))  # fmt: skip
    records = drained(source)
    assert [each.value for each in records] == [{"id": 1, "grande": "A"}, {"id": 2, "grande": "B"}]
    assert records[0].topic == "all"
    source.stop()


ITEM = struct({"id": INT64, "name": STRING.as_optional})


def item(number: int, name: str | None, **changes: Any) -> Record:
    return Record("items", 0, INT64, number, ITEM, {"id": number, "name": name}, offset=number).but(**changes)


def sink_settings(path: Path, **more: str) -> dict[str, str]:
    texts = {name.replace("_", "."): text for name, text in more.items()}
    return {"connection.url": f"jdbc:sqlite:{path}", "auto.create": "true", "max.retries": "0", **texts}


def rows(path: Path, sql: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def test_an_upsert_keeps_the_latest_row_of_a_key_and_a_record_without_a_value_deletes_it(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = opened(JdbcSinkConnector, sink_settings(path, insert_mode="upsert", pk_mode="record_key", pk_fields="id",
                                                   delete_enabled="true"))  # fmt: skip
    sink.put([item(1, "a"), item(2, "b"), item(1, "c"), item(2, None, value=None, value_schema=None), item(3, "d")])
    sink.stop()
    assert rows(path, "SELECT id, name FROM items ORDER BY id") == [(1, "c"), (3, "d")]


@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_with_pk_mode_kafka_a_repeated_batch_changes_nothing(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "out.db"
    sink = opened(JdbcSinkConnector, sink_settings(path, insert_mode=mode, pk_mode="kafka"))
    for _ in range(2):
        sink.put([item(1, "a"), item(2, "b")])
    sink.stop()
    assert rows(path, "SELECT count(*) FROM items") == [(2,)]
    assert rows(path, "SELECT __connect_topic, __connect_partition, __connect_offset FROM items LIMIT 1") == [
        ("items", 0, 1)
    ]


def test_update_mode_changes_only_existing_rows(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    insert = opened(JdbcSinkConnector, sink_settings(path, pk_mode="record_value", pk_fields="id"))
    insert.put([item(1, "a")])
    insert.stop()
    update = opened(
        JdbcSinkConnector, sink_settings(path, insert_mode="update", pk_mode="record_value", pk_fields="id")
    )
    update.put([item(1, "changed"), item(2, "nowhere")])
    update.stop()
    assert rows(path, "SELECT id, name FROM items") == [(1, "changed")]


def test_new_columns_are_added_only_with_auto_evolve(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    wider = struct({"id": INT64, "name": STRING.as_optional, "more": STRING.as_optional})
    wide = item(2, "b", value_schema=wider, value={"id": 2, "name": "b", "more": "m"})
    strict = opened(JdbcSinkConnector, sink_settings(path))
    strict.put([item(1, "a"), wide])
    assert "has no column more, and auto.evolve is false" in str(strict.refused[0][1])
    strict.stop()
    sink = opened(JdbcSinkConnector, sink_settings(path, auto_evolve="true"))
    sink.put([wide])
    sink.stop()
    assert rows(path, "SELECT id, more FROM items ORDER BY id") == [(1, None), (2, "m")]


def test_one_record_that_cannot_be_written_does_not_prevent_the_others(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = opened(JdbcSinkConnector, sink_settings(path, pk_mode="record_key", pk_fields="id"))
    sink.put([item(1, "a"), item(2, "b"), item(1, "again"), item(3, "c"), Record("items", value="no struct")])
    sink.stop()
    assert rows(path, "SELECT id, name FROM items ORDER BY id") == [(1, "a"), (2, "b"), (3, "c")]
    assert len(sink.refused) == 2


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"delete.enabled": "true", "pk.mode": "kafka"}, "delete.enabled"),
        ({"insert.mode": "upsert"}, "insert.mode"),
    ],
)
def test_invalid_sink_settings_are_refused_by_key(settings: dict[str, str], key: str) -> None:
    assert key in JdbcSinkConnector.check(settings)


def test_files_of_a_repeated_batch_are_written_identically(tmp_path: Path) -> None:
    settings = {"store.url": str(tmp_path), "flush.size": "2", "partitioner.class": "DailyPartitioner",
                "timestamp.extractor": "Record"}  # fmt: skip
    records = [item(number, "x", timestamp=number * 43_200_000) for number in range(5)]
    for _ in range(2):
        sink = opened(FileSystemSinkConnector, settings)
        sink.put(records)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.json"))
    assert found == [
        "topics/items/year=1970/month=01/day=01/items+0+0000000000.json",
        "topics/items/year=1970/month=01/day=02/items+0+0000000002.json",
        "topics/items/year=1970/month=01/day=03/items+0+0000000004.json",
    ]


def test_a_sink_writes_the_same_records_as_json_avro_parquet_and_lines(tmp_path: Path) -> None:
    records = [item(number, f"n{number}") for number in range(3)]
    for form in ("JsonFormat", "AvroFormat", "ParquetFormat", "ByteArrayFormat"):
        settings = {"store.url": str(tmp_path / form), "flush.size": "10", "format.class": form}
        sink = opened(FileSystemSinkConnector, settings)
        sink.put(records)
        assert sink.refused == []
    wanted = [each.value for each in records]
    (lines,), (avro,), (table,), (raw,) = (
        list((tmp_path / form).rglob("items+0+*"))
        for form in ("JsonFormat", "AvroFormat", "ParquetFormat", "ByteArrayFormat")
    )
    assert [json.loads(line) for line in lines.read_text().splitlines()] == wanted
    with avro.open("rb") as file:
        assert list(fastavro.reader(file)) == wanted
    assert pyarrow.parquet.read_table(table).to_pylist() == wanted
    assert raw.read_text().splitlines() == [f"Struct{{id={number},name=n{number}}}" for number in range(3)]


def test_an_http_sink_sends_batches_and_reports_the_records_of_a_request_that_is_refused() -> None:
    with receiver() as server:
        server.refuses = b"n2"
        sink = opened(HttpSinkConnector, {"http.api.url": server.url, "batch.max.size": "2", "max.retries": "0"})
        sink.put([item(number, f"n{number}") for number in range(5)])
        assert [json.loads(body) for body in server.bodies] == [
            [{"id": 0, "name": "n0"}, {"id": 1, "name": "n1"}],
            [{"id": 4, "name": "n4"}],
        ]
    assert [record.offset for record, _ in sink.refused] == [2, 3]
    assert str(sink.refused[0][1]) == f"Sending failed: POST {server.url}: 422 "
