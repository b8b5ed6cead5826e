"""Rows into topics from the executors: exactly once, or with their timestamps, which Spark's own sink would drop.

Exactly once. Spark repeats a batch that it has not seen the end of, with the same number and the same input, so the
batch may be in the topic already, whole or in part. The rows of a batch are dealt into a fixed number of slots, by a
hash of their key. Each slot is written by one task in one Kafka transaction, and within the same transaction the task
writes down how far the slot is, as a record of the query's own marker topic:

    init_transactions("pessoa-<query>-<slot>")    the writer of this slot before us is fenced
    marker = last committed record of the slot    batches below it are in the topic
    batch < marker                                nothing to do
    otherwise                                     begin, marker := batch + 1, rows, commit

Either the rows and the marker are both there or neither is, and only one task at a time can move a slot. Slots know
nothing of each other: a batch that died half way is finished by the slots that had not committed. What this needs is
that a row of a repeated batch falls into its slot again: the functions of a pipeline must be deterministic
(docs/decisions/0009).

Making a producer costs several round trips, so a worker process keeps the writers of its slots. Another process may
have moved the slot since; the marker goes first into every transaction, and is waited for, because the broker then
refuses us before a row is taken, and a new writer can be made. The first marker of a writer also shows that it has seen
all of them: it stands where the writer had read to. If it does not, a leader had shown an end that was not the end, and
the markers are read once more.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pessoa.client.librdkafka import is_passing
from pessoa.client.topic_creation import IfExists, TopicSpec
from pessoa.pipelines.tasks import this_task

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
    from pyspark.sql import Column, DataFrame

Done = TypeVar("Done")

# A query has a topic of its own with a partition for each slot, so no other query's transaction is ever open in it:
# what stands there after the fence can be read to its end at once.
REPLICATION_FACTOR = 3
MOST_SLOTS = 64
DEFAULT_SLOTS = 4
SLOT = "slot"
# A column with this name, where records have it, deals them to the slots in place of their keys.
DEALT_BY = "dealt_by"
# Long enough for a broker to die and come back.
PATIENCE_S = 120.0
TRANSACTION_TIMEOUT_MS = 300_000
# A cached writer may fail for reasons that a new one would not have.
MARKER_TIMEOUT_S = 30.0
ABORT_TIMEOUT_S = 5.0
# The last marker is among the last few offsets, unless many transactions were aborted behind it.
MARKERS_LOOKED_BACK = 16
POLL_S = 0.1
WATERMARK_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 2.0
# Between two attempts, while a leader is chosen.
PAUSE_S = 0.2
# What a writer takes; a frame may have fewer of them.
COLUMNS = ("topic", "partition", "key", "value", "headers", "timestamp")
# The most connections that a worker process keeps open for slots that moved elsewhere.
MOST_KEPT_WRITERS = 16
_PRODUCER = {
    # As Kafka's Java client does it: a key is in the same partition whichever client wrote it.
    "partitioner": "murmur2_random",
    "acks": "all",
    "enable.idempotence": "true",
    "linger.ms": "5",
    "batch.size": "1000000",
    "log_level": "3",
}

Settings = Mapping[str, str]
_kept: dict[tuple[str, str, int], SlotWriter] = {}


def marker_topic(query_id: str) -> str:
    """Return the name of the query's marker topic. It has no dots: Kafka takes `.` and `_` in names for equal."""
    return "_pessoa_batches-" + query_id.replace("_", "__").replace(".", "_-")


def marker_spec(query_id: str, slots: int) -> TopicSpec:
    config = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    return TopicSpec(marker_topic(query_id), slots, REPLICATION_FACTOR, config, IfExists.GROW)


