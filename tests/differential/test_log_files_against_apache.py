"""A partition that Apache Kafka wrote, read by us: the same error codes, producer state and small files.

One script of batches and markers, most of them valid and many not, is sent to an Apache broker and applied to our
`ProducerState` at the same time. Then the broker stops, and its files are compared byte for byte with those that we
derive from its log; and Apache starts on files that we wrote.

The script chooses producer ids and epochs itself, as a producer could. The broker does not verify transactions with
their coordinator, since there is none; so a transaction begins with its first batch.
"""

from __future__ import annotations

import re
import socket
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from pessoa.log.aborted_transactions import (
    AbortedTransaction,
    decode_aborted_transactions,
    encode_aborted_transaction,
)
from pessoa.log.checkpoints import (
    CLEANER_OFFSET_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_OFFSET_FILE,
    parse_offsets,
    render_offsets,
)
from pessoa.log.leader_epoch_cache import LEADER_EPOCH_FILE, LeaderEpochCache
from pessoa.log.meta_properties import (
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    parse_meta_properties,
    parse_partition_metadata,
    render_meta_properties,
    render_partition_metadata,
)
from pessoa.log.producer_snapshot_format import decode_snapshot, encode_snapshot
from pessoa.log.producer_state import AppendOrigin, ProducerRefused, ProducerState
from pessoa.records.batch import RecordBatch, batches
from pessoa.records.builder import build_batch
from pessoa.records.control_records import ControlRecordType, build_transaction_marker
from pessoa.records.record import Record
from pessoa.records.stamping import stamp
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.schema import Message
from tests.apache.broker import HOST, ApacheKafka, run_tool
from tests.support.frame_reader import FrameReader

pytestmark = pytest.mark.apache

TOPIC = "t"
STEPS = 500
SEED = 20
SEGMENT_BYTES = 1_048_576
SEQUENCES = 2**31
# The real time, because Apache refuses timestamps in the future and expires producers that were idle for a day.
NOW_MS = time.time_ns() // 1_000_000
LATEST = -1
READ_COMMITTED = 1
# The last version of Produce whose transactions are not added to their coordinator by the broker itself.
PRODUCE_VERSION = 11
MARKERS_VERSION = 2
LIST_OFFSETS_VERSION = 7


def error_of(code: int) -> ErrorCode:
    return next(error for error in ErrorCode if error == code)


