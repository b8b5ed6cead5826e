"""Reading: from any offset, up to every limit, across segments and gaps; look-ups by time; aborted transactions."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from pessoa.log import timestamp_search
from pessoa.log.partition_log import OffsetOutOfRange, ReadUpTo
from pessoa.records.batch import RecordBatch, TimestampType
from pessoa.records.builder import build_batch
from pessoa.records.compression import Codec
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import Record
from pessoa.records.record import records as records_of
from pessoa.records.stamping import stamp_max_timestamp
from pessoa.wire.errors import ErrorCode
from tests.support.batches import NOW_MS, abort, commit, offsets, plain, transactional
from tests.support.partition_logs import EVERY_BATCH, base_offsets, fill, produce, read_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pessoa.log.partition_log import PartitionLog
    from pessoa.log.simulated_disk import SimulatedDisk
    from tests.support.partition_logs import Home

SMALL = EVERY_BATCH.but(segment_bytes=1000)
EVERYTHING = 1 << 20


def follower(log: PartitionLog, *sent: memoryview) -> None:
    log.append_as_follower(b"".join(sent), NOW_MS)
    log.update_high_watermark(log.log_end_offset)


def fetched(log: PartitionLog, offset: int, max_bytes: int = EVERYTHING, up_to: ReadUpTo = ReadUpTo.LOG_END) -> bytes:
    data = log.read(offset, max_bytes, up_to).data
    return b"" if data is None else data.read()


# Where a read begins and ends.


@pytest.mark.parametrize("interval", [0, 700, 1 << 20])
def test_a_read_from_any_offset_begins_with_the_batch_that_holds_it(home: Home, interval: int) -> None:
    log = home.open(SMALL.but(index_interval_bytes=interval))
    fill(log, 20, records=3, size=200)
    assert len(log.segments) == 4
    for offset in range(60):
        first, last = offsets(fetched(log, offset))[0]
        assert (first, last) == (offset - offset % 3, offset - offset % 3 + 2)


def test_a_read_stays_within_one_segment_and_the_next_one_goes_on(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 12, size=200)
    assert offsets(fetched(log, 3)) == [(3, 3), (4, 4)]
    assert offsets(fetched(log, 5)) == [(number, number) for number in range(5, 10)]
    assert read_offsets(log) == [(number, number) for number in range(12)]


def test_a_read_from_an_offset_in_a_gap_begins_with_the_next_batch(home: Home) -> None:
    log = home.open(SMALL)
    follower(log, *(plain(2, at=at, epoch=0, size=400) for at in (10, 30, 50, 90)))
    assert base_offsets(log) == [0, 32]
    for offset, expected in ((0, 10), (10, 10), (12, 30), (29, 30), (32, 50), (49, 50), (52, 90), (91, 90)):
        assert offsets(fetched(log, offset))[0][0] == expected


def test_max_bytes_may_end_a_read_within_a_batch(home: Home) -> None:
    log = home.open()
    fill(log, 5, size=200)
    assert [len(fetched(log, 1, size)) for size in (0, 1, 199, 200, 201, 500, 5000)] == [
        200,
        200,
        200,
        200,
        201,
        500,
        800,
    ]
    partial = log.read(1, 150, ReadUpTo.LOG_END, at_least_one_batch=False).data
    assert partial is not None
    assert len(partial) == 150
    assert log.read(1, 0, ReadUpTo.LOG_END, at_least_one_batch=False).data is None


def test_reads_end_at_the_log_end_the_high_watermark_or_the_last_stable_offset(home: Home) -> None:
    log = home.open(SMALL)
    follower(log, plain(2, epoch=0), transactional(9, 0, 2, at=2, epoch=0), plain(2, at=4, epoch=0))
    log.append_as_follower(plain(2, at=6, epoch=0), NOW_MS)
    assert (log.last_stable_offset, log.high_watermark, log.log_end_offset) == (2, 6, 8)
    ends = {up_to: read_offsets(log, 0, up_to)[-1][1] for up_to in ReadUpTo}
    assert ends == {ReadUpTo.LOG_END: 7, ReadUpTo.HIGH_WATERMARK: 5, ReadUpTo.LAST_STABLE_OFFSET: 1}
    for up_to, bound in ((ReadUpTo.HIGH_WATERMARK, 6), (ReadUpTo.LAST_STABLE_OFFSET, 2), (ReadUpTo.LOG_END, 8)):
        assert log.read(bound, EVERYTHING, up_to) == (None, ())


def test_a_read_up_to_the_high_watermark_returns_only_whole_batches_below_it(home: Home) -> None:
    log = home.open(SMALL)
    for _ in range(12):
        produce(log, plain(2, size=200))
    for high_watermark in range(1, 25):
        log.high_watermark = high_watermark
        # A batch that is not below it as a whole is not there.
        expected = [(first, first + 1) for first in range(0, high_watermark - 1, 2)]
        assert read_offsets(log, 0, ReadUpTo.HIGH_WATERMARK) == expected


def test_a_read_sees_the_high_watermark_after_each_update_and_after_a_truncation(home: Home) -> None:
    log = home.open()
    for _ in range(6):
        produce(log, plain())
    for high_watermark in (2, 4):
        log.update_high_watermark(high_watermark)
        assert read_offsets(log, 0, ReadUpTo.HIGH_WATERMARK)[-1] == (high_watermark - 1, high_watermark - 1)
    log.truncate_to(3, NOW_MS)
    produce(log, plain(size=500))
    produce(log, plain())
    log.update_high_watermark(4)
    assert read_offsets(log, 0, ReadUpTo.HIGH_WATERMARK) == [(number, number) for number in range(4)]


@pytest.mark.parametrize("up_to", list(ReadUpTo))
def test_offsets_outside_the_log_are_out_of_range_and_the_end_is_not(home: Home, up_to: ReadUpTo) -> None:
    log = home.open()
    fill(log, 5)
    log.delete_records_before(2)
    assert log.read(5, EVERYTHING, up_to).data is None
    assert log.read(2, EVERYTHING, up_to).data is not None
    for offset in (-1, 0, 1, 6, 1 << 62):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, EVERYTHING, up_to)


def test_a_slice_stays_readable_when_its_segment_is_dropped_or_the_log_goes_on(home: Home) -> None:
    log = home.open(SMALL)
    fill(log, 12, size=200)
    log.on_segments_dropped = lambda _log, _segments: None
    first, last = log.read(0, EVERYTHING, ReadUpTo.LOG_END).data, log.read(11, EVERYTHING, ReadUpTo.LOG_END).data
    assert first is not None
    assert last is not None
    before = first.read(), last.read()
    log.drop_segments(1, NOW_MS)
    fill(log, 5, size=200)
    assert (first.read(), last.read()) == before


def test_a_read_reports_a_damaged_batch_in_the_middle_of_the_log_and_does_not_skip_it(
    shaky: Home, simulated: SimulatedDisk
) -> None:
    log = shaky.open(SMALL.but(index_interval_bytes=1 << 20))
    fill(log, 12, size=200)
    log = shaky.reopen_clean(log)
    simulated.flip_bit(shaky.path("00000000000000000000.log"), 2 * 200 + 16, 5)
    assert offsets(fetched(log, 1, 200)) == [(1, 1)]
    with pytest.raises(InvalidBatch) as refused:
        log.read(3, EVERYTHING, ReadUpTo.LOG_END)
    assert refused.value.error is ErrorCode.CORRUPT_MESSAGE
    assert offsets(fetched(log, 5))[0] == (5, 5)


# By time.


@pytest.mark.parametrize("interval", [0, 1 << 20])
def test_find_by_timestamp_of_a_log_finds_the_same_record_as_a_linear_search(home: Home, interval: int) -> None:
    rng = Random(3)
    log = home.open(SMALL.but(index_interval_bytes=interval))
    times: list[int] = []
    for _ in range(40):
        stamps = [rng.randrange(1000, 1200) for _ in range(3)]
        times += stamps
        produce(log, plain(timestamps=stamps, size=200), epoch=7)
    log.update_high_watermark(log.log_end_offset)
    for start in (0, 1, 55):
        log.delete_records_before(start)
        for wanted in range(995, 1205, 7):
            expected = next(((time, at, 7) for at, time in enumerate(times) if at >= start and time >= wanted), None)
            assert log.find_by_timestamp(wanted) == expected
    assert log.find_max_timestamp() == (max(times), times.index(max(times)), 7)


def test_times_are_found_after_a_restart_too(home: Home) -> None:
    log = home.open(SMALL)
    for number in range(12):
        produce(log, plain(timestamp=NOW_MS + number, size=200))
    for reopen in (home.reopen_clean, home.reopen_after_crash):
        log = reopen(log)
        for number in range(12):
            assert log.find_by_timestamp(NOW_MS + number) == (NOW_MS + number, number, 0)
        assert log.find_by_timestamp(NOW_MS + 12) is None
        assert log.find_max_timestamp() == (NOW_MS + 11, 11, 0)


def with_false_max_timestamp(count: int = 1, *, codec: Codec = Codec.NONE, padding: int = 0) -> memoryview:
    """Return a batch whose header has a max timestamp that none of its records has."""
    records = [Record(index, NOW_MS, None, bytes(padding)) for index in range(count)]
    batch = RecordBatch(memoryview(build_batch(records, codec=codec)))
    stamp_max_timestamp(batch, NOW_MS + 1_000)
    return batch.view


def test_a_search_by_timestamp_decompresses_few_batches_with_wrong_max_timestamps(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that writes a thousand of them must not hold up all others with one question."""
    opened: list[int] = []

    def count(batch: RecordBatch, limit: int) -> Iterator[Record]:
        opened.append(batch.base_offset)
        return records_of(batch, limit)

    monkeypatch.setattr(timestamp_search, "records", count)
    log = home.open()
    for _ in range(20):
        produce(log, with_false_max_timestamp())
    log.update_high_watermark(log.log_end_offset)
    most = timestamp_search._MOST_BATCHES
    assert log.find_by_timestamp(NOW_MS + 500) == (NOW_MS + 1_000, most, 0)
    assert opened == list(range(most))
    opened.clear()
    assert log.find_max_timestamp() is not None
    assert len(opened) <= most


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(lambda: with_false_max_timestamp(codec=Codec.ZSTD, padding=8 << 20), id="it unpacks to much"),
        pytest.param(lambda: with_false_max_timestamp(timestamp_search._MOST_RECORDS + 1), id="it has many records"),
    ],
)
def test_a_search_by_timestamp_trusts_the_header_of_a_batch_that_takes_long_to_decompress(
    home: Home, batch: Callable[[], memoryview]
) -> None:
    log = home.open()
    produce(log, plain(timestamp=NOW_MS))
    produce(log, batch())
    log.update_high_watermark(log.log_end_offset)
    assert log.find_by_timestamp(NOW_MS + 500) == log.find_max_timestamp() == (NOW_MS + 1_000, 1, 0)
    assert log.find_by_timestamp(NOW_MS) == (NOW_MS, 0, 0)


