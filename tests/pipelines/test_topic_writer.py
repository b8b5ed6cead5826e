"""Slots without Spark: what is written when a batch is repeated, left half done, or written by two at once."""

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


def test_a_writer_that_was_shown_too_few_markers_reads_them_again_and_writes_nothing_twice(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    topic_writer._kept.clear()
    truly_last = topic_writer.last_marker
    # As a leader tells it that was cut off before the batch was written, and then one that is not.
    too_few = [(0, 0)]
    monkeypatch.setattr(topic_writer, "last_marker", lambda *about: too_few.pop() if too_few else truly_last(*about))
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    assert not too_few
    run_task(monkeypatch, settings, topic, 1, rows(topic, b"b"))
    assert written(settings, topic) == [b"a", b"b"]


def test_a_writer_that_is_always_shown_too_few_markers_does_not_write(
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


def test_a_marker_that_no_leader_took_in_time_costs_a_writer_and_no_batch(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    really_begin = SlotWriter.begin

    def begin_late(writer: SlotWriter, batch_id: int) -> None:
        begun.append(batch_id)
        really_begin(writer, batch_id)
        if len(begun) == 1:
            # The record is in the log, in a transaction that is never ended, and the writer has not heard of it.
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(SlotWriter, "begin", begin_late)
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    assert begun == [0, 0]
    assert written(settings, topic) == [b"a"]


class WithoutLeader(Producer):
    """A producer whose first two attempts to fence the slot meet a partition without a leader."""

    failures: ClassVar[list[KafkaError]] = []

    def init_transactions(self, *about: Any) -> None:
        if self.failures:
            raise KafkaException(self.failures.pop())
        super().init_transactions(*about)


def test_a_slot_that_no_leader_lets_begin_is_tried_again_and_costs_no_batch(
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


NO_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
PASSING = (
    NO_LEADER,
    KafkaError(KafkaError.LEADER_NOT_AVAILABLE),
    KafkaError(KafkaError._TRANSPORT),
    KafkaError(KafkaError._ALL_BROKERS_DOWN),
    KafkaError(KafkaError._TIMED_OUT),
)


class Flickering(Consumer):
    """A consumer whose cluster is choosing leaders: at first everything fails for a reason that passes."""

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
    """A message that is none."""

    reason: KafkaError

    def error(self) -> KafkaError:
        return self.reason


def test_markers_are_read_though_their_partition_has_no_leader_at_first(
    settings: Settings, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_task(monkeypatch, settings, topic, 0, rows(topic, b"a"))
    monkeypatch.setattr(confluent_kafka, "Consumer", Flickering)
    monkeypatch.setattr(topic_writer, "PAUSE_S", 0.0)
    assert last_marker(settings, marker_topic(topic), 0, b"checkpoint") == (1, 2)


def test_what_does_not_pass_and_what_lasts_too_long_is_raised() -> None:
    calls: list[KafkaError] = []

    def failing(error: KafkaError) -> None:
        calls.append(error)
        raise KafkaException(error)

    with pytest.raises(KafkaException):
        retrying(lambda: failing(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)), is_passing)
    assert len(calls) == 1
    with pytest.raises(KafkaException):
        retrying(lambda: failing(NO_LEADER), is_passing, patience_s=0)
    # A transactional producer says itself what may be tried again: it is in a state.
    calls.clear()
    with pytest.raises(KafkaException):
        retrying(lambda: failing(NO_LEADER))
    assert len(calls) == 1


def test_queries_whose_names_kafka_holds_to_be_one_have_marker_topics_that_it_does_not() -> None:
    ids = ["".join(id_) for size in (1, 2, 3, 4) for id_ in product("a._-", repeat=size)]
    names = {marker_topic(id_).replace(".", "_") for id_ in ids}
    assert len(names) == len(ids)
    assert all(len(marker_topic(character * 100)) <= 249 for character in "a._-")
