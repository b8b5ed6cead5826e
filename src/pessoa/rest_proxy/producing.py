"""One producer for all requests of a principal, and the way back of its delivery reports.

librdkafka gathers records of many requests into few batches, which is where the speed comes from; so there is one
producer, and no request waits for another. Its reports are handed out by `poll`, which calls a function per record.
That call is made here on the event loop, with a timer that runs only while records are on their way: no thread has to
be woken and no lock taken for a record, and a turn of the timer takes all reports that have come. The interval grows
while nothing comes, so that an unreachable cluster costs nothing.

Where the proxy acts as its callers, each of them has such a producer (`caller_clients.py`).

One `Delivery` stands for the records of one request, in order. It is done when the last report is in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from prometheus_client import CollectorRegistry, Counter

from pessoa.rest_proxy.proxy_config import ClientSettings
from pessoa.rest_proxy.proxy_problems import kafka_error

logger = logging.getLogger(__name__)

# The timer's intervals: how late a delivery report may be noticed, and how often a silent cluster is polled.
FIRST_POLL_S = 0.0005
SLOWEST_POLL_S = 0.02
# Callbacks that librdkafka has beside reports (tokens, errors) must be served now and then as well.
IDLE_POLL_S = 1.0
CLOSE_TIMEOUT_S = 5.0

DEFAULTS: ClientSettings = {
    "client.id": "rest-proxy",
    # Waiting longer than the loop needs for its next requests would only add to the latency of each.
    "linger.ms": 1,
    "acks": "all",
    # A caller waits at the other end: rather an error than minutes of silence.
    "delivery.timeout.ms": 30_000,
    # Keys go where the JVM's producer would send them, so that both can write to one compacted or joined topic.
    "partitioner": "murmur2_random",
}


class Outgoing(NamedTuple):
    """A record ready to be written; partition -1 leaves the choice to the partitioner, timestamp 0 means now."""

    key: bytes | None
    value: bytes | None
    partition: int = -1
    timestamp_ms: int = 0
    headers: list[tuple[str, str | bytes | None]] | None = None


class Written(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int


class Delivery:
    """The outcomes of one request's records, in their order: the partition and offset of a record, or its error."""

    __slots__ = ("_missing", "done", "outcomes")

    def __init__(self, count: int, done: asyncio.Future[list[Written | KafkaError]]) -> None:
        self.done = done
        self.outcomes: list[Written | KafkaError | None] = [None] * count
        self._missing = count

    def note_outcome(self, index: int, outcome: Written | KafkaError) -> None:
        assert self.outcomes[index] is None, f"a second report for record {index}"
        self.outcomes[index] = outcome
        self._missing -= 1
        if self._missing == 0 and not self.done.done():
            self.done.set_result([each for each in self.outcomes if each is not None])

    def reporter(self, index: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.note_outcome(index, error)
                return
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            # With acks=0 no broker returns the record's offset.
            self.note_outcome(index, Written(partition, -1 if offset is None else offset, message.timestamp()[1]))

        return report


class ProducerMetrics:
    """The counters of written and failed records, shared by all producers of a proxy."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.written = Counter("rest_proxy_records_written", "Records that the cluster took.", registry=registry)
        self.failed = Counter("rest_proxy_records_failed", "Records that it did not.", registry=registry)


def open_producer(settings: ClientSettings) -> Producer:
    """Return a producer. With a callback for tokens this waits for the first token, a second at a time."""
    return Producer({**DEFAULTS, **settings}, logger=logger)


class SharedProducer:
    """A producer for many requests. It must be created on the event loop that the outcomes are set on."""

    def __init__(self, producer: Producer, metrics: ProducerMetrics) -> None:
        self._producer = producer
        self._loop = asyncio.get_running_loop()
        self._waiting = 0
        self._interval_s = FIRST_POLL_S
        self._timer: asyncio.TimerHandle = self._loop.call_later(IDLE_POLL_S, self._poll)
        self._is_idle = True
        self.list_topics = self._producer.list_topics
        self._metrics = metrics

    def __repr__(self) -> str:
        return f"<SharedProducer {len(self._producer)} records under way>"

    def send(self, topic: str, records: Sequence[Outgoing]) -> asyncio.Future[list[Written | KafkaError]]:
        """Produce the records; the future that is returned has an outcome for each when all are delivered or failed."""
        done: asyncio.Future[list[Written | KafkaError]] = self._loop.create_future()
        done.add_done_callback(self._count)
        delivery = Delivery(len(records), done)
        produce = self._producer.produce
        for index, record in enumerate(records):
            try:
                produce(
                    topic, record.value, record.key, record.partition, delivery.reporter(index),
                    timestamp=record.timestamp_ms, headers=record.headers,
                )  # fmt: skip
            except KafkaException as failure:
                delivery.note_outcome(index, kafka_error(failure))
            except BufferError:
                delivery.note_outcome(index, KafkaError(KafkaError._QUEUE_FULL, "The proxy's queue of records is full"))
        if not done.done() and self._is_idle:
            self._is_idle = False
            self._interval_s = FIRST_POLL_S
            self._timer.cancel()
            self._timer = self._loop.call_later(FIRST_POLL_S, self._poll)
        return done

    def _count(self, done: asyncio.Future[list[Written | KafkaError]]) -> None:
        if done.cancelled():
            return
        outcomes = done.result()
        failed = sum(not isinstance(each, Written) for each in outcomes)
        self._metrics.written.inc(len(outcomes) - failed)
        if failed:
            self._metrics.failed.inc(failed)

    def _poll(self) -> None:
        reports = self._producer.poll(0)
        self._is_idle = len(self._producer) == 0
        if self._is_idle:
            self._timer = self._loop.call_later(IDLE_POLL_S, self._poll)
            return
        self._interval_s = FIRST_POLL_S if reports else min(SLOWEST_POLL_S, self._interval_s * 1.25)
        self._timer = self._loop.call_later(self._interval_s, self._poll)

    async def close(self) -> None:
        """Flush the records in flight for `CLOSE_TIMEOUT_S`, then fail the rest."""
        self._timer.cancel()
        await self._loop.run_in_executor(None, self._producer.flush, CLOSE_TIMEOUT_S)
        self._producer.purge()
        self._producer.poll(0)
