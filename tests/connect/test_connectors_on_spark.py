"""Every connector end to end: a real Spark, real brokers (ours and Apache's), a real PostgreSQL, files and HTTP.

One worker runs all connectors at once: the functions named `start_…` start them first, and each test waits for one
result. JDBC copies 100,000 rows on our broker and fewer on Apache's, which repeats the test for the broker only.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import fastavro
import httpx
import psycopg
import pyarrow.parquet
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pessoa.testing import Broker
from tests.apache.broker import ApacheKafka
from tests.connect.postgres import Postgres, binaries, postgres
from tests.connect.receivers import Receiver, receiver
from tests.connect.serving import connect_worker, wait_for_states, wait_until

STRING = "org.apache.kafka.connect.storage.StringConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
TRANSFORMS = "org.apache.kafka.connect.transforms."
EVENTS = 40
ROWS = {"pessoa": 100_000, "apache": 10_000}
SHOPS = 30
BAD = b"this is no JSON"


class Stage:
    """A worker on our broker or Apache's, with its files, database and HTTP receiver."""

    def __init__(
        self, kafka: str, bootstrap: str, http: httpx.Client, folder: Path, database: str, receiver: Receiver
    ) -> None:
        self.kafka = kafka
        self.bootstrap = bootstrap
        self.http = http
        self.folder = folder
        self.database = database
        self.receiver = receiver
        self.lines = Path(os.path.relpath(folder / "in.txt"))
        self.row_count = ROWS[kafka]
        self.events: list[dict[str, Any]] = []

    def run(self, name: str, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        answer = self.http.put(f"/connectors/{name}/config", json=settings)
        assert answer.status_code in (200, 201), answer.text

    def produce(self, topic: str, values: list[tuple[bytes | None, bytes | None]]) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for key, value in values:
            producer.produce(topic, value, key)
        assert producer.flush(120) == 0

    def records(self, topic: str, count: int) -> list[Any]:
        """Wait until a topic has `count` records, and return what was read."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "test", "auto.offset.reset": "earliest",
             "topic.metadata.refresh.interval.ms": 1000, "allow.auto.create.topics": False}
        )  # fmt: skip
        found: list[Any] = []
        try:
            wait_until(lambda: topic in consumer.list_topics(timeout=60).topics, f"{topic} comes into being")
            partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in partitions])

            def enough() -> bool:
                found.extend(message for message in consumer.consume(1000, 1.0) if message.error() is None)
                return len(found) >= count

            wait_until(enough, f"{topic} has {count} records")
        finally:
            consumer.close()
        return found

    def sql(self, statement: str, *values: Any) -> list[Any]:
        address = self.database.removeprefix("jdbc:")
        with psycopg.connect(address, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def count(self, table: str) -> int:
        """Return the number of rows of a table; 0 if there is no such table."""
        if not self.sql("SELECT to_regclass(%s)", f'"{table}"')[0][0]:
            return 0
        return int(self.sql(f'SELECT count(*) FROM "{table}"')[0][0])


# The connectors that are started first; the tests below wait for their results.


def start_files(stage: Stage) -> None:
    """Start a file source and a file sink, with short class names and paths relative to the worker."""
    stage.lines.write_text("um\ndois\ntrês\n", encoding="utf-8")
    stage.run(
        "file-source", connector_class="FileStreamSource", file=str(stage.lines), topic="lines", value_converter=STRING,
        transforms="mark", transforms_mark_type=f"{TRANSFORMS}RegexRouter", transforms_mark_regex="(.*)",
        transforms_mark_replacement="$1-routed",
    )  # fmt: skip
    stage.run(
        "file-sink", connector_class="FileStreamSink", file=os.path.relpath(stage.folder / "out.txt"),
        topics="lines-routed", value_converter=STRING,
    )  # fmt: skip


def start_datagen(stage: Stage) -> None:
    for name in ("users-a", "users-b"):
        stage.run(
            name, connector_class="DatagenConnector", kafka_topic=name, quickstart="users", iterations="50",
            max_interval="0", random_seed="7", value_converter=JSON, value_converter_schemas_enable="false",
        )  # fmt: skip


def start_tables(stage: Stage) -> None:
    stage.sql("CREATE TABLE clientes (id SERIAL PRIMARY KEY, nome TEXT NOT NULL, saldo NUMERIC(10,2), "
              "mudado TIMESTAMP NOT NULL DEFAULT clock_timestamp())")  # fmt: skip
    rows = f"generate_series(1, {stage.row_count}) n"
    stage.sql(f"INSERT INTO clientes (nome, saldo) SELECT 'cliente ' || n, n / 4.0 FROM {rows}")
    stage.run(
        "jdbc-source", connector_class="JdbcSource", connection_url=stage.database, mode="timestamp+incrementing",
        incrementing_column_name="id", timestamp_column_name="mudado", table_whitelist="clientes", topic_prefix="db-",
        poll_interval_ms="200", batch_max_rows="10000", key_converter=JSON, transforms="key,id",
        transforms_key_type=f"{TRANSFORMS}ValueToKey", transforms_key_fields="id",
        transforms_id_type=f"{TRANSFORMS}ExtractField$Key", transforms_id_field="id",
    )  # fmt: skip
    stage.run(
        "jdbc-upsert", connector_class="JdbcSink", connection_url=stage.database, topics="db-clientes",
        table_name_format="copia", insert_mode="upsert", pk_mode="record_key", pk_fields="id", auto_create="true",
        delete_enabled="true", key_converter=JSON,
    )  # fmt: skip


def start_other_modes(stage: Stage) -> None:
    """Start a JDBC source in each of three other modes, and one sink that inserts the rows of all of them."""
    columns = "id SERIAL PRIMARY KEY, nome TEXT NOT NULL, mudado TIMESTAMP NOT NULL DEFAULT clock_timestamp()"
    for mode in ("bulk", "incrementing", "timestamp"):
        stage.sql(f"CREATE TABLE {mode} ({columns})")
        # Different times: of rows with the same time the source promises no order.
        stage.sql(f"INSERT INTO {mode} (nome, mudado) SELECT 'loja ' || n, clock_timestamp() + n * interval '1 us' "
                  f"FROM generate_series(1, {SHOPS}) n")  # fmt: skip
        # A bulk source reads the whole table in each poll; this interval makes it read once.
        pause = "3600000" if mode == "bulk" else "200"
        stage.run(
            f"jdbc-{mode}", connector_class="JdbcSource", connection_url=stage.database, mode=mode,
            timestamp_column_name="mudado" if mode == "timestamp" else "", table_whitelist=mode,
            topic_prefix="lojas-", poll_interval_ms=pause, batch_max_rows="7",
        )  # fmt: skip
    stage.produce("lojas-crescentes", [(None, _shop(1)), (None, _shop(2, "Faro"))])
    stage.run(
        "jdbc-insert", connector_class="JdbcSink", connection_url=stage.database, topics_regex="lojas-.*",
        table_name_format="in_${topic}", insert_mode="insert", pk_mode="kafka", auto_create="true", auto_evolve="true",
    )  # fmt: skip


def start_sinks_of_events(stage: Stage) -> None:
    """Write a topic with one unreadable record, and start all sinks that read it."""
    stage.events = [
        {"id": number, "city": "Porto" if number % 2 else "Faro", "price": number / 4} for number in range(EVENTS)
    ]
    schema = {
        "type": "struct",
        "fields": [
            {"field": "id", "type": "int32", "optional": False},
            {"field": "city", "type": "string", "optional": True},
            {"field": "price", "type": "double", "optional": True},
        ],
        "optional": False,
    }
    values = [json.dumps({"schema": schema, "payload": each}).encode() for each in stage.events]
    rows: list[tuple[bytes | None, bytes | None]] = [(str(number).encode(), one) for number, one in enumerate(values)]
    rows.insert(EVENTS // 2, (b"bad", BAD))
    stage.produce("events", rows)
    tolerant = {"errors_tolerance": "all", "topics": "events"}
    for kind in ("Json", "Avro", "Parquet"):
        stage.run(
            f"files-{kind.lower()}", connector_class="FileSystemSink", store_url=str(stage.folder / "store"),
            topics_dir=kind.lower(), format_class=f"{kind}Format", flush_size="25", **tolerant,
        )  # fmt: skip
    stage.run(
        "s3", connector_class="io.confluent.connect.s3.S3SinkConnector", store_url=stage.receiver.url,
        s3_bucket_name="balde", flush_size="1000", aws_access_key_id="a", aws_secret_access_key="b",
        s3_region="eu-west-1", partitioner_class="FieldPartitioner", partition_field_name="city", **tolerant,
    )  # fmt: skip
    stage.receiver.refuses = b'"id":7,'
    stage.run(
        "http", connector_class="io.aiven.kafka.connect.http.HttpSinkConnector", http_url=stage.receiver.url,
        http_authorization_type="none", errors_deadletterqueue_topic_name="letters",
        errors_deadletterqueue_context_headers_enable="true", **tolerant,
    )  # fmt: skip
    stage.run("strict", connector_class="FileStreamSink", file=str(stage.folder / "strict.txt"), topics="events")


STARTS: tuple[Callable[[Stage], None], ...] = (
    start_tables,
    start_files,
    start_datagen,
    start_other_modes,
    start_sinks_of_events,
)


@pytest.fixture(scope="module")
def database_server() -> Iterator[Postgres]:
    if binaries() is None:
        pytest.skip("there is no PostgreSQL (initdb) on this machine")
    with postgres() as server:
        yield server


@pytest.fixture(scope="module", params=["pessoa", pytest.param("apache", marks=pytest.mark.apache)])
def stage(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    spark_address: str,
    database_server: Postgres,
) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp(f"connect-{request.param}")
    with ExitStack() as stack:
        kafka: Broker | ApacheKafka = Broker() if request.param == "pessoa" else ApacheKafka()
        stack.enter_context(kafka)
        database = database_server.create(request.param)
        # Many connectors share the machine: a slower pace leaves each of them enough time.
        settings = {"pessoa.spark.remote": spark_address, "key.converter": STRING, "pessoa.pace.ms": "500"}
        http = stack.enter_context(connect_worker(kafka.bootstrap_servers, folder / "home", settings))
        stage = Stage(request.param, kafka.bootstrap_servers, http, folder, database, stack.enter_context(receiver()))
        for start in STARTS:
            start(stage)
        yield stage


def test_lines_of_a_file_are_copied_through_a_topic_into_another_file(stage: Stage) -> None:
    lines = _written(stage)
    assert lines[:3] == ["um", "dois", "três"]
    _write(stage, "quatro")
    assert _written(stage) == [*lines, "quatro"]
    assert stage.http.get("/connectors/file-sink/topics").json() == {"file-sink": {"topics": ["lines-routed"]}}


def test_file_connectors_continue_from_their_offsets_after_a_pause_and_after_a_restart(stage: Stage) -> None:
    both = ("file-source", "file-sink")
    lines = _written(stage)
    for name in both:
        assert stage.http.put(f"/connectors/{name}/pause").status_code == 202
    for name in both:
        wait_for_states(stage.http, name, "PAUSED", "PAUSED")
    _write(stage, "na pausa")
    for name in both:
        assert stage.http.put(f"/connectors/{name}/resume").status_code == 202
    assert _written(stage) == [*lines, "na pausa"]
    for name in both:
        assert stage.http.post(f"/connectors/{name}/restart?includeTasks=true").status_code == 202
    _write(stage, "depois")
    assert _written(stage) == [*lines, "na pausa", "depois"]


def _write(stage: Stage, line: str) -> None:
    with stage.lines.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def _written(stage: Stage) -> list[str]:
    """Wait until every line is in the second file and both connectors have committed it; return its lines."""
    count = stage.lines.read_text(encoding="utf-8").count("\n")
    target = stage.folder / "out.txt"
    wait_until(lambda: target.exists() and target.read_text(encoding="utf-8").count("\n") >= count, f"{count} lines")
    size = stage.lines.stat().st_size
    place = {"kafka_topic": "lines-routed", "kafka_partition": 0}
    reached = {
        "file-source": {"partition": {"filename": str(stage.lines)}, "offset": {"position": size}},
        "file-sink": {"partition": place, "offset": {"kafka_offset": count}},
    }
    for name, place_and_offset in reached.items():
        known = {"offsets": [place_and_offset]}
        wait_until(lambda: stage.http.get(f"/connectors/{name}/offsets").json() == known, f"{name} is there")  # noqa: B023
    return target.read_text(encoding="utf-8").splitlines()


def test_the_datagen_source_makes_the_configured_number_of_records_equal_for_equal_seeds(stage: Stage) -> None:
    first, second = stage.records("users-a", 50), stage.records("users-b", 50)
    assert [each.value() for each in first] == [each.value() for each in second]
    user = json.loads(first[0].value())
    assert set(user) == {"registertime", "userid", "regionid", "gender"}
    assert first[0].key().decode() == user["userid"]


def test_a_table_is_copied_through_a_topic_to_another_table_with_later_updates_and_deletes(stage: Stage) -> None:
    wait_until(lambda: stage.count("copia") == stage.row_count, f"{stage.row_count} rows were copied", 300)
    differing = "SELECT count(*) FROM (SELECT id, nome, saldo FROM clientes EXCEPT SELECT id, nome, saldo FROM copia) d"
    assert stage.sql(differing)[0][0] == 0
    stage.sql("UPDATE clientes SET nome = 'outro', mudado = clock_timestamp() WHERE id <= 10")
    stage.sql("INSERT INTO clientes (nome) VALUES ('novo')")
    changed = "SELECT count(*) FROM copia WHERE nome IN ('outro', 'novo')"
    wait_until(lambda: stage.sql(changed)[0][0] == 11, "updates and the new row came over")
    envelope = {"schema": {"type": "int32", "optional": False}, "payload": 1}
    stage.produce("db-clientes", [(json.dumps(envelope).encode(), None)])
    wait_until(lambda: not stage.sql("SELECT 1 FROM copia WHERE id = 1"), "the row without a value is gone")
    assert stage.count("copia") == stage.row_count


@pytest.mark.parametrize("mode", ["bulk", "incrementing", "timestamp"])
def test_rows_read_in_bulk_incrementing_and_timestamp_mode_are_inserted_by_the_jdbc_sink(
    stage: Stage, mode: str
) -> None:
    wait_until(lambda: stage.count(f"in_lojas-{mode}") == SHOPS, f"the rows of {mode} were inserted")
    copied = stage.sql(f'SELECT id, nome FROM "in_lojas-{mode}" ORDER BY __connect_offset')
    assert copied == [(number, f"loja {number}") for number in range(1, SHOPS + 1)]
    if mode != "bulk":
        stage.sql(f"INSERT INTO {mode} (nome) VALUES ('nova')")
        wait_until(lambda: stage.count(f"in_lojas-{mode}") == SHOPS + 1, "the new row was found")


def test_the_jdbc_sink_adds_columns_for_new_fields_of_records(stage: Stage) -> None:
    wait_until(lambda: stage.count("in_lojas-crescentes") == 2, "both rows are there")
    rows = stage.sql('SELECT id, cidade FROM "in_lojas-crescentes" ORDER BY id')
    assert rows == [(1, None), (2, "Faro")]


def test_the_file_system_sink_writes_every_readable_record_once_in_each_format(stage: Stage) -> None:
    store = stage.folder / "store"

    def files(kind: str) -> list[Path]:
        return sorted(store.glob(f"{kind}/events/partition=0/events+0+*.{kind}"))

    def read(kind: str) -> list[dict[str, Any]]:
        rows: list[Any] = []
        for path in files(kind):
            if kind == "json":
                rows += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            elif kind == "avro":
                rows += fastavro.reader(io.BytesIO(path.read_bytes()))
            else:
                rows += pyarrow.parquet.read_table(path).to_pylist()
        return rows

    for kind in ("json", "avro", "parquet"):
        wait_until(lambda kind=kind: len(read(kind)) == EVENTS, f"{kind} has everything")  # type: ignore[misc]
        assert read(kind) == stage.events
    assert files("json")[0].name == "events+0+0000000000.json"
    assert not list(store.rglob(".*")), "nothing half-written is left"


def test_the_s3_sink_writes_records_to_objects_partitioned_by_field(stage: Stage) -> None:
    def rows(city: str) -> list[Any]:
        with stage.receiver.lock:
            found = {path: data for path, data in stage.receiver.objects.items() if path.startswith("/balde/topics/")}
        inside = [data for path, data in sorted(found.items()) if f"/events/city={city}/" in path]
        return [json.loads(line) for data in inside for line in data.splitlines()]

    wait_until(lambda: len(rows("Porto")) + len(rows("Faro")) == EVENTS, "everything is in the bucket")
    assert rows("Porto") == [each for each in stage.events if each["city"] == "Porto"]


def test_the_http_sink_posts_records_and_sends_unreadable_or_refused_ones_to_the_dead_letter_topic(
    stage: Stage,
) -> None:
    bodies = stage.receiver.bodies
    wait_until(lambda: len(bodies) == EVENTS - 1, "all but one arrived")
    assert [json.loads(body)["id"] for body in bodies] == [n for n in range(EVENTS) if n != 7]
    letters = stage.records("letters", 2)
    stages = {_headers(each)["__connect.errors.stage"]: each for each in letters}
    assert set(stages) == {"VALUE_CONVERTER", "TASK_PUT"}
    unreadable = stages["VALUE_CONVERTER"]
    assert unreadable.value() == BAD
    facts = _headers(unreadable)
    assert facts["__connect.errors.topic"] == "events"
    assert facts["__connect.errors.offset"] == str(EVENTS // 2)
    assert facts["__connect.errors.connector.name"] == "http"
    assert facts["__connect.errors.exception.class.name"] == "org.apache.kafka.connect.errors.DataException"
    assert stages["TASK_PUT"].key() == b"7"


def test_an_unreadable_record_fails_a_task_without_error_tolerance_and_with_the_reason(stage: Stage) -> None:
    wait_for_states(stage.http, "strict", "RUNNING", "FAILED")
    trace = stage.http.get("/connectors/strict/tasks/0/status").json()["trace"]
    assert "VALUE_CONVERTER" in trace
    assert "serialization error" in trace


def test_deleting_a_connector_removes_its_status_and_its_checkpoint(stage: Stage) -> None:
    def kept() -> list[Path]:
        return list((stage.folder / "home" / "queries").glob("connect-users-a-*"))

    assert kept()
    assert stage.http.delete("/connectors/users-a").status_code == 204
    wait_until(lambda: stage.http.get("/connectors/users-a/status").status_code == 404, "its status is gone")
    wait_until(lambda: not kept(), "its checkpoint is gone")


def _shop(number: int, city: str | None = None) -> bytes:
    fields = [{"field": "id", "type": "int32", "optional": False}]
    payload: dict[str, Any] = {"id": number}
    if city is not None:
        fields.append({"field": "cidade", "type": "string", "optional": True})
        payload["cidade"] = city
    return json.dumps({"schema": {"type": "struct", "fields": fields, "optional": False}, "payload": payload}).encode()


def _headers(message: Any) -> dict[str, str]:
    return {name: (data or b"").decode() for name, data in message.headers() or ()}
