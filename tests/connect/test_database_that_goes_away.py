"""JDBC connectors while PostgreSQL is stopped and started again: whether they wait, and with what error they fail."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pessoa.connect.connectors.databases import DatabaseFailure
from pessoa.connect.query_offset import query_offset_of
from pessoa.connect.sink_task import SinkTask
from pessoa.connect.source_task import SourceTask
from pessoa.pipelines.python_sink import KafkaRow
from pessoa.pipelines.tasks import Task
from tests.connect.postgres import Postgres, binaries, postgres
from tests.connect.serving import wait_until

DEADLINE_S = 120
SCHEMA = {"type": "struct", "fields": [{"field": "id", "type": "int32", "optional": False}], "optional": False}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    if binaries() is None:
        pytest.skip("there is no PostgreSQL (initdb) on this machine")
    with postgres() as running:
        yield running


@pytest.fixture
def worker(tmp_path: Path) -> dict[str, str]:
    # There are no internal topics, so the offsets of a source are kept in a file.
    return {"pessoa.home": str(tmp_path), "bootstrap.servers": "127.0.0.1:1"}


def _row(number: int) -> KafkaRow:
    value = json.dumps({"schema": SCHEMA, "payload": {"id": number}}).encode()
    return KafkaRow("numeros", 0, number, 0, "CreateTime", None, value, [])


@contextmanager
def _sink(worker: dict[str, str], url: str, name: str, **more: str) -> Iterator[SinkTask]:
    settings = {"connector.class": "JdbcSink", "connection.url": url, "topics": "numeros", "auto.create": "true",
                "retry.backoff.ms": "100", "table.name.format": name}  # fmt: skip
    task = SinkTask(name, settings | {key.replace("_", "."): text for key, text in more.items()}, worker, "first")
    task.open(Task("c", 0, 0, 0))
    try:
        yield task
    finally:
        task.end()


@contextmanager
def _source(worker: dict[str, str], url: str, name: str, **more: str) -> Iterator[SourceTask]:
    settings = {"connector.class": "JdbcSource", "connection.url": url, "topic.prefix": "db-", "poll.interval.ms": "0"}
    settings |= {key.replace("_", "."): text for key, text in more.items()}
    task = SourceTask(name, 0, settings, worker, query_offset_of({}))
    try:
        yield task
    finally:
        task.stop()


def _rows(server: Postgres, sql: str) -> list[Any]:
    with psycopg.connect(server.url().removeprefix("jdbc:"), autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


def test_a_jdbc_sink_waits_for_a_stopped_database_and_writes_everything_after_its_restart(
    server: Postgres, worker: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with _sink(worker, server.url(), "paciente", max_retries="100000") as task:
        task.put([_row(1)], 0)
        server.stop()
        with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING, "pessoa.connect"):
            second = pool.submit(task.put, [_row(2), _row(3)], 1)
            try:
                wait_until(lambda: "the database is asked again" in caplog.text, "it has noticed", DEADLINE_S)
                assert not second.done()
            finally:
                server.start()
            second.result(DEADLINE_S)
    assert _rows(server, "SELECT id FROM paciente ORDER BY id") == [(1,), (2,), (3,)]


def test_a_jdbc_sink_fails_with_the_reason_when_its_database_stays_unreachable_for_max_retries(
    server: Postgres, worker: dict[str, str]
) -> None:
    with _sink(worker, server.url(), "impaciente", max_retries="1") as task:
        task.put([_row(1)], 0)
        server.stop()
        try:
            with pytest.raises(DatabaseFailure, match=r"given up after 1 retries: .*127\.0\.0\.1"):
                task.put([_row(2)], 1)
        finally:
            server.start()
    # A task that is restarted gets the same batch again.
    with _sink(worker, server.url(), "impaciente", max_retries="1") as again:
        again.put([_row(2)], 1)
    assert _rows(server, "SELECT id FROM impaciente ORDER BY id") == [(1,), (2,)]


def test_a_jdbc_source_waits_for_a_stopped_database_and_continues_from_its_offset(
    server: Postgres, worker: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    _rows(server, "CREATE TABLE fonte (id SERIAL PRIMARY KEY)")
    _rows(server, "INSERT INTO fonte SELECT generate_series(1, 5)")
    patience = {"connection_attempts": "100000", "connection_backoff_ms": "100"}
    with _source(worker, server.url(), "fonte", mode="incrementing", table_whitelist="fonte", **patience) as task:
        first, place = task.read(task.initial_offset())

        def rest() -> list[Any]:
            found: list[Any] = []
            at = place
            while not found:
                more, at = task.read(at)
                found += more
            return found

        _rows(server, "INSERT INTO fonte VALUES (6), (7)")
        server.stop()
        with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING, "pessoa.connect"):
            second = pool.submit(rest)
            try:
                wait_until(lambda: "attempt 1 at the database failed" in caplog.text, "it has noticed", DEADLINE_S)
            finally:
                server.start()
            found = [*first, *second.result(DEADLINE_S)]
    assert [json.loads(row.value)["payload"]["id"] for row in found] == [1, 2, 3, 4, 5, 6, 7]


def test_a_jdbc_source_fails_with_the_reason_when_every_connection_attempt_fails(
    server: Postgres, worker: dict[str, str]
) -> None:
    patience = {"connection_attempts": "2", "connection_backoff_ms": "10"}
    with (
        _source(worker, server.url("ninguem"), "nenhuma", mode="bulk", **patience) as task,
        pytest.raises(DatabaseFailure, match=r'cannot be reached: .*database "ninguem" does not exist'),
    ):
        task.read(task.initial_offset())
