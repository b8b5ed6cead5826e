"""A source's batch that is repeated after a crash has the same rows, although the table has changed since."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from pessoa.connect.connector import Offsets, SourceConnector
from pessoa.connect.connectors.jdbc_source import JdbcSourceConnector
from pessoa.connect.data import Record
from pessoa.connect.query_offset import QueryOffset, query_offset_of
from pessoa.connect.source_task import SourceTask
from pessoa.pipelines.python_source import SourceRow

DAY = "2024-01-0{} 00:00:00.000"
Sql = Callable[[str], None]


@pytest.fixture
def sql(tmp_path: Path) -> Sql:
    def run(statement: str) -> None:
        with sqlite3.connect(tmp_path / "shop.db") as connection:
            connection.execute(statement)
        connection.close()

    run("CREATE TABLE items (id INTEGER PRIMARY KEY, at TEXT NOT NULL)")
    return run


@pytest.fixture
def task(tmp_path: Path, sql: Sql) -> Iterator[SourceTask]:
    for number in (2, 4, 6):
        sql(f"INSERT INTO items VALUES ({number}, '{DAY.format(number)}')")
    made = _task(tmp_path)
    yield made
    made.stop()


def _task(tmp_path: Path, **changed: str) -> SourceTask:
    settings = {
        "connector.class": "JdbcSource", "connection.url": f"jdbc:sqlite:{tmp_path / 'shop.db'}",
        "mode": "timestamp+incrementing", "timestamp.column.name": "at", "incrementing.column.name": "id",
        "topic.prefix": "db-", "poll.interval.ms": "0", "batch.max.rows": "2", "validate.non.null": "false",
    }  # fmt: skip
    worker = {"pessoa.home": str(tmp_path), "bootstrap.servers": "127.0.0.1:1"}
    return SourceTask("items", 0, {**settings, **changed}, worker, query_offset_of({}))


def _ids(rows: list[SourceRow]) -> list[int]:
    return [json.loads(row.value or b"")["payload"]["id"] for row in rows]


def _first_batch(task: SourceTask) -> QueryOffset:
    rows, offset = task.read(task.initial_offset())
    assert _ids(list(rows)) == [2, 4, 6]
    return offset


def _again(task: SourceTask, end: QueryOffset) -> list[int]:
    return _ids(list(task.read_between(task.initial_offset(), end)))


def test_a_replayed_batch_is_the_same_if_no_row_before_its_end_has_changed(task: SourceTask, sql: Sql) -> None:
    end = _first_batch(task)
    sql(f"INSERT INTO items VALUES (7, '{DAY.format(7)}')")
    assert _again(task, end) == [2, 4, 6]
    assert _ids(list(task.read(end)[0])) == [7]


def test_a_replayed_batch_has_rows_inserted_before_its_end_in_addition(task: SourceTask, sql: Sql) -> None:
    end = _first_batch(task)
    sql(f"INSERT INTO items VALUES (3, '{DAY.format(3)}')")
    assert _again(task, end) == [2, 3, 4, 6]


def test_a_row_that_was_updated_past_the_end_of_a_replayed_batch_is_read_by_the_next_batch(
    task: SourceTask, sql: Sql
) -> None:
    end = _first_batch(task)
    sql(f"UPDATE items SET at = '{DAY.format(8)}' WHERE id = 6")
    sql(f"INSERT INTO items VALUES (3, '{DAY.format(3)}')")
    assert _again(task, end) == [2, 3, 4]
    assert _ids(list(task.read(end)[0])) == [6]


def test_a_replayed_batch_whose_last_row_was_deleted_ends_at_the_offset_of_that_row(task: SourceTask, sql: Sql) -> None:
    end = _first_batch(task)
    sql("DELETE FROM items WHERE id = 6")
    many = ", ".join(f"({number}, '{DAY.format(7)}')" for number in range(10, 60))
    sql(f"INSERT INTO items VALUES {many}")
    assert _again(task, end) == [2, 4]
    assert _ids(list(task.read(end)[0])) == list(range(10, 60))


def test_a_table_without_rows_in_a_replayed_batch_is_left_for_the_next_batch(task: SourceTask, sql: Sql) -> None:
    end = _first_batch(task)
    sql("CREATE TABLE another (id INTEGER PRIMARY KEY, at TEXT NOT NULL)")
    sql(f"INSERT INTO another VALUES (99, '{DAY.format(1)}')")
    assert _again(task, end) == [2, 4, 6]
    assert _ids(list(task.read(end)[0])) == [99]


def test_a_table_that_has_grown_very_much_does_not_prevent_replaying_another(task: SourceTask, sql: Sql) -> None:
    sql("CREATE TABLE another (id INTEGER PRIMARY KEY, at TEXT NOT NULL)")
    sql(f"INSERT INTO another VALUES (98, '{DAY.format(1)}'), (99, '{DAY.format(1)}')")
    rows, end = task.read(task.initial_offset())
    assert _ids(list(rows)) == [98, 99, 2, 4, 6]
    # Tables are served by name, two rows at a time: more pages than a silent source would be asked for.
    many = ", ".join(f"({number}, '{DAY.format(7)}')" for number in range(100, 160))
    sql(f"INSERT INTO another VALUES {many}")
    assert _again(task, end) == [98, 99, 2, 4, 6]


def test_rows_with_one_timestamp_are_all_replayed_although_one_was_inserted_before_them(
    tmp_path: Path, sql: Sql
) -> None:
    for number, day in ((1, 1), (2, 2), (3, 2)):
        sql(f"INSERT INTO items VALUES ({number}, '{DAY.format(day)}')")
    task = _task(tmp_path, **{"mode": "timestamp", "batch.max.rows": "100"})
    rows, end = task.read(task.initial_offset())
    assert sorted(_ids(list(rows))) == [1, 2, 3]
    sql("INSERT INTO items VALUES (7, '2024-01-01 12:00:00.000')")
    assert sorted(_again(task, end)) == [1, 2, 3, 7]
    task.stop()


def test_rows_with_one_timestamp_that_exceed_a_page_are_read_page_by_page(tmp_path: Path, sql: Sql) -> None:
    sql(f"INSERT INTO items VALUES (100, '{DAY.format(1)}')")
    for number in range(1, 12):
        sql(f"INSERT INTO items VALUES ({number}, '{DAY.format(2)}')")
    sql(f"INSERT INTO items VALUES (0, '{DAY.format(3)}')")
    source = JdbcSourceConnector()
    settings = _task(tmp_path, mode="timestamp")._settings
    source.start(JdbcSourceConnector.CONFIG.parse(settings), Offsets())
    pages = [source.poll() for _ in range(9)]
    assert max(len(page) for page in pages) == 2
    read = [record for page in pages for record in page]
    assert [record.value["id"] for record in read] == [100, *range(1, 12), 0]  # type: ignore[index, call-overload]
    source.stop()
    # From every one of its offsets, it goes on with the next row.
    for position, record in enumerate(read[:-1]):
        again = JdbcSourceConnector()
        place = Offsets.name({"protocol": "1", "table": "items"})
        again.start(JdbcSourceConnector.CONFIG.parse(settings), Offsets({place: record.source_offset or {}}))
        following = next(page for _ in range(9) if (page := again.poll()))
        assert following[0].value == read[position + 1].value
        again.stop()
        assert JdbcSourceConnector.is_beyond(read[position + 1].source_offset or {}, record.source_offset or {})


def test_a_batch_that_ends_within_rows_of_one_timestamp_is_replayed_identically(tmp_path: Path, sql: Sql) -> None:
    for number in range(1, 12):
        sql(f"INSERT INTO items VALUES ({number}, '{DAY.format(2)}')")
    task = _task(tmp_path, mode="timestamp")
    rows, end = task.read(task.initial_offset())
    assert _ids(list(rows)) == list(range(1, 12))
    sql(f"INSERT INTO items VALUES (12, '{DAY.format(3)}')")
    assert _again(task, end) == list(range(1, 12))
    task.stop()


def test_a_source_with_incomparable_offsets_is_replayed_row_by_row(
    task: SourceTask, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = _first_batch(task)
    sql("DELETE FROM items WHERE id = 6")
    many = ", ".join(f"({number}, '{DAY.format(7)}')" for number in range(10, 60))
    sql(f"INSERT INTO items VALUES {many}")
    monkeypatch.setattr(JdbcSourceConnector, "is_beyond", SourceConnector.is_beyond)
    made: list[Record] = []
    rows_of = task._rows_of

    def counted(record: Record) -> list[SourceRow]:
        made.append(record)
        return rows_of(record)

    monkeypatch.setattr(task, "_rows_of", counted)
    rows = iter(task.read_between(task.initial_offset(), end))
    assert _ids([next(rows) for _ in range(5)]) == [2, 4, 10, 11, 12]
    assert len(made) == 5, "no row is made before it is asked for"


def test_a_replayed_batch_with_deleted_rows_ends_with_the_remaining_rows(task: SourceTask, sql: Sql) -> None:
    end = _first_batch(task)
    sql("DELETE FROM items WHERE id = 4")
    assert _again(task, end) == [2, 6]


def _never_silent(task: SourceTask, sql: Sql, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every poll of the task insert one more row first, and set a low limit of polls."""
    polled = task._poll
    ids = iter(range(100, 1_000))

    def polled_while_it_grows() -> Iterable[Record]:
        sql(f"INSERT INTO {table} VALUES ({next(ids)}, '{DAY.format(7)}')")
        return polled()

    monkeypatch.setattr(task, "_poll", polled_while_it_grows)
    monkeypatch.setattr("pessoa.connect.repeated_batch.MOST_POLLS_BEHIND", 30)


