"""Tables in compacted topics, on a broker: the topic is created or checked, read to its end, written and followed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from pessoa.client.table_topic import Batch, TablePartition, TableReader, TableWriter
from pessoa.client.topic_creation import (
    IfExists,
    TopicSpec,
    TopicUnavailable,
    delete_topic,
    ensure_topic,
    table_spec,
)
from pessoa.testing import Broker

PATIENCE_S = 60.0


Settings = dict[str, str | int | float | bool]


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    with Broker() as broker:
        yield {"bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def name() -> str:
    return f"table-{uuid4().hex[:8]}"


@contextmanager
def reading(settings: Settings, *tables: TopicSpec) -> Iterator[tuple[TableReader, dict[bytes, bytes]]]:
    """Yield a reader, and the table that it has read."""
    found: dict[bytes, bytes] = {}

    def replay(batch: Batch) -> None:
        for row in batch.rows:
            assert row.key is not None
            if row.value is None:
                found.pop(row.key, None)
            else:
                found[row.key] = row.value

    reader = TableReader("test", settings, tables, replay)
    try:
        reader.start(PATIENCE_S)
        reader.wait_for_end(PATIENCE_S)
        yield reader, found
    finally:
        reader.stop()


def test_a_missing_topic_is_created_compacted_with_as_many_replicas_as_there_are_brokers(
    settings: Settings, name: str
) -> None:
    admin = AdminClient(settings)
    assert ensure_topic(admin, table_spec(name, partitions=2, replication_factor=3)) == [0, 1]
    assert ensure_topic(admin, table_spec(name, partitions=2)) == [0, 1], "it passes its own check"
    (partition, _) = admin.list_topics().topics[name].partitions.values()
    assert len(partition.replicas) == 1


@pytest.mark.parametrize(
    ("there", "complaint"),
    [
        (TopicSpec("", 1, 1, {"cleanup.policy": "delete"}), "must be compact"),
        (TopicSpec("", 2, 1, {"cleanup.policy": "compact"}), "has 2 partitions"),
    ],
)
def test_a_topic_whose_settings_would_lose_rows_or_their_order_is_refused(
    settings: Settings, name: str, there: TopicSpec, complaint: str
) -> None:
    admin = AdminClient(settings)
    ensure_topic(admin, TopicSpec(name, there.partitions, there.replication_factor, there.config))
    with pytest.raises(TopicUnavailable, match=complaint) as refused:
        ensure_topic(admin, table_spec(name))
    assert not refused.value.may_pass


def test_the_partitions_of_a_table_topic_are_increased_only_if_requested(settings: Settings, name: str) -> None:
    admin = AdminClient(settings)
    ensure_topic(admin, TopicSpec(name, 1, 1))
    assert ensure_topic(admin, TopicSpec(name, 3, 1)) == [0]
    assert ensure_topic(admin, TopicSpec(name, 3, 1, if_exists=IfExists.GROW)) == [0, 1, 2]
    assert ensure_topic(admin, TopicSpec(name, 2, 1, if_exists=IfExists.GROW)) == [0, 1, 2]


class ForgetfulBrokers:
    """An admin client whose brokers answer twice that a new topic is unknown, after it was created."""

    def __init__(self) -> None:
        self.asked = 0
        self.created: list[str] = []

    def list_topics(self, *, timeout: float) -> SimpleNamespace:
        self.asked += 1
        topics = {}
        if self.asked > 2:
            is_known = self.asked > 3
            topics["t"] = SimpleNamespace(
                error=None if is_known else "unknown", partitions={0: None} if is_known else {}
            )
        return SimpleNamespace(topics=topics, brokers={1: None})

    def create_topics(self, topics: list[Any], **_: object) -> dict[str, Future[None]]:
        self.created += [each.topic for each in topics]
        done: Future[None] = Future()
        done.set_result(None)
        return dict.fromkeys(self.created, done)


def test_ensuring_a_new_topic_waits_until_the_broker_knows_it() -> None:
    admin: Any = ForgetfulBrokers()
    assert ensure_topic(admin, table_spec("t")) == [0]
    assert (admin.asked, admin.created) == (4, ["t"])


def test_deleting_a_table_topic_twice_does_not_fail(settings: Settings, name: str) -> None:
    admin = AdminClient(settings)
    ensure_topic(admin, TopicSpec(name, 1, 1))
    delete_topic(admin, name)
    delete_topic(admin, name)
    deadline_s = time.monotonic() + PATIENCE_S
    while name in admin.list_topics().topics:
        assert time.monotonic() < deadline_s, "it is still there"


def test_an_unreachable_cluster_is_a_transient_error_and_a_stop_is_not_delayed_by_it() -> None:
    admin = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
    with pytest.raises(TopicUnavailable) as away:
        ensure_topic(admin, table_spec("t"), timeout_s=0.1)
    assert away.value.may_pass
    stop = threading.Event()
    stop.set()
    with pytest.raises(TopicUnavailable):
        ensure_topic(admin, table_spec("t"), PATIENCE_S, stop)


def test_a_table_topic_is_read_from_the_start_and_has_the_last_row_of_each_key(settings: Settings, name: str) -> None:
    writer = TableWriter(settings)
    with reading(settings, table_spec(name)) as (_, empty):
        assert empty == {}
    waits = [
        writer.send(name, key, value)
        for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b"3"))
    ]
    assert [wait() for wait in waits] == [(TablePartition(name, 0), offset) for offset in range(5)]
    with reading(settings, table_spec(name)) as (_, found):
        assert found == {b"a": b"2", b"c": b"3"}


def test_a_written_row_counts_as_replayed_when_it_has_been_read_back(settings: Settings, name: str) -> None:
    writer = TableWriter(settings)
    other = f"{name}-other"
    with (
        reading(settings, table_spec(name, partitions=3), table_spec(other)) as (reader, found),
        reading(settings, table_spec(other)) as (follower, seen),
    ):
        for number in range(20):
            key = b"%d" % number
            place, offset = writer.send(name, key, b"x")()
            reader.wait_until(place, offset, PATIENCE_S)
            assert found[key] == b"x"
        place, offset = writer.send(other, b"key", b"y")()
        follower.wait_until(place, offset, PATIENCE_S)
        assert seen == {b"key": b"y"}


def test_a_reader_whose_replay_fails_raises_in_its_waiters(settings: Settings, name: str) -> None:
    def replay(batch: Batch) -> None:
        raise ValueError("row makes no sense")

    reader = TableReader("test", settings, [table_spec(name)], replay)
    reader.start(PATIENCE_S)
    with pytest.raises(TopicUnavailable, match="row makes no sense"):
        reader.wait_for_end(PATIENCE_S)
    reader.stop()


def test_waiting_for_a_written_row_ends_at_its_timeout(settings: Settings, name: str) -> None:
    with reading(settings, table_spec(name)) as (reader, _), pytest.raises(TopicUnavailable, match="not within"):
        reader.wait_until(TablePartition(name, 0), 1000, 0.05)
