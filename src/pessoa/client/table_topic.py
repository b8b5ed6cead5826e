"""A table in a compacted topic: the last row of each key is what holds, and a row without a value deletes its key.

    TableReader   reads tables from their start, in a thread of its own, and follows them
    TableWriter   writes rows, and waits for brokers to acknowledge them

A service that must read what it wrote waits until the row has come back: `reader.wait_until(*writer.send(…)())`.
Every instance of a service reads everything: there is no consumer group. Readers see committed rows only, so a service
may write in transactions, with a producer of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from pessoa.client.topic_creation import TIMEOUT_S, TopicSpec, TopicUnavailable, ensure_topic

log = logging.getLogger(__name__)

ClientSettings = Mapping[str, str | int | float | bool]

_POLL_S = 0.5
_BATCH = 500
# librdkafka's log tells of every connection that is refused; what matters comes as an error of a call.
_QUIET = {"log_level": 3}


class TablePartition(NamedTuple):
    topic: str
    partition: int


class Row(NamedTuple):
    partition: TablePartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class Batch(NamedTuple):
    """Consecutive rows of the table's partitions."""

    rows: Sequence[Row]
    # The next offset of each partition that has moved. Markers of transactions take offsets too, and have no row.
    positions: Mapping[TablePartition, int]
    # The partitions that were read to their end.
    ends: frozenset[TablePartition]


class TableReader:
    """Reads tables in its own thread, which calls `replay` with all rows, in order."""

    def __init__(
        self,
        name: str,
        settings: ClientSettings,
        tables: Iterable[TopicSpec],
        replay: Callable[[Batch], None],
        *,
        admin: ClientSettings | None = None,
    ) -> None:
        """Make a reader that has not started. `settings` are the consumer's, and `admin` those of the client that
        creates topics, if they differ."""
        self._name = name
        self._settings = {**_QUIET, **settings}
        self._admin_settings = {**_QUIET, **(admin or settings)}
        self._tables = tuple(tables)
        self._replay = replay
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._progress = threading.Condition()
        # The next offset to be replayed.
        self._positions: dict[TablePartition, int] = {}
        # Partitions whose end has not been seen.
        self._unread_partitions: set[TablePartition] = set()

    def __repr__(self) -> str:
        return f"<TableReader {self._name} of {', '.join(each.name for each in self._tables)}: {self._positions}>"

    def start(self, timeout_s: float = TIMEOUT_S) -> None:
        """Create the topics that are missing, check the others, and begin to read."""
        admin = AdminClient(self._admin_settings)
        self._unread_partitions = {
            TablePartition(table.name, number)
            for table in self._tables
            for number in ensure_topic(admin, table, timeout_s, self._stop)
        }
        self._thread = threading.Thread(
            target=self._read, args=(sorted(self._unread_partitions),), name=self._name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread not in (None, threading.current_thread()):
            self._thread.join()

    def wait_for_end(self, timeout_s: float = TIMEOUT_S) -> None:
        """Return when all rows up to the end offsets at the start have been replayed."""
        self._wait(lambda: not self._unread_partitions, timeout_s, "could not be read to its end")

    def wait_until(self, partition: TablePartition, offset: int, timeout_s: float = TIMEOUT_S) -> None:
        """Return when the row at this offset has been replayed."""
        self._wait(
            lambda: self._positions.get(partition, 0) > offset, timeout_s, f"was not read up to {partition} at {offset}"
        )

    def _wait(self, holds: Callable[[], bool], timeout_s: float, trouble: str) -> None:
        with self._progress:
            self._progress.wait_for(lambda: holds() or self._failure is not None, timeout_s)
            if not holds():
                why = self._failure or f"not within {timeout_s:.0f} s"
                raise TopicUnavailable(f"{self._name} {trouble}: {why}")

    def _read(self, partitions: Sequence[TablePartition]) -> None:
        consumer = Consumer(
            {
                **self._settings,
                # librdkafka requires a group; nothing joins it or commits to it.
                "group.id": self._name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                # The end of a partition is how we know that everything was read.
                "enable.partition.eof": True,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, number, 0) for topic, number in partitions])
            while not self._stop.is_set():
                first = consumer.poll(_POLL_S)
                if first is not None:
                    self._replay_messages([first, *consumer.consume(_BATCH, 0)])
        except Exception as failure:
            log.exception("%s could not be read any further", self._name)
            with self._progress:
                self._failure = failure
                self._progress.notify_all()
        finally:
            consumer.close()

    def _replay_messages(self, messages: Sequence[Message]) -> None:
        rows: list[Row] = []
        positions: dict[TablePartition, int] = {}
        ends: set[TablePartition] = set()
        for message in messages:
            error = message.error()
            partition, offset = TablePartition(message.topic() or "", message.partition() or 0), message.offset() or 0
            if error is None:
                rows.append(Row(partition, offset, message.timestamp()[1], message.key(), message.value()))
                positions[partition] = offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                positions[partition] = offset
                ends.add(partition)
            else:
                log.warning("%s, reading %s: %s", self._name, partition.topic, error)
        self._replay(Batch(rows, positions, frozenset(ends)))
        with self._progress:
            self._positions.update(positions)
            self._unread_partitions -= ends
            self._progress.notify_all()


class TableWriter:
    """Writes rows in the order of the `send` calls; calling what `send` returns waits for the acknowledgement."""

    def __init__(self, settings: ClientSettings) -> None:
        self._producer = Producer({**_QUIET, **settings, "acks": "all", "enable.idempotence": True, "linger.ms": 0})

    def send(self, topic: str, key: bytes, value: bytes | None) -> Callable[[], tuple[TablePartition, int]]:
        outcome: list[KafkaError | tuple[TablePartition, int]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            # Without an offset where librdkafka infers from the answer to a later batch that this one is written.
            outcome.append(
                (TablePartition(topic, message.partition() or 0), message.offset() or 0) if error is None else error
            )

        self._producer.produce(topic, value, key, on_delivery=delivered)

        def wait() -> tuple[TablePartition, int]:
            deadline_s = time.monotonic() + TIMEOUT_S
            while not outcome and time.monotonic() < deadline_s:
                self._producer.poll(_POLL_S / 5)
            if not outcome or isinstance(outcome[0], KafkaError):
                raise TopicUnavailable(f"{topic} cannot be written: {outcome[0] if outcome else 'no broker answered'}")
            return outcome[0]

        return wait
