"""A materialised table: the latest record of each key of a topic, kept on this disk and followed. No Spark.

    with MaterialisedTable("totais", {"bootstrap.servers": "localhost:9092"}, directory) as table:
        table.wait_until_read(table.end_offsets(), time.monotonic() + 10)
        table.get(b"ana")                     Entry(key, value, timestamp_ms, partition, offset), or None
        table.range(b"a", b"b")               in the byte order of the keys, from start to before end
        table.windows(b"ana", start_ms)       the rows of a windowed table under one key
        table.staleness()                     how far behind, and as of which moment

Keys and values are bytes. A thread follows the topic and writes to `table_store.py`; reads come from there in
microseconds, from any thread. A record without a value deletes its key, one without a key is passed over. Readers see
what transactions have committed.

The table says how old it is. Every LOOK_INTERVAL_S the thread asks where the topic ends; once it has read that far, the
table holds everything that was committed at the moment of the question, `as_of_ms`. Strong reads ask themselves:
`wait_until_read(end_offsets(), deadline)`.

The table is made anew, from the topic's first record, when it cannot be the table of this topic:

    the topic has another id               it was deleted and created again
    a position lies outside of the topic   the same, by a broker that has no ids; or records were deleted unread
    its file is damaged                    it is a copy
    it was not followed for half a day     deletions are compacted away after delete.retention.ms, a day by default

`offsets()` begin at zero then. While a topic does not exist, its table is empty, and `staleness().trouble` says why.

A key is expected in one partition. Where it is in two (partitions were added), the one that was read last holds.
"""

from __future__ import annotations

import logging
import sqlite3
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from pessoa.pipelines.table_store import Change, Entry, TableStore, is_damage

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import AdminClient

__all__ = ["Entry", "MaterialisedTable", "Staleness", "TableBehind"]
log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 2.0
# The most rows of one transaction while the table catches up; afterwards, the rows that are available.
_BATCH = 50_000
_POLL_S = 0.25
_RETRY_S = 1.0
_REQUEST_S = 10.0
# How often the response is polled.
_ANSWER_S = 0.005
# Half of Kafka's delete.retention.ms.
_FORGETTING_MS = 12 * 3_600_000
_ALIVE_INTERVAL_S = 600.0
_TOPIC_ID, _ALIVE_AT = "topic id", "followed until, ms"
_NO_ID = ("", "AAAAAAAAAAAAAAAAAAAAAA")


class TableBehind(TimeoutError):
    """The table had not read up to the wanted offsets at the deadline."""


class Staleness(NamedTuple):
    # Offsets between the table and the end of its topic when it was last asked for; None before the first answer.
    lag: int | None
    # The table holds everything that was committed by then (wall clock); None until it first reached an end.
    as_of_ms: int | None
    # Why the table does not follow the topic, as a sentence; empty if it does.
    trouble: str


class _Topic(NamedTuple):
    """The id and the end offsets of the topic, as the brokers report them."""

    topic_id: str
    ends: Mapping[int, int]
    asked_ms: int
    # How far the table was when the brokers were asked: it may have read on since.
    positions: Mapping[int, int]


class _NoSuchTopic(Exception):
    """The topic does not exist."""


