"""Record batches of ours and of other implementations: we read theirs and they read ours, for every codec.

The others are aiokafka (its C extension and its pure Python), kafka-python, and Apache Kafka's own record classes,
which are called through the judge. librdkafka cannot read a batch without a broker; it reads our batches in the
tests that run one.

Uncompressed batches must be equal byte for byte, compressed ones only after decompression.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import aiokafka.record.default_records as aiokafka_records
import aiokafka.record.memory_records as aiokafka_memory
import pytest

from pessoa.base.ids import Uuid
from pessoa.records.batch import RecordBatch, TimestampType, batches
from pessoa.records.batch_validation import UNBOUNDED_MS, AppendRules, check_produced
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.control_records import (
    ControlRecordType,
    QuorumMessage,
    build_quorum_batch,
    build_transaction_marker,
    control_records,
)
from pessoa.records.record import Record, records
from pessoa.records.stamping import stamp, stamp_log_append_time
from pessoa.wire.stored.control_record_bodies import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    Voter,
    VotersRecord,
    VotersRecordVoter,
)
from tests.apache.judge import Judge

with warnings.catch_warnings():
    # kafka-python reads its schemas through a deprecated function of importlib.resources when it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec as kafka_python_codec
    import kafka.record.default_records as kafka_python_records
    import kafka.record.memory_records as kafka_python_memory

NOW_MS = 1_700_000_000_000
MADE = [
    Record(0, NOW_MS, b"key", b"value", (("trace", b"\x01\x02"), ("trace", b""), ("naïve", None))),
    Record(1, NOW_MS - 700, None, b"v" * 1_000),
    Record(2, NOW_MS + 5, b"", None),
    Record(3, NOW_MS, b"k" * 64, b""),
    # Larger than one block of snappy (32 KiB) and of lz4 (64 KiB), and not all alike.
    Record(4, NOW_MS + 1, b"large", b"".join(b"%d," % i for i in range(30_000))),
    *(Record(offset, NOW_MS + offset, b"%d" % offset, b"small") for offset in range(5, 80)),
]
PRODUCER: dict[str, Any] = {"producer_id": 4_000, "producer_epoch": 3, "base_sequence": 2_147_483_640}


class Client(NamedTuple):
    """Another implementation; `missing(codec)` says what it lacks to read the codec, or is None."""

    name: str
    builder: Callable[..., Any]
    batches: Callable[[bytes], Any]
    missing: Callable[[Codec], str | None]


def missing_in_kafka_python(codec: Codec) -> str | None:
    package = {Codec.SNAPPY: "python-snappy", Codec.LZ4: "lz4", Codec.ZSTD: "zstandard"}.get(codec)
    if package is None or getattr(kafka_python_codec, f"has_{codec.name.lower()}")():
        return None
    return f"kafka-python reads {codec.name.lower()} with the package {package}, which is not installed"


def nothing_missing(codec: Codec) -> str | None:
    return None


CLIENTS = [
    Client(
        "aiokafka",
        aiokafka_records.DefaultRecordBatchBuilder,
        aiokafka_memory.MemoryRecords,
        nothing_missing,
    ),
    Client(
        "aiokafka in Python",
        aiokafka_records._DefaultRecordBatchBuilderPy,
        aiokafka_memory._MemoryRecordsPy,
        nothing_missing,
    ),
    Client(
        "kafka-python",
        kafka_python_records.DefaultRecordBatchBuilder,
        kafka_python_memory.MemoryRecords,
        missing_in_kafka_python,
    ),
]

with_every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
with_every_codec = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())


def need(client: Client, codec: Codec) -> None:
    reason = client.missing(codec)
    if reason is not None:
        pytest.skip(reason)


def read_by(client: Client, data: bytes) -> list[Any]:
    memory = client.batches(data)
    read = []
    while memory.has_next():
        read.append(memory.next_batch())
    return read


def as_record(theirs: Any) -> Record:
    return Record(
        theirs.offset,
        theirs.timestamp,
        None if theirs.key is None else bytes(theirs.key),
        None if theirs.value is None else bytes(theirs.value),
        tuple((name, None if value is None else bytes(value)) for name, value in theirs.headers),
    )


def built_by(client: Client, made: Sequence[Record], codec: Codec, *, transactional: bool = False) -> bytes:
    builder = client.builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=transactional,
        batch_size=10_000_000,
        **PRODUCER,
    )
    for record in made:
        appended = builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
        assert appended is not None
    return bytes(builder.build())


@with_every_client
@with_every_codec
def test_a_client_reads_our_batches(client: Client, codec: Codec) -> None:
    need(client, codec)
    data = build_batch(MADE, codec=codec, transactional=True, partition_leader_epoch=7, **PRODUCER)
    stamp(RecordBatch(data), 1_000, 7)
    (batch,) = read_by(client, bytes(data))
    assert batch.validate_crc()
    assert batch.base_offset == 1_000
    assert batch.next_offset == 1_080
    assert batch.compression_type == codec
    assert batch.is_transactional
    assert not batch.is_control_batch
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4_000, 3, 2_147_483_640)
    assert batch.max_timestamp == max(record.timestamp for record in MADE)
    assert list(map(as_record, batch)) == [record._replace(offset=1_000 + record.offset) for record in MADE]


@with_every_client
@with_every_codec
def test_we_read_a_clients_batches(client: Client, codec: Codec) -> None:
    need(client, codec)
    data = built_by(client, MADE, codec, transactional=True)
    batch = check_produced(memoryview(data), AppendRules(is_compacted=False), NOW_MS, 12)
    assert batch.codec is codec
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (4_000, 3, 2_147_483_640)
    assert batch.last_sequence == (2_147_483_640 + 79) % 2**31
    assert list(records(batch)) == MADE


@with_every_client
def test_our_uncompressed_batches_equal_those_of_a_client_byte_for_byte(client: Client) -> None:
    theirs = built_by(client, MADE, Codec.NONE)
    # Producers write -1 or 0 for the leader epoch, which the leader writes over.
    epoch = RecordBatch(theirs).partition_leader_epoch
    assert epoch in (-1, 0)
    assert bytes(build_batch(MADE, partition_leader_epoch=epoch, **PRODUCER)) == theirs


@with_every_client
@with_every_codec
def test_a_client_reads_our_batches_in_order_and_stops_at_a_truncated_batch(client: Client, codec: Codec) -> None:
    need(client, codec)
    first = build_batch(MADE[:3], codec=codec)
    second = build_batch([Record(3, NOW_MS, b"k", b"v"), Record(9, NOW_MS, None, b"w")], codec=codec)
    log = bytes(first + second + first[:-1])
    assert [batch.base_offset for batch in batches(log)] == [0, 3]
    read = read_by(client, log)
    assert [batch.base_offset for batch in read] == [0, 3]
    assert [record.offset for batch in read for record in batch] == [0, 1, 2, 3, 9]


@with_every_client
def test_a_client_reads_our_log_append_time_as_the_timestamp_of_every_record(client: Client) -> None:
    data = build_batch(MADE[:3])
    stamp_log_append_time(RecordBatch(data), NOW_MS + 99)
    (batch,) = read_by(client, bytes(data))
    assert batch.validate_crc()
    assert batch.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert {record.timestamp for record in batch} == {NOW_MS + 99}


@with_every_client
def test_a_client_recognises_our_transaction_markers_as_control_batches(client: Client) -> None:
    data = build_transaction_marker(
        ControlRecordType.ABORT,
        producer_id=4_000,
        producer_epoch=3,
        coordinator_epoch=2,
        timestamp=NOW_MS,
        base_offset=8,
    )
    (batch,) = read_by(client, bytes(data))
    assert batch.validate_crc()
    assert batch.is_control_batch
    assert batch.is_transactional
    assert [bytes(record.key) for record in batch] == [b"\0\0\0\0"]


# ── Apache Kafka ──


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge() as running:
        yield running


def for_apache(made: Sequence[Record]) -> list[dict[str, Any]]:
    return [record._asdict() for record in made]


def from_apache(described: Sequence[dict[str, Any]]) -> list[Record]:
    return [
        Record(theirs["offset"], theirs["timestamp"], theirs["key"], theirs["value"], tuple(theirs["headers"]))
        for theirs in described
    ]


@pytest.mark.apache
@with_every_codec
def test_apache_reads_our_batches(judge: Judge, codec: Codec) -> None:
    data = build_batch(MADE, codec=codec, transactional=True, **PRODUCER)
    stamp(RecordBatch(data), 1_000, 7)
    (batch,) = judge.read_batches(bytes(data))
    ours = RecordBatch(data)
    assert batch["codec"] == codec.name.lower()
    assert (batch["baseOffset"], batch["lastOffset"], batch["nextOffset"]) == (1_000, 1_079, 1_080)
    assert (batch["leaderEpoch"], batch["crc"], batch["sizeInBytes"]) == (7, ours.crc, ours.size)
    assert (batch["producerId"], batch["producerEpoch"]) == (4_000, 3)
    assert (batch["baseSequence"], batch["lastSequence"]) == (ours.base_sequence, ours.last_sequence)
    assert (batch["isTransactional"], batch["isControl"], batch["timestampType"]) == (True, False, "CreateTime")
    assert batch["maxTimestamp"] == ours.max_timestamp
    assert from_apache(batch["records"]) == list(records(ours))


@pytest.mark.apache
@pytest.mark.parametrize(
    ("codec", "level"),
    [(Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.LZ4, 1), (Codec.LZ4, 17), (Codec.ZSTD, -5), (Codec.ZSTD, 22)],
)
def test_apache_reads_our_batches_of_every_compression_level(judge: Judge, codec: Codec, level: int) -> None:
    (batch,) = judge.read_batches(bytes(build_batch(MADE, codec=codec, level=level)))
    assert from_apache(batch["records"]) == MADE


@pytest.mark.apache
@with_every_codec
def test_we_read_apaches_batches(judge: Judge, codec: Codec) -> None:
    data = judge.write_batch(codec.name.lower(), for_apache(MADE), producerId=5, producerEpoch=1, baseSequence=9)
    batch = check_produced(memoryview(data), AppendRules(timestamp_after_max_ms=UNBOUNDED_MS), NOW_MS, 12)
    assert batch.codec is codec
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (5, 1, 9)
    assert list(records(batch)) == MADE


GAPS = [Record(100, NOW_MS, b"a", b"1"), Record(103, NOW_MS - 9, None, None), Record(90_000, NOW_MS + 9, b"c", b"3")]


@pytest.mark.apache
@pytest.mark.parametrize(
    ("made", "ours", "theirs"),
    [
        pytest.param(MADE, {}, {}, id="plain"),
        pytest.param(
            MADE,
            {**PRODUCER, "transactional": True, "partition_leader_epoch": 12},
            {
                "producerId": 4_000,
                "producerEpoch": 3,
                "baseSequence": 2_147_483_640,
                "isTransactional": True,
                "leaderEpoch": 12,
            },
            id="transactional",
        ),
        pytest.param(GAPS, {}, {"baseOffset": 100}, id="offsets with gaps"),
        pytest.param(GAPS, {"base_offset": 90}, {"baseOffset": 90}, id="a base before the first record"),
        pytest.param(
            MADE,
            {"log_append_time": NOW_MS + 50},
            {"timestampType": "LogAppendTime", "logAppendTime": NOW_MS + 50},
            id="log-append time",
        ),
        pytest.param(
            MADE, {"delete_horizon_ms": NOW_MS - 1_000}, {"deleteHorizonMs": NOW_MS - 1_000}, id="delete horizon"
        ),
    ],
)
def test_our_uncompressed_batches_equal_those_of_apache_byte_for_byte(
    judge: Judge, made: list[Record], ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    assert bytes(build_batch(made, **ours)).hex() == judge.write_batch("none", for_apache(made), **theirs).hex()


@pytest.mark.apache
def test_apache_reads_a_batch_that_compaction_emptied(judge: Judge) -> None:
    data = build_batch([], base_offset=10, last_offset=14, max_timestamp=NOW_MS, **PRODUCER)
    (batch,) = judge.read_batches(bytes(data))
    assert (batch["baseOffset"], batch["lastOffset"], batch["count"], batch["records"]) == (10, 14, 0, [])
    assert batch["maxTimestamp"] == NOW_MS


@pytest.mark.apache
def test_apache_reads_our_log_append_time_as_the_timestamp_of_every_record(judge: Judge) -> None:
    data = build_batch(MADE[:3], codec=Codec.LZ4)
    stamp_log_append_time(RecordBatch(data), NOW_MS + 99)
    (batch,) = judge.read_batches(bytes(data))
    assert (batch["timestampType"], batch["maxTimestamp"]) == ("LogAppendTime", NOW_MS + 99)
    assert {record["timestamp"] for record in batch["records"]} == {NOW_MS + 99}


@pytest.mark.apache
@pytest.mark.parametrize("control_type", [ControlRecordType.COMMIT, ControlRecordType.ABORT], ids=["commit", "abort"])
def test_our_transaction_markers_equal_those_of_apache_byte_for_byte(
    judge: Judge, control_type: ControlRecordType
) -> None:
    theirs = judge.write_control_batch(
        control_type.name,
        {"coordinatorEpoch": 6},
        baseOffset=77,
        timestamp=NOW_MS,
        leaderEpoch=4,
        producerId=4_000,
        producerEpoch=3,
    )
    ours = build_transaction_marker(
        control_type,
        producer_id=4_000,
        producer_epoch=3,
        coordinator_epoch=6,
        timestamp=NOW_MS,
        base_offset=77,
        partition_leader_epoch=4,
    )
    assert bytes(ours).hex() == theirs.hex()


DIRECTORY = Uuid.of(2**100 + 5)
QUORUM_MESSAGES: list[tuple[ControlRecordType, QuorumMessage, dict[str, Any]]] = [
    (
        ControlRecordType.LEADER_CHANGE,
        LeaderChangeMessage(
            version=0, leader_id=2, voters=[Voter(voter_id=1), Voter(voter_id=2)], granting_voters=[Voter(voter_id=2)]
        ),
        {
            "version": 0,
            "leaderId": 2,
            "voters": [{"voterId": 1}, {"voterId": 2}],
            "grantingVoters": [{"voterId": 2}],
        },
    ),
    (
        ControlRecordType.SNAPSHOT_HEADER,
        SnapshotHeaderRecord(version=0, last_contained_log_timestamp=NOW_MS),
        {"version": 0, "lastContainedLogTimestamp": NOW_MS},
    ),
    (ControlRecordType.SNAPSHOT_FOOTER, SnapshotFooterRecord(version=0), {"version": 0}),
    (
        ControlRecordType.KRAFT_VERSION,
        KRaftVersionRecord(version=0, kraft_version=1),
        {"version": 0, "kRaftVersion": 1},
    ),
    (
        ControlRecordType.KRAFT_VOTERS,
        VotersRecord(
            version=0,
            voters=[
                VotersRecordVoter(
                    voter_id=3,
                    voter_directory_id=DIRECTORY,
                    endpoints=[Endpoint(name="CONTROLLER", host="localhost", port=65_535)],
                    kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
                )
            ],
        ),
        {
            "version": 0,
            "voters": [
                {
                    "voterId": 3,
                    "voterDirectoryId": str(DIRECTORY),
                    "endpoints": [{"name": "CONTROLLER", "host": "localhost", "port": 65_535}],
                    "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
                }
            ],
        },
    ),
]


@pytest.mark.apache
@pytest.mark.parametrize(
    ("control_type", "message", "described"), QUORUM_MESSAGES, ids=[case[0].name for case in QUORUM_MESSAGES]
)
def test_our_quorum_control_batches_equal_those_of_apache_byte_for_byte(
    judge: Judge, control_type: ControlRecordType, message: QuorumMessage, described: dict[str, Any]
) -> None:
    theirs = judge.write_control_batch(control_type.name, described, baseOffset=5, timestamp=NOW_MS, leaderEpoch=9)
    ours = build_quorum_batch([message], timestamp=NOW_MS, base_offset=5, partition_leader_epoch=9)
    assert bytes(ours).hex() == theirs.hex()
    (read,) = control_records(RecordBatch(theirs))
    assert (read.type, read.message) == (control_type, message)


@pytest.mark.apache
def test_apache_reads_several_of_our_quorum_records_in_one_batch(judge: Judge) -> None:
    data = build_quorum_batch(
        [message for _, message, _ in QUORUM_MESSAGES], timestamp=NOW_MS, partition_leader_epoch=1
    )
    (batch,) = judge.read_batches(bytes(data))
    assert [record["controlType"] for record in batch["records"]] == [kind.name for kind, _, _ in QUORUM_MESSAGES]