def test_under_log_append_time_every_record_has_the_time_of_its_append(home: Home) -> None:
    log = home.open(SMALL.but(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    for number in range(5):
        produce(log, plain(3, timestamp=17), now_ms=NOW_MS + 10 * number)
    assert log.find_by_timestamp(NOW_MS + 11) == (NOW_MS + 20, 6, 0)
    assert log.find_by_timestamp(0) == (NOW_MS, 0, 0)
    assert log.find_max_timestamp() == (NOW_MS + 40, 12, 0)


def test_the_max_timestamp_is_none_in_an_empty_log_and_minus_one_among_records_without_timestamps(home: Home) -> None:
    log = home.open()
    assert log.find_max_timestamp() is None
    assert log.find_by_timestamp(0) is None
    produce(log, plain(2, timestamp=-1))
    produce(log, plain(timestamp=-1))
    assert log.find_max_timestamp() == (-1, 0, 0)
    assert log.find_by_timestamp(0) is None


def test_find_max_timestamp_returns_the_first_of_several_records_with_the_max_timestamp(home: Home) -> None:
    log = home.open(SMALL)
    for times in ((5, 9), (9, 3), (2, 9)):
        produce(log, plain(timestamps=times, size=600))
    assert log.find_max_timestamp() == (9, 1, 0)


# Aborted transactions.


def busy_with_transactions(log: PartitionLog) -> None:
    """Append two aborted transactions and a committed one, in several segments of two batches each."""
    follower(
        log,
        transactional(1, 0, 1, at=0, epoch=0),
        transactional(2, 0, 1, at=1, epoch=0),
        transactional(3, 0, 1, at=2, epoch=0),
        commit(2, at=3, epoch=0),
        transactional(1, 1, 1, at=4, epoch=0),
        abort(3, at=5, epoch=0),
        plain(1, at=6, epoch=0),
        abort(1, at=7, epoch=0),
        plain(1, at=8, epoch=0),
    )


@pytest.mark.parametrize("restart", [False, True])
def test_a_read_committed_read_returns_the_aborted_transactions_that_overlap_it(home: Home, restart: bool) -> None:
    log = home.open(EVERY_BATCH.but(segment_bytes=160))
    busy_with_transactions(log)
    if restart:
        log = home.reopen_clean(log)
    assert len(log.segments) > 3
    told = {}
    for offset in range(9):
        found = log.read(offset, EVERYTHING, ReadUpTo.LAST_STABLE_OFFSET)
        assert found.data is not None
        told[offset] = {(one.producer_id, one.first_offset) for one in found.aborted}
        # Nothing that the slice holds of an aborted transaction may be missing.
        first, last = offset, offsets(found.data.read())[-1][1]
        needed = {(1, 0)} if first <= 7 else set()
        needed |= {(3, 2)} if first <= 5 and last >= 2 else set()
        assert needed <= told[offset]
    assert told[6] == told[7] == {(1, 0)}
    assert told[8] == set()
    assert log.read(0, EVERYTHING, ReadUpTo.HIGH_WATERMARK).aborted == ()


def test_aborted_and_open_transactions_are_rebuilt_after_a_crash(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(segment_bytes=160))
    busy_with_transactions(log)
    before = [segment.aborted_transactions() for segment in log.segments]
    log = home.reopen_after_crash(log)
    assert [segment.aborted_transactions() for segment in log.segments] == before
    assert log.last_stable_offset == 9


def test_the_last_stable_offset_is_never_below_the_log_start(home: Home) -> None:
    log = home.open()
    follower(log, transactional(9, 0, 3, epoch=0), plain(3, at=3, epoch=0))
    assert log.last_stable_offset == 0
    log.delete_records_before(4)
    assert log.last_stable_offset == 4
    follower(log, commit(9, at=6, epoch=0))
    assert log.last_stable_offset == 7
