"""Topics for tests: create a topic, fill it, read it to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

DEADLINE_S = 180.0
QUIET = {"log_level": 3}
T = TypeVar("T")


def make_topic(servers: str, name: str, partitions: int = 2, replicas: int = 1, **config: str) -> None:
    """Create a topic. `config` has underscores for dots: retention_ms="-1"."""
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    wanted = NewTopic(name, partitions, replicas, config={key.replace("_", "."): word for key, word in config.items()})
    admin.create_topics([wanted], request_timeout=DEADLINE_S)[name].result(DEADLINE_S)


def fill(
    servers: str, name: str, pairs: Iterable[tuple[bytes | None, bytes | None]], times_ms: Sequence[int] = ()
) -> int:
    """Produce key and value pairs, with these timestamps if there are any; return their number."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "partitioner": "murmur2_random", **QUIET})
    count = 0
    for key, value in pairs:
        producer.produce(name, value, key, timestamp=times_ms[count] if times_ms else 0)
        producer.poll(0)
        count += 1
    assert producer.flush(DEADLINE_S) == 0, "not everything was written"
    return count


def read_all(servers: str, name: str) -> list[Any]:
    """Return all committed records up to the present end of the topic, as confluent-kafka's messages."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "test-reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **QUIET,
        }
    )
    try:
        partitions = consumer.list_topics(name, timeout=DEADLINE_S).topics[name].partitions
        consumer.assign([TopicPartition(name, number, 0) for number in partitions])
        found, ended = [], 0
        deadline = time.monotonic() + DEADLINE_S
        while ended < len(partitions):
            assert time.monotonic() < deadline, f"{name} could not be read to its end"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if (error := message.error()) is not None:
                ended += error.name() == "_PARTITION_EOF"
                continue
            found.append(message)
        return found
    finally:
        consumer.close()


def eventually(look: Callable[[], T], deadline_s: float = DEADLINE_S, pause_s: float = 0.2, about: object = "") -> T:
    """Call `look` until its result is truthy, and return that; its assertions may fail until the deadline.

    `about` is shown if that does not happen; if it is a function, its result is shown."""
    deadline = time.monotonic() + deadline_s
    while True:
        try:
            if found := look():
                return found
            why = f"{look.__name__} gave {found!r}"
        except AssertionError as failed:
            why = str(failed)
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {deadline_s:.0f} s: {why} {about() if callable(about) else about}")
        time.sleep(pause_s)
