"""A consumer instance gives up its partitions before it calls librdkafka's close().

confluent-kafka needs the interpreter's lock for a rebalance callback; a callback within close() can wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pessoa.rest_proxy.instance import Instance, Limits
from pessoa.rest_proxy.media import Format
from pessoa.testing import Broker
from tests.support.clients import TIMEOUT_S, unique, until

READ = Limits(timeout_ms=500, max_bytes=1000, min_bytes=0)


class WatchedConsumer(Consumer):
    is_closing = False

    def close(self) -> None:
        self.is_closing = True
        super().close()


class WatchedInstance(Instance):
    """Counts the rebalance callbacks of librdkafka before close() and within it."""

    rebalances_before_close = 0
    rebalances_in_close = 0

    def _forget_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assert isinstance(consumer, WatchedConsumer)
        if consumer.is_closing:
            self.rebalances_in_close += 1
        else:
            self.rebalances_before_close += 1
        super()._forget_revoked(consumer, partitions)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = unique("closing")
    producer = Producer({"bootstrap.servers": servers})
    for number in range(3):
        producer.produce(name, b"%d" % number)
    assert producer.flush(TIMEOUT_S) == 0
    return name


def member(servers: str, group: str) -> WatchedInstance:
    settings = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
    }
    return WatchedInstance(
        group, "n", Format.BINARY, WatchedConsumer(settings), request_timeout_ms=1000, min_bytes=0, commits_itself=True
    )


def read_and_unsubscribe(instance: Instance) -> None:
    until(lambda: instance.read(READ), lambda found: found != [], "a record")
    instance.unsubscribe()


ENDS: dict[str, Callable[[Instance], object]] = {
    "after a read": lambda instance: until(lambda: instance.read(READ), lambda found: found != [], "a record"),
    "after an unsubscribe": read_and_unsubscribe,
    "while it joins its group": lambda instance: instance.read(Limits(timeout_ms=5, max_bytes=1000)),
    "at once": lambda _: None,
}


@pytest.mark.parametrize("end", ENDS)
def test_a_consumer_instance_gets_no_rebalance_callback_within_close(servers: str, topic: str, end: str) -> None:
    instance = member(servers, unique("closing"))
    instance.subscribe([topic], None)
    ENDS[end](instance)
    instance.close()
    assert instance.rebalances_in_close == 0
    if "after" in end:
        assert instance.rebalances_before_close == 1


def test_records_that_an_instance_polled_but_did_not_return_are_read_by_the_next_member(
    servers: str, topic: str
) -> None:
    group = unique("closing")
    read = []
    for _ in range(3):
        instance = member(servers, group)
        instance.subscribe([topic], None)
        # It polls three records and returns one.
        [one] = until(lambda one=instance: one.read(Limits(500, 2, 0)), lambda found: found != [], "a record")  # type: ignore[misc]
        instance.returned([one])
        instance.close()
        read.append(one.value())
    assert read == [b"0", b"1", b"2"]
