"""Batches whose header has another max timestamp than their records: everything that reads the field.

They are appended with `append_as_leader`, as from a producer: librdkafka sends max timestamp 0 for records without
timestamps, and some clients do not set the field. Each reader must behave as if the header were correct. Apache Kafka
is compared in tests/differential/test_produced_headers_against_apache.py.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pessoa.base.clock import ManualClock
from pessoa.base.ids import Uuid
from pessoa.log.compaction.log_to_clean import assess
from pessoa.log.directory import LogDirectory
from pessoa.log.flusher import Flusher
from pessoa.log.log_config import COMPACT
from pessoa.log.producer_state import ProducerRefused
from pessoa.log.retention import expired_segments
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.log.upkeep import Upkeep
from pessoa.records.batch import RecordBatch, batches
from pessoa.records.builder import build_batch
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import Record
from pessoa.records.stamping import stamp_max_timestamp
from pessoa.wire.errors import ErrorCode
from tests.support.batches import NOW_MS, idempotent, plain
from tests.support.cleaning import clean
from tests.support.partition_logs import EVERY_BATCH, Home, base_offsets, fill, produce, read_bytes, read_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.log.partition_log import PartitionLog

HOUR_MS = 3_600_000
SMALL = EVERY_BATCH.but(segment_bytes=1000, retention_ms=HOUR_MS)
# Three ways not to say that there is none, and two to be wrong about a time that is there.
CLAIMS = [0, 1, -7, NOW_MS - 40 * HOUR_MS, NOW_MS + 40 * HOUR_MS]


def claiming(max_timestamp: int, *times: int, size: int | None = None) -> memoryview:
    """Return a batch of records with these timestamps, and a header with another max timestamp."""
    data = plain(len(times), timestamps=times, size=size)
    stamp_max_timestamp(RecordBatch(data), max_timestamp)
    assert RecordBatch(data).is_valid()
    return data


def without_times(size: int | None = None) -> memoryview:
    """Return a batch as librdkafka sends it after `produce(timestamp=-1)`."""
    return claiming(0, -1, -1, size=size)


def headers(log: PartitionLog) -> list[tuple[int, int]]:
    return [(batch.base_timestamp, batch.max_timestamp) for batch in batches(read_bytes(log))]


@pytest.mark.parametrize("claim", CLAIMS)
@pytest.mark.parametrize("times", [(-1, -1), (NOW_MS, NOW_MS + 4, NOW_MS + 2), (-1, NOW_MS), (0, 0)])
def test_a_batch_with_a_wrong_max_timestamp_is_stored_with_the_true_one(
    home: Home, claim: int, times: Sequence[int]
) -> None:
    log = home.open(SMALL)
    produce(log, claiming(claim, *times))
    expected = plain(len(times), timestamps=times, epoch=0)
    assert read_bytes(log) == bytes(expected)
    assert RecordBatch(expected).max_timestamp == max(times)


# Retention.


def test_records_without_timestamps_are_kept_by_a_retention_check_after_their_segment_was_rolled() -> None:
    async def scenario() -> None:
        clock = ManualClock(NOW_MS)
        disk = SimulatedDisk(now_ms=clock.now_ms)
        directory = LogDirectory(disk, "/data")
        directory.open(lambda _: SMALL, NOW_MS)
        log = directory.create("orders", 0, Uuid.of(7), SMALL, NOW_MS)
        upkeep = Upkeep(disk, [directory], clock, Flusher())
        for _ in range(7):
            produce(log, without_times(size=200))
        log.update_high_watermark(log.log_end_offset)
        assert base_offsets(log) == [0, 10]
        for _ in range(2):
            await upkeep.apply_retention()
            assert (log.log_start_offset, base_offsets(log)) == (0, [0, 10])
            clock.advance_ms(HOUR_MS // 2)
        clock.advance_ms(1)
        await upkeep.apply_retention()
        assert log.log_start_offset == 14, "after an hour they are as old as their files"

    asyncio.run(scenario())


@pytest.mark.parametrize("claim", [0, 1, NOW_MS - 40 * HOUR_MS])
def test_a_header_from_the_past_does_not_let_retention_delete_records_of_now(home: Home, claim: int) -> None:
    log = home.open(SMALL)
    produce(log, claiming(claim, NOW_MS, NOW_MS))
    log.update_high_watermark(log.log_end_offset)
    assert expired_segments(log, NOW_MS + HOUR_MS).segments == 0
    assert expired_segments(log, NOW_MS + HOUR_MS + 1).segments == 1


def test_a_header_from_the_future_does_not_keep_records_for_ever(home: Home) -> None:
    log = home.open(SMALL.but(message_timestamp_after_max_ms=(1 << 63) - 1))
    produce(log, claiming((1 << 63) - 1, NOW_MS, NOW_MS))
    log.update_high_watermark(log.log_end_offset)
    assert expired_segments(log, NOW_MS + HOUR_MS + 1).segments == 1


@pytest.mark.parametrize("retention_ms", [HOUR_MS // 100, HOUR_MS, 48 * HOUR_MS])
def test_a_header_with_any_timestamp_keeps_records_of_now_for_half_their_retention(
    home: Home, retention_ms: int
) -> None:
    config = SMALL.but(retention_ms=retention_ms)
    for claim in range(NOW_MS - 2 * HOUR_MS, NOW_MS, HOUR_MS // 9):
        log = home.open(config)
        produce(log, claiming(claim, NOW_MS))
        log.update_high_watermark(log.log_end_offset)
        assert expired_segments(log, NOW_MS + retention_ms // 2).segments == 0, claim
        log.release()
        home.disk.remove_tree(home.directory)


def test_a_follower_keeps_records_without_timestamps_as_long_as_its_leader(home: Home) -> None:
    leader = home.open(SMALL)
    for _ in range(7):
        produce(leader, without_times(size=200))
    follower = Home(SimulatedDisk(now_ms=lambda: NOW_MS), "/data/orders-0").open(SMALL)
    follower.append_as_follower(read_bytes(leader), NOW_MS)
    follower.update_high_watermark(follower.log_end_offset)
    assert headers(follower) == [(-1, -1)] * 7
    assert expired_segments(follower, NOW_MS + HOUR_MS).segments == 0


# Rolling by time.


def test_a_segment_that_begins_without_timestamps_ages_by_the_wall_clock(home: Home) -> None:
    log = home.open(SMALL.but(segment_ms=1000))
    produce(log, without_times())
    # By its header it would be of 1970, and 53 years old for the next batch.
    produce(log, plain(timestamp=NOW_MS + 900), now_ms=NOW_MS + 1000)
    assert base_offsets(log) == [0]
    produce(log, plain(timestamp=NOW_MS + 1001), now_ms=NOW_MS + 1001)
    assert base_offsets(log) == [0, 3]


def test_a_header_that_claims_the_future_does_not_roll_a_segment(home: Home) -> None:
    log = home.open(SMALL.but(segment_ms=1000, message_timestamp_after_max_ms=(1 << 63) - 1))
    produce(log, plain(timestamp=NOW_MS))
    produce(log, claiming(NOW_MS + 40 * HOUR_MS, NOW_MS + 1))
    assert base_offsets(log) == [0]


# The time index and look-ups.


def test_the_time_index_knows_nothing_of_records_without_timestamps_and_recovery_makes_the_same(home: Home) -> None:
    log = home.open(SMALL)
    for _ in range(4):
        produce(log, without_times(size=200))
    produce(log, claiming(0, NOW_MS, size=200))
    produce(log, plain(size=100))
    entries = log.segments[0].time_index.entries()
    assert entries == [(NOW_MS, 8)]
    for reopen in (home.reopen_clean, home.reopen_after_crash):
        log = reopen(log)
        assert log.segments[0].time_index.entries() == entries
        assert (log.segments[0].max_timestamp, log.segments[0].offset_of_max_timestamp) == (NOW_MS, 8)


@pytest.mark.parametrize("claim", CLAIMS)
def test_records_are_found_by_their_own_times(home: Home, claim: int) -> None:
    log = home.open(SMALL)
    produce(log, without_times())
    produce(log, claiming(claim, NOW_MS, NOW_MS + 10))
    assert log.find_by_timestamp(0) == (NOW_MS, 2, 0)
    assert log.find_by_timestamp(NOW_MS + 1) == (NOW_MS + 10, 3, 0)
    assert log.find_by_timestamp(NOW_MS + 11) is None
    assert log.find_max_timestamp() == (NOW_MS + 10, 3, 0)


def test_a_trusted_header_that_is_too_high_does_not_hide_the_newest_record(home: Home) -> None:
    log = home.open(SMALL)
    produce(log, plain(timestamp=NOW_MS - 5))
    produce(log, claiming(NOW_MS + 60_000, NOW_MS, NOW_MS + 3))
    assert log.find_max_timestamp() == (NOW_MS + 3, 2, 0)
    assert log.find_by_timestamp(NOW_MS + 4) is None


def test_a_look_up_stops_at_a_batch_that_cannot_be_opened_and_passes_over_none_of_its_records(home: Home) -> None:
    log = home.open(SMALL)
    produce(log, plain(timestamp=NOW_MS - 5))
    hollow = plain(3, timestamp=NOW_MS)
    hollow[23:27] = (1).to_bytes(4, "big")  # the last offset delta
    hollow[57:61] = (2).to_bytes(4, "big")  # the count
    stamp_max_timestamp(RecordBatch(hollow), NOW_MS + 1)
    produce(log, hollow)
    assert log.find_max_timestamp() is None
    produce(log, plain(timestamp=NOW_MS + 5))
    assert log.find_by_timestamp(NOW_MS - 5) == (NOW_MS - 5, 0, 0)
    assert log.find_by_timestamp(NOW_MS + 1) == (NOW_MS + 1, 1, 0)
    assert log.find_by_timestamp(NOW_MS + 2) == (NOW_MS + 5, 3, 0)
    assert log.find_max_timestamp() == (NOW_MS + 5, 3, 0)


# Compaction.

COMPACTED = EVERY_BATCH.but(cleanup_policy=frozenset({COMPACT}), delete_retention_ms=HOUR_MS)


def keyed(claim: int, *times: int, value: bytes | None = b"v") -> memoryview:
    data = memoryview(build_batch([Record(number, at, b"k", value) for number, at in enumerate(times)]))
    stamp_max_timestamp(RecordBatch(data), claim)
    return data


def rolled(log: PartitionLog, *produced: memoryview) -> PartitionLog:
    for data in produced:
        produce(log, data)
    log.roll(NOW_MS)
    log.flush()
    log.update_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize("claim", [0, NOW_MS - 40 * HOUR_MS])
@pytest.mark.parametrize("time", [-1, NOW_MS])
def test_min_compaction_lag_goes_by_the_records(home: Home, claim: int, time: int) -> None:
    log = rolled(home.open(COMPACTED.but(min_compaction_lag_ms=HOUR_MS)), keyed(claim, time, time))
    home.disk.set_modified_ms(log.segments[0].file.path, NOW_MS)
    assert assess(log, None, NOW_MS + HOUR_MS - 1).cleanable_bytes == 0
    assert assess(log, None, NOW_MS + HOUR_MS).cleanable_bytes > 0


def test_max_compaction_lag_goes_by_the_records(home: Home) -> None:
    log = rolled(home.open(COMPACTED.but(max_compaction_lag_ms=HOUR_MS)), keyed(1, NOW_MS, NOW_MS))
    assert not assess(log, None, NOW_MS + HOUR_MS).is_overdue
    assert assess(log, None, NOW_MS + HOUR_MS + 1).is_overdue


def test_a_tombstone_without_a_timestamp_gets_its_delete_horizon_and_keeps_its_place(home: Home) -> None:
    log = rolled(home.open(COMPACTED), keyed(0, -1, -1), keyed(0, -1, value=None))
    clean(home.disk, log)
    (left,) = [one for one in batches(read_bytes(log)) if one.records_count]
    assert (left.base_offset, left.max_timestamp, left.is_valid()) == (2, -1, True)
    assert left.delete_horizon_ms is not None
    assert left.delete_horizon_ms > NOW_MS


# What else a producer could claim.


@pytest.mark.parametrize("count", [4, 1000, (1 << 31) - 1])
def test_a_count_that_the_bytes_cannot_hold_takes_no_offsets(home: Home, count: int) -> None:
    log = home.open(SMALL)
    data = plain(1)
    data[23:27] = (count - 1).to_bytes(4, "big")
    data[57:61] = count.to_bytes(4, "big")
    stamp_max_timestamp(RecordBatch(data), NOW_MS)
    with pytest.raises(InvalidBatch) as refusal:
        produce(log, data)
    assert refusal.value.error is ErrorCode.INVALID_RECORD
    assert (log.log_end_offset, read_offsets(log)) == (0, [])


def test_a_producer_epoch_below_minus_one_is_refused(home: Home) -> None:
    log = home.open(SMALL)
    with pytest.raises(ProducerRefused) as refusal:
        produce(log, idempotent(5, 0, producer_epoch=-5))
    assert refusal.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
    fill(log, 1)
    assert log.log_end_offset == 1
