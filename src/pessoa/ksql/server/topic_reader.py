"""Records of source topics in the order in which Kafka Streams takes them, from a consumer that belongs to one query.

Within a partition the order is that of offsets; among partitions the record with the earliest timestamp comes first, as
long as every partition that is not at its end has one to offer. So a join sees a table's rows before the stream's later
ones, whichever the brokers sent first.

    poll ─▶ a queue per partition ─▶ the head with the earliest timestamp
             paused above _HIGH, resumed below _LOW

`open` finds where each partition begins, so a record that is written behind it is read: a client that was told of its
query misses none of those that it writes then. `read` returns when `stop` is set, or with `to_end` when every partition
has been read to the end that it had at `open`.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pessoa.ksql.operators.records import Headers, KafkaRecord
from pessoa.ksql.server.kafka_clients import KafkaClients, KafkaRefused

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

log = logging.getLogger("pessoa.ksql")

_POLL_S = 0.1
_BATCH = 1000
_HIGH, _LOW = 5000, 1000

Place = tuple[str, int]


class SourceReader:
    """A consumer of a query's source topics. `begins` is True for each topic that is read from its first record; the
    others are read from their ends."""

    def __init__(self, clients: KafkaClients, begins: Mapping[str, bool], group: str, *, to_end: bool = False) -> None:
        self._clients = clients
        self._begins = begins
        self._group = group
        self._to_end = to_end
        self.stop = threading.Event()
        self.partitions: dict[str, int] = {}
        # From `open` to the end of `read`, or to `close`.
        self._consumer: Consumer | None = None
        self._queues: dict[Place, deque[KafkaRecord]] = {}
        self._at_end: set[Place] = set()
        self._paused: set[Place] = set()
        self._ends: dict[Place, int] = {}

    def __repr__(self) -> str:
        return f"<SourceReader {self._group} of {', '.join(self._begins)}>"

    def open(self) -> None:
        """Find the partitions and their start offsets. Raises KafkaRefused if a topic or an offset cannot be found."""
        for topic in self._begins:
            found = self._clients.topic(topic)
            if found is None:
                raise KafkaRefused(f"Kafka topic does not exist: {topic}")
            self.partitions[topic] = found.partitions
        self._consumer = self._clients.consumer(self._group, **{"fetch.wait.max.ms": 100})
        try:
            self._assign(self._consumer)
        except KafkaRefused:
            self.close()
            raise

    def close(self) -> None:
        """Close the consumer that `open` has created, if `read` was not called."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def read(self) -> Iterator[list[KafkaRecord]]:
        """Yield batches of records in stream order; a batch is empty if a poll returned no records, so that the
        caller is never blocked for long."""
        consumer = self._consumer
        assert consumer is not None, "open comes first"
        try:
            while not self.stop.is_set():
                first = consumer.poll(_POLL_S)
                if first is not None:
                    for message in (first, *consumer.consume(_BATCH, 0)):
                        self._take(message)
                yield self._take_in_order()
                self._balance(consumer)
                if self._to_end and self._is_read_to_end():
                    return
        finally:
            self.close()

    def _assign(self, consumer: Consumer) -> None:
        from confluent_kafka import TopicPartition

        places = [(topic, number) for topic, count in self.partitions.items() for number in range(count)]
        bounds = self._clients.ends(consumer, places)
        assigned: list[TopicPartition] = []
        for place in places:
            low, high = bounds[place]
            start = low if self._begins[place[0]] else high
            assigned.append(TopicPartition(*place, start))
            self._queues[place] = deque()
            self._ends[place] = high
            if start >= high:
                self._at_end.add(place)
        consumer.assign(assigned)

    def _take(self, message: Message) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        place = (message.topic() or "", message.partition() or 0)
        if error is None:
            self._at_end.discard(place)
            self._queues[place].append(_record(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(place)
        else:
            log.warning("%s, reading %s: %s", self._group, place, error)

    def _take_in_order(self) -> list[KafkaRecord]:
        found: list[KafkaRecord] = []
        if len(self._queues) == 1:
            (queue,) = self._queues.values()
            found.extend(queue)
            queue.clear()
            return found
        heads = [(queue[0].timestamp_ms, place) for place, queue in self._queues.items() if queue]
        heapq.heapify(heads)
        empty = {place for place, queue in self._queues.items() if not queue and place not in self._at_end}
        while heads and not empty:
            _, place = heapq.heappop(heads)
            queue = self._queues[place]
            found.append(queue.popleft())
            if queue:
                heapq.heappush(heads, (queue[0].timestamp_ms, place))
            elif place not in self._at_end:
                empty.add(place)
        return found

    def _balance(self, consumer: Consumer) -> None:
        from confluent_kafka import TopicPartition

        full = [p for p, queue in self._queues.items() if len(queue) > _HIGH and p not in self._paused]
        free = [p for p in self._paused if len(self._queues[p]) < _LOW]
        if full:
            consumer.pause([TopicPartition(*place) for place in full])
            self._paused.update(full)
        if free:
            consumer.resume([TopicPartition(*place) for place in free])
            self._paused.difference_update(free)

    def _is_read_to_end(self) -> bool:
        return len(self._at_end) == len(self._queues) and not any(self._queues.values())


def _record(message: Message) -> KafkaRecord:
    headers: Headers = tuple(message.headers() or ())  # type: ignore[arg-type]
    return KafkaRecord(
        message.topic() or "", message.partition() or 0, message.offset() or 0, message.timestamp()[1], message.key(),
        message.value(), headers,
    )  # fmt: skip
