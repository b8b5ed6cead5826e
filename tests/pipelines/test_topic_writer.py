"""Slots without Spark: what is written when a batch is repeated, left half done, or written by two at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException

from pessoa.pipelines import topic_writer
from pessoa.pipelines.state_topic import ensure_topic
from pessoa.pipelines.tasks import Task
from pessoa.pipelines.topic_writer import MARKER_TOPIC_CONFIG, SlotWriter, begin, marker_topic, send, write_slots
from pessoa.testing import Broker
from tests.support.topics import make_topic, read_all

Settings = dict[str, str]


@pytest.fixture(scope="module")
def settings(broker: Broker) -> Settings:
    return {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def topic(request: pytest.FixtureRequest, settings: Settings) -> str:
    name: str = request.node.name[:60]
    make_topic(settings["bootstrap.servers"], name, partitions=1)
    ensure_topic(settings, marker_topic(name), 2, MARKER_TOPIC_CONFIG)
    return name


@pytest.fixture(autouse=True)
def another_worker_process() -> Iterator[None]:
    """What a process keeps between its tasks is forgotten, as in a new one."""
    topic_writer._kept.clear()
    yield
    topic_writer._kept.clear()


def rows(topic: str, *values: bytes, slot: int = 0) -> Any:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {"topic": [topic] * count, "key": list(values), "value": list(values), "slot": [slot] * count}
    )


def run_task(monkeypatch: pytest.MonkeyPatch, settings: Settings, query: str, batch_id: int, *batches: Any) -> None:
    monkeypatch.setattr(topic_writer, "this_task", lambda: Task("checkpoint", batch_id, 0, 0))
    write_slots(iter(batches), settings, query)


def written(settings: Settings, topic: str) -> list[bytes]:
    return sorted(message.value() for message in read_all(settings["bootstrap.servers"], topic))


def test_a_batch_that_is_repeated_is_written_once(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a", b"b"))
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a", b"b"))
    topic_writer._kept.clear()
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a", b"b"))
    run_task(monkeypatch, settings, topic, 1, rows(topic, b"c"))
    assert written(settings, topic) == [b"a", b"b", b"c"]


def test_a_batch_that_died_with_one_of_two_slots_written_is_completed_by_the_other(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"left", slot=0))
    topic_writer._kept.clear()
    both = pa.RecordBatch.from_pydict(
        {"topic": [topic] * 2, "key": [b"l", b"r"], "value": [b"left", b"right"], "slot": [0, 1]}
    )
    run_task(monkeypatch, settings, topic, 0, both)
    assert written(settings, topic) == [b"left", b"right"]


def test_what_a_killed_task_left_open_is_not_seen_and_does_not_hold_up_the_next_one(
    settings: Settings, topic: str
) -> None:
    killed = SlotWriter(settings, topic, "checkpoint", 0)
    killed.begin(0)
    send(killed.producer, rows(topic, b"half"))
    killed.producer.flush(60)
    again = begin(settings, topic, "checkpoint", 0, 0)
    assert again is not None
    send(again.producer, rows(topic, b"whole"))
    again.commit(0)
    assert written(settings, topic) == [b"whole"]
    with pytest.raises(KafkaException):
        killed.commit(0)
    assert written(settings, topic) == [b"whole"]


def test_a_worker_whose_slot_another_worker_has_written_since_begins_anew(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    elsewhere = SlotWriter(settings, topic, "checkpoint", 0)
    assert elsewhere.marker == 1
    elsewhere.begin(1)
    send(elsewhere.producer, rows(topic, b"b"))
    elsewhere.commit(1)
    # This process still keeps the writer of batch 0.
    run_task(monkeypatch, settings, topic, 1, rows(topic, b"b"))
    run_task(monkeypatch, settings, topic, 2, rows(topic, b"c"))
    assert written(settings, topic) == [b"a", b"b", b"c"]


def test_a_writer_that_was_shown_too_few_markers_does_not_write(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    topic_writer._kept.clear()
    # As a leader tells it that was cut off before the batch was written.
    monkeypatch.setattr(topic_writer, "last_marker", lambda *_: (0, 0))
    with pytest.raises(KafkaException, match="were read to 0, and ours stands at 2"):
        run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    monkeypatch.undo()
    run_task(monkeypatch, settings, topic, 1, rows(topic, b"b"))
    assert written(settings, topic) == [b"a", b"b"]


def test_another_checkpoint_counts_from_its_own_beginning(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    monkeypatch.setattr(topic_writer, "this_task", lambda: Task("another", 0, 0, 0))
    write_slots(iter([rows(topic, b"a")]), settings, topic)
    assert written(settings, topic) == [b"a", b"a"], "a query without its checkpoint begins at the beginning"


def test_a_slot_goes_on_after_the_broker_was_killed_between_two_batches(
    broker: Broker, settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    broker.kill()
    broker.start()
    run_task(monkeypatch, settings, topic, 1, rows(topic, b"b"))
    assert written(settings, topic) == [b"a", b"b"]
