"""A materialised table follows a topic on a real broker: tombstones, transactions, kill -9, and recreated topics."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.pipelines import materialised_table
from pessoa.pipelines.materialised_table import MaterialisedTable, TableBehind
from pessoa.testing import Broker

TIMEOUT_S = 30.0


class Topic:
    def __init__(self, broker: Broker, name: str, partitions: int = 1) -> None:
        self.kafka = {"bootstrap.servers": broker.bootstrap_servers}
        self.name = name
        self.admin = AdminClient({**self.kafka})
        self.create(partitions)

    def create(self, partitions: int = 1) -> None:
        self.admin.create_topics([NewTopic(self.name, partitions, 1)])[self.name].result()
        # A new producer, since the old one may know the partitions of a deleted topic of this name.
        self.producer = Producer({**self.kafka, "linger.ms": 0})

    def write(self, *records: tuple[bytes | None, bytes | None]) -> None:
        errors: list[object] = []
        for key, value in records:
            self.producer.produce(self.name, value, key, on_delivery=lambda error, _: errors.append(error))
        assert self.producer.flush(TIMEOUT_S) == 0
        assert errors == [None] * len(records)

    def table(self, directory: Path) -> MaterialisedTable:
        return MaterialisedTable(self.name, self.kafka, directory)


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> Topic:
    return Topic(broker, request.node.name, 3)


def read_up(table: MaterialisedTable) -> MaterialisedTable:
    deadline = time.monotonic() + TIMEOUT_S
    table.wait_until_read(table.end_offsets(), deadline)
    return table


def contents(table: MaterialisedTable) -> dict[bytes, bytes]:
    return {entry.key: entry.value for entry in read_up(table).scan()}


def wait_for(holds: object) -> None:
    assert callable(holds)
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to hold"
        time.sleep(0.02)


def test_table_has_the_last_value_of_each_key_and_follows_its_topic(topic: Topic, tmp_path: Path) -> None:
    topic.write((b"ana", b"1"), (b"rui", b"1"), (b"ana", b"2"), (None, b"no key"))
    with topic.table(tmp_path) as table:
        assert contents(table) == {b"ana": b"2", b"rui": b"1"}
        topic.write((b"rui", None), (b"eva", b"7"))
        assert contents(table) == {b"ana": b"2", b"eva": b"7"}
        assert (table.count(), table.get(b"rui")) == (2, None)
        found = table.get(b"eva")
        assert found is not None
        assert (found.value, found.offset >= 0, found.timestamp_ms > 0) == (b"7", True, True)
        assert [entry.key for entry in table.range(b"b", None)] == [b"eva"]
        assert sum(table.offsets().values()) == 6
        wait_for(lambda: table.staleness().lag == 0 and table.staleness().as_of_ms is not None)
        assert table.staleness().trouble == ""


def test_windows_of_a_key_are_found_by_start_and_exclude_longer_keys_with_the_same_prefix(
    topic: Topic, tmp_path: Path
) -> None:
    def key(name: bytes, start_ms: int) -> bytes:
        return name + struct.pack(">q", start_ms)

    topic.write(*((key(b"ana", start), b"%d" % start) for start in (0, 60_000, 120_000)))
    topic.write((key(b"anabela", 60_000), b"x"), (b"ana\0\0\0\0\0\0\0\0\0", b"another's"), (key(b"rui", 60_000), b"y"))
    with topic.table(tmp_path) as table:
        read_up(table)
        assert [entry.value for entry in table.windows(b"ana")] == [b"0", b"60000", b"120000"]
        assert [entry.value for entry in table.windows(b"ana", 60_000, 120_000)] == [b"60000"]
        assert len(list(table.prefix(b"ana"))) == 5


def test_table_reads_only_committed_transactions_and_reaches_lag_zero_past_their_markers(
    topic: Topic, tmp_path: Path
) -> None:
    producer = Producer({**topic.kafka, "transactional.id": topic.name})
    producer.init_transactions(TIMEOUT_S)
    for key, commit in ((b"kept", True), (b"dropped", False)):
        producer.begin_transaction()
        producer.produce(topic.name, b"v", key)
        producer.flush(TIMEOUT_S)
        if commit:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    with topic.table(tmp_path) as table:
        assert contents(table) == {b"kept": b"v"}
        wait_for(lambda: table.lag() == 0)


def test_reopened_table_continues_from_its_offsets(topic: Topic, tmp_path: Path) -> None:
    topic.write((b"a", b"1"), (b"b", b"1"))
    with topic.table(tmp_path) as table:
        read_up(table)
        before = table.offsets()
    topic.write((b"a", None))
    table = topic.table(tmp_path)
    table.start()
    assert sum(table.offsets().values()) >= sum(before.values())
    assert table.get(b"b") is not None
    assert contents(table) == {b"b": b"1"}
    table.close()


def test_table_is_rebuilt_when_its_topic_was_recreated_while_it_was_closed(topic: Topic, tmp_path: Path) -> None:
    topic.write((b"old", b"1"))
    with topic.table(tmp_path) as table:
        assert contents(table) == {b"old": b"1"}
    topic.admin.delete_topics([topic.name])[topic.name].result()
    topic.create()
    # More records than were read of the old topic, so offsets alone do not show that it is another.
    topic.write((b"new", b"1"), (b"new", b"2"), (b"newer", b"1"))
    with topic.table(tmp_path) as table:
        assert contents(table) == {b"new": b"2", b"newer": b"1"}


def test_open_table_is_emptied_when_its_topic_is_deleted_and_follows_the_recreated_topic(
    topic: Topic, tmp_path: Path
) -> None:
    topic.write((b"old", b"1"))
    with topic.table(tmp_path) as table:
        read_up(table)
        topic.admin.delete_topics([topic.name])[topic.name].result()
        wait_for(lambda: table.count() == 0)
        assert "does not exist" in table.staleness().trouble
        topic.create(2)
        topic.write((b"new", b"2"))
        assert contents(table) == {b"new": b"2"}


def test_end_offsets_older_than_the_records_read_since_do_not_rebuild_the_table(
    topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(materialised_table, "LOOK_INTERVAL_S", 0.0)
    with topic.table(tmp_path) as table:
        for number in range(300):
            topic.write((b"k", b"%d" % number))
        assert contents(table) == {b"k": b"299"}
    assert "anew" not in caplog.text


def test_table_of_a_missing_topic_is_empty_and_reports_the_reason(broker: Broker, tmp_path: Path) -> None:
    with MaterialisedTable("missing", {"bootstrap.servers": broker.bootstrap_servers}, tmp_path) as table:
        wait_for(lambda: "does not exist" in table.staleness().trouble)
        assert (table.count(), table.staleness().as_of_ms) == (0, None)


def test_waiting_for_offsets_that_are_never_reached_fails_with_the_position_read(topic: Topic, tmp_path: Path) -> None:
    with topic.table(tmp_path) as table, pytest.raises(TableBehind, match="is read up to"):
        table.wait_until_read({0: 99}, time.monotonic() + 0.2)


def test_table_killed_while_loading_has_the_correct_rows_after_a_restart(topic: Topic, tmp_path: Path) -> None:
    keys = 3000
    for number in range(20 * keys):
        topic.producer.produce(topic.name, b"%d" % number, b"k%d" % (number % keys))
        if number % 5000 == 0:
            topic.producer.poll(0)
    assert topic.producer.flush(TIMEOUT_S) == 0
    for _ in range(3):
        with TableProcess(topic, tmp_path) as process:
            assert process.stdout is not None
            # It prints a line once it has read records, and is killed while it goes on loading.
            assert process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
    with topic.table(tmp_path) as table:
        found = contents(table)
    assert found == {b"k%d" % (number % keys): b"%d" % number for number in range(19 * keys, 20 * keys)}


class TableProcess:
    def __init__(self, topic: Topic, directory: Path) -> None:
        program = (
            "import sys, time; from pathlib import Path; from pessoa.pipelines.materialised_table import *\n"
            "table = MaterialisedTable(sys.argv[1], {'bootstrap.servers': sys.argv[2]}, Path(sys.argv[3]))\n"
            "before = sum(table.offsets().values()); table.start()\n"
            "while sum(table.offsets().values()) <= before: time.sleep(0.001)\n"
            "print('reading', flush=True); time.sleep(60)\n"
        )
        arguments = [topic.name, topic.kafka["bootstrap.servers"], str(directory)]
        self._process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE)

    def __enter__(self) -> subprocess.Popen[bytes]:
        return self._process

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
