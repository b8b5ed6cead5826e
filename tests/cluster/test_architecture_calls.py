"""The calls that docs/ARCHITECTURE.md lists are the real ones.

Each tree there (a code block that begins with `calls`) is one scenario here. A line is a file; the files indented under
it are called from it, in the order of the lines. A file after ⇢ is reached through the event loop, another thread or
another node, so no call leads there; it only has to run after the line above it. Text after a name is for readers.

The scenario runs on a cluster in this process while a profiler in every thread records which file calls which.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NamedTuple

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.connect.query_offset import query_offset_of
from pessoa.connect.sink_task import SinkTask
from pessoa.connect.source_task import SourceTask
from pessoa.pipelines.python_sink import KafkaRow
from pessoa.pipelines.tasks import Task
from pessoa.testing import Cluster, RestProxy, SchemaRegistry
from tests.connect.serving import PretendingRunner, connect_worker, wait_for_states

ROOT = Path(__file__).parents[2]
SOURCE = f"{ROOT / 'src/pessoa'}/"
TIMEOUT_S = 30.0
TREE = re.compile(r"^```calls ([^\n]+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"( *)(⇢ )?(\S+\.py)( .*)?")


class Line(NamedTuple):
    file: str
    # The file that calls it; None for the root and for what is reached otherwise.
    parent: str | None


def trees() -> dict[str, list[Line]]:
    found = {}
    for title, text in TREE.findall((ROOT / "docs/ARCHITECTURE.md").read_text()):
        lines: list[Line] = []
        above: list[tuple[int, str]] = []
        for line in text.splitlines():
            match = LINE.fullmatch(line)
            assert match is not None, f"{title}: {line!r} names no file"
            depth, file = len(match[1]), match[3]
            while above and above[-1][0] >= depth:
                above.pop()
            lines.append(Line(file, above[-1][1] if above and not match[2] else None))
            above.append((depth, file))
        found[title] = lines
    return found


class Calls:
    """The times of all calls from a file to another, and of all calls into a file."""

    def __init__(self) -> None:
        self.is_recording = False
        self._moment = 0
        self.into: dict[str, list[int]] = {}
        self.between: dict[tuple[str, str], list[int]] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not self.is_recording or not frame.f_code.co_filename.startswith(SOURCE):
            return
        if frame.f_code.co_name == "<module>":
            return
        file = frame.f_code.co_filename.removeprefix(SOURCE)
        self._moment += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(SOURCE):
            caller = caller.f_back
        from_file = "" if caller is None else caller.f_code.co_filename.removeprefix(SOURCE)
        if from_file != file:
            self.into.setdefault(file, []).append(self._moment)
            self.between.setdefault((from_file, file), []).append(self._moment)

    def check(self, lines: list[Line]) -> list[str]:
        """Return the lines for which no call was recorded."""
        problems = []
        moment = 0
        for file, parent in lines:
            moments = self.into.get(file, []) if parent is None else self.between.get((parent, file), [])
            later = [one for one in moments if one > moment]
            if later:
                # Two files that call each other in turns are seen at the first of their moments.
                moment = later[0]
            else:
                callers = sorted({one for one, called in self.between if called == file})
                what = f"is not called from {parent}" if parent else "does not run"
                problems.append(f"{file} {what} after the line above it (it is called from {callers})")
        return problems


@contextmanager
def recorded(cluster: Cluster, calls: Calls) -> Iterator[None]:
    for broker_id in cluster:
        cluster[broker_id].inspect(lambda _: sys.setprofile(calls))
    calls.is_recording = True
    try:
        yield
    finally:
        calls.is_recording = False
        for broker_id in cluster:
            cluster[broker_id].inspect(lambda _: sys.setprofile(None))


@contextmanager
def profiled_threads(calls: Calls) -> Iterator[None]:
    """Record also the calls in threads that start within the context, such as those of services."""
    threading.setprofile(calls)
    try:
        yield
    finally:
        threading.setprofile(None)


Scenario = Callable[[Cluster, Calls], None]


_numbers = count()


def _create(cluster: Cluster) -> str:
    topic = f"topic-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    created = admin.create_topics([NewTopic(topic, 1, 3)])
    created[topic].result(TIMEOUT_S)
    return topic


def _create_and_wait(cluster: Cluster) -> str:
    """Create a topic; return its name when every broker has it in its image."""
    topic = _create(cluster)

    def is_known() -> bool | None:
        return all(cluster[one].inspect(lambda broker: topic in broker.image.topics.by_name) for one in cluster) or None

    cluster.wait_for(is_known, f"every broker knows {topic}", TIMEOUT_S)
    return topic


def _produce_one(cluster: Cluster, topic: str) -> Producer:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    producer.produce(topic, b"first")
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def _consume_one(cluster: Cluster, topic: str, group: str, **more: str) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {name.replace("_", "."): value for name, value in more.items()})
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"first"
    consumer.close()


def produce(cluster: Cluster, calls: Calls) -> None:
    topic = _create_and_wait(cluster)
    # Then the producer and the followers know the leader, and nothing else is in the way of the second record.
    producer = _produce_one(cluster, topic)
    with recorded(cluster, calls):
        producer.produce(topic, b"second")
        assert producer.flush(TIMEOUT_S) == 0


def consume(cluster: Cluster, calls: Calls) -> None:
    topic = _create_and_wait(cluster)
    _produce_one(cluster, topic)
    _consume_one(cluster, topic, f"before {topic}")
    with recorded(cluster, calls):
        _consume_one(cluster, topic, f"recorded {topic}")


def join_with_the_consumer_protocol(cluster: Cluster, calls: Calls) -> None:
    topic = _create_and_wait(cluster)
    _produce_one(cluster, topic)
    _consume_one(cluster, topic, f"before {topic}", group_protocol="consumer")
    with recorded(cluster, calls):
        _consume_one(cluster, topic, f"recorded {topic}", group_protocol="consumer")


def create_topic(cluster: Cluster, calls: Calls) -> None:
    _create(cluster)
    with recorded(cluster, calls):
        # A client asks one of the brokers, drawn by chance; one that is not the active controller forwards it.
        while "broker/apis/envelope.py" not in calls.into:
            _create(cluster)


def register_schema(cluster: Cluster, calls: Calls) -> None:
    with profiled_threads(calls), SchemaRegistry(cluster.bootstrap_servers) as registry:
        # The second version is recorded, which has to be compatible with the first.
        for fields in ("", '{"name": "a", "type": "int", "default": 0}'):
            calls.is_recording = bool(fields)
            schema = {"schema": f'{{"type": "record", "name": "Row", "fields": [{fields}]}}'}
            answer = httpx.post(f"{registry.url}/subjects/rows/versions", json=schema, timeout=TIMEOUT_S)
            assert answer.status_code == HTTPStatus.OK, answer.text
        calls.is_recording = False


def produce_over_rest(cluster: Cluster, calls: Calls) -> None:
    topic = _create_and_wait(cluster)
    with profiled_threads(calls), RestProxy(cluster.bootstrap_servers) as proxy:
        for number in range(2):
            calls.is_recording = number == 1
            answer = httpx.post(
                f"{proxy.url}/topics/{topic}",
                json={"records": [{"value": {"a": 1}}]},
                headers={"Content-Type": "application/vnd.kafka.json.v2+json"},
                timeout=TIMEOUT_S,
            )
            assert answer.status_code == HTTPStatus.OK, answer.text
        calls.is_recording = False


def create_connector(cluster: Cluster, calls: Calls) -> None:
    with (
        TemporaryDirectory() as folder,
        profiled_threads(calls),
        connect_worker(cluster.bootstrap_servers, Path(folder), runner=PretendingRunner()) as worker,
    ):
        for name in ("before", "recorded"):
            calls.is_recording = name == "recorded"
            answer = worker.post("/connectors", json={"name": name, "config": _rows_of_items(Path(folder))})
            assert answer.status_code == HTTPStatus.CREATED, answer.text
            wait_for_states(worker, name, "RUNNING", "RUNNING")
        calls.is_recording = False


def read_row(cluster: Cluster, calls: Calls) -> None:
    """Spark calls a task in a process of its own; here it is called in this one."""
    with TemporaryDirectory() as folder:
        settings = _rows_of_items(Path(folder))
        worker = {
            "pessoa.home": folder, "bootstrap.servers": cluster.bootstrap_servers,
            "offset.storage.topic": _create_and_wait(cluster), "status.storage.topic": _create_and_wait(cluster),
        }  # fmt: skip
        task = SourceTask("items", 0, settings, worker, query_offset_of({}))
        sys.setprofile(calls)
        try:
            calls.is_recording = True
            rows, offset = task.read(task.initial_offset())
            assert len(list(rows)) == 1
            task.commit(offset)
        finally:
            calls.is_recording = False
            sys.setprofile(None)
            task.stop()


def write_record(cluster: Cluster, calls: Calls) -> None:
    """Call a sink's task in this process, where Spark calls it in one of its own."""
    with TemporaryDirectory() as folder:
        settings = {
            "connector.class": "JdbcSink", "connection.url": f"jdbc:sqlite:{folder}/shop.db", "topics": "items",
            "auto.create": "true", **_MARK,
        }  # fmt: skip
        worker = {
            "pessoa.home": folder, "bootstrap.servers": cluster.bootstrap_servers,
            "status.storage.topic": _create_and_wait(cluster),
        }  # fmt: skip
        task = SinkTask("items", settings, worker, "1")
        fields = [{"field": "id", "type": "int64", "optional": False}]
        value = json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": {"id": 1}}).encode()
        sys.setprofile(calls)
        try:
            calls.is_recording = True
            task.open(Task("items", 0, 0, 0))
            task.put([KafkaRow("items", 0, 0, 0, "CreateTime", None, value, [])], 0)
        finally:
            calls.is_recording = False
            sys.setprofile(None)
        with closing(sqlite3.connect(f"{folder}/shop.db")) as connection:
            assert connection.execute('SELECT id, "from" FROM items').fetchall() == [(1, "shop")]


