"""A source's batch that comes again after a crash: never less than it was, whatever happened to the table meanwhile."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pessoa.connect.source_task import Place, SourceTask, place_of
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
    settings = {
        "connector.class": "JdbcSource", "connection.url": f"jdbc:sqlite:{tmp_path / 'shop.db'}",
        "mode": "timestamp+incrementing", "timestamp.column.name": "at", "incrementing.column.name": "id",
        "topic.prefix": "db-", "poll.interval.ms": "0", "batch.max.rows": "2", "validate.non.null": "false",
    }  # fmt: skip
    made = SourceTask("items", 0, settings, {"pessoa.home": str(tmp_path), "bootstrap.servers": "127.0.0.1:1"},
                      place_of({}))  # fmt: skip
    yield made
    made.stop()


def _ids(rows: list[SourceRow]) -> list[int]:
    return [json.loads(row.value or b"")["payload"]["id"] for row in rows]


def _first_batch(task: SourceTask) -> Place:
    rows, place = task.read(task.initial_offset())
    assert _ids(list(rows)) == [2, 4, 6]
    return place


def _again(task: SourceTask, end: Place) -> list[int]:
    return _ids(list(task.read_between(task.initial_offset(), end)))


def test_a_batch_is_the_same_again_and_no_more_where_nothing_changed_before_its_end(task: SourceTask, sql: Sql) -> None:
    end = _first_batch(task)
    sql(f"INSERT INTO items VALUES (7, '{DAY.format(7)}')")
    assert _again(task, end) == [2, 4, 6]
    assert _ids(list(task.read(end)[0])) == [7]


def test_a_row_that_came_in_between_does_not_push_another_out(task: SourceTask, sql: Sql) -> None:
    end = _first_batch(task)
    sql(f"INSERT INTO items VALUES (3, '{DAY.format(3)}')")
    assert _again(task, end) == [2, 3, 4, 6]


def test_a_batch_whose_last_row_has_moved_on_reads_all_that_there_is(task: SourceTask, sql: Sql) -> None:
    end = _first_batch(task)
    sql(f"UPDATE items SET at = '{DAY.format(8)}' WHERE id = 6")
    sql(f"INSERT INTO items VALUES (3, '{DAY.format(3)}')")
    assert _again(task, end) == [2, 3, 4, 6]


def test_a_batch_of_which_rows_are_gone_ends_with_those_that_are_left(task: SourceTask, sql: Sql) -> None:
    end = _first_batch(task)
    sql("DELETE FROM items WHERE id = 4")
    assert _again(task, end) == [2, 6]
