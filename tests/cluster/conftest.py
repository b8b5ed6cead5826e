"""What the tests of a whole cluster share: clients, and a producer that runs while faults happen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.testing import Cluster

TIMEOUT_S = 60
# rdkafka writes to stderr what these tests do on purpose. A question for metadata that it was about to repeat is lost
# when the broker that was asked says goodbye; the next regular one would come after five minutes.
QUIET: dict[str, str | int] = {"log_level": 0, "topic.metadata.refresh.interval.ms": 5_000}


class Reachable(Protocol):
    """A cluster with bootstrap servers, whether it runs in this process or in others."""

    @property
    def bootstrap_servers(self) -> str: ...


def until(condition: Callable[[], object], what: str | Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what if isinstance(what, str) else what()}: not within {timeout_s} s")
        time.sleep(0.02)


def create_topic(cluster: Cluster, name: str, partitions: int = 1, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    settings = {"min.insync.replicas": "2", **{key.replace("_", "."): value for key, value in configs.items()}}
    topic = NewTopic(name, partitions, min(3, len(list(cluster))), config=settings)
    admin.create_topics([topic])[name].result(TIMEOUT_S)
    # The answer comes when the controller has decided, and brokers hear of it a moment later.
    cluster.wait_for(
        lambda: all(name in cluster._image_of(one).topics.by_name for one in cluster.running),
        f"every broker knows {name}",
    )
    cluster.wait_until_in_sync()


class SteadyProducer:
    """A producer that sends consecutive numbers to one topic; `acked` is number → (partition, offset).

    The offset is None if no response had it: if the response to a batch was lost and that to a later batch came,
    librdkafka takes the earlier batch for written as well, which is right.
    """

    def __init__(self, cluster: Reachable, topic: str) -> None:
        self.acked: dict[int, tuple[int, int | None]] = {}
        self.failed: list[KafkaError] = []
        self.acked_at_s = 0.0
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                # A client waits long for a broker that is silent; here it should not.
                "request.timeout.ms": 2_000,
                "socket.timeout.ms": 3_000,
                **QUIET,
            }
        )
        self._is_done = Event()
        self._thread = Thread(target=self._guarded)
        self._problem: AssertionError | KafkaException | None = None

    def wait_for(self, more: int) -> float:
        """Wait until so many more records are acknowledged; return the seconds that it took."""
        began, wanted = time.monotonic(), len(self.acked) + more
        until(lambda: len(self.acked) >= wanted or self._problem, lambda: f"{more} more acknowledged ({self.failed})")
        self.check()
        return time.monotonic() - began

    def check(self) -> None:
        """Raise the error that has ended the thread, if any."""
        if self._problem is not None:
            raise self._problem

    def _guarded(self) -> None:
        try:
            self._run()
        except (AssertionError, KafkaException) as problem:
            self._problem = problem

    def _run(self) -> None:
        number = 0
        while not self._is_done.is_set():
            self._producer.produce(self._topic, str(number), on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.005)
        assert self._producer.flush(TIMEOUT_S) == 0

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert value is not None
        assert partition is not None
        if offset is None and not any(known == partition for known, _ in self.acked.values()):
            # Where a leader knows nothing of a producer it takes any sequence, as Apache Kafka does: so the first may
            # have been refused and the second taken, and librdkafka be wrong.
            return
        self.acked[int(value)] = (partition, offset)
        self.acked_at_s = time.monotonic()


@contextmanager
def producing(cluster: Reachable, topic: str) -> Iterator[SteadyProducer]:
    """Run a producer within the context; at its end every record is acknowledged or has failed."""
    producer = SteadyProducer(cluster, topic)
    producer._thread.start()
    try:
        yield producer
    finally:
        producer._is_done.set()
        producer._thread.join()
    producer.check()


def read_all(cluster: Reachable, topic: str, partitions: int, **configs: str) -> list[tuple[int, int, str]]:
    """Return all records up to the present end of the topic: (partition, offset, value), in order per partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            **{key.replace("_", "."): value for key, value in configs.items()},
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[tuple[int, int, str]] = []
    at_end: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while len(at_end) < partitions:
            assert time.monotonic() < deadline, f"the end of {topic} was not reached"
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            if error is None:
                value = message.value()
                assert value is not None
                found.append((partition, offset, value.decode()))
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(partition)
            elif error.fatal():
                raise KafkaException(error)
    finally:
        consumer.close()
    return found


def check_nothing_lost(producer: SteadyProducer, found: list[tuple[int, int, str]]) -> None:
    """Assert that every acknowledged record is there once, at its acknowledged offset, and in the order in which it
    was sent."""
    assert producer.failed == []
    values = [int(value) for _, _, value in found]
    assert len(values) == len(set(values)), "something is there twice"
    places = {int(value): (partition, offset) for partition, offset, value in found}
    missing = [number for number in producer.acked if number not in places]
    assert not missing, f"{len(missing)} of {len(producer.acked)} are lost: {missing[:10]}"
    told = {number: place for number, place in producer.acked.items() if place[1] is not None}
    assert {number: places[number] for number in told} == told
    assert all(places[number][0] == partition for number, (partition, _) in producer.acked.items())
    for partition in {place[0] for place in places.values()}:
        in_order = [int(value) for one, _, value in found if one == partition]
        assert in_order == sorted(in_order)
