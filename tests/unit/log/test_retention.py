"""Which segments retention deletes: tests of the rules, and then of the log to which they are applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pessoa.log.log_config import COMPACT, DELETE, UNLIMITED
from pessoa.log.retention import expired_segments
from tests.support.batches import NOW_MS, plain
from tests.support.partition_logs import EVERY_BATCH, base_offsets, fill, produce, read_offsets

if TYPE_CHECKING:
    from pessoa.log.partition_log import PartitionLog
    from tests.support.partition_logs import Home

HOUR_MS = 3_600_000
# Nothing goes unless a test says so.
KEEP = EVERY_BATCH.but(segment_bytes=1000, retention_ms=UNLIMITED, retention_bytes=UNLIMITED)


def hourly(home: Home, segments: int = 4) -> PartitionLog:
    """Return a log with segments of five batches, an hour apart; the last one ends now."""
    log = home.open(KEEP)
    for number in range(5 * segments):
        produce(log, plain(size=200, timestamp=NOW_MS - HOUR_MS * (segments - 1 - number // 5)))
    log.update_high_watermark(log.log_end_offset)
    assert base_offsets(log) == [5 * number for number in range(segments)]
    return log


def expired(log: PartitionLog, now_ms: int = NOW_MS) -> int:
    return expired_segments(log, now_ms).segments


def test_retention_without_limits_drops_nothing(home: Home) -> None:
    assert expired(hourly(home), NOW_MS + 10**12) == 0


@pytest.mark.parametrize(
    ("retention_ms", "count"),
    [(4 * HOUR_MS, 0), (3 * HOUR_MS, 0), (3 * HOUR_MS - 1, 1), (2 * HOUR_MS - 1, 2), (HOUR_MS - 1, 3), (0, 3)],
)
def test_retention_drops_a_segment_whose_newest_record_is_older_than_retention_ms(
    home: Home, retention_ms: int, count: int
) -> None:
    log = hourly(home)
    log.configure(KEEP.but(retention_ms=retention_ms))
    assert expired(log) == count


def test_retention_drops_the_active_segment_too_and_rolls_an_empty_one(home: Home) -> None:
    log = hourly(home)
    log.configure(KEEP.but(retention_ms=HOUR_MS))
    assert expired(log, NOW_MS + 2 * HOUR_MS) == 4
    log.drop_segments(4, NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    # What is left is empty, and an empty segment never goes.
    assert expired(log, NOW_MS + 10**12) == 0
    assert produce(log, plain()).base_offset == 20


def test_one_record_within_retention_ms_keeps_its_segment_and_all_later_segments(home: Home) -> None:
    log = home.open(KEEP.but(retention_ms=HOUR_MS))
    for number in range(15):
        produce(log, plain(size=200, timestamp=NOW_MS if number == 5 else NOW_MS - 5 * HOUR_MS))
    log.update_high_watermark(15)
    assert expired(log) == 1


def test_records_without_timestamps_are_as_old_as_their_file(home: Home) -> None:
    log = home.open(KEEP.but(retention_ms=HOUR_MS))
    for _ in range(7):
        produce(log, plain(size=200, timestamp=-1))
    log.update_high_watermark(7)
    home.disk.set_modified_ms(log.segments[0].file.path, NOW_MS - HOUR_MS)
    home.disk.set_modified_ms(log.segments[1].file.path, NOW_MS)
    assert (expired(log), expired(log, NOW_MS + 1)) == (0, 1)


@pytest.mark.parametrize(
    ("retention_bytes", "count"), [(4001, 0), (4000, 0), (3001, 0), (3000, 1), (2999, 1), (1000, 3), (1, 3), (0, 4)]
)
def test_retention_drops_segments_while_the_rest_has_at_least_retention_bytes(
    home: Home, retention_bytes: int, count: int
) -> None:
    log = hourly(home)
    log.configure(KEEP.but(retention_bytes=retention_bytes))
    assert expired(log) == count


def test_segments_below_the_log_start_are_deleted_under_every_policy(home: Home) -> None:
    log = hourly(home)
    log.configure(KEEP.but(cleanup_policy=frozenset({COMPACT}), retention_ms=0, retention_bytes=0))
    assert expired(log) == 0
    for log_start, count in ((4, 0), (5, 1), (9, 1), (14, 2), (15, 3), (19, 3)):
        log.delete_records_before(log_start)
        assert expired(log) == count


def test_the_active_segment_is_kept_although_all_its_records_were_deleted(home: Home) -> None:
    log = hourly(home)
    log.delete_records_before(20)
    assert expired(log) == 3
    log.drop_segments(3, NOW_MS)
    assert (base_offsets(log), log.log_start_offset, expired(log)) == ([15], 20, 0)


@pytest.mark.parametrize(("high_watermark", "count"), [(0, 0), (4, 0), (5, 1), (14, 2), (19, 3), (20, 4)])
def test_retention_keeps_segments_above_the_high_watermark(home: Home, high_watermark: int, count: int) -> None:
    log = hourly(home)
    log.configure(KEEP.but(retention_ms=0, retention_bytes=0))
    log.high_watermark = high_watermark
    assert expired(log, NOW_MS + HOUR_MS) == count


def test_topics_with_cleanup_policy_compact_and_delete_obey_retention_ms_and_retention_bytes(home: Home) -> None:
    log = hourly(home)
    log.configure(KEEP.but(cleanup_policy=frozenset({COMPACT, DELETE}), retention_ms=2 * HOUR_MS))
    assert expired(log) == 1
    log.configure(KEEP.but(cleanup_policy=frozenset({COMPACT, DELETE}), retention_ms=2 * HOUR_MS, retention_bytes=2000))
    assert expired(log) == 2
    assert expired_segments(log, NOW_MS).reason == "retention.bytes"


def test_records_that_retention_keeps_read_as_before(home: Home) -> None:
    log = hourly(home)
    log.configure(KEEP.but(retention_bytes=2000))
    log.drop_segments(expired(log), NOW_MS)
    assert read_offsets(log) == [(number, number) for number in range(10, 20)]
    fill(log, 1)
    assert read_offsets(home.reopen_after_crash(log))[0] == (10, 10)