@pytest.mark.parametrize("knows_its_end", [True, False])
@pytest.mark.parametrize(("gone", "expected"), [("id = 6", [2, 4, 98]), ("true", [98])])
def test_a_table_with_constant_inserts_does_not_delay_a_replay_that_waits_for_deleted_rows_of_another(
    task: SourceTask,
    sql: Sql,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    gone: str,
    expected: list[int],
    knows_its_end: bool,
) -> None:
    sql("CREATE TABLE another (id INTEGER PRIMARY KEY, at TEXT NOT NULL)")
    sql(f"INSERT INTO another VALUES (98, '{DAY.format(1)}')")
    rows, end = task.read(task.initial_offset())
    assert sorted(_ids(list(rows))) == [2, 4, 6, 98]
    sql(f"DELETE FROM items WHERE {gone}")
    _never_silent(task, sql, "another", monkeypatch)
    if not knows_its_end:
        monkeypatch.setattr(JdbcSourceConnector, "has_read_all", SourceConnector.has_read_all)
        monkeypatch.setattr("pessoa.connect.repeated_batch.MOST_BACKLOG_S", 0.0)
    assert sorted(_again(task, end)) == expected
    [said] = [record.getMessage() for record in caplog.records if record.name == "pessoa.connect"]
    assert "items" in said
    assert "another" not in said


