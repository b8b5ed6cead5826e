"""Batches whose headers do not agree with their records, produced to Apache Kafka and to us.

Every field of the header is wrong in some batch. Both sides get the same bytes over raw Produce requests; compared are
the error, the stored batch, byte for byte, and the responses of ListOffsets. `DEVIATIONS` names the batches that
we handle differently and the line of docs/DEVIATIONS.md with the reason. The batches of librdkafka for records without
timestamps come from librdkafka itself, and have to survive retention on both sides.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from pessoa.records import checksum
from pessoa.records.batch import HEADER, HEADER_SIZE, RecordBatch, batches
from pessoa.records.builder import build_batch, encode_records
from pessoa.records.compression import Codec, compress
from pessoa.records.record import Record, records
from pessoa.testing import Broker
from pessoa.wire.errors import ErrorCode
from tests.apache.broker import ApacheKafka, run_tool
from tests.differential.session_data import FETCH_BY_NAME, PRODUCE_BY_NAME, fetch, offsets, produce
from tests.differential.session_stage import Player
from tests.support.admin_script import create, topic
from tests.support.topics import DEADLINE_S, QUIET

pytestmark = pytest.mark.apache

DOCUMENT = Path(__file__).parents[2] / "docs" / "DEVIATIONS.md"
FIRST_SEGMENT = "00000000000000000000.log"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# Both sides see the same bytes within a minute, so that "now" is the same to them.
NOW_MS = int(time.time() * 1000)
INT64_MAX = (1 << 63) - 1
INT32_MAX = (1 << 31) - 1
_FIELDS = (
    *("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta", "base_timestamp"),
    *("max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count"),
)
DELETE_HORIZON, CONTROL, UNUSED_BITS = 0x40, 0x20, 0x7F80


def batch(times: list[int], codec: Codec = Codec.NONE, payload: bytes | None = None, **header: int) -> bytes:
    """Return a batch of records with these timestamps, other values in its header, and a valid CRC."""
    made = [Record(number, at, b"k%d" % number, b"v%d" % number) for number, at in enumerate(times)]
    data = bytearray(build_batch(made, codec=codec))
    if payload is not None:
        data[HEADER_SIZE:] = payload
    values = dict(zip(_FIELDS, HEADER.unpack_from(data), strict=True)) | header | {"length": len(data) - 12}
    HEADER.pack_into(data, 0, *values.values())
    data[17:21] = struct.pack(">I", checksum.crc32c(memoryview(data)[21:]))
    return bytes(data)


def payload(base: int, deltas: list[int], offset_deltas: list[int] | None = None) -> bytes:
    """Return encoded records whose timestamp deltas count from `base`."""
    places = offset_deltas or list(range(len(deltas)))
    made = [Record(place, base + delta, b"k", b"v") for place, delta in zip(places, deltas, strict=True)]
    return encode_records(made, 0, base)


RISING = [NOW_MS, NOW_MS + 1, NOW_MS + 2]
SAME = [NOW_MS, NOW_MS]
NONE = [-1, -1, -1]

MAX_TIMESTAMPS = {
    "none, as librdkafka sends it": batch(NONE, max_timestamp=0),
    **{f"none, {codec.name}": batch(NONE, codec, max_timestamp=0) for codec in Codec if codec},
    "none, and the header says so": batch(NONE),
    "none, and the header says now": batch(NONE, max_timestamp=NOW_MS),
    "max is not filled in": batch(RISING, max_timestamp=-1),
    "max is 0": batch(RISING, max_timestamp=0),
    **{f"max is 0, {codec.name}": batch(RISING, codec, max_timestamp=0) for codec in Codec if codec},
    "max is a month ago": batch(RISING, max_timestamp=NOW_MS - 30 * DAY_MS),
    "max is below the first": batch(RISING, max_timestamp=NOW_MS - 1),
    "max is the end of time": batch(RISING, max_timestamp=INT64_MAX),
    "max is the end of time, GZIP": batch(RISING, Codec.GZIP, max_timestamp=INT64_MAX),
    "max is before all time": batch(RISING, max_timestamp=-INT64_MAX - 1),
    "records are old, max is now": batch([NOW_MS - 30 * DAY_MS] * 2, max_timestamp=NOW_MS),
    "records are old, max is true": batch([NOW_MS - 30 * DAY_MS, NOW_MS - 29 * DAY_MS]),
    "records are of the future": batch([NOW_MS, NOW_MS + 5 * HOUR_MS]),
    "records are of 1970": batch([0, 0]),
    "records are from before 1970": batch([-5, -5]),
    "some have no timestamp": batch([-1, NOW_MS, -1], max_timestamp=NOW_MS),
    "some have no timestamp, max is 0": batch([-1, NOW_MS, -1], max_timestamp=0),
}
BASE_TIMESTAMPS = {
    "base is 0": batch(SAME, payload=payload(0, SAME), base_timestamp=0),
    "base is 0, and so is max": batch(SAME, payload=payload(0, SAME), base_timestamp=0, max_timestamp=0),
    "base is not the first": batch(SAME, payload=payload(NOW_MS - 10, [5, 10]), base_timestamp=NOW_MS - 10),
    "base is the end of time": batch(SAME, payload=payload(INT64_MAX, [0, -9]), base_timestamp=INT64_MAX),
    "delete horizon": batch(SAME, attributes=DELETE_HORIZON),
    "delete horizon, max is 0": batch(SAME, attributes=DELETE_HORIZON, max_timestamp=0),
}
COUNTS = {
    "more records than bytes": batch(RISING, count=100, last_offset_delta=99),
    "as many records as there are offsets": batch(RISING, count=INT32_MAX, last_offset_delta=INT32_MAX - 1),
    "the same, LZ4": batch(RISING, Codec.LZ4, count=INT32_MAX, last_offset_delta=INT32_MAX - 1),
    "too few, and max is 0": batch(RISING, max_timestamp=0, count=2, last_offset_delta=1),
    "too many, and max is 0": batch(RISING, max_timestamp=0, count=4, last_offset_delta=3),
    "count and last offset disagree": batch(RISING, count=3, last_offset_delta=4),
    "no records": batch(RISING, count=0, last_offset_delta=-1),
    "a negative count": batch(RISING, count=-1, last_offset_delta=2),
    "offset deltas with a gap": batch(SAME, payload=payload(NOW_MS, [0, 0], [0, 5])),
}
OTHERS = {
    "a base offset": batch(SAME, base_offset=7),
    "a leader epoch": batch(SAME, leader_epoch=99),
    "unused bits": batch(SAME, attributes=UNUSED_BITS),
    "unused bits, max is 0": batch(SAME, attributes=UNUSED_BITS, max_timestamp=0),
    "control": batch(SAME, attributes=CONTROL),
    "producer -2": batch(SAME, producer_id=-2, producer_epoch=3, base_sequence=4),
    "a sequence without a producer": batch(SAME, producer_epoch=3, base_sequence=4),
    "producer epoch -1": batch(SAME, producer_id=5, producer_epoch=-1, base_sequence=0),
    "producer epoch -5": batch(SAME, producer_id=5, producer_epoch=-5, base_sequence=0),
    "a sequence from the middle": batch(SAME, producer_id=5, producer_epoch=0, base_sequence=7),
    "the last sequence": batch(SAME, producer_id=5, producer_epoch=0, base_sequence=INT32_MAX),
    "no sequence": batch(SAME, producer_id=5, producer_epoch=0, base_sequence=-1),
}
# Wrong headers that we accept: timestamps within an hour of now, and fields that we do not check.
BELIEVED = {
    "max is the first": batch(RISING, max_timestamp=NOW_MS),
    "max is a minute ahead": batch(RISING, max_timestamp=NOW_MS + 60_000),
    "records are of the future, max is now": batch([NOW_MS, NOW_MS + 5 * HOUR_MS], max_timestamp=NOW_MS),
    "too few": batch(RISING, count=2, last_offset_delta=1),
    "too many": batch(RISING, count=4, last_offset_delta=3),
    "offset deltas with a gap, LZ4": batch(SAME, Codec.LZ4, compress(Codec.LZ4, payload(NOW_MS, [0, 0], [0, 5]))),
}
OPENED = "Produce: what is checked"
DEVIATIONS = dict.fromkeys(BELIEVED, OPENED) | {
    "zstd: offset deltas with a gap, LZ4": "Produce, where records are opened",
}
PLAIN = {**MAX_TIMESTAMPS, **BASE_TIMESTAMPS, **COUNTS, **OTHERS, **BELIEVED}

# Topic configurations that decide which parts of a batch are checked, with the batches to try for each.
CONFIGURED: dict[str, tuple[dict[str, str | None], dict[str, bytes]]] = {
    "LogAppendTime": (
        {"message.timestamp.type": "LogAppendTime"},
        {**MAX_TIMESTAMPS, "unused bits": OTHERS["unused bits"]},
    ),
    "compacted": (
        {"cleanup.policy": "compact"},
        MAX_TIMESTAMPS | {name: BELIEVED[name] for name in BELIEVED if not name.startswith("offset")},
    ),
    "unbounded future": ({"message.timestamp.after.max.ms": str(INT64_MAX)}, MAX_TIMESTAMPS),
    "bounded past": ({"message.timestamp.before.max.ms": str(HOUR_MS)}, MAX_TIMESTAMPS),
    # Apache fails on a negative timestamp when it compresses records again.
    "zstd": (
        {"compression.type": "zstd"},
        {name: data for name, data in (MAX_TIMESTAMPS | BELIEVED).items() if name != "records are from before 1970"},
    ),
}
CASES: dict[str, tuple[dict[str, str | None], bytes]] = {name: ({}, data) for name, data in PLAIN.items()} | {
    f"{kind}: {name}": (config, data) for kind, (config, of_it) in CONFIGURED.items() for name, data in of_it.items()
}
TOPICS = {name: f"case-{number}" for number, name in enumerate(CASES)}

SETTINGS = {
    "log.retention.check.interval.ms": "200",
    # Apache's delay before the first retention check.
    "log.initial.task.delay.ms": "200",
    "offsets.topic.num.partitions": "1",
}


class Side(NamedTuple):
    player: Player
    servers: str
    data: Path


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    ours = tmp_path_factory.mktemp("ours")
    with ApacheKafka(properties=SETTINGS) as kafka, Broker(SETTINGS, directory=ours) as broker:
        both = [
            Side(Player({1: kafka.port}), kafka.bootstrap_servers, kafka.data_directory()),
            Side(Player({1: broker.port}), broker.bootstrap_servers, ours),
        ]
        for side in both:
            made = [
                topic(TOPICS[name], configs={"retention.ms": "-1", **config}) for name, (config, _) in CASES.items()
            ]
            side.player.look(create(*made))
            side.player.open()
        yield both
        for side in both:
            side.player.close()


def send(side: Side, name: str, data: bytes) -> tuple[str, int]:
    answer = side.player.look(produce(name, data), PRODUCE_BY_NAME)
    result = answer.responses[0].partition_responses[0]
    return ErrorCode.of(result.error_code).name, result.base_offset


def stored(side: Side, name: str) -> list[RecordBatch]:
    data = side.player.look(fetch(name, 0), FETCH_BY_NAME).responses[0].partitions[0].records
    return list(batches(bytes(data or b"")))


def looked_up(side: Side, name: str, timestamp: int) -> tuple[int, int, int]:
    found = side.player.look(offsets(name, (0, timestamp))).topics[0].partitions[0]
    return found.error_code, found.timestamp, found.offset


def outcome(side: Side, case: str) -> dict[str, Any]:
    """Return all that a client can see of a batch after it was sent."""
    config, data = CASES[case]
    name = TOPICS[case]
    error, base_offset = send(side, name, data)
    found: dict[str, Any] = {"answer": (error, base_offset)}
    is_append_time = "message.timestamp.type" in config
    for one in stored(side, name):
        # The time of the clock differs, and so do the compressed bytes of two implementations of a codec.
        if is_append_time or "compression.type" in config:
            fields = HEADER.unpack_from(one.view)
            found["stored"] = [fields[index] for index in (0, 2, 3, 5, 6, 7, *(() if is_append_time else (8,)), 9, 10)]
            found["valid"] = one.is_valid()
        else:
            found["stored"] = bytes(one.view).hex(" ")
    if not is_append_time:
        times = (-1, -2, -3, 0, NOW_MS - HOUR_MS, NOW_MS + 1, NOW_MS + 2, NOW_MS + 3 * HOUR_MS)
        found["offsets"] = {at: looked_up(side, name, at) for at in times}
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_batch_with_a_wrong_header_is_answered_stored_and_found_by_timestamp_as_on_apache(
    sides: list[Side], case: str
) -> None:
    apache, ours = (outcome(side, case) for side in sides)
    if case in DEVIATIONS:
        assert ours != apache, "this no longer differs"
        assert DEVIATIONS[case] in DOCUMENT.read_text(encoding="utf-8")
    else:
        assert ours == apache


def test_list_offsets_finds_the_max_timestamp_among_batches_without_timestamps_as_apache(sides: list[Side]) -> None:
    answers: list[list[list[tuple[int, int, int]]]] = []
    for side in sides:
        side.player.look(create(topic("some-without")))
        side.player.wait_until_applied()
        answers.append([])
        for times in ([-1, -1], [-1], [-5], [NOW_MS, NOW_MS + 3, NOW_MS + 3], [-1], [NOW_MS + 1]):
            assert send(side, "some-without", batch(times, max_timestamp=0))[0] == "NONE"
            asked = (-1, -2, -3, 0, NOW_MS + 1, NOW_MS + 4)
            answers[-1].append([looked_up(side, "some-without", at) for at in asked])
    apache, ours = answers
    assert ours == apache
    assert ours[0][2] == (0, -1, 0)
    assert ours[-1][2] == (0, NOW_MS + 3, 5)


def test_kafka_dump_log_prints_the_same_for_our_segments_as_for_apaches(sides: list[Side]) -> None:
    """Send the batches of the cases above that are missing, so that this test can also run on its own."""
    names = [TOPICS[name] for name in MAX_TIMESTAMPS]
    printed = []
    for side in sides:
        for case in MAX_TIMESTAMPS:
            if not stored(side, TOPICS[case]):
                send(side, TOPICS[case], CASES[case][1])
        # A refused batch leaves an empty file with Apache, and none with us.
        files = [side.data / f"{name}-0" / FIRST_SEGMENT for name in names if stored(side, name)]
        dump = run_tool("kafka-dump-log", "--deep-iteration", "--files", ",".join(map(str, files)), check=True)
        printed.append(dump.stdout.replace(str(side.data), "").splitlines())
    apache, ours = printed
    assert ours == apache
    assert any("CreateTime: -1" in line for line in ours)
    assert not any("isvalid: false" in line for line in ours)


# ---- retention ----


def produce_with_librdkafka(side: Side, name: str, timestamp: int) -> None:
    producer = Producer({"bootstrap.servers": side.servers, "acks": "all", **QUIET})
    for number in range(3):
        producer.produce(name, b"value %d" % number, timestamp=timestamp)
    assert producer.flush(DEADLINE_S) == 0


def segments_of(side: Side, name: str) -> list[str]:
    return sorted(path.name for path in (side.data / f"{name}-0").glob("*.log"))


def produce_until_it_rolls(side: Side, name: str, timestamp: int) -> None:
    def has_rolled() -> bool:
        produce_with_librdkafka(side, name, timestamp)
        return len(segments_of(side, name)) > 1

    side.player.wait_for(f"{name} rolls", has_rolled)


def wait_until_deleted(side: Side, name: str) -> None:
    """Wait until the log start offset equals the log end offset."""
    end = looked_up(side, name, -1)
    assert end[2] > 0
    side.player.wait_for(f"{name} is deleted", lambda: looked_up(side, name, -2) == end)


def test_records_that_librdkafka_sends_without_timestamps_survive_a_retention_check_as_on_apache(
    sides: list[Side],
) -> None:
    config: dict[str, str | None] = {"retention.ms": str(HOUR_MS), "segment.ms": "50", "file.delete.delay.ms": "0"}
    kept = []
    for side in sides:
        side.player.look(create(topic("without", configs=config), topic("old", configs=config)))
        side.player.wait_until_applied()
        produce_until_it_rolls(side, "without", -1)
        end = looked_up(side, "without", -1)
        # When the second batches are deleted, a retention check that began after the first has run.
        for _ in range(2):
            produce_with_librdkafka(side, "old", NOW_MS - 2 * HOUR_MS)
            wait_until_deleted(side, "old")
        assert looked_up(side, "without", -2) == (0, -1, 0)
        assert looked_up(side, "without", -1) == end
        found = stored(side, "without")
        assert {(one.base_timestamp, one.max_timestamp) for one in found} == {(-1, -1)}
        kept.append([(record.timestamp, record.value) for record in records(found[0])])
    apache, ours = kept
    assert ours == apache == [(-1, b"value %d" % number) for number in range(3)]
