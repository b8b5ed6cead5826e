"""One consumer instance: a member of a consumer group that is driven by HTTP requests.

librdkafka's consumer blocks, so everything here runs in a worker thread; `consumer_instances.py` sees to it that it is
one thread at a time. Between requests librdkafka sends heartbeats by itself, and the member stays in the group until
`max.poll.interval.ms` have passed without a read.

A read polls more than it returns when it hits its size limit, and keeps the records that could not be sent to the
caller (`put_back`). So what was polled and what was read are not the same, and offsets are committed by what was
*read*: librdkafka is configured not to store offsets itself; `returned` stores the position of each partition.

    polled ──► _unread (polled, not read) ──► read() ──► returned(): position, stored for the automatic commit

Invariants: `_unread` holds records of assigned partitions only, in order; a position is one past the last record that
was returned, or where a seek went. Both are dropped for partitions that a rebalance takes away.

A rebalance is a callback that waits in the queue of records until it is polled, and confluent-kafka answers it with the
interpreter's lock held. Within librdkafka's close() that answer can meet a group that has just ended: the question is
lost, the answer waited for without end, and the whole process stands still. So nothing is left for close() to call:
`unsubscribe` and `close` give the partitions up first, and poll until the queue is empty.

A subscription by expression is kept here and not in librdkafka, whose matcher is that of the C library: it knows less
than Java's, and can be made to take for ever. A read now and then looks which topics match, and subscribes to them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from pessoa.rest_proxy.media import Format
from pessoa.rest_proxy.proxy_problems import from_kafka, illegal_state, kafka_error
from pessoa.serde.patterns import Pattern
from pessoa.wire.errors import NO_COORDINATOR
from pessoa.wire.internal_topics import is_internal

# Polled at once; more than that is asked for again within the same read.
POLL_COUNT = 500
REQUEST_TIMEOUT_S = 30.0
# After `assign` a partition takes a moment before it can be sought; on a new cluster until the group has a coordinator.
SEEK_RETRY_S = 0.005
# How old the list of topics may be that an expression is matched against.
PATTERN_REFRESH_S = 5.0
# A JVM consumer's expression matches none of these either (exclude.internal.topics).
# Not the caller's business: the end of a partition, a topic that is not there (the JVM's consumer waits for it), and
# having been away too long (the next polls join again).
IGNORED = frozenset({KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MAX_POLL_EXCEEDED})
# Neither is a coordinator that is on its way (NO_COORDINATOR), as in a cluster that has had no group before.
COORDINATOR_RETRY_S = 0.1

Partition = tuple[str, int]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest time and the sizes of a read. A negative `min_bytes` waits for the whole time, even if records
    arrive."""

    timeout_ms: int
    max_bytes: int
    min_bytes: int = -1