def test_a_partition_of_a_source_that_waits_behind_the_backlog_of_another_is_replayed(
    task: SourceTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = _first_batch(task)
    polled = task._poll
    elsewhere = Record("db-another", source_partition={"table": "another"}, source_offset={"incrementing": 1})
    backlog = iter([[elsewhere]] * 100)
    monkeypatch.setattr(task, "_poll", lambda: next(backlog, None) or polled())
    monkeypatch.setattr("pessoa.connect.repeated_batch.MOST_POLLS_BEHIND", 30)
    assert _again(task, end) == [2, 4, 6]


def test_replaying_an_endless_source_with_incomparable_offsets_ends_even_if_its_last_row_was_deleted(
    task: SourceTask, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = _first_batch(task)
    sql("DELETE FROM items WHERE id = 6")
    monkeypatch.setattr(JdbcSourceConnector, "is_beyond", SourceConnector.is_beyond)
    _never_silent(task, sql, "items", monkeypatch)
    rows = list(islice(task.read_between(task.initial_offset(), end), 1000))
    assert _ids(rows[:3]) == [2, 4, 100]
    assert len(rows) < 1000, "it would go on"


def test_all_tables_are_read_in_turn_although_the_first_always_has_more_rows(tmp_path: Path, sql: Sql) -> None:
    sql("CREATE TABLE another (id INTEGER PRIMARY KEY, at TEXT NOT NULL)")
    for table in ("another", "items"):
        sql(f"INSERT INTO {table} VALUES " + ", ".join(f"({number}, '{DAY.format(1)}')" for number in range(6)))
    task = _task(tmp_path)
    rows, _ = task.read(task.initial_offset())
    assert [row.topic for row in rows] == ["db-another", "db-another", "db-items", "db-items"] * 3
    task.stop()
