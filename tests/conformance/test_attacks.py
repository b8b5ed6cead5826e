"""Hostile requests from clients that have not logged in: other clients are served all the same.

After every attack the canary is checked: a client on another connection and one on a new connection write a record and
read it back. When the broker is stopped, an exception that it raised inside is raised again, and an error in the log
fails the test too.

The last part sends every API in every version with random bodies that are valid by their schema only, from fixed
seeds. The broker must answer each of them: it closes the connection only of a client that breaks the framing.
"""

from __future__ import annotations

import logging
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import cramjam
import pytest

from pessoa.broker.api_row import ApiRow
from pessoa.broker.api_table import broker_rows
from pessoa.records import checksum
from pessoa.records.batch import ATTRIBUTES_POSITION, CRC_POSITION, HEADER_SIZE, LOG_OVERHEAD, MAGIC_POSITION
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.record import Record
from pessoa.testing import Broker
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, PartitionData, TopicData
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pessoa.wire.api.produce import ProduceRequest
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.frames import request_frame
from pessoa.wire.primitives import MAX_INT64
from tests.support.batches import NOW_MS, commit, plain
from tests.support.clients import create_topic, until
from tests.support.crash_wire import (
    FETCH_VERSION,
    Canary,
    Closed,
    Vocabulary,
    Wire,
    fetch,
    fetch_request,
    framed,
    hostile_message,
    now_ms,
    produce,
)
from tests.support.wire_values import random_message

CONNECTIONS = 400
MIB = 1024 * 1024

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from Linux's /proc")


@pytest.fixture
def canary(kafka_broker: Broker, caplog: pytest.LogCaptureFixture) -> Iterator[Canary]:
    """Yield a canary on `kafka_broker`; after the test check that it is still served and that the log has no error."""
    topic = create_topic(kafka_broker, stem="canary")
    with Canary(kafka_broker.port, topic) as bird, caplog.at_level(logging.INFO, "pessoa"):
        bird.check_round_trip()
        yield bird
        bird.check_round_trip()
    assert not [record for record in caplog.get_records("call") if record.levelno >= logging.ERROR]