class Connection:
    """A connection with one request in flight at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=120)
        self._frames = FrameReader()

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: Message, version: int, answer: type[Message]) -> Message:
        self._socket.sendall(b"".join(request_frame(request, version, 1, "script")))
        while (frame := self._frames.next_frame()) is None:
            data = self._socket.recv(1 << 16)
            assert data, "the broker closed the connection"
            self._frames.feed(data)
        data = bytes(frame)
        header_version = response_header_version(type(request), version)
        _, position = ResponseHeader.decoder(header_version)(data, 0, len(data))
        return answer.decode(data[position:], version)

    def produce(self, batch: RecordBatch) -> tuple[ErrorCode, int]:
        request = ProduceRequest(
            transactional_id="x" if batch.is_transactional else None,
            acks=-1,
            timeout_ms=120_000,
            topic_data=[
                TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch.view)])
            ],
        )
        answer = self.ask(request, PRODUCE_VERSION, ProduceResponse)
        assert isinstance(answer, ProduceResponse)
        (partition,) = answer.responses[0].partition_responses
        return error_of(partition.error_code), partition.base_offset

    def write_marker(self, marker: WritableTxnMarker) -> ErrorCode:
        answer = self.ask(WriteTxnMarkersRequest(markers=[marker]), MARKERS_VERSION, WriteTxnMarkersResponse)
        assert isinstance(answer, WriteTxnMarkersResponse)
        return error_of(answer.markers[0].topics[0].partitions[0].error_code)

    def last_stable_offset(self) -> int:
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED,
            topics=[
                ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)])
            ],
        )
        answer = self.ask(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        assert isinstance(answer, ListOffsetsResponse)
        (partition,) = answer.topics[0].partitions
        assert partition.error_code == ErrorCode.NONE
        return partition.offset


@dataclass
class Script:
    """Chooses the next batch or marker at random from our producer state, and updates that state."""

    connection: Connection
    chance: Random = field(default_factory=lambda: Random(SEED))
    state: ProducerState = field(default_factory=lambda: ProducerState(verification_enabled=False))
    # For each step: the batch or marker, Apache's result, our result.
    transcript: list[tuple[str, object, object]] = field(default_factory=list)
    sent: list[RecordBatch] = field(default_factory=list)

    def step(self) -> None:
        if self.chance.random() < 0.2:
            self._marker()
        else:
            self._data()
        ours = self.state.first_unstable_offset
        self.transcript.append(
            (
                "last stable offset",
                self.connection.last_stable_offset(),
                self.state.end_offset if ours is None else ours,
            )
        )

    def _data(self) -> None:
        chance = self.chance
        producer = chance.choice([1, 1, 2, 17, 1_000])
        entry = self.state.entry(producer)
        epoch = max((entry.epoch if entry else 0) + chance.choice([0] * 12 + [1, -1]), 0)
        is_open = entry is not None and entry.current_txn_first_offset is not None
        sequence = entry.next_sequence if entry else chance.choice([0, 5, SEQUENCES - 2])
        count = chance.randint(1, 3)
        choice = chance.random()
        if choice < 0.1:
            sequence = (sequence + chance.choice([1, 2, -1])) % SEQUENCES
        elif choice < 0.3 and (of_producer := [batch for batch in self.sent if batch.producer_id == producer]):
            repeated = of_producer[-1 - chance.randrange(min(7, len(of_producer)))]
            sequence, count, epoch = repeated.base_sequence, repeated.records_count, repeated.producer_epoch
        elif choice < 0.35:
            sequence = 0
        batch = RecordBatch(
            build_batch(
                [Record(i, NOW_MS, None, b"v" * chance.choice([10, 50_000])) for i in range(count)],
                producer_id=producer,
                producer_epoch=epoch,
                base_sequence=sequence,
                transactional=is_open is (chance.random() < 0.8),
            )
        )
        self.sent.append(batch)
        apaches = self.connection.produce(batch)
        self.transcript.append((repr(batch), apaches, self._append(batch)))

    def _append(self, batch: RecordBatch) -> tuple[ErrorCode, int]:
        try:
            known = self.state.check(batch)
        except ProducerRefused as refused:
            return refused.error, -1
        if known is not None:
            return ErrorCode.NONE, known.first_offset
        base_offset = self.state.end_offset
        stamp(batch, base_offset, 0)
        self._learn(batch)
        return ErrorCode.NONE, base_offset

    def _marker(self) -> None:
        chance = self.chance
        producer = chance.choice([1, 2, 17, 1_000])
        entry = self.state.entry(producer)
        marker = WritableTxnMarker(
            producer_id=producer,
            producer_epoch=max((entry.epoch if entry else 0) + chance.choice([0, 0, 1, 1, -1]), 0),
            transaction_result=chance.random() < 0.5,
            topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])],
            coordinator_epoch=max((entry.coordinator_epoch if entry else 0) + chance.choice([0] * 6 + [1, -1]), 0),
            transaction_version=chance.randint(0, 2),
        )
        apaches = self.connection.write_marker(marker)
        self.transcript.append((repr(marker), apaches, self._write(marker)))

    def _write(self, marker: WritableTxnMarker) -> ErrorCode:
        batch = RecordBatch(
            build_transaction_marker(
                ControlRecordType.COMMIT if marker.transaction_result else ControlRecordType.ABORT,
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                coordinator_epoch=marker.coordinator_epoch,
                timestamp=NOW_MS,
                base_offset=self.state.end_offset,
            )
        )
        try:
            self.state.check(batch, AppendOrigin.COORDINATOR, transaction_version=marker.transaction_version)
        except ProducerRefused as refused:
            return refused.error
        self._learn(batch)
        return ErrorCode.NONE

    def _learn(self, batch: RecordBatch) -> None:
        completed = self.state.update(batch)
        if completed is not None:
            self.state.complete(completed)
        self.state.end_offset = batch.next_offset
        # There is one replica, so what is written is replicated.
        self.state.on_high_watermark_updated(batch.next_offset)


@dataclass(frozen=True)
class Left:
    """The files and the script after the broker has stopped."""

    data: Path
    script: Script

    @property
    def partition(self) -> Path:
        return self.data / f"{TOPIC}-0"

    def segments(self) -> list[Path]:
        return sorted(self.partition.glob("*.log"))


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    data = tmp_path_factory.mktemp("apache") / "data"
    settings = {"log.segment.bytes": SEGMENT_BYTES, "transaction.partition.verification.enable": False}
    with ApacheKafka(data=[data], properties=settings) as kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        kafka.run_tool("kafka-topics", *server, "--create", "--topic", TOPIC)
        # Repeat until the broker leads the partition, which happens shortly after the topic was created.
        kafka.run_tool("kafka-get-offsets", *server, "--topic", TOPIC)
        with closing(Connection(kafka.port)) as connection:
            script = Script(connection)
            for _ in range(STEPS):
                script.step()
    return Left(data, script)


def test_every_batch_and_marker_gets_the_same_error_code_as_from_apache(left: Left) -> None:
    for number, (sent, apaches, ours) in enumerate(left.script.transcript):
        assert apaches == ours, f"step {number}: {sent}"


def test_the_script_of_batches_and_markers_causes_every_error_code(left: Left) -> None:
    said = {answer[0] if isinstance(answer, tuple) else answer for _, answer, _ in left.script.transcript}
    assert said >= {
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
    assert len(left.segments()) > 3


def test_replaying_apaches_log_gives_its_producer_snapshots_and_transaction_indexes_byte_for_byte(left: Left) -> None:
    state = ProducerState()
    compared = {"snapshot": 0, "txnindex": 0}
    for log in left.segments():
        snapshot = log.with_suffix(".snapshot")
        if snapshot.exists():
            assert encode_snapshot(state.entries()) == snapshot.read_bytes(), snapshot.name
            compared["snapshot"] += 1
        index = b""
        for batch in batches(log.read_bytes()):
            completed = state.update(batch)
            if completed is not None:
                if completed.is_aborted:
                    index += encode_aborted_transaction(
                        AbortedTransaction(
                            completed.producer_id,
                            completed.first_offset,
                            completed.last_offset,
                            state.last_stable_offset(completed),
                        )
                    )
                state.complete(completed)
            state.end_offset = batch.next_offset
        written = log.with_suffix(".txnindex")
        assert (written.read_bytes() if written.exists() else b"") == index, written.name
        compared["txnindex"] += written.exists()
    # A clean stop writes a snapshot at the end of the log.
    last = left.partition / f"{state.end_offset:020}.snapshot"
    assert encode_snapshot(state.entries()) == last.read_bytes()
    assert min(compared.values()) >= 2, compared


def test_apaches_partition_files_are_decoded_and_encoded_again_unchanged(left: Left) -> None:
    for path in left.partition.glob("*.snapshot"):
        assert encode_snapshot(decode_snapshot(path.read_bytes())) == path.read_bytes()
    for path in left.partition.glob("*.txnindex"):
        entries = decode_aborted_transactions(path.read_bytes(), base_offset=int(path.stem))
        assert b"".join(map(encode_aborted_transaction, entries)) == path.read_bytes()
    for directory in left.data.glob("*-*/"):
        epochs = directory / LEADER_EPOCH_FILE
        if epochs.exists():
            assert LeaderEpochCache.parse(epochs.read_text()).render() == epochs.read_text()
        metadata = (directory / PARTITION_METADATA_FILE).read_text()
        assert render_partition_metadata(parse_partition_metadata(metadata)) == metadata


@pytest.mark.parametrize(
    "name", [RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE]
)
def test_a_checkpoint_file_of_apache_is_parsed_and_rendered_again_unchanged(left: Left, name: str) -> None:
    text = (left.data / name).read_text()
    offsets = parse_offsets(text, name)
    assert render_offsets(offsets) == (text or "0\n0\n")
    if name in (RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE):
        assert offsets[TOPIC, 0] == left.script.state.end_offset


def test_leader_epochs_rebuilt_from_the_batches_equal_apaches_checkpoint(left: Left) -> None:
    epochs = LeaderEpochCache()
    for log in left.segments():
        for batch in batches(log.read_bytes()):
            epochs.assign(batch.partition_leader_epoch, batch.base_offset)
    assert epochs.render() == (left.partition / LEADER_EPOCH_FILE).read_text()


def test_our_meta_properties_equal_apaches_but_for_the_date(left: Left) -> None:
    text = (left.data / META_PROPERTIES_FILE).read_text()
    ours = render_meta_properties(parse_meta_properties(text), NOW_MS)

    def without_date(lines: str) -> str:
        return re.sub(r"#\w{3} \w{3} \d\d \d\d:\d\d:\d\d \S+ \d{4}\n", "#a date\n", lines)

    assert without_date(ours) == without_date(text)
    assert "#a date\n" in without_date(text)


def test_apaches_dump_tool_reads_a_producer_snapshot_and_a_transaction_index_of_ours(
    left: Left, tmp_path: Path
) -> None:
    last = max(left.partition.glob("*.snapshot"))
    entries = decode_snapshot(last.read_bytes())
    snapshot = tmp_path / last.name
    snapshot.write_bytes(encode_snapshot(entries))
    dumped = run_tool("kafka-dump-log", "--files", snapshot, check=True).stdout
    assert re.findall(r"producerId: (\d+) producerEpoch: (\d+)", dumped) == [
        (str(entry.producer_id), str(entry.epoch)) for entry in entries
    ]

    index = tmp_path / "00000000000000000000.txnindex"
    aborted = [AbortedTransaction(7, 3, 9, 2), AbortedTransaction(8, 2, 12, 13)]
    index.write_bytes(b"".join(map(encode_aborted_transaction, aborted)))
    dumped = run_tool("kafka-dump-log", "--files", index, check=True).stdout
    fields = r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
    assert [AbortedTransaction(*map(int, found)) for found in re.findall(fields, dumped)] == aborted


def test_apache_starts_on_files_that_we_wrote_and_describes_the_same_producers(left: Left) -> None:
    """The last test in this file, because it changes files that the others read."""
    state = left.script.state
    last = max(left.partition.glob("*.snapshot"))
    entries = decode_snapshot(last.read_bytes())
    # Epochs that only this snapshot has show that Apache has read it, and not its own.
    for entry in entries:
        entry.epoch += 100
    last.write_bytes(encode_snapshot(entries))
    for path in (left.partition / LEADER_EPOCH_FILE,):
        path.write_text(LeaderEpochCache.parse(path.read_text()).render())
    for name in (RECOVERY_POINT_FILE, REPLICATION_OFFSET_FILE, LOG_START_OFFSET_FILE, CLEANER_OFFSET_FILE):
        path = left.data / name
        path.write_text(render_offsets(parse_offsets(path.read_text(), name)))
    meta = left.data / META_PROPERTIES_FILE
    meta.write_text(render_meta_properties(parse_meta_properties(meta.read_text()), NOW_MS))
    metadata = left.partition / PARTITION_METADATA_FILE
    metadata.write_text(render_partition_metadata(parse_partition_metadata(metadata.read_text())))

    with ApacheKafka(data=[left.data]) as kafka:
        described = kafka.run_tool(
            "kafka-transactions",
            "--bootstrap-server",
            kafka.bootstrap_servers,
            *("describe-producers", "--topic", TOPIC, "--partition", "0"),
        ).stdout
    rows = [line.split() for line in described.splitlines()[1:]]
    assert {(int(row[0]), int(row[1])) for row in rows} == {(entry.producer_id, entry.epoch) for entry in entries}
    assert {int(row[0]): row[5] for row in rows} == {
        entry.producer_id: "None" if entry.current_txn_first_offset is None else str(entry.current_txn_first_offset)
        for entry in state.entries()
    }
