"""Kill the worker, and Spark with it, while rows are copied from table to topic to table: no row may be missing.

The table is read twice: by its columns (`JdbcSource`), and from PostgreSQL's log (`PostgresConnector`), which has
deletes as well.

After a kill a source reads its last batch again, so the topic may hold a row twice. The sink writes by key, so the copy
is exact.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from pessoa.testing import Broker
from tests.connect.postgres import binaries, postgres
from tests.connect.serving import wait_until
from tests.support.service_process import ServiceProcess, worker_process
from tests.support.topics import read_all

JSON = "org.apache.kafka.connect.json.JsonConverter"
TRANSFORMS = "org.apache.kafka.connect.transforms."
# Twice the rows that a sink writes in one transaction, so that a kill falls between two transactions.
STEP = 10_000
ROUNDS = int(os.environ.get("PESSOA_PIPELINES_ROUNDS", "1"))
PATIENCE_S = 600.0


@pytest.fixture
def database() -> Iterator[str]:
    if binaries() is None:
        pytest.skip("there is no PostgreSQL (initdb) on this machine")
    with postgres() as server:
        yield server.url()


@pytest.fixture
def worker(broker: Broker, tmp_path: Path) -> Iterator[ServiceProcess]:
    process = worker_process(
        broker.bootstrap_servers,
        tmp_path / "home",
        # The restarted worker leads once the group has expired the killed one's session.
        session_timeout_ms="6000",
        heartbeat_interval_ms="1000",
        offset_storage_partitions="3",
        status_storage_partitions="2",
        pessoa_pace_ms="200",
    )
    try:
        process.start()
        yield process
    finally:
        process.stop()


def test_copies_of_a_table_by_jdbc_and_by_the_postgresql_log_are_complete_after_the_worker_was_killed(
    broker: Broker, worker: ServiceProcess, database: str
) -> None:
    with psycopg.connect(database.removeprefix("jdbc:"), autocommit=True) as connection:

        def number(sql: str) -> int:
            (found,) = connection.execute(sql.encode()).fetchone() or (0,)
            return int(found or 0)

        def copied() -> int:
            return number("SELECT count(*) FROM copia") if number("SELECT to_regclass('copia')::oid") else 0

        def wait_for(count: int) -> None:
            wait_until(lambda: copied() >= count, f"{count} rows are copied", PATIENCE_S)

        def insert() -> None:
            connection.execute(f"INSERT INTO contas (nome) SELECT 'conta ' || generate_series(1, {STEP})".encode())

        connection.execute(
            "CREATE TABLE contas (id SERIAL PRIMARY KEY, nome TEXT NOT NULL,"
            " mudado TIMESTAMP NOT NULL DEFAULT clock_timestamp())"
        )
        connection.execute("CREATE TABLE apagadas AS SELECT n AS id, 'x' || n AS nome FROM generate_series(1, 1000) n")
        connection.execute("ALTER TABLE apagadas ADD PRIMARY KEY (id)")
        insert()
        _start_copying(worker, database)
        _start_following_the_log(worker, database)
        wait_until(
            lambda: number("SELECT to_regclass('espelho_apagadas')::oid"), "rows of the snapshot came", PATIENCE_S
        )
        for done in range(1, ROUNDS + 1):
            wait_for((2 * done - 1) * STEP)
            insert()
            # Some of the new rows are there, and others under way.
            wait_for((2 * done - 1) * STEP + 1)
            worker.kill()
            connection.execute("UPDATE contas SET nome = 'outra', mudado = clock_timestamp() WHERE id % 100 = 0")
            connection.execute("DELETE FROM apagadas WHERE id % 3 = 0")
            connection.execute("UPDATE apagadas SET id = -id WHERE id % 5 = 0")
            insert()
            worker.start()
        differing = (
            "SELECT count(*) FROM (SELECT id, nome FROM contas EXCEPT SELECT id, nome FROM copia UNION ALL"
            " (SELECT id, nome FROM copia EXCEPT SELECT id, nome FROM contas)) AS d"
        )
        wait_until(lambda: copied() and not number(differing), "the tables are equal", PATIENCE_S)
        for table in ("contas", "apagadas"):
            other = differing.replace("FROM contas", f"FROM {table}").replace("copia", f"espelho_{table}")
            wait_until(lambda sql=other: not number(sql), f"{table} is as the log says", PATIENCE_S)  # type: ignore[misc]
        ids = {row[0] for row in connection.execute("SELECT id FROM contas")}
    found = {
        json.loads(message.value())["payload"]["id"] for message in read_all(broker.bootstrap_servers, "db-contas")
    }
    assert found == ids


def _start_copying(worker: ServiceProcess, database: str) -> None:
    _put(
        worker, "contas", connector_class="JdbcSource", connection_url=database, mode="timestamp+incrementing",
        incrementing_column_name="id", timestamp_column_name="mudado", table_whitelist="contas", topic_prefix="db-",
        poll_interval_ms="100", batch_max_rows="5000", key_converter=JSON, transforms="key", transforms_key_fields="id",
        transforms_key_type=f"{TRANSFORMS}ValueToKey",
    )  # fmt: skip
    _put(
        worker, "copia", connector_class="JdbcSink", connection_url=database, topics="db-contas",
        table_name_format="copia", insert_mode="upsert", pk_mode="record_key", pk_fields="id", auto_create="true",
        key_converter=JSON,
    )  # fmt: skip


def _start_following_the_log(worker: ServiceProcess, database: str) -> None:
    unwrap = "io.debezium.transforms.ExtractNewRecordState"
    _put(
        worker, "log", connector_class="io.debezium.connector.postgresql.PostgresConnector",
        database_hostname="127.0.0.1", database_port=str(urlsplit(database.removeprefix("jdbc:")).port),
        database_user="pessoa", database_dbname="postgres", topic_prefix="log", plugin_name="pgoutput",
        table_include_list="public.contas,public.apagadas", column_exclude_list="public.contas.mudado",
        publication_autocreate_mode="filtered", max_batch_size="500", slot_retry_delay_ms="500",
        slot_max_retries="1000",
        key_converter=JSON, transforms="unwrap", transforms_unwrap_type=unwrap,
    )  # fmt: skip
    _put(
        worker, "espelho", connector_class="JdbcSink", connection_url=database, topics_regex="log.public.*",
        table_name_format="espelho_${topic}", insert_mode="upsert", pk_mode="record_key", auto_create="true",
        delete_enabled="true", key_converter=JSON, transforms="name",
        transforms_name_type=f"{TRANSFORMS}RegexRouter", transforms_name_regex="log.public.(.*)",
        transforms_name_replacement="$1",
    )  # fmt: skip


def _put(worker: ServiceProcess, connector: str, **config: str) -> None:
    settings = {key.replace("_", "."): text for key, text in config.items()}
    worker.ask("PUT", f"/connectors/{connector}/config", settings)
