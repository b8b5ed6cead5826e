"""Logs for the comparison with Apache Kafka: those that we write, and those that Apache Kafka writes.

`LogScribe` appends to a partition log as its leader and remembers, in its own lists, what a reader must find there:
records, markers, aborted transactions, leader epochs. It uses nothing of the log's own state. `write_history` makes
it write every kind of batch: each codec, idempotent producers, overlapping transactions that are committed or aborted,
headers, nulls, new leader epochs.

`ApacheScribe` does the same through an Apache broker with librdkafka, and remembers what the broker acknowledged.

`read_dump` and `dumped_records` parse the output of kafka-dump-log; `records_in` reads a loaded log; `consume` reads
from a broker.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from pessoa.log.partition_log import PartitionLog
from pessoa.records.batch import RecordBatch
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.control_records import ControlRecordType, build_transaction_marker
from pessoa.records.record import Header, Record, records

# A moment in 2023. A broker that serves these records needs a retention that does not delete them.
START_MS = 1_700_000_000_000
PRODUCE_VERSION = 12
COORDINATOR_EPOCH = 3
CONSUME_DEADLINE_S = 120.0

_FIELD = re.compile(r"(\w+): (\S+)")
_RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?P<type>CreateTime|LogAppendTime): (?P<timestamp>-?\d+) keySize: (?P<key_size>-?\d+)"
    r" valueSize: (?P<value_size>-?\d+) sequence: (?P<sequence>-?\d+) headerKeys: \[(?P<headers>[^]]*)\]"
    r"(?: endTxnMarker: (?P<marker>\w+) coordinatorEpoch: (?P<coordinator_epoch>\d+))?"
    r"(?: key: (?P<key>\S*))?(?: payload: (?P<payload>\S*))?"
)


class Marker(NamedTuple):
    offset: int
    kind: str
    producer_id: int


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int


class LogScribe:
    """Appends to a log as its leader, and remembers what the log must contain."""

    def __init__(self, log: PartitionLog, *, leader_epoch: int = 0, now_ms: int = START_MS) -> None:
        """Write to `log`, in which another scribe may have left transactions open; `end` ends those as well."""
        self.log = log
        self.leader_epoch = leader_epoch
        self.now_ms = now_ms
        self.records: list[Record] = []
        self.markers: list[Marker] = []
        self.aborted: list[Aborted] = []
        self.codecs: list[Codec] = []
        self.epochs: list[tuple[int, int]] = []
        self._sequences: dict[int, int] = {}
        # producer → first offset of its open transaction; offset → producer, for what was written in transactions
        self._open = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in log.producers.entries()
            if entry.current_txn_first_offset is not None
        }
        self._transactional: dict[int, int] = {}
        self._written = 0

    def produce(
        self, count: int, codec: Codec = Codec.NONE, *, producer_id: int = -1, transactional: bool = False
    ) -> None:
        """Append one batch of different records."""
        made = [self._record(delta) for delta in range(count)]
        sequence = self._sequences.get(producer_id, 0) if producer_id >= 0 else -1
        data = build_batch(
            made,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        guard = None
        if transactional and producer_id not in self._open:
            guard = self.log.producers.start_verification(
                producer_id, sequence, 0, self.now_ms, supports_epoch_bump=False
            )
        appended = self.log.append_as_leader(memoryview(data), self.leader_epoch, self.now_ms, PRODUCE_VERSION, guard)
        if producer_id >= 0:
            self._sequences[producer_id] = sequence + count
        if transactional:
            self._open.setdefault(producer_id, appended.base_offset)
            offsets = range(appended.base_offset, appended.last_offset + 1)
            self._transactional.update(dict.fromkeys(offsets, producer_id))
        for record in made:
            timestamp = record.timestamp if appended.log_append_time_ms < 0 else appended.log_append_time_ms
            self.records.append(record._replace(offset=appended.base_offset + record.offset, timestamp=timestamp))
        self._note_batch(codec, appended.base_offset)

    def end(self, producer_id: int, kind: ControlRecordType) -> None:
        """Append the marker that commits or aborts the open transaction of the producer."""
        data = build_transaction_marker(
            kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=COORDINATOR_EPOCH, timestamp=self.now_ms
        )
        offset = self.log.append_own(memoryview(data), self.leader_epoch, self.now_ms).base_offset
        self.markers.append(Marker(offset, kind.name, producer_id))
        first_offset = self._open.pop(producer_id)
        if kind is ControlRecordType.ABORT:
            self.aborted.append(Aborted(producer_id, first_offset, offset))
        self._note_batch(Codec.NONE, offset)

    def lead(self, leader_epoch: int) -> None:
        """Raise the leader epoch, as after an election."""
        self.leader_epoch = leader_epoch

    @property
    def open_transactions(self) -> list[int]:
        """Return the ids of the producers with an open transaction."""
        return list(self._open)

    @property
    def committed(self) -> list[Record]:
        """Return what a read_committed consumer sees: no aborted records, and nothing from the last stable offset
        on."""
        end = min(self._open.values(), default=self.log.log_end_offset)
        return [record for record in self.records if record.offset < end and not self._is_aborted(record.offset)]

    def _is_aborted(self, offset: int) -> bool:
        producer_id = self._transactional.get(offset)
        return any(
            one.producer_id == producer_id and one.first_offset <= offset <= one.last_offset for one in self.aborted
        )

    def _note_batch(self, codec: Codec, base_offset: int) -> None:
        self.codecs.append(codec)
        if not self.epochs or self.epochs[-1][0] != self.leader_epoch:
            self.epochs.append((self.leader_epoch, base_offset))
        self.now_ms += 7

    def _record(self, delta: int) -> Record:
        number = self._written = self._written + 1
        headers: tuple[Header, ...] = (("trace", b"t%d" % number), ("empty", b""), ("none", None))
        return Record(
            offset=delta,
            # Not in order, so that the largest timestamp of a batch need not be that of its last record.
            timestamp=self.now_ms + (3, 5, 1)[delta % 3],
            key=None if number % 5 == 0 else b"key-%d" % (number % 17),
            value=None if number % 7 == 0 else b"value-%d-" % number + b"x" * (number * 37 % 180),
            headers=headers if number % 4 == 0 else (),
        )


def write_history(scribe: LogScribe, *, leader_epochs: Sequence[int] = (0,), rounds: int = 6) -> None:
    """Append every kind of batch, `rounds` times; the last transaction stays open."""
    for number in range(rounds):
        scribe.lead(leader_epochs[min(number * len(leader_epochs) // rounds, len(leader_epochs) - 1)])
        for codec in Codec:
            scribe.produce(1 + number % 3, codec)
            scribe.produce(4 + number, codec, producer_id=1000 + codec)
        for producer_id in (2000, 2001):
            scribe.produce(3, Codec.LZ4, producer_id=producer_id, transactional=True)
            scribe.produce(2, Codec.ZSTD, producer_id=1004)
        scribe.produce(2, producer_id=2000, transactional=True)
        scribe.end(2001, ControlRecordType.COMMIT if number % 2 else ControlRecordType.ABORT)
        scribe.end(2000, ControlRecordType.ABORT if number % 3 else ControlRecordType.COMMIT)
    scribe.produce(2, Codec.GZIP, producer_id=2002, transactional=True)


# ---- what a log holds ----


def batches_in(log: PartitionLog) -> Iterator[tuple[int, RecordBatch]]:
    for segment in log.segments:
        yield from segment.batches()


def records_in(log: PartitionLog) -> list[Record]:
    """Return every record that is not a control record."""
    return [record for _, batch in batches_in(log) if not batch.is_control for record in records(batch)]


# ---- through an Apache broker ----


class ApacheScribe:
    """Produces to one partition of a topic and remembers what the broker acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._written = 0
        self._failures: list[KafkaError] = []
        self.records: list[Record] = []
        # The offsets of each aborted transaction.
        self.aborted: list[list[int]] = []

    def producer(self, **settings: Any) -> Producer:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer(
            {"bootstrap.servers": self._bootstrap_servers, "linger.ms": 2, "log_level": 2, "socket.timeout.ms": 20_000}
            | named
        )

    def produce(self, producer: Producer, count: int) -> list[int]:
        """Produce records, in one or a few batches; return their offsets."""
        before = len(self.records)
        for _ in range(count):
            number = self._written = self._written + 1
            headers: list[Header] = [("trace", b"t%d" % number), ("none", None)] if number % 4 == 0 else []
            producer.produce(
                self._topic,
                partition=0,
                key=None if number % 5 == 0 else b"key-%d" % (number % 17),
                value=None if number % 7 == 0 else b"value-%d-" % number + b"x" * (number * 37 % 180),
                headers=list(headers),
                on_delivery=partial(self._delivered, tuple(headers)),
            )
        assert producer.flush(CONSUME_DEADLINE_S) == 0, "not everything was acknowledged"
        assert not self._failures, self._failures
        assert len(self.records) == before + count
        self.records.sort(key=lambda record: record.offset)
        return [record.offset for record in self.records[before:]]

    def transaction(self, producer: Producer, count: int, *, commit: bool) -> None:
        producer.begin_transaction()
        offsets = self.produce(producer, count)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
            self.aborted.append(offsets)
        self._wait_for_marker_at(offsets[-1] + 1)

    def _wait_for_marker_at(self, offset: int) -> None:
        """Wait until the marker stands at this offset: EndTxn is answered before the marker is written, and a batch of
        another producer could take its offset."""
        client = Consumer(
            {"bootstrap.servers": self._bootstrap_servers, "group.id": "-", "isolation.level": "read_uncommitted"}
        )
        try:
            deadline = time.monotonic() + CONSUME_DEADLINE_S
            partition = TopicPartition(self._topic, 0)
            while client.get_watermark_offsets(partition, CONSUME_DEADLINE_S, cached=False)[1] <= offset:
                assert time.monotonic() < deadline, f"no marker at {offset}"
        finally:
            client.close()

    def _delivered(self, headers: tuple[Header, ...], error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
        else:
            # librdkafka's delivery report lacks the headers.
            self.records.append(as_record(message)._replace(headers=headers))


def as_record(message: Message) -> Record:
    offset = message.offset()
    assert offset is not None
    # librdkafka's binding has headers as bytes, though its types allow more.
    headers: Any = message.headers() or ()
    return Record(offset, message.timestamp()[1], message.key(), message.value(), tuple(map(tuple, headers)))


def consume(bootstrap_servers: str, topic: str, *, isolation: str) -> list[Record]:
    """Return all records of partition 0 that a consumer with this isolation level sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 2,
        }
    )
    found: list[Record] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + CONSUME_DEADLINE_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(as_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    raise TimeoutError(f"{topic} did not end within {CONSUME_DEADLINE_S} s; {len(found)} records came")


# ---- the output of kafka-dump-log ----


def read_dump(output: str) -> dict[Path, list[str]]:
    """Return the lines that kafka-dump-log printed for each file."""
    dumped: dict[Path, list[str]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith("Dumping "):
            lines = dumped[Path(line.removeprefix("Dumping "))] = []
        else:
            lines.append(line)
    return dumped


def fields(line: str) -> dict[str, str]:
    return dict(_FIELD.findall(line))


def dumped_records(lines: Sequence[str]) -> list[dict[str, str | None]]:
    found = []
    for line in lines:
        if line.startswith("|"):
            match = _RECORD.fullmatch(line)
            assert match is not None, line
            found.append(match.groupdict())
    return found
