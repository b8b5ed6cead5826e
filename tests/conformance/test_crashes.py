"""A broker that is killed with SIGKILL under load, again and again, has every acknowledged record once and in order.

The broker is a process of its own. The client is librdkafka with acks=all, which reconnects after each crash by itself:
it sends unacknowledged batches again, and the broker recognises them by producer id and sequence numbers, which it has
to recover from its log, and does not write them twice. A random number from a fixed seed decides after how many
acknowledgements the next kill comes.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.clients import POLL_S, TIMEOUT_S, create_topic, unique, until
from tests.support.crash_broker import KillableBroker

KILLS = 20
PARTITIONS = 3
_UNKNOWN_OFFSET = -1
IN_FLIGHT = 2_000
# How many acknowledgements there are between a start and the next kill.
LEAST_ACKNOWLEDGED, MOST_ACKNOWLEDGED = 50, 3_000
QUICK_RETRIES = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}
NOT_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._WAIT_COORD,
)


class Stored(NamedTuple):
    partition: int
    offset: int
    value: bytes

    @property
    def name(self) -> str:
        return self.value.decode().split()[0]

    @property
    def number(self) -> int:
        return int(self.value.split()[-1])


def stored(message: Message) -> Stored:
    partition, offset, value = message.partition(), message.offset(), message.value()
    assert partition is not None
    assert offset is not None
    assert value is not None
    return Stored(partition, offset, value)


class Load:
    """An idempotent producer that numbers its records per partition and remembers the acknowledged ones."""

    def __init__(self, broker: KillableBroker, topic: str, name: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 300_000,
                "log_level": 0,
                **QUICK_RETRIES,
            }
        )
        self._topic = topic
        self.name = name
        self.sent = [0] * PARTITIONS
        # partition → (number, offset) in the order of the acknowledgements
        self.acknowledged: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.failures: list[KafkaError] = []

    @property
    def acknowledged_count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def send_some(self) -> None:
        """Keep the producer's queue full, and serve its delivery reports."""
        while len(self._producer) < IN_FLIGHT:
            partition = sum(self.sent) % PARTITIONS
            number = self.sent[partition]
            self.sent[partition] += 1
            value = f"{self.name} {number}".encode()
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
        self._producer.poll(0.01)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert value is not None
        # librdkafka may know that a record is written without knowing its offset.
        self.acknowledged[partition].append((int(value.split()[-1]), _UNKNOWN_OFFSET if offset is None else offset))

    def finish(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0


def read_all(broker: KillableBroker, topic: str, isolation: str = "read_uncommitted") -> dict[int, list[Stored]]:
    """Return all records from the first to the last offset, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": unique("reader"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    found: dict[int, list[Stored]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in found])

        def read_on() -> int:
            for message in consumer.consume(10_000, POLL_S):
                error, partition = message.error(), message.partition()
                assert partition is not None, error
                if error is None:
                    found[partition].append(stored(message))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(partition)
            return len(ended)

        until(read_on, lambda count: count == PARTITIONS, "the ends of all partitions")
    finally:
        consumer.close()
    return found


def test_a_broker_killed_twenty_times_under_load_has_every_acknowledged_record_exactly_once(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    rng = Random(20)
    with KillableBroker(tmp_path / "data") as broker:
        topic = create_topic(broker, PARTITIONS)
        loads = [Load(broker, topic, "first"), Load(broker, topic, "second")]
        for _ in range(KILLS):
            wanted = rng.randint(LEAST_ACKNOWLEDGED, MOST_ACKNOWLEDGED) + sum(load.acknowledged_count for load in loads)

            def send_on() -> int:
                for load in loads:
                    load.send_some()
                return sum(load.acknowledged_count for load in loads)

            until(send_on, lambda count, wanted=wanted: count >= wanted, "acknowledgements")  # type: ignore[misc]
            broker.crash()
        for load in loads:
            load.finish()
            assert load.failures == []
            assert load.acknowledged_count == sum(load.sent)
        found = read_all(broker, topic)
        total = sum(load.acknowledged_count for load in loads)
        record_property("summary", f"{total} acknowledged records survived {KILLS} kills, each once and in order")
        assert broker.errors() == []
    for load in loads:
        for partition, messages in found.items():
            mine = [message for message in messages if message.name == load.name]
            assert [message.number for message in mine] == list(range(load.sent[partition]))
            offsets = {message.number: message.offset for message in mine}
            # librdkafka does not know the offset of a batch that the broker recognised as a duplicate.
            assert all(offsets[number] == at for number, at in load.acknowledged[partition] if at != _UNKNOWN_OFFSET)


def transactional(broker: KillableBroker, **settings: Any) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "survivor",
            "linger.ms": 0,
            "log_level": 0,
            **QUICK_RETRIES,
            **settings,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    return producer


def send_transaction(producer: Producer, topic: str, number: int, size: int) -> None:
    producer.begin_transaction()
    for index in range(size):
        producer.produce(topic, b"%d" % number, partition=index % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def commit_with_retries(producer: Producer) -> None:
    """Commit, and commit again while librdkafka reports a retriable error, as after a crash."""
    while True:
        try:
            producer.commit_transaction(TIMEOUT_S)
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise
        else:
            return


def test_a_transaction_during_which_the_broker_is_killed_is_read_whole_or_not_at_all(tmp_path: Path) -> None:
    rng, size, rounds = Random(21), 30, 6
    committed: list[int] = []
    with KillableBroker(tmp_path / "data") as broker:
        topic = create_topic(broker, PARTITIONS)
        for transaction in range(rounds):
            producer = transactional(broker)
            send_transaction(producer, topic, 2 * transaction, size)
            commit_with_retries(producer)
            committed.append(2 * transaction)
            if transaction % 2:
                # The broker is killed while it commits; it has to complete a commit that it has begun.
                send_transaction(producer, topic, 2 * transaction + 1, size)
                crash = Thread(target=broker.crash)
                crash.start()
                commit_with_retries(producer)
                crash.join()
                committed.append(2 * transaction + 1)
            else:
                # The broker is killed within the transaction, and no producer commits it.
                send_transaction(producer, topic, 2 * transaction + 1, rng.randrange(1, size))
                broker.crash()
            # The next producer with the same transactional id fences this one, and aborts its open transaction.
            del producer
        transactional(broker)
        counts: dict[int, int] = defaultdict(int)
        for messages in read_all(broker, topic, "read_committed").values():
            for message in messages:
                counts[message.number] += 1
        assert dict(counts) == dict.fromkeys(committed, size)
        assert broker.errors() == []


def ask_until_coordinator_is_ready(ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """Return the result of `ask`, repeated while librdkafka reports that the coordinator is unavailable or loading."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return ask()
        except KafkaException as problem:
            if problem.args[0].code() not in NOT_YET or time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def commit_offsets(consumer: Consumer, wanted: list[TopicPartition]) -> list[TopicPartition]:
    return ask_until_coordinator_is_ready(lambda: consumer.commit(offsets=wanted, asynchronous=False))


def test_committed_offsets_of_a_group_never_go_back_when_the_broker_is_killed(tmp_path: Path) -> None:
    rng, group, reached = Random(22), unique("group"), 0
    with KillableBroker(tmp_path / "data") as broker:
        topic = create_topic(broker, PARTITIONS)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                "log_level": 0,
                **QUICK_RETRIES,
            }
        )
        try:
            for _ in range(5):
                for _ in range(rng.randint(1, 40)):
                    reached += 1
                    wanted = [TopicPartition(topic, partition, reached) for partition in range(PARTITIONS)]
                    assert all(one.error is None for one in commit_offsets(consumer, wanted))
                broker.crash()
                asked = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
                found = ask_until_coordinator_is_ready(partial(consumer.committed, asked, TIMEOUT_S))
                assert [one.offset for one in found] == [reached] * PARTITIONS
        finally:
            consumer.close()
        assert broker.errors() == []
