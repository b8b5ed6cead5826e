"""Appending, as leader and as follower: offsets, stamps, refusals that change nothing, and rolling of segments."""

from __future__ import annotations

from errno import ENOSPC
from typing import TYPE_CHECKING

import pytest

from pessoa.log.files import DiskError
from pessoa.log.producer_state import ProducerRefused
from pessoa.log.simulated_disk import Crashed, SimulatedDisk
from pessoa.records.batch import RecordBatch, TimestampType, batches
from pessoa.records.compression import Codec
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import records
from pessoa.wire.errors import ErrorCode
from tests.support.batches import NOW_MS, abort, commit, idempotent, plain, transactional
from tests.support.partition_logs import (
    EVERY_BATCH,
    PRODUCE_VERSION,
    Home,
    base_offsets,
    fill,
    produce,
    read_bytes,
    read_offsets,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.partition_log import PartitionLog

HUGE = 2**31


def state(log: PartitionLog) -> tuple[object, ...]:
    """Return everything that an append may change."""
    return (
        log.log_end_offset,
        log.high_watermark,
        log.last_stable_offset,
        read_bytes(log),
        base_offsets(log),
        log.epochs.entries(),
        [repr(entry) for entry in log.producers.entries()],
    )


# As leader.


def test_batches_get_the_next_offsets_and_the_epoch_of_the_leader(home: Home) -> None:
    log = home.open()
    first = produce(log, plain(3), epoch=4)
    second = produce(log, plain(2), epoch=6)
    assert (first.base_offset, first.last_offset, first.log_append_time_ms, first.is_duplicate) == (0, 2, -1, False)
    assert (second.base_offset, second.last_offset) == (3, 4)
    stored = list(batches(read_bytes(log)))
    assert [(batch.base_offset, batch.last_offset, batch.partition_leader_epoch) for batch in stored] == [
        (0, 2, 4),
        (3, 4, 6),
    ]
    assert all(batch.is_valid() for batch in stored)
    assert log.epochs.entries() == [(4, 0), (6, 3)]
    assert log.log_end_offset == 5


def test_the_bytes_of_the_records_are_stored_as_they_came(home: Home) -> None:
    log = home.open()
    for codec in Codec:
        data = plain(5, codec=codec)
        sent = bytes(data)[21:]
        appended = produce(log, data)
        assert read_bytes(log, appended.base_offset)[21:] == sent


def test_bytes_behind_the_batch_are_not_stored(home: Home) -> None:
    log = home.open()
    batch = bytes(plain(2))
    produce(log, memoryview(bytearray(batch + batch[:30])))
    assert len(read_bytes(log)) == len(batch)


def test_log_append_time_replaces_the_timestamps_of_the_records(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    appended = produce(log, plain(2, timestamp=5), now_ms=NOW_MS + 77)
    assert appended.log_append_time_ms == NOW_MS + 77
    (batch,) = batches(read_bytes(log))
    assert batch.is_valid()
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in records(batch)] == [NOW_MS + 77] * 2


def test_a_repetition_of_one_of_the_last_five_batches_is_answered_with_its_offsets(home: Home) -> None:
    log = home.open()
    for number in range(6):
        produce(log, idempotent(9, 2 * number, 2, timestamp=NOW_MS + number))
    before = state(log)
    for number in range(1, 6):
        answer = produce(log, idempotent(9, 2 * number, 2, timestamp=NOW_MS + 500))
        assert answer == (2 * number, 2 * number + 1, NOW_MS + number, True)
    with pytest.raises(ProducerRefused) as refused:
        produce(log, idempotent(9, 0, 2))
    assert refused.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state(log) == before


def test_duplicates_are_recognised_after_a_restart(home: Home) -> None:
    log = home.open()
    produce(log, idempotent(9, 0, 3))
    log = home.reopen_clean(log)
    assert produce(log, idempotent(9, 0, 3)).is_duplicate
    log = home.reopen_after_crash(log)
    assert produce(log, idempotent(9, 0, 3)).is_duplicate
    assert produce(log, idempotent(9, 3)).base_offset == 3


def bad_crc() -> memoryview:
    data = plain()
    data[-1] ^= 1
    return data


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (bad_crc, ErrorCode.CORRUPT_MESSAGE),
        (lambda: plain(at=1), ErrorCode.INVALID_RECORD),
        (lambda: plain(size=1001), ErrorCode.MESSAGE_TOO_LARGE),
        (lambda: plain(timestamp=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
        (lambda: abort(9), ErrorCode.INVALID_RECORD),
        (lambda: idempotent(9, 7, producer_epoch=5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (lambda: idempotent(9, 3, producer_epoch=4), ErrorCode.INVALID_PRODUCER_EPOCH),
        (lambda: idempotent(9, 3, producer_epoch=6), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (lambda: transactional(9, 3, producer_epoch=5), ErrorCode.INVALID_TXN_STATE),
        (lambda: plain(size=900), ErrorCode.RECORD_LIST_TOO_LARGE),
    ],
)
def test_a_refused_batch_changes_nothing(home: Home, make: Callable[[], memoryview], error: ErrorCode) -> None:
    log = home.open(EVERY_BATCH.but(max_message_bytes=1000, segment_bytes=800))
    produce(log, idempotent(9, 0, 3, producer_epoch=5), epoch=1)
    before = state(log)
    with pytest.raises((InvalidBatch, ProducerRefused)) as refused:
        produce(log, make(), epoch=2)
    assert isinstance(refused.value, InvalidBatch | ProducerRefused)
    assert refused.value.error is error
    assert state(log) == before
    assert produce(log, idempotent(9, 3, producer_epoch=5), epoch=2).base_offset == 3


def test_a_transaction_is_unstable_until_its_marker_is_replicated(home: Home) -> None:
    log = home.open()
    produce(log, plain(2))
    guard = log.producers.start_verification(9, 0, 0, NOW_MS, supports_epoch_bump=False)
    log.append_as_leader(transactional(9, 0, 2), 0, NOW_MS, PRODUCE_VERSION, guard)
    produce(log, plain(2))
    log.update_high_watermark(6)
    assert log.last_stable_offset == 2
    log.append_own(commit(9), 0, NOW_MS)
    assert log.last_stable_offset == 2
    log.update_high_watermark(7)
    assert log.last_stable_offset == 7


def test_a_batch_that_the_broker_appends_itself_needs_no_sequence(home: Home) -> None:
    log = home.open()
    appended = log.append_own(plain(2), 3, NOW_MS)
    assert (appended.base_offset, appended.last_offset, log.epochs.latest_epoch) == (0, 1, 3)
    with pytest.raises(InvalidBatch) as refused:
        home.open(EVERY_BATCH.but(segment_bytes=50)).append_own(plain(2), 3, NOW_MS)
    assert refused.value.error is ErrorCode.RECORD_LIST_TOO_LARGE


def test_the_high_watermark_goes_forward_only_and_never_past_the_end(home: Home) -> None:
    log = home.open()
    fill(log, 5)
    log.high_watermark = 2
    assert log.update_high_watermark(4)
    assert not log.update_high_watermark(3)
    assert not log.update_high_watermark(4)
    assert log.update_high_watermark(50)
    assert log.high_watermark == 5


# As follower.


def test_a_follower_keeps_the_leaders_offsets_and_epochs_and_rebuilds_producers_and_aborted_transactions(
    home: Home,
) -> None:
    log = home.open()
    sent = b"".join(
        (
            plain(2, epoch=3),
            idempotent(9, 0, 2, at=2, epoch=3),
            transactional(8, 0, 2, at=4, epoch=5),
            abort(8, at=6, epoch=5),
        )
    )
    assert log.append_as_follower(sent, NOW_MS) == 4
    assert read_bytes(log) == sent
    assert log.epochs.entries() == [(3, 0), (5, 4)]
    assert len(list(log.producers.entries())) == 2
    assert [one[:3] for one in log.active.aborted_transactions()] == [(8, 4, 6)]


def test_a_follower_accepts_batches_with_offset_gaps(home: Home) -> None:
    log = home.open()
    log.append_as_follower(plain(2, at=10, epoch=0), NOW_MS)
    log.append_as_follower(b"".join((plain(2, at=15, epoch=0), plain(2, at=30, epoch=0))), NOW_MS)
    assert read_offsets(log) == [(10, 11), (15, 16), (30, 31)]
    assert log.log_end_offset == 32


@pytest.mark.parametrize("at", [0, 3, 4])
def test_a_follower_refuses_batches_whose_offsets_go_back(home: Home, at: int) -> None:
    log = home.open()
    log.append_as_follower(plain(5, epoch=0), NOW_MS)
    before = state(log)
    for sent in (bytes(plain(3, at=at, epoch=0)), b"".join((plain(2, at=5, epoch=0), plain(1, at=at, epoch=0)))):
        with pytest.raises(InvalidBatch):
            log.append_as_follower(sent, NOW_MS)
        assert state(log) == before


def test_a_follower_drops_an_incomplete_batch_at_the_end_of_a_fetch_response(home: Home) -> None:
    log = home.open()
    whole, cut = bytes(plain(2, epoch=0)), bytes(plain(2, at=2, epoch=0))
    for kept in (1, 16, 17, 60, len(cut) - 1):
        assert log.append_as_follower(whole + cut[:kept], NOW_MS) == 1
        assert read_bytes(log) == whole
        log.truncate_to(0, NOW_MS)
    assert log.append_as_follower(cut[:20], NOW_MS) == 0


def test_a_fetched_batch_with_a_wrong_crc_is_refused_and_so_are_those_before_it(home: Home) -> None:
    log = home.open()
    sent = bytearray(b"".join((plain(2, epoch=0), plain(2, at=2, epoch=0))))
    sent[-1] ^= 1
    with pytest.raises(InvalidBatch) as refused:
        log.append_as_follower(sent, NOW_MS)
    assert refused.value.error is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.size, log.epochs.entries()) == (0, 0, [])


def test_a_follower_stops_before_batches_with_a_leader_epoch_above_the_one_that_it_fetches_with(home: Home) -> None:
    log = home.open()
    sent = b"".join((plain(2, epoch=3), plain(2, at=2, epoch=5), plain(2, at=4, epoch=4)))
    assert log.append_as_follower(sent, NOW_MS, leader_epoch=4) == 1
    assert log.log_end_offset == 2


# Rolling.


def test_a_segment_ends_when_the_next_batch_would_not_fit(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(segment_bytes=1000))
    fill(log, 7, size=300)
    assert base_offsets(log) == [0, 3, 6]
    assert [segment.size for segment in log.segments] == [900, 900, 300]
    assert home.names(".snapshot") == ["00000000000000000003.snapshot", "00000000000000000006.snapshot"]


def test_a_batch_as_large_as_segment_bytes_gets_a_segment_of_its_own(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(segment_bytes=500))
    for size in (500, 100, 500):
        produce(log, plain(size=size))
    assert base_offsets(log) == [0, 1, 2]


def test_a_segment_is_rolled_by_the_timestamps_of_its_records(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(segment_ms=1000))
    for time in (0, 1000, 500, 1001, 1500):
        produce(log, plain(timestamp=NOW_MS + time), now_ms=NOW_MS)
    assert base_offsets(log) == [0, 3]


def test_a_segment_without_timestamps_is_rolled_by_the_wall_clock(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(segment_ms=1000))
    for time in (0, 1000, 1001, 1500, 2002):
        produce(log, plain(timestamp=-1), now_ms=NOW_MS + time)
    assert base_offsets(log) == [0, 2, 4]


def test_a_segment_ends_when_its_index_is_full(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(segment_index_bytes=48))
    fill(log, 15)
    # Six entries, and the first batch of a segment needs none.
    assert base_offsets(log) == [0, 7, 14]


def test_a_changed_configuration_holds_from_the_next_append_on(home: Home) -> None:
    log = home.open(EVERY_BATCH)
    fill(log, 3, size=300)
    log.configure(EVERY_BATCH.but(segment_bytes=1000, max_message_bytes=400))
    fill(log, 3, size=300)
    assert base_offsets(log) == [0, 3]
    with pytest.raises(InvalidBatch):
        produce(log, plain(size=401))


def test_an_append_whose_offsets_exceed_the_range_of_the_index_rolls_a_segment(home: Home) -> None:
    log = home.open()
    log.append_as_follower(plain(2, at=5, epoch=0), NOW_MS)
    log.append_as_follower(plain(2, at=HUGE - 2, epoch=0), NOW_MS)
    assert base_offsets(log) == [0]
    log.append_as_follower(plain(2, at=HUGE, epoch=0), NOW_MS)
    assert base_offsets(log) == [0, HUGE]
    log.append_as_follower(plain(2, at=3 * HUGE, epoch=0), NOW_MS)
    assert base_offsets(log) == [0, HUGE, 3 * HUGE]
    assert read_offsets(log) == [(5, 6), (HUGE - 2, HUGE - 1), (HUGE, HUGE + 1), (3 * HUGE, 3 * HUGE + 1)]
    log = home.reopen_after_crash(log)
    assert read_offsets(log)[-1] == (3 * HUGE, 3 * HUGE + 1)


def test_the_first_batch_of_an_empty_log_may_exceed_the_offset_range_of_its_segment(home: Home) -> None:
    log = home.open()
    log.append_as_follower(plain(2, at=2 * HUGE, epoch=0), NOW_MS)
    assert read_offsets(log, 2 * HUGE) == [(2 * HUGE, 2 * HUGE + 1)]
    log = home.reopen_after_crash(log)
    assert log.log_end_offset == 2 * HUGE + 2


def test_a_segment_that_a_follower_rolls_begins_at_its_log_end_and_not_behind_an_offset_gap(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(segment_bytes=300))
    for at in (0, 10, 20):
        log.append_as_follower(plain(at=at, epoch=0, size=200), NOW_MS)
    assert base_offsets(log) == [0, 1, 11]
    assert read_offsets(home.reopen_after_crash(log)) == [(0, 0), (10, 10), (20, 20)]


def test_rolling_an_empty_segment_does_nothing(home: Home) -> None:
    log = home.open()
    assert log.roll(NOW_MS) is log.active
    fill(log, 1)
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert base_offsets(log) == [0, 1]


# A disk that refuses.


def test_a_full_disk_leaves_nothing_half_appended_and_the_log_goes_on_when_there_is_room(
    shaky: Home, simulated: SimulatedDisk
) -> None:
    log = shaky.open()
    produce(log, idempotent(9, 0), epoch=1)
    before = state(log)
    for room in (0, 1, 30, len(plain()) - 1):
        simulated.fill(room)
        with pytest.raises(DiskError) as failure:
            produce(log, idempotent(9, 1), epoch=1)
        assert failure.value.errno == ENOSPC
        simulated.heal()
        assert state(log) == before
    assert produce(log, idempotent(9, 1), epoch=1).base_offset == 1
    assert read_offsets(shaky.reopen_after_crash(log)) == [(0, 0), (1, 1)]


def test_a_torn_append_is_truncated(shaky: Home, simulated: SimulatedDisk) -> None:
    log = shaky.open()
    fill(log, 2)
    for kept in (1, 40, 68):
        simulated.tear("*.log", keep=kept)
        with pytest.raises(DiskError):
            produce(log, plain())
    fill(log, 1)
    assert read_offsets(log) == [(0, 0), (1, 1), (2, 2)]


def test_a_batch_whose_append_crashed_is_in_the_log_whole_or_not_at_all() -> None:
    ends = set()
    for seed in range(30):
        disk = SimulatedDisk(seed)
        shaky = Home(disk, "/data/orders-0")
        log = shaky.open()
        fill(log, 2)
        disk.tear("*.log", crash=True)
        with pytest.raises(Crashed):
            produce(log, plain(2))
        disk.crash_process()
        log = shaky.reopen_after_crash(log)
        ends.add(log.log_end_offset)
        assert read_offsets(log) in ([(0, 0), (1, 1)], [(0, 0), (1, 1), (2, 3)])
        assert all(batch.is_valid() for batch in batches(read_bytes(log)))
    assert 2 in ends


def test_a_batch_whose_index_entry_cannot_be_written_stays_in_the_log_and_keeps_its_offsets(
    shaky: Home, simulated: SimulatedDisk
) -> None:
    log = shaky.open()
    log.append_as_follower(transactional(9, 0, epoch=0), NOW_MS)
    fill(log, 511)
    # The block of entries is full with the next batch.
    simulated.fail("write", "*.index")
    with pytest.raises(DiskError):
        produce(log, plain())
    assert log.log_end_offset == 513
    simulated.fail("write", "*.txnindex")
    with pytest.raises(DiskError):
        log.append_own(abort(9), 0, NOW_MS)
    assert log.log_end_offset == 514
    log = shaky.reopen_after_crash(log)
    assert read_offsets(log) == [(number, number) for number in range(514)]
    assert [one.producer_id for one in log.active.aborted_transactions()] == [9]


def test_a_roll_that_fails_can_be_tried_again(shaky: Home, simulated: SimulatedDisk) -> None:
    log = shaky.open(EVERY_BATCH.but(segment_bytes=300))
    produce(log, plain(size=200))
    for path in ("*.snapshot.tmp", "*1.log", "*1.index", "*1.timeindex"):
        simulated.fail("create", path)
        with pytest.raises(DiskError):
            produce(log, plain(size=200))
        simulated.heal()
        assert log.log_end_offset == 1
    produce(log, plain(size=200))
    assert read_offsets(log) == [(0, 0), (1, 1)]
    assert RecordBatch(read_bytes(log)).is_valid()


# The topic's own codec.


@pytest.mark.parametrize("sent", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("wanted", [codec for codec in Codec if codec is not Codec.NONE])
def test_a_topic_with_its_own_compression_type_stores_every_batch_in_it(home: Home, sent: Codec, wanted: Codec) -> None:
    log = home.open(EVERY_BATCH.but(compression_type=wanted.name.lower()))
    produce(log, plain(2))
    produce(log, plain(3, codec=sent))
    first, second = batches(read_bytes(log))
    assert first.codec is second.codec is wanted
    assert first.is_valid()
    assert second.is_valid()
    assert [(record.offset, record.value) for record in records(second)] == [(2, b"v0"), (3, b"v1"), (4, b"v2")]


def test_a_topic_with_compression_type_uncompressed_stores_batches_decompressed(home: Home) -> None:
    log = home.open(EVERY_BATCH.but(compression_type="uncompressed"))
    produce(log, plain(3, codec=Codec.ZSTD), epoch=0)
    assert read_bytes(log) == bytes(plain(3, epoch=0))


def test_a_batch_that_exceeds_max_message_bytes_when_decompressed_is_refused_and_the_log_stays_as_it_was(
    home: Home,
) -> None:
    log = home.open(EVERY_BATCH.but(compression_type="uncompressed", max_message_bytes=1_500))
    before = state(log)
    many = plain(200, codec=Codec.ZSTD)
    assert len(many) <= 1_500 < len(plain(200))
    with pytest.raises(InvalidBatch) as refusal:
        produce(log, many)
    assert refusal.value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert state(log) == before