class Instance:
    def __init__(self, group: str, name: str, kind: Format, consumer: Consumer, *, request_timeout_ms: int,
                 min_bytes: int, commits_itself: bool) -> None:  # fmt: skip
        self.group = group
        self.name = name
        self.format = kind
        self.request_timeout_ms = request_timeout_ms
        self.min_bytes = min_bytes
        self._consumer = consumer
        self._commits_itself = commits_itself
        self._topics: list[str] = []
        self._pattern: Pattern | None = None
        # When the topics were last looked at, by the monotonic clock.
        self._listed_s = 0.0
        self._is_assigned_by_hand = False
        self._unread: deque[Message] = deque()
        self._positions: dict[Partition, int] = {}

    def __repr__(self) -> str:
        return f"<Instance {self.group}/{self.name} {self.format.value}, {len(self._unread)} polled ahead>"

    def close(self) -> None:
        """Leave the group; commit the offsets that were read if auto-commit is on."""
        try:
            self._give_up_partitions()
        finally:
            self._consumer.close()

    # Which partitions.

    def subscribe(self, topics: list[str], pattern: Pattern | None) -> None:
        """Subscribe to topics or to a pattern. Raises `illegal_state` if the instance already uses another way
        (topics, pattern, assignment) and was not unsubscribed."""
        is_by_name = bool(self._topics) and self._pattern is None
        if self._is_assigned_by_hand or (is_by_name if pattern is not None else self._pattern is not None):
            raise illegal_state("Subscription to topics, partitions and pattern are mutually exclusive")
        self._pattern = pattern
        self._subscribe_to(topics if pattern is None else self._find_topics(pattern))

    def _subscribe_to(self, topics: list[str]) -> None:
        if topics:
            _call(self._consumer.subscribe, topics, on_revoke=self._forget_revoked, on_lost=self._forget_revoked)
        else:
            _call(self._consumer.unsubscribe)
        self._topics = topics

    def _find_topics(self, pattern: Pattern) -> list[str]:
        """Return the topics whose whole name matches, as in Java."""
        found = _call(self._consumer.list_topics, timeout=REQUEST_TIMEOUT_S)
        self._listed_s = time.monotonic()
        return sorted(name for name in found.topics if not is_internal(name) and pattern.matches_whole(name))

    def _follow_pattern(self) -> None:
        """Subscribe to the topics that match the pattern now, if they were listed longer than `PATTERN_REFRESH_S`
        ago."""
        if self._pattern is not None and time.monotonic() - self._listed_s > PATTERN_REFRESH_S:
            topics = self._find_topics(self._pattern)
            if topics != self._topics:
                self._subscribe_to(topics)

    def unsubscribe(self) -> None:
        """End the subscription, or the assignment by hand."""
        self._give_up_partitions()
        self._topics, self._pattern, self._is_assigned_by_hand = [], None, False
        self._unread.clear()
        self._positions.clear()

    def subscription(self) -> list[str]:
        return list(self._topics) if self._pattern is None else self._find_topics(self._pattern)

    def assign(self, partitions: Sequence[Partition]) -> None:
        if self._topics or self._pattern is not None:
            raise illegal_state("Subscription to topics, partitions and pattern are mutually exclusive")
        kept = set(partitions)
        self._drop(lambda partition: partition not in kept)
        places = [
            TopicPartition(topic, number, self._positions[topic, number])
            if (topic, number) in self._positions
            else TopicPartition(topic, number)
            for topic, number in dict.fromkeys(partitions)
        ]
        if self._unread:
            # Assigning anew fetches from the position again.
            self._unread.clear()
        _call(self._consumer.assign, places)
        self._is_assigned_by_hand = bool(places)

    def assignment(self) -> list[Partition]:
        return sorted((each.topic, each.partition) for each in _call(self._consumer.assignment))

    # Reading.

    def read(self, limits: Limits) -> list[Message]:
        """Return records up to the limits. They count as read only after a call of `returned`."""
        self._follow_pattern()
        deadline = time.monotonic() + limits.timeout_ms / 1000
        taken: list[Message] = []
        size = 0
        while True:
            while self._unread:
                more = record_size(self._unread[0])
                if size + more >= limits.max_bytes:
                    return taken
                size += more
                taken.append(self._unread.popleft())
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0 or 0 <= limits.min_bytes < size:
                return taken
            try:
                self._poll(remaining_s, is_in_a_hurry=limits.min_bytes >= 0)
            except BaseException:
                self._unread.extendleft(reversed(taken))
                raise

    def _poll(self, wait_s: float, *, is_in_a_hurry: bool) -> None:
        # `consume` waits until it has all that it is asked for: a read with `min_bytes` asks for one, then for more.
        messages = _call(self._consumer.consume, 1 if is_in_a_hurry else POLL_COUNT, wait_s)
        if is_in_a_hurry and messages:
            messages += _call(self._consumer.consume, POLL_COUNT, 0)
        has_lost_its_coordinator = False
        for message in messages:
            error = message.error()
            if error is None:
                self._unread.append(message)
            elif error.code() in NO_COORDINATOR:
                has_lost_its_coordinator = True
            elif error.code() not in IGNORED:
                raise from_kafka(error)
        if has_lost_its_coordinator and self._is_assigned_by_hand:
            # librdkafka asks for committed offsets once; without an answer it would never begin to fetch.
            time.sleep(COORDINATOR_RETRY_S)
            self.assign(self.assignment())

    def put_back(self, messages: Sequence[Message]) -> None:
        """Put records back to be read again: they could not be sent to the caller."""
        self._unread.extendleft(reversed(messages))

    def returned(self, messages: Iterable[Message]) -> None:
        """Advance the positions past these records, which are being sent to the caller. Does not block, so within a
        turn it may be called on the event loop."""
        last: dict[Partition, int] = {}
        for message in messages:
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            last[topic, partition] = offset + 1
        self._set_positions(last)

    # Positions and offsets.

    def seek(self, places: Sequence[tuple[Partition, int]]) -> None:
        """Set the positions to these offsets; the partitions must be assigned."""
        self._must_be_assigned([partition for partition, _ in places])
        for (topic, number), offset in places:
            deadline = time.monotonic() + REQUEST_TIMEOUT_S
            while True:
                try:
                    self._consumer.seek(TopicPartition(topic, number, offset))
                    break
                except KafkaException as failure:
                    is_starting = kafka_error(failure).code() == KafkaError._STATE
                    if not is_starting or time.monotonic() > deadline:
                        raise illegal_state(kafka_error(failure).str()) from None
                    time.sleep(SEEK_RETRY_S)
            self._drop(lambda partition, sought=(topic, number): partition == sought)  # type: ignore[misc]
            self._set_positions({(topic, number): offset})

    def seek_to_times(self, places: Sequence[tuple[Partition, int]]) -> None:
        """Set the positions to the first records at or after these times, or to the end of a partition without such
        a record."""
        if not places:
            return
        self._must_be_assigned([partition for partition, _ in places])
        wanted = [TopicPartition(topic, number, time_ms) for (topic, number), time_ms in places]
        found = _call(self._consumer.offsets_for_times, wanted, timeout=REQUEST_TIMEOUT_S)
        self.seek(
            [
                ((each.topic, each.partition), each.offset if each.offset >= 0 else self._bounds(each)[1])
                for each in found
            ]
        )

    def seek_to_edge(self, partitions: Sequence[Partition], *, end: bool) -> None:
        self._must_be_assigned(partitions)
        self.seek([(each, self._bounds(TopicPartition(*each))[1 if end else 0]) for each in partitions])

    def commit(self, offsets: Sequence[TopicPartition] | None, *, is_async: bool) -> None:
        """Commit these offsets; without any, the positions of the records that were read."""
        places = (
            [TopicPartition(topic, number, offset) for (topic, number), offset in self._positions.items()]
            if offsets is None
            else list(offsets)
        )
        if not places:
            return
        if is_async:
            _call(self._consumer.commit, offsets=places, asynchronous=True)
            return
        try:
            outcomes = self._consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as failure:
            raise from_kafka(kafka_error(failure)) from None
        for place in outcomes:
            if place.error is not None:
                raise from_kafka(place.error)

    def committed(self, partitions: Sequence[Partition]) -> list[TopicPartition]:
        """Return the committed offsets of these partitions; partitions without one are left out."""
        if not partitions:
            return []
        wanted = [TopicPartition(*each) for each in partitions]
        found = _call(self._consumer.committed, wanted, timeout=REQUEST_TIMEOUT_S)
        for place in found:
            if place.error is not None:
                raise from_kafka(place.error)
        return [place for place in found if place.offset >= 0]

    # Inside.

    def _must_be_assigned(self, partitions: Iterable[Partition]) -> None:
        assigned = set(self.assignment())
        for topic, number in partitions:
            if (topic, number) not in assigned:
                raise illegal_state(f"No current assignment for partition {topic}-{number}")

    def _bounds(self, place: TopicPartition) -> tuple[int, int]:
        first, end = _call(self._consumer.get_watermark_offsets, place, timeout=REQUEST_TIMEOUT_S)
        return first, end

    def _set_positions(self, positions: dict[Partition, int]) -> None:
        self._positions.update(positions)
        if self._commits_itself and positions:
            places = [TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()]
            try:
                self._consumer.store_offsets(offsets=places)
            except KafkaException as failure:
                # A rebalance took the partition while its records were on their way: the new owner reads them again.
                if kafka_error(failure).code() != KafkaError._STATE:
                    raise from_kafka(kafka_error(failure)) from None

    def _give_up_partitions(self) -> None:
        """Unsubscribe, and serve each rebalance that librdkafka has queued. Records queued behind a rebalance are
        dropped: they have not been read, so the next member of the group reads them."""
        _call(self._consumer.unsubscribe)
        if self._is_assigned_by_hand:
            _call(self._consumer.unassign)
        # Once the rebalance has been served no more records come; the limit is for a librdkafka that does otherwise.
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while _call(self._consumer.consume, POLL_COUNT, 0) and time.monotonic() < deadline:
            pass

    def _forget_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        revoked = {(each.topic, each.partition) for each in partitions}
        self._drop(revoked.__contains__)
        for partition in revoked:
            self._positions.pop(partition, None)

    def _drop(self, is_dropped: Callable[[Partition], bool]) -> None:
        """Delete the records of these partitions that were polled and not read yet."""
        self._unread = deque(
            each for each in self._unread if not is_dropped((each.topic() or "", each.partition() or 0))
        )


def record_size(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def _call(call: Callable[..., _T], *arguments: object, **options: object) -> _T:
    """Call librdkafka and return its result. Its errors are raised as the HttpProblem for the caller."""
    try:
        return call(*arguments, **options)
    except KafkaException as failure:
        raise from_kafka(kafka_error(failure)) from None
    except (ValueError, TypeError) as wrong:
        raise illegal_state(str(wrong)) from None