def resident_bytes() -> int:
    """Return the resident memory of this process, in which the broker runs too."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) * 1024


# Bytes that are no requests.

METADATA_HEADER = struct.pack(">hhih", ApiKey.METADATA, 0, 1, -1)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", 0x7FFFFFFF), id="two gigabytes are announced"),
        pytest.param(struct.pack(">i", 100 * MIB + 1), id="one byte more than socket.request.max.bytes"),
        pytest.param(struct.pack(">i", -1), id="a negative size"),
        pytest.param(struct.pack(">i", -(1 << 31)), id="the most negative size"),
        pytest.param(framed(b""), id="an empty frame"),
        pytest.param(framed(b"\0\x03\0"), id="a frame without a whole header"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="HTTP"),
        pytest.param(bytes.fromhex("16030100fe010000fa0303") + bytes(range(200)), id="a TLS hello"),
        pytest.param(b"SSH-2.0-OpenSSH_9.9\r\n", id="SSH"),
        pytest.param(framed(struct.pack(">hhih", 4711, 0, 1, -1)), id="an API that does not exist"),
        pytest.param(framed(struct.pack(">hhih", ApiKey.VOTE, 0, 1, -1)), id="an API of controllers"),
        pytest.param(framed(struct.pack(">hhih", ApiKey.METADATA, 99, 1, -1)), id="a version that does not exist"),
        pytest.param(framed(struct.pack(">hhih", ApiKey.METADATA, -1, 1, -1)), id="a negative version"),
        pytest.param(framed(struct.pack(">hhih", ApiKey.PRODUCE, 2, 1, -1)), id="Produce before version 3"),
        pytest.param(framed(struct.pack(">hhih", ApiKey.METADATA, 0, 1, 500)), id="a client id behind the end"),
        pytest.param(framed(METADATA_HEADER + struct.pack(">i", 1_000_000_000)), id="an array of a billion"),
        pytest.param(framed(METADATA_HEADER + struct.pack(">i", -2)), id="an array of minus two"),
        pytest.param(framed(METADATA_HEADER + struct.pack(">ih", 1, 30_000) + b"x"), id="a string behind the end"),
        pytest.param(Random(7).randbytes(100_000), id="noise"),
    ],
)
def test_bytes_that_are_no_request_close_the_connection_and_log_one_warning(
    data: bytes, kafka_broker: Broker, canary: Canary, caplog: pytest.LogCaptureFixture
) -> None:
    with Wire(kafka_broker.port) as wire:
        wire.send(data)
        assert wire.is_closed()
    lines = [record for record in caplog.records if record.name == "pessoa.net"]
    assert [record.levelno for record in lines] == [logging.WARNING]


def test_requests_before_invalid_bytes_are_answered_before_the_connection_closes(
    kafka_broker: Broker, canary: Canary
) -> None:
    with Wire(kafka_broker.port) as wire:
        asked = b"".join(request_frame(ApiVersionsRequest(), 0, 1, None))
        wire.send(asked * 20 + framed(Random(8).randbytes(64)) + asked)
        for _ in range(20):
            assert wire.read(ApiVersionsResponse, 0, 1).error_code == 0
        assert wire.is_closed()


def test_hundreds_of_connections_with_half_sent_requests_do_not_block_other_clients(
    kafka_broker: Broker, canary: Canary
) -> None:
    rng = Random(9)
    whole = b"".join(request_frame(ApiVersionsRequest(), 0, 1, None))
    silent = [Wire(kafka_broker.port) for _ in range(CONNECTIONS)]
    try:
        cuts = [rng.randrange(len(whole)) for _ in silent]
        for wire, cut in zip(silent, cuts, strict=True):
            wire.send(whole[:cut])
        canary.check_round_trip()
        for wire, cut in zip(silent, cuts, strict=True):
            wire.send(whole[cut:])
            assert wire.read(ApiVersionsResponse, 0, 1).error_code == 0
    finally:
        for wire in silent:
            wire.close()


def test_connections_closed_during_a_fetch_request_leave_no_waiting_fetch(kafka_broker: Broker, canary: Canary) -> None:
    rng, topic = Random(10), create_topic(kafka_broker)
    waiting = fetch_request(topic, 0)
    waiting.max_wait_ms, waiting.min_bytes = 600_000, 1
    whole = b"".join(request_frame(waiting, FETCH_VERSION, 1, None))
    for _ in range(CONNECTIONS):
        with Wire(kafka_broker.port) as wire:
            wire.send(whole[: rng.choice((len(whole), len(whole) // 2))])

    def waiters() -> int:
        canary.check_round_trip()
        return kafka_broker.inspect(lambda broker: len(broker.services.replicas.by_name[topic][0].fetch_waiters))

    until(waiters, lambda number: number == 0, "that no fetch waits whose client is gone")


@needs_proc
def test_a_client_that_never_reads_its_fetch_responses_takes_a_bounded_amount_of_memory(
    kafka_broker: Broker, canary: Canary
) -> None:
    topic = create_topic(kafka_broker)
    with Wire(kafka_broker.port) as wire:
        assert produce(wire, topic, plain(timestamp=now_ms(), size=MIB)).error_code == 0
    asked = b"".join(request_frame(fetch_request(topic, 0, max_bytes=2 * MIB), FETCH_VERSION, 1, None))
    before = resident_bytes()
    with Wire(kafka_broker.port, receive_buffer_bytes=4096) as greedy:
        # A gibibyte of answers.
        greedy.send_what_fits(asked * 1024, timeout_s=1.0)
        for _ in range(20):
            canary.check_round_trip()
        assert resident_bytes() - before < 64 * MIB


@needs_proc
def test_a_connection_whose_fetch_waits_is_not_read_without_limit(kafka_broker: Broker, canary: Canary) -> None:
    topic = create_topic(kafka_broker)
    waiting = fetch_request(topic, 0)
    waiting.max_wait_ms, waiting.min_bytes = 600_000, 1
    more = b"".join(request_frame(ApiVersionsRequest(), 0, 2, "x" * 1000))
    before = resident_bytes()
    with Wire(kafka_broker.port) as wire:
        wire.write(waiting, FETCH_VERSION)
        assert not wire.send_what_fits(more * (64 * MIB // len(more)), timeout_s=1.0)
        canary.check_round_trip()
        assert resident_bytes() - before < 100 * MIB  # the 64 MiB that we hold ourselves are among them


# Records.


def batch_around(payload: bytes, codec: int = 0, count: int = 1, attributes: int = 0) -> bytes:
    """Return a batch with a valid header whose records are these bytes."""
    batch = bytearray(plain(timestamp=now_ms())[:HEADER_SIZE]) + payload
    struct.pack_into(">i", batch, 8, len(batch) - LOG_OVERHEAD)
    struct.pack_into(">h", batch, ATTRIBUTES_POSITION, codec | attributes)
    struct.pack_into(">i", batch, ATTRIBUTES_POSITION + 2, count - 1)
    struct.pack_into(">i", batch, HEADER_SIZE - 4, count)
    struct.pack_into(">I", batch, CRC_POSITION, checksum.crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return bytes(batch)


def gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return (packer.compress(bytes(8 * MIB)) + packer.flush()) * 40


def lz4_bomb() -> bytes:
    block = bytes(cramjam.lz4.compress_block(bytes(64 * 1024), store_size=False))
    header = struct.pack("<I", 0x184D2204) + b"\x60\x40\x82"
    return header + (struct.pack("<I", len(block)) + block) * 3_000 + bytes(4)


def snappy_bomb() -> bytes:
    """Return a raw snappy block whose header announces four gigabytes."""
    return b"\xff\xff\xff\xff\x0f" + bytes(cramjam.snappy.compress_raw(bytes(1000)))[2:]


def zstd_bomb() -> bytes:
    return bytes(cramjam.zstd.compress(bytes(8 * MIB))) * 40


@needs_proc
@pytest.mark.parametrize(
    ("codec", "bomb"),
    [
        (Codec.GZIP, gzip_bomb),
        (Codec.SNAPPY, snappy_bomb),
        (Codec.LZ4, lz4_bomb),
        (Codec.ZSTD, zstd_bomb),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, Codec) else "",
)
def test_a_compacted_topic_refuses_a_decompression_bomb(
    codec: Codec, bomb: Any, kafka_broker: Broker, canary: Canary
) -> None:
    topic = create_topic(kafka_broker, 1, {"cleanup.policy": "compact"})
    before = resident_bytes()
    with Wire(kafka_broker.port) as wire:
        answer = produce(wire, topic, batch_around(bomb(), codec))
        assert answer.error_code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD), answer
        assert fetch(wire, topic, 0).high_watermark == 0
    assert resident_bytes() - before < 300 * MIB


def keyed() -> bytearray:
    return build_batch([Record(0, now_ms(), b"key", b"value")])


def broken(position: int, bits: int = 0x01) -> bytes:
    batch = keyed()
    batch[position] ^= bits
    return bytes(batch)


def varint(number: int) -> bytes:
    number, out = (number << 1) ^ (number >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize(
    ("make", "error"),
    [
        pytest.param(lambda: broken(HEADER_SIZE + 3), ErrorCode.CORRUPT_MESSAGE, id="a flipped bit in a record"),
        pytest.param(lambda: broken(CRC_POSITION), ErrorCode.CORRUPT_MESSAGE, id="a flipped bit in the CRC"),
        pytest.param(lambda: bytes(keyed()[:-1]), ErrorCode.INVALID_RECORD, id="a batch without its last byte"),
        pytest.param(lambda: b"", ErrorCode.INVALID_RECORD, id="no batch"),
        pytest.param(lambda: bytes(keyed()) * 2, ErrorCode.INVALID_RECORD, id="two batches"),
        pytest.param(lambda: broken(MAGIC_POSITION, 0x03), ErrorCode.INVALID_RECORD, id="an old magic"),
        pytest.param(lambda: batch_around(b"", 6), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="an unknown codec"),
        pytest.param(
            lambda: batch_around(b"", attributes=0x20), ErrorCode.INVALID_RECORD, id="a control batch of a client"
        ),
        pytest.param(
            lambda: bytes(commit(1, timestamp=NOW_MS)),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            id="a transaction marker of a client",
        ),
        pytest.param(lambda: batch_around(b"", count=0), ErrorCode.INVALID_RECORD, id="a batch without records"),
        pytest.param(
            lambda: batch_around(b"", count=-5), ErrorCode.INVALID_RECORD, id="a batch with less than no records"
        ),
    ],
)
def test_an_invalid_batch_is_refused_and_the_log_stays_empty(
    policy: str, make: Any, error: ErrorCode, kafka_broker: Broker, canary: Canary
) -> None:
    topic = create_topic(kafka_broker, 1, {"cleanup.policy": policy})
    with Wire(kafka_broker.port) as wire:
        assert produce(wire, topic, make()).error_code == error
        assert fetch(wire, topic, 0).high_watermark == 0


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(varint(-1), id="a record of minus one byte"),
        pytest.param(varint(1 << 40), id="a record of a terabyte"),
        pytest.param(varint(5) + b"\0" + varint(0) * 2 + varint(-7) + b"\0", id="a key of minus seven bytes"),
        pytest.param(varint(6) + b"\0" + varint(0) * 2 + varint(0) + varint(-9) + b"\0", id="a value of minus nine"),
        pytest.param(
            varint(7) + b"\0" + varint(0) * 2 + varint(0) + varint(-1) + varint(-3) + b"\0", id="minus three headers"
        ),
        pytest.param(
            varint(9) + b"\0" + varint(0) * 2 + varint(0) + varint(-1) + varint(1 << 20) + b"\0", id="a million headers"
        ),
        pytest.param(b"\xff" * 12, id="a varint without end"),
        pytest.param(b"", id="nothing where a record was promised"),
    ],
)
def test_a_compacted_topic_refuses_a_record_with_impossible_lengths(
    record: bytes, kafka_broker: Broker, canary: Canary
) -> None:
    topic = create_topic(kafka_broker, 1, {"cleanup.policy": "compact"})
    with Wire(kafka_broker.port) as wire:
        assert produce(wire, topic, batch_around(record)).error_code == ErrorCode.INVALID_RECORD
        assert fetch(wire, topic, 0).high_watermark == 0


@pytest.mark.parametrize("replica_id", [1, 2, -2, 0, 1 << 30])
def test_a_client_that_fetches_with_a_replica_id_does_not_move_the_high_watermark(
    replica_id: int, kafka_broker: Broker, canary: Canary
) -> None:
    topic = create_topic(kafka_broker)
    with Wire(kafka_broker.port) as wire:
        for expected in range(3):
            assert produce(wire, topic, plain(timestamp=now_ms())).base_offset == expected
        for offset in (0, 3, 1000, 1 << 60):
            answer = fetch(wire, topic, offset, replica_id=replica_id)
            # No other broker is a replica of this partition, and the leader does not follow itself.
            refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER if replica_id >= 0 else ErrorCode.OFFSET_OUT_OF_RANGE
            assert answer.error_code == (ErrorCode.NONE if replica_id < 0 and offset <= 3 else refusal)
        assert fetch(wire, topic, 0).high_watermark == 3


# Every API in every version.

# Long enough for a response, and short enough to wait for one that does not come: these APIs wait for other requests.
WAITING = {ApiKey.FETCH: 0.3, ApiKey.JOIN_GROUP: 0.3, ApiKey.SYNC_GROUP: 0.3}
MESSAGES_PER_VERSION = 6
CONVERSATION_LENGTH = 1_500


def find_coordinator(wire: Wire, kind: int, key: str) -> None:
    def error() -> int:
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        return int(wire.ask(request, FindCoordinatorResponse, 4).coordinators[0].error_code)

    until(error, lambda code: code == 0, f"a coordinator for {key}")


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Broker]:
    with Broker() as broker:
        with Wire(broker.port) as wire:
            for kind, key in enumerate(("group", "transaction")):
                find_coordinator(wire, kind, key)
        yield broker


def vocabulary(broker: Broker) -> Vocabulary:
    names = [create_topic(broker, 2, stem="victim"), create_topic(broker, 2, {"cleanup.policy": "compact"})]
    ids = broker.inspect(lambda inside: [inside.services.image.topics.by_name[name].id for name in names])
    return Vocabulary(dict(zip(names, ids, strict=True)), ["group", "other-group"], ["transaction", "other"])


def attack(broker: Broker, row: ApiRow[Any], version: int, request: Any, words: Vocabulary) -> None:
    if row.key is ApiKey.UNREGISTER_BROKER and request.broker_id == 1:
        return  # the broker would unregister itself
    with Wire(broker.port, WAITING.get(row.key, 60.0)) as wire:
        correlation_id = wire.write(request, version)
        if isinstance(request, ProduceRequest) and request.acks == 0:
            return  # is not answered
        try:
            words.learn(wire.read(row.key.response, version, correlation_id))
        except TimeoutError:
            assert row.key in WAITING, f"no answer to version {version} of {request}"
        except Closed:
            pytest.fail(f"the connection was closed for version {version} of {request}")


TALK = {
    ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_DELETE, ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE, ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.WRITE_TXN_MARKERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS,
}  # fmt: skip


@pytest.mark.parametrize("row", broker_rows(), ids=lambda row: row.key.title)
def test_every_version_of_an_api_answers_any_body_that_keeps_to_its_schema(row: ApiRow[Any], fuzzed: Broker) -> None:
    rng, words = Random(int(row.key)), vocabulary(fuzzed)
    with Canary(fuzzed.port, create_topic(fuzzed, stem="canary")) as bird:
        for version in row.versions.each():
            for number in range(MESSAGES_PER_VERSION):
                if number % 3 == 2:
                    request = random_message(row.key.request, version, rng, unknown_tags=True)
                else:
                    request = hostile_message(row.key.request, version, rng, words)
                attack(fuzzed, row, version, request, words)
        bird.check_round_trip()


@pytest.mark.parametrize("seed", range(3))
def test_groups_and_transactions_survive_a_long_session_of_random_requests(seed: int, fuzzed: Broker) -> None:
    rng, words = Random(seed), vocabulary(fuzzed)
    rows = [row for row in broker_rows() if row.key in TALK]
    with Canary(fuzzed.port, create_topic(fuzzed, stem="canary")) as bird:
        for _ in range(CONVERSATION_LENGTH):
            row = rng.choice(rows)
            version = rng.choice(row.versions.each())
            attack(fuzzed, row, version, hostile_message(row.key.request, version, rng, words), words)
        bird.check_round_trip()
    fuzzed.restart()  # raises exceptions from inside the broker, and reads all that was written


@pytest.mark.parametrize("version", [10, 11])
def test_metadata_by_topic_id_is_refused_in_the_versions_that_have_the_field_without_supporting_it(
    version: int, kafka_broker: Broker, canary: Canary
) -> None:
    topics = [MetadataRequestTopic(name=None), MetadataRequestTopic(name="named")]
    with Wire(kafka_broker.port) as wire:
        answer = wire.ask(MetadataRequest(topics=topics), MetadataResponse, version)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("", ErrorCode.INVALID_REQUEST),
        ("named", ErrorCode.INVALID_REQUEST),
    ]


def test_an_offset_commit_with_the_largest_retention_time_is_accepted(fuzzed: Broker) -> None:
    topic = create_topic(fuzzed)
    committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    request = OffsetCommitRequest(
        group_id="patient",
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time_ms=MAX_INT64,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])],
    )
    with Wire(fuzzed.port) as wire:

        def error() -> int:
            return int(wire.ask(request, OffsetCommitResponse, 4).topics[0].partitions[0].error_code)

        loading = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert until(error, lambda code: code not in loading, "a coordinator that has loaded") == ErrorCode.NONE


def test_a_quorum_is_described_in_every_version(fuzzed: Broker) -> None:
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    with Wire(fuzzed.port) as wire:
        for version, node_count in ((0, 0), (1, 0), (2, 1)):
            answer = wire.ask(request, DescribeQuorumResponse, version)
            assert answer.topics[0].partitions[0].leader_id == 1
            assert len(answer.nodes) == node_count