_MARK = {
    "transforms": "mark",
    "transforms.mark.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.mark.static.field": "from",
    "transforms.mark.static.value": "shop",
}


def _rows_of_items(folder: Path) -> dict[str, str]:
    """Make a database with one row, and return the configuration of a connector that reads it."""
    database = folder / "shop.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY NOT NULL)")
        connection.execute("INSERT OR IGNORE INTO items VALUES (1)")
    return {
        "connector.class": "JdbcSource", "connection.url": f"jdbc:sqlite:{database}", "mode": "incrementing",
        "incrementing.column.name": "id", "topic.prefix": "db-", **_MARK,
    }  # fmt: skip


SCENARIOS: dict[str, Scenario] = {
    "of a produce with acks=all": produce,
    "of a fetch": consume,
    "of a group join": consume,
    "of a join with the consumer protocol": join_with_the_consumer_protocol,
    "of a topic creation": create_topic,
    "of the registration of a schema": register_schema,
    "of a REST produce": produce_over_rest,
    "of a new connector": create_connector,
    "of a row of a source connector": read_row,
    "of a record of a sink connector": write_record,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        yield running


def test_every_tree_has_a_scenario() -> None:
    assert set(trees()) == set(SCENARIOS)


@pytest.mark.parametrize("title", SCENARIOS)
def test_the_call_trees_of_the_architecture_page_are_the_real_ones(cluster: Cluster, title: str) -> None:
    calls = Calls()
    SCENARIOS[title](cluster, calls)
    assert calls.check(trees()[title]) == []