def into_topics(
    records: DataFrame, settings: Settings, query_id: str, slots: int, topic: str | None = None
) -> DataFrame:
    """Return the records with a transactional writer at their end; it outputs no rows. `settings` are librdkafka's."""
    assert 1 <= slots <= MOST_SLOTS, f"{slots} slots"
    by = "coalesce(key, value)" if "key" in records.columns else "value"
    by = DEALT_BY if DEALT_BY in records.columns else by
    dealt = _columns(records, topic, DEALT_BY).selectExpr("*", f"pmod(hash({by}), {slots}) AS {SLOT}")
    # Spark deals by the same hash, so a task has one slot, and rows of one key keep their order.
    dealt = dealt.repartition(slots, _expression(by))

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        write_slots(batches, settings, query_id)
        return iter(())

    return dealt.mapInArrow(write, "nothing INT")


def into_topics_at_least_once(records: DataFrame, settings: Settings, topic: str | None = None) -> DataFrame:
    """Return the records with a writer without transactions at their end, which unlike Spark's keeps their
    timestamps."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import Producer

        producer = Producer({**_PRODUCER, **settings})
        failures: list[KafkaError] = []
        for batch in batches:
            send(producer, batch, lambda error, _: failures.append(error) if error else None)
        if producer.flush(PATIENCE_S) or failures:
            raise RuntimeError(f"records could not be written: {failures[0] if failures else 'no broker answered'}")
        return iter(())

    return _columns(records, topic).mapInArrow(write, "nothing INT")


def _columns(records: DataFrame, topic: str | None, *more: str) -> DataFrame:
    found = records.select(*(name for name in (*COLUMNS, *more) if name in records.columns))
    # Users have strings; Kafka takes bytes.
    casts = [f"CAST({name} AS BINARY) AS {name}" if name in ("key", "value") else name for name in found.columns]
    if topic is not None:
        casts = [name for name in casts if name != "topic"] + ["'" + topic.replace("'", "\\'") + "' AS topic"]
    return found.selectExpr(*casts)


def _expression(text: str) -> Column:
    from pyspark.sql import functions

    return functions.expr(text)


# What runs in the tasks.


def write_slots(batches: Iterator[pa.RecordBatch], settings: Settings, query_id: str) -> None:
    task = this_task()
    # Slots that were written before have None: their rows are passed over.
    open_slots: dict[int, SlotWriter | None] = {}
    try:
        for batch in batches:
            for slot, rows in by_slot(batch):
                if slot not in open_slots:
                    open_slots[slot] = begin(settings, query_id, task.checkpoint_id, slot, task.batch_id)
                writer = open_slots[slot]
                if writer is not None:
                    send(writer.producer, rows)
        for writer in open_slots.values():
            if writer is not None:
                writer.commit(task.batch_id)
    except BaseException:
        for slot, writer in open_slots.items():
            if writer is not None:
                writer.give_up()
                _kept.pop((query_id, task.checkpoint_id, slot), None)
        raise


def by_slot(batch: pa.RecordBatch) -> list[tuple[int, pa.RecordBatch]]:
    column = batch.column(SLOT)
    slots = sorted(column.unique().to_pylist())
    if len(slots) == 1:
        return [(slots[0], batch)]
    import pyarrow.compute as compute

    return [(slot, batch.filter(compute.equal(column, slot))) for slot in slots]


def begin(
    settings: Settings, query_id: str, checkpoint_id: str, slot: int, batch_id: int, *, patience_s: float = PATIENCE_S
) -> SlotWriter | None:
    """Return a writer with an open transaction for the batch; None if the slot has committed the batch already."""
    from confluent_kafka import KafkaException

    name = (query_id, checkpoint_id, slot)
    kept = _kept.get(name)
    if kept is not None:
        if batch_id < kept.marker:
            # No writer can have moved the marker back.
            return None
        try:
            kept.begin(batch_id)
        except KafkaException:
            # Another writer had the slot since, or the broker forgot this one: begin anew.
            kept.give_up()
            del _kept[name]
        else:
            return kept
    writer = new_writer(settings, query_id, checkpoint_id, slot, batch_id, patience_s)
    if writer is None:
        return None
    while len(_kept) >= MOST_KEPT_WRITERS:
        _kept.pop(next(iter(_kept)))
    _kept[name] = writer
    return writer


def new_writer(
    settings: Settings, query_id: str, checkpoint_id: str, slot: int, batch_id: int, patience_s: float
) -> SlotWriter | None:
    """Return a writer that has begun the batch; None if the slot has committed the batch already.

    A writer that fails with a retriable error, such as a leader election, is replaced by another, and the batch does
    not fail.
    """
    from confluent_kafka import KafkaException

    deadline_s = time.monotonic() + patience_s
    while True:
        writer: SlotWriter | None = None
        try:
            writer = SlotWriter(settings, query_id, checkpoint_id, slot)
            if batch_id < writer.marker:
                writer.give_up()
                return None
            writer.begin(batch_id)
        except BaseException as failure:
            if writer is not None:
                # What it has sent is aborted when the next writer is made, here or in another process.
                writer.give_up()
            may_pass = isinstance(failure, KafkaException) and is_passing(failure.args[0])
            if time.monotonic() > deadline_s or not (may_pass or isinstance(failure, MarkersReadShort)):
                raise
            time.sleep(PAUSE_S)
        else:
            return writer


def connect(producer: Producer, topic: str) -> None:
    """Open a connection of the producer to a broker, if one answers, so that `init_transactions` finds it.

    librdkafka closes the first connection when it has learnt the brokers, and opens the next one with the next request.
    A producer without a connection when it looks for its coordinator tries again half a second later: without these
    requests `init_transactions` took 50 or 500 ms, with them 55 in all.
    """
    from confluent_kafka import KafkaException

    try:
        for _ in range(2):
            producer.list_topics(topic, timeout=CONNECT_TIMEOUT_S)
    except KafkaException:
        # No harm is done: `init_transactions` waits for a broker, and says so if none comes.
        return


class MarkersReadShort(Exception):
    """A leader that is isolated or new reported an end of the marker topic before its real end."""


class SlotWriter:
    """The only producer that may write a slot, until the next one fences it."""

    def __init__(self, settings: Settings, query_id: str, checkpoint_id: str, slot: int) -> None:
        from confluent_kafka import Producer

        self.slot = slot
        self._markers = marker_topic(query_id)
        # Without its checkpoint a query counts its batches from 0 again, so markers belong to a checkpoint.
        self._key = checkpoint_id.encode()
        transactional = {
            "transactional.id": f"pessoa-{query_id}-{slot}",
            "transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS),
        }
        self.producer = Producer({**_PRODUCER, **settings, **transactional})
        connect(self.producer, self._markers)
        retrying(lambda: self.producer.init_transactions(PATIENCE_S))
        # Read after the fence: no other writer can change it any more.
        self.marker, end = last_marker(settings, self._markers, slot, self._key)
        # The offset that our first marker must get.
        self._read_to: int | None = end

    def __repr__(self) -> str:
        return f"<SlotWriter {self.slot}: batches below {self.marker} are written>"

    def begin(self, batch_id: int) -> None:
        from confluent_kafka import KafkaError, KafkaException

        assert batch_id >= self.marker, f"batch {batch_id} is written: the marker is {self.marker}"
        self.producer.begin_transaction()
        outcome: list[tuple[KafkaError | None, int | None]] = []
        self.producer.produce(
            self._markers,
            b"%d" % (batch_id + 1),
            self._key,
            partition=self.slot,
            on_delivery=lambda error, message: outcome.append((error, message.offset())),
        )
        try:
            self.producer.flush(MARKER_TIMEOUT_S)
        except SystemError as fenced:
            # The client sets its exception for a fatal error and then calls us back all the same, which Python forbids.
            raise KafkaException(KafkaError(KafkaError._FATAL, f"slot {self.slot} has another writer")) from fenced
        if not outcome:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no broker took the marker of slot {self.slot}"))
        error, offset = outcome[0]
        if error is not None:
            raise KafkaException(error)
        if self._read_to not in (None, offset):
            raise MarkersReadShort(
                f"the markers of slot {self.slot} were read to {self._read_to}, and ours stands at {offset}"
            )
        self._read_to = None

    def commit(self, batch_id: int) -> None:
        retrying(lambda: self.producer.commit_transaction(PATIENCE_S))
        self.marker = batch_id + 1

    def give_up(self) -> None:
        """Abandon the open transaction without waiting; the next writer of the slot aborts it at the latest."""
        threading.Thread(target=_abandon, args=(self.producer,), name="pessoa-abandoned-slot", daemon=True).start()


def _abandon(producer: Producer) -> None:
    from confluent_kafka import KafkaException

    try:
        producer.purge()
        producer.abort_transaction(ABORT_TIMEOUT_S)
    except KafkaException:
        # No transaction is open, or it is no longer ours.
        return


def last_marker(settings: Settings, topic: str, slot: int, key: bytes) -> tuple[int, int]:
    """Return the value of the last committed record with this key (0 if there is none), and the end offset."""
    from confluent_kafka import Consumer, TopicPartition

    reading = {
        # It joins no group: librdkafka wants a name for one all the same.
        "group.id": topic,
        "enable.auto.commit": "false",
        "enable.partition.eof": "true",
        "isolation.level": "read_committed",
        # Nothing more will come: a broker need not wait for it.
        "fetch.wait.max.ms": "10",
        "log_level": "3",
    }
    consumer = Consumer({**settings, **reading})
    try:
        place = TopicPartition(topic, slot)
        first, end = retrying(lambda: consumer.get_watermark_offsets(place, timeout=WATERMARK_TIMEOUT_S), is_passing)
        back = MARKERS_LOOKED_BACK
        while True:
            start = max(first, end - back)
            found, read_to = _last_value(consumer, TopicPartition(topic, slot, start), key)
            if found is not None:
                return int(found), read_to
            if start == first:
                return 0, read_to
            back *= 8
    finally:
        consumer.close()


def _last_value(consumer: Consumer, start: TopicPartition, key: bytes) -> tuple[bytes | None, int]:
    """Return the value of the last record with this key from an offset on, and the end offset."""
    from confluent_kafka import KafkaError, KafkaException

    consumer.assign([start])
    found: bytes | None = None
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        if (error := message.error()) is None:
            if message.key() == key:
                found = message.value()
        elif error.code() == KafkaError._PARTITION_EOF:
            end = message.offset()
            assert end is not None, "the end of a partition has an offset"
            return found, end
        elif not is_passing(error):
            raise KafkaException(error)
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{start.topic} could not be read to its end"))


def _is_retriable(error: KafkaError) -> bool:
    return bool(error.retriable())


def retrying(
    act: Callable[[], Done], may_pass: Callable[[KafkaError], bool] = _is_retriable, patience_s: float = PATIENCE_S
) -> Done:
    """Call until it succeeds, fails with an error that is not retriable, or the time is up."""
    from confluent_kafka import KafkaException

    deadline_s = time.monotonic() + patience_s
    while True:
        try:
            return act()
        except KafkaException as failure:
            if time.monotonic() > deadline_s or not may_pass(failure.args[0]):
                raise
        time.sleep(PAUSE_S)


def send(
    producer: Producer,
    batch: pa.RecordBatch,
    on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
) -> None:
    names = batch.schema.names

    def column(name: str) -> list[Any]:
        found: list[Any] = batch.column(name).to_pylist() if name in names else [None] * batch.num_rows
        return found

    times = batch.column("timestamp").cast("int64").to_pylist() if "timestamp" in names else [None] * batch.num_rows
    rows = zip(*map(column, ("topic", "partition", "key", "value", "headers")), times, strict=True)
    produce, poll = producer.produce, producer.poll
    for topic, partition, key, value, headers, time_us in rows:
        more: dict[str, Any] = {}
        if partition is not None:
            more["partition"] = partition
        if headers:
            more["headers"] = [(header["key"], header["value"]) for header in headers]
        if time_us is not None:
            more["timestamp"] = time_us // 1000
        if on_delivery is not None:
            more["on_delivery"] = on_delivery
        while True:
            try:
                produce(topic, value, key, **more)
                break
            except BufferError:
                # The queue is full: wait until some of it has gone out.
                poll(0.1)
    poll(0)
