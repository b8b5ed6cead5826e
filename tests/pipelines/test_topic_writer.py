"""Slot writers without Spark: each batch is in the topic once after repeated, half-written and concurrent attempts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar, NamedTuple

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from pessoa.client.librdkafka import is_passing
from pessoa.client.topic_creation import ensure_topic
from pessoa.pipelines import topic_writer
from pessoa.pipelines.tasks import Task
from pessoa.pipelines.topic_writer import (
    MarkersReadShort,
    SlotWriter,
    begin,
    last_marker,
    marker_spec,
    marker_topic,
    retrying,
    send,
    write_slots,
)
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
    ensure_topic(AdminClient(dict(settings)), marker_spec(name, 2))
    return name


@pytest.fixture(autouse=True)
def another_worker_process() -> Iterator[None]:
    """Clear the writers that a worker process keeps between its tasks, as in a new process."""
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


def test_a_repeated_batch_writes_only_the_slots_that_were_not_committed(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"left", slot=0))
    topic_writer._kept.clear()
    both = pa.RecordBatch.from_pydict(
        {"topic": [topic] * 2, "key": [b"l", b"r"], "value": [b"left", b"right"], "slot": [0, 1]}
    )
    run_task(monkeypatch, settings, topic, 0, both)
    assert written(settings, topic) == [b"left", b"right"]


def test_the_open_transaction_of_a_killed_task_is_fenced_and_its_records_stay_invisible(
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


def test_a_kept_writer_whose_slot_another_process_has_advanced_is_replaced_by_a_new_one(
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


def test_a_writer_that_read_too_few_markers_reads_them_again_and_writes_no_batch_twice(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    topic_writer._kept.clear()
    truly_last = topic_writer.last_marker
    # The first read is that of a leader that was partitioned off before the batch was written, the second is right.
    too_few = [(0, 0)]
    monkeypatch.setattr(topic_writer, "last_marker", lambda *about: too_few.pop() if too_few else truly_last(*about))
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    assert not too_few
    run_task(monkeypatch, settings, topic, 1, rows(topic, b"b"))
    assert written(settings, topic) == [b"a", b"b"]


def test_a_writer_that_keeps_reading_too_few_markers_fails_without_writing(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    topic_writer._kept.clear()
    with monkeypatch.context() as shown:
        shown.setattr(topic_writer, "last_marker", lambda *_: (0, 0))
        with pytest.raises(MarkersReadShort, match="were read to 0, and ours stands at 2"):
            begin(settings, topic, "checkpoint", 0, 0, patience_s=0)
    run_task(monkeypatch, settings, topic, 1, rows(topic, b"b"))
    assert written(settings, topic) == [b"a", b"b"]


def test_a_marker_that_times_out_makes_a_new_writer_and_the_batch_is_written_once(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    really_begin = SlotWriter.begin

    def begin_late(writer: SlotWriter, batch_id: int) -> None:
        begun.append(batch_id)
        really_begin(writer, batch_id)
        if len(begun) == 1:
            # The record is in the log, in a transaction that never ends, but the writer got no answer.
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(SlotWriter, "begin", begin_late)
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    assert begun == [0, 0]
    assert written(settings, topic) == [b"a"]


class WithoutLeader(Producer):
    """A producer whose init_transactions() raises the errors in `failures` first, last one first."""

    failures: ClassVar[list[KafkaError]] = []

    def init_transactions(self, *about: Any) -> None:
        if self.failures:
            raise KafkaException(self.failures.pop())
        super().init_transactions(*about)


def test_fencing_a_slot_without_a_leader_is_retried_and_fails_on_a_permanent_error(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    WithoutLeader.failures[:] = [NO_LEADER, KafkaError(KafkaError._ALL_BROKERS_DOWN)]
    monkeypatch.setattr(confluent_kafka, "Producer", WithoutLeader)
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    assert not WithoutLeader.failures
    assert written(settings, topic) == [b"a"]
    refused = KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    WithoutLeader.failures.append(refused)
    with pytest.raises(KafkaException):
        begin(settings, topic, "another", 0, 0)
    assert not WithoutLeader.failures, "what does not pass is not tried again"


def test_a_new_checkpoint_ignores_the_markers_of_another_and_writes_its_batches_again(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    monkeypatch.setattr(topic_writer, "this_task", lambda: Task("another", 0, 0, 0))
    write_slots(iter([rows(topic, b"a")]), settings, topic)
    assert written(settings, topic) == [b"a", b"a"], "a query without its checkpoint begins at the beginning"


def test_a_slot_writes_the_next_batch_after_the_broker_was_killed_and_restarted(
    broker: Broker, settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    broker.kill()
    broker.start()
    run_task(monkeypatch, settings, topic, 1, rows(topic, b"b"))
    assert written(settings, topic) == [b"a", b"b"]


NO_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
PASSING = (
    NO_LEADER,
    KafkaError(KafkaError.LEADER_NOT_AVAILABLE),
    KafkaError(KafkaError._TRANSPORT),
    KafkaError(KafkaError._ALL_BROKERS_DOWN),
    KafkaError(KafkaError._TIMED_OUT),
)


class Flickering(Consumer):
    """A consumer whose first calls fail with each transient error, as during an election of leaders."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self.failures = list(PASSING)
        self.errors = list(PASSING)

    def get_watermark_offsets(self, *about: Any, **more: Any) -> Any:
        if self.failures:
            raise KafkaException(self.failures.pop())
        return super().get_watermark_offsets(*about, **more)

    def poll(self, timeout: float = -1) -> Any:
        return Failed(self.errors.pop()) if self.errors else super().poll(timeout)


class Failed(NamedTuple):
    """A message that is only an error."""

    reason: KafkaError

    def error(self) -> KafkaError:
        return self.reason


def test_reading_markers_is_retried_while_their_partition_has_no_leader(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    monkeypatch.setattr(confluent_kafka, "Consumer", Flickering)
    monkeypatch.setattr(topic_writer, "PAUSE_S", 0.0)
    assert last_marker(settings, marker_topic(topic), 0, b"checkpoint") == (1, 2)


def test_retrying_raises_permanent_errors_at_once_and_transient_ones_after_its_patience() -> None:
    calls: list[KafkaError] = []

    def failing(error: KafkaError) -> None:
        calls.append(error)
        raise KafkaException(error)

    with pytest.raises(KafkaException):
        retrying(lambda: failing(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), is_passing)
    assert len(calls) == 1
    with pytest.raises(KafkaException):
        retrying(lambda: failing(NO_LEADER), is_passing, patience_s=0)
    # Without a predicate only errors that a transactional producer marks as retriable are retried.
    calls.clear()
    with pytest.raises(KafkaException):
        retrying(lambda: failing(NO_LEADER))
    assert len(calls) == 1


def test_marker_topics_of_queries_whose_names_differ_only_in_dots_and_underscores_do_not_collide() -> None:
    ids = ["".join(id_) for size in (1, 2, 3, 4) for id_ in product("a._-", repeat=size)]
    names = {marker_topic(id_).replace(".", "_") for id_ in ids}
    assert len(names) == len(ids)
    assert all(len(marker_topic(character * 100)) <= 249 for character in "a._-")