class MaterialisedTable:
    """A copy of a compacted topic in a local store, which follows the topic. `kafka` has librdkafka's settings. No
    other table may use the directory."""

    def __init__(self, topic: str, kafka: Mapping[str, str], directory: Path) -> None:
        self.topic = topic
        self._settings: dict[str, str | int | float | bool] = {"log_level": 3, **kafka}
        self._directory = directory
        self._store: TableStore | None = None
        self._admin: AdminClient | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._progress = threading.Condition()
        # The positions in the store, or the end offsets that were reached after them (transaction markers have no row).
        self._positions: dict[int, int] = {}
        self._last_topic: _Topic | None = None
        self._as_of_ms: int | None = None
        self._trouble = "the topic has not been reached"

    def __repr__(self) -> str:
        return f"<MaterialisedTable {self.topic}: {self._positions}, {self.staleness()}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Open the store, and begin to follow the topic in a thread. Returns at once."""
        from confluent_kafka.admin import AdminClient

        self._store = TableStore(self._directory)
        self._admin = AdminClient(self._settings)
        self._positions = self._store.positions()
        self._thread = threading.Thread(target=self._run, name=f"table {self.topic}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._progress:
            self._progress.notify_all()
        if self._store is not None:
            self._store.close()
            self._store = None

    # Reading, from any thread

    def get(self, key: bytes) -> Entry | None:
        return self._open_store.get(key)

    def range(self, start: bytes | None = None, end: bytes | None = None) -> Iterator[Entry]:
        """Yield the rows from `start` to before `end`, in the byte order of their keys; None is open."""
        return self._open_store.range(start, end)

    def scan(self) -> Iterator[Entry]:
        return self._open_store.range(None, None)

    def prefix(self, prefix: bytes) -> Iterator[Entry]:
        """Return the rows whose keys begin with the prefix."""
        return self._open_store.range(prefix, _after_prefix(prefix))

    def windows(self, key: bytes, start_ms: int = 0, end_ms: int | None = None) -> Iterator[Entry]:
        """Yield the rows of a windowed table under this key whose windows begin from `start_ms` to before `end_ms`,
        as Kafka's TimeWindowedSerializer writes their keys: the key, then eight bytes of the window's start."""
        end = _after_prefix(key) if end_ms is None else key + struct.pack(">q", end_ms)
        for entry in self._open_store.range(key + struct.pack(">q", max(start_ms, 0)), end):
            # A longer key may begin with the same bytes.
            if len(entry.key) == len(key) + 8:
                yield entry

    def count(self) -> int:
        return self._open_store.count()

    def offsets(self) -> dict[int, int]:
        """Return the next offset that is to be read, by partition."""
        with self._progress:
            return dict(self._positions)

    def staleness(self) -> Staleness:
        with self._progress:
            return Staleness(self._lag(), self._as_of_ms, self._trouble)

    def lag(self) -> int | None:
        return self.staleness().lag

    def end_offsets(self, timeout_s: float = _REQUEST_S) -> dict[int, int]:
        """Return the end offsets of the topic's partitions, for `wait_until_read`; raise TableBehind if no broker
        answers."""
        from confluent_kafka import KafkaException

        store = self._open_store
        try:
            topic = _describe_topic(self._brokers, self.topic, store, time.monotonic() + timeout_s)
        except _NoSuchTopic:
            self._say(f"the topic {self.topic} does not exist")
            return {}
        except (KafkaException, TimeoutError) as silence:
            why = str(silence) or "no broker answered"
            raise TableBehind(f"where {self.topic} ends is not known: {why}") from None
        if _is_another(store.fact(_TOPIC_ID), topic.topic_id):
            with self._progress:
                # Until the thread has noticed too: what was read is of another topic.
                self._positions = {}
        return dict(topic.ends)

    def wait_until_read(self, offsets: Mapping[int, int], deadline: float) -> None:
        """Return when everything before these offsets is in the table; raise TableBehind at the deadline, which is
        one of time.monotonic()."""

        def is_read() -> bool:
            return all(self._positions.get(partition, 0) >= offset for partition, offset in offsets.items())

        with self._progress:
            self._progress.wait_for(lambda: is_read() or self._stop.is_set(), max(0.0, deadline - time.monotonic()))
            if not is_read():
                why = f": {self._trouble}" if self._trouble else ""
                raise TableBehind(f"the table {self.topic} is read up to {self._positions}, not {dict(offsets)}{why}")

    @property
    def _open_store(self) -> TableStore:
        if self._store is None:
            raise RuntimeError(f"the table {self.topic} is not open: start() it first")
        return self._store

    @property
    def _brokers(self) -> AdminClient:
        assert self._admin is not None, "start() makes it"
        return self._admin

    def _lag(self) -> int | None:
        if self._last_topic is None:
            return None
        return sum(max(0, end - self._positions.get(number, 0)) for number, end in self._last_topic.ends.items())

    # Following, in a thread

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        while not self._stop.is_set():
            try:
                if (topic := self._ask_until_stopped()) is not None:
                    self._check(topic)
                    self._follow(topic)
            except _NoSuchTopic:
                self._begin_anew("", f"the topic {self.topic} does not exist")
                self._stop.wait(_RETRY_S)
            except (KafkaException, sqlite3.Error, OSError, TimeoutError) as failure:
                # A failure of the cluster or the disk: it is reported, and retried from the positions in the store.
                if is_damage(failure):
                    self._open_store.make_anew()
                log.warning("the table %s waits: %s", self.topic, failure)
                self._say(str(failure) or "no broker answered")
                self._stop.wait(_RETRY_S)

    def _ask_until_stopped(self) -> _Topic | None:
        question = _Question(self._brokers, self.topic, self._open_store)
        while not question.is_answered():
            if self._stop.wait(_ANSWER_S):
                return None
        return question.result(0.0)

    def _follow(self, topic: _Topic) -> None:
        """Read the topic until it is recreated or gets more partitions."""
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        try:
            # The positions are read from the store: a failed transaction has stored none.
            with self._progress:
                self._positions = self._opened_positions(topic)
            starts = dict(self._positions)
            consumer.assign([TopicPartition(self.topic, number, starts[number]) for number in sorted(topic.ends)])
            look = _Look(self._brokers, self.topic, self._open_store)
            alive_s = time.monotonic() + _ALIVE_INTERVAL_S
            self._say("")
            while not self._stop.is_set():
                messages = consumer.consume(1, _POLL_S)
                if messages:
                    messages += consumer.consume(_BATCH, 0)
                    self._apply_messages(messages)
                seen = look.answer()
                if seen is not None and (self._check(seen) or seen.ends.keys() != topic.ends.keys()):
                    return
                if time.monotonic() > alive_s:
                    alive_s += _ALIVE_INTERVAL_S
                    self._open_store.keep_facts({_ALIVE_AT: str(_now_ms())})
        finally:
            consumer.close()

    def _opened_positions(self, topic: _Topic) -> dict[int, int]:
        known = self._open_store.positions()
        return {number: known.get(number, 0) for number in topic.ends}

    def _consumer(self) -> Consumer:
        from confluent_kafka import Consumer

        return Consumer(
            {
                **self._settings,
                # librdkafka requires a group; nothing joins it or commits to it.
                "group.id": f"pessoa-table-{self.topic}",
                "enable.auto.commit": False,
                # A position that the topic does not have is a reason to begin anew, which is not librdkafka's to do.
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                # The end of a partition may lie behind markers of transactions, which are no records.
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                "queued.max.messages.kbytes": 32_768,
            }
        )

    def _apply_messages(self, messages: Sequence[Message]) -> None:
        from confluent_kafka import KafkaError, KafkaException

        changes: list[Change] = []
        positions: dict[int, int] = {}
        failure: KafkaError | None = None
        for message in messages:
            error, partition, offset = message.error(), message.partition() or 0, message.offset() or 0
            if error is None:
                positions[partition] = offset + 1
                if (key := message.key()) is not None:
                    changes.append(Change(key, message.value(), message.timestamp()[1], partition, offset))
            elif error.code() == KafkaError._PARTITION_EOF:
                positions[partition] = offset
            else:
                failure = error
        if changes:
            self._open_store.apply(changes, positions)
        with self._progress:
            self._positions.update(positions)
            self._note_moment()
            self._progress.notify_all()
        if failure is not None and failure.code() == KafkaError._AUTO_OFFSET_RESET:
            self._begin_anew(self._open_store.fact(_TOPIC_ID) or "", "its records were deleted before they were read")
        if failure is not None:
            raise KafkaException(failure)

    def _check(self, topic: _Topic) -> bool:
        """Compare the topic that the brokers describe with the stored one; clear the store and return True if they
        differ."""
        store = self._open_store
        known, why = store.fact(_TOPIC_ID), ""
        if known is None:
            store.keep_facts({_TOPIC_ID: topic.topic_id, _ALIVE_AT: str(_now_ms())})
        elif _is_another(known, topic.topic_id):
            why = "the topic was created again"
        elif any(offset > topic.ends.get(number, 0) for number, offset in topic.positions.items()):
            why = "the topic is shorter than what was read of it"
        elif self._last_topic is None and _now_ms() - int(store.fact(_ALIVE_AT) or 0) > _FORGETTING_MS:
            why = "deletions may have been compacted away since it was last followed"
        if why:
            self._begin_anew(topic.topic_id, why)
        with self._progress:
            self._last_topic = topic
            self._note_moment()
        return bool(why)

    def _begin_anew(self, topic_id: str, why: str) -> None:
        if self._open_store.positions():
            log.warning("the table %s is read anew: %s", self.topic, why)
        self._open_store.clear({_TOPIC_ID: topic_id, _ALIVE_AT: str(_now_ms())} if topic_id else {})
        with self._progress:
            self._positions, self._last_topic, self._as_of_ms = {}, None, None
            self._trouble = why
            self._progress.notify_all()

    def _note_moment(self) -> None:
        """Set `as_of_ms` to the time of the last look whose end offsets are reached; `_progress` is held."""
        if self._last_topic is not None and self._lag() == 0:
            self._as_of_ms = self._last_topic.asked_ms

    def _say(self, trouble: str) -> None:
        with self._progress:
            self._trouble = trouble


class _Look:
    """Requests the topic's id and end offsets every LOOK_INTERVAL_S, without waiting for the response."""

    def __init__(self, admin: AdminClient, topic: str, store: TableStore) -> None:
        self._admin = admin
        self._topic = topic
        self._store = store
        self._next_s = 0.0
        self._question: _Question | None = None

    def answer(self) -> _Topic | None:
        """Return each response of the brokers once; None if there is no new one."""
        now_s = time.monotonic()
        if self._question is None and now_s >= self._next_s:
            self._next_s = now_s + LOOK_INTERVAL_S
            self._question = _Question(self._admin, self._topic, self._store)
        if self._question is None or not self._question.is_answered():
            return None
        asked, self._question = self._question, None
        return asked.result(0.0)


class _Question:
    """One look-up of the topic's id and end offsets: a describe request, then ListOffsets for its partitions."""

    def __init__(self, admin: AdminClient, topic: str, store: TableStore) -> None:
        from confluent_kafka import TopicCollection

        self._admin = admin
        self._topic = topic
        self._asked_ms = _now_ms()
        self._positions = store.positions()
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=_REQUEST_S)
        self._description: Future[object] = described[topic]
        self._topic_id = ""
        self._ends: dict[int, Future[object]] | None = None

    def is_answered(self) -> bool:
        if not self._description.done():
            return False
        if self._ends is None and self._description.exception() is None:
            self._ask_for_ends(0.0)
        return all(end.done() for end in (self._ends or {}).values())

    def _ask_for_ends(self, timeout_s: float) -> None:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin._listoffsets import OffsetSpec
        from confluent_kafka.admin._topic import TopicDescription

        described = self._description.result(timeout_s)
        assert isinstance(described, TopicDescription)
        self._topic_id = str(described.topic_id)
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._admin.list_offsets(
            {TopicPartition(self._topic, partition.id): latest for partition in described.partitions},
            isolation_level=IsolationLevel.READ_COMMITTED,
            request_timeout=_REQUEST_S,
        )
        self._ends = {partition.partition: end for partition, end in asked.items()}

    def result(self, timeout_s: float) -> _Topic:
        from confluent_kafka import KafkaError, KafkaException

        gone = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_ID)
        try:
            if self._ends is None:
                self._ask_for_ends(timeout_s)
            ends = {number: end.result(timeout_s).offset for number, end in (self._ends or {}).items()}  # type: ignore[attr-defined]
        except KafkaException as refused:
            if refused.args[0].code() in gone:
                raise _NoSuchTopic from None
            raise
        return _Topic(self._topic_id, ends, self._asked_ms, self._positions)


def _describe_topic(admin: AdminClient, topic: str, store: TableStore, deadline: float) -> _Topic:
    return _Question(admin, topic, store).result(max(0.0, deadline - time.monotonic()))


def _is_another(known: str | None, topic_id: str) -> bool:
    return known is not None and known not in _NO_ID and topic_id not in _NO_ID and known != topic_id


def _after_prefix(prefix: bytes) -> bytes | None:
    """Return the first key after all keys with the prefix; None if there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
