"""The producer state of a partition: which batches it accepts and what they change, in tables of cases."""

from __future__ import annotations

import struct

import pytest

from pessoa.log.producer_entry import BatchMetadata, ProducerStateEntry
from pessoa.log.producer_state import (
    AppendOrigin,
    CompletedTransaction,
    ProducerRefused,
    ProducerState,
    VerificationGuard,
)
from pessoa.records.batch import RecordBatch
from pessoa.records.builder import build_batch
from pessoa.records.control_records import ControlRecordType, build_transaction_marker
from pessoa.records.record import Record
from pessoa.wire.errors import ErrorCode

SEQUENCE_MAX = 2**31 - 1
DAY_MS = 24 * 60 * 60 * 1000
PRODUCER = 7
ABORT, COMMIT = ControlRecordType.ABORT, ControlRecordType.COMMIT


def data(
    sequence: int,
    count: int = 1,
    *,
    offset: int = 0,
    producer: int = PRODUCER,
    epoch: int = 0,
    timestamp: int = 1_000,
    transactional: bool = False,
) -> RecordBatch:
    return RecordBatch(
        build_batch(
            [Record(offset + i, timestamp, None, b"v") for i in range(count)],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def marker(
    kind: ControlRecordType = COMMIT,
    *,
    offset: int = 0,
    producer: int = PRODUCER,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = 2_000,
) -> RecordBatch:
    return RecordBatch(
        build_transaction_marker(
            kind,
            producer_id=producer,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=timestamp,
            base_offset=offset,
        )
    )


def state_after(*batches: RecordBatch) -> ProducerState:
    state = ProducerState(verification_enabled=False)
    for batch in batches:
        completed = state.update(batch)
        if completed is not None:
            state.complete(completed)
        state.end_offset = batch.next_offset
    return state


def first_unstable(state: ProducerState) -> int | None:
    return state.first_unstable_offset


def first_undecided(state: ProducerState) -> int | None:
    """Return the first offset of the oldest open transaction, also if it is above the high watermark."""
    open_since = (one.current_txn_first_offset for one in state.entries())
    return min((offset for offset in open_since if offset is not None), default=None)


def refusal(state: ProducerState, batch: RecordBatch, **arguments: object) -> ErrorCode | None:
    try:
        state.check(batch, **arguments)  # type: ignore[arg-type]
    except ProducerRefused as refused:
        return refused.error
    return None


# ---- idempotence ----


@pytest.mark.parametrize(
    ("first", "count", "epoch", "error"),
    [
        (3, 1, 5, None),
        (3, 9, 5, None),
        (4, 1, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (2, 1, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 1, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 4, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 1, 6, None),
        (0, 1, 9, None),
        (3, 1, 6, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (3, 1, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 1, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 3, 4, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_batch_is_accepted_or_refused_by_its_epoch_and_sequence_after_sequences_0_to_2_of_epoch_5(
    first: int, count: int, epoch: int, error: ErrorCode | None
) -> None:
    state = state_after(data(0, 3, epoch=5))
    assert refusal(state, data(first, count, epoch=epoch)) == error


def test_a_repetition_of_one_of_the_last_five_batches_is_answered_with_its_first_offsets() -> None:
    sent = [data(3 * i, 3, offset=10 * i, timestamp=100 + i) for i in range(6)]
    state = state_after(*sent)
    for i in range(1, 6):
        known = state.check(data(3 * i, 3))
        assert known == BatchMetadata(3 * i + 2, 10 * i + 2, 2, 100 + i)
        assert (known.first_sequence, known.first_offset) == (3 * i, 10 * i)
    assert refusal(state, data(0, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_covers_a_part_of_a_recent_batch_is_not_a_duplicate() -> None:
    state = state_after(data(0, 3))
    for first, count in ((0, 2), (1, 2), (0, 1), (2, 1)):
        assert refusal(state, data(first, count)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repetition_from_another_epoch_is_not_recognised() -> None:
    state = state_after(data(0, 3, epoch=1), data(0, 3, epoch=2, offset=3))
    assert state.check(data(0, 3, epoch=2)) == BatchMetadata(2, 5, 2, 1_000)
    assert refusal(state, data(0, 3, epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(
    ("last", "first"),
    [(SEQUENCE_MAX, 0), (SEQUENCE_MAX - 1, SEQUENCE_MAX), (0, 1)],
)
def test_sequence_0_follows_the_largest_sequence(last: int, first: int) -> None:
    state = state_after(data(last))
    assert refusal(state, data(first)) is None
    assert refusal(state, data((first + 1) % 2**31)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_whose_sequences_wrap_around_within_it_is_recognised_as_a_duplicate() -> None:
    state = state_after(data(SEQUENCE_MAX - 1, 4, offset=50))
    known = state.check(data(SEQUENCE_MAX - 1, 4))
    assert known is not None
    assert (known.first_sequence, known.last_sequence, known.first_offset) == (SEQUENCE_MAX - 1, 1, 50)
    assert refusal(state, data(2)) is None


def test_an_unknown_producer_may_start_anywhere() -> None:
    state = ProducerState()
    assert refusal(state, data(12_345, epoch=9)) is None


def test_batches_without_a_producer_id_leave_the_producer_state_empty() -> None:
    state = ProducerState()
    plain = RecordBatch(build_batch([Record(0, 1, None, b"v")]))
    assert state.check(plain) is None
    assert state.update(plain) is None
    assert len(list(state.entries())) == 0


def test_checking_a_batch_does_not_change_the_producer_state() -> None:
    state = state_after(data(0))
    before = repr(state), repr(state.entry(PRODUCER))
    state.check(data(1))
    state.check(data(0, epoch=1, transactional=True))
    state.check(data(0, producer=8))
    assert (repr(state), repr(state.entry(PRODUCER))) == before


def test_a_coordinators_batch_has_no_sequence_and_is_fenced_by_its_epoch_alone() -> None:
    state = state_after(data(-1, 2, epoch=3))
    entry = state.entry(PRODUCER)
    assert entry is not None
    assert (entry.last_sequence, entry.next_sequence) == (-1, 0)
    assert refusal(state, data(-1, epoch=3), origin=AppendOrigin.COORDINATOR) is None
    assert refusal(state, data(-1, epoch=4), origin=AppendOrigin.COORDINATOR) is None
    assert refusal(state, data(-1, epoch=2), origin=AppendOrigin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("batch", [data(9, epoch=5), data(0, epoch=4), data(0, epoch=6), data(3, epoch=5)])
def test_a_follower_accepts_every_batch_of_its_leader_and_updates_the_producers_epoch_and_sequence(
    batch: RecordBatch,
) -> None:
    state = state_after(data(0, 3, epoch=5))
    assert state.check(batch, AppendOrigin.REPLICATION) is None
    state.update(batch)
    entry = state.entry(PRODUCER)
    assert entry is not None
    assert (entry.epoch, entry.last_sequence) == (batch.producer_epoch, batch.last_sequence)


# ---- transactions ----


def test_a_transaction_is_unstable_from_its_first_batch_until_its_marker_is_replicated() -> None:
    state = state_after(data(0, 5, offset=0))
    assert first_unstable(state) is None
    state.update(data(5, 2, offset=5, transactional=True))
    state.update(data(7, 2, offset=7, transactional=True))
    assert first_unstable(state) == 5
    completed = state.update(marker(ABORT, offset=9))
    assert completed == CompletedTransaction(PRODUCER, 5, 9, is_aborted=True)
    assert first_unstable(state) == 5
    assert state.last_stable_offset(completed) == 10
    state.complete(completed)
    assert first_unstable(state) == 5
    assert first_undecided(state) is None
    state.on_high_watermark_updated(9)
    assert first_unstable(state) == 5
    state.on_high_watermark_updated(10)
    assert first_unstable(state) is None


def test_the_oldest_of_interleaved_transactions_holds_the_last_stable_offset() -> None:
    state = ProducerState()
    for producer, offset in ((1, 0), (2, 10), (3, 20)):
        state.update(data(0, 10, producer=producer, offset=offset, transactional=True))
    second = state.update(marker(COMMIT, producer=2, offset=30))
    assert second == CompletedTransaction(2, 10, 30, is_aborted=False)
    assert state.last_stable_offset(second) == 0
    state.complete(second)
    first = state.update(marker(ABORT, producer=1, offset=31))
    assert first is not None
    assert state.last_stable_offset(first) == 20
    state.complete(first)
    assert (first_unstable(state), first_undecided(state)) == (0, 20)
    # The marker of the second is replicated, and the first is older than it.
    state.on_high_watermark_updated(31)
    assert first_unstable(state) == 0
    state.on_high_watermark_updated(32)
    assert first_unstable(state) == 20


def test_a_marker_keeps_the_sequences_of_its_epoch() -> None:
    state = state_after(data(0, 3, transactional=True), marker(offset=3))
    assert refusal(state, data(3, transactional=True)) is None
    assert refusal(state, data(0, transactional=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_marker_that_raises_the_epoch_lets_the_sequences_start_again() -> None:
    state = state_after(data(0, 3, epoch=4, transactional=True), marker(epoch=5, offset=3))
    assert refusal(state, data(3, epoch=4, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(state, data(3, epoch=5, transactional=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, data(0, epoch=5, transactional=True)) is None


def test_a_marker_without_data_completes_nothing_and_still_fences() -> None:
    state = state_after()
    assert state.update(marker(epoch=3, coordinator_epoch=2)) is None
    assert first_unstable(state) is None
    assert refusal(state, data(0, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_transaction_marker_without_records_after_compaction_changes_no_state() -> None:
    state = state_after(data(0, transactional=True))
    empty = RecordBatch(
        build_batch(
            [], base_offset=1, last_offset=1, producer_id=PRODUCER, producer_epoch=0, transactional=True, control=True
        )
    )
    assert state.update(empty) is None
    assert first_unstable(state) == 0


def test_an_unknown_control_record_type_ends_no_transaction() -> None:
    state = state_after(data(0, transactional=True))
    record = Record(1, 2_000, struct.pack(">hh", 0, 77), b"")
    batch = build_batch([record], producer_id=PRODUCER, producer_epoch=0, transactional=True, control=True)
    assert state.update(RecordBatch(batch)) is None
    assert first_unstable(state) == 0


@pytest.mark.parametrize(
    ("version", "epoch", "coordinator_epoch", "is_open", "error"),
    [
        (0, 5, 3, True, None),
        (0, 6, 3, True, None),
        (0, 4, 3, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (0, 5, 2, True, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (0, 5, 4, True, None),
        (0, 5, 3, False, None),
        (1, 5, 3, True, None),
        (2, 6, 3, True, None),
        (2, 5, 3, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 4, 3, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 5, 3, False, None),
        (2, 4, 3, False, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 5, 2, False, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (2, 6, 2, True, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ],
)
def test_a_marker_is_accepted_or_refused_by_producer_epoch_and_coordinator_epoch(
    version: int, epoch: int, coordinator_epoch: int, is_open: bool, error: ErrorCode | None
) -> None:
    state = state_after(marker(epoch=5, coordinator_epoch=3), *([data(0, epoch=5, transactional=True)] * is_open))
    found = refusal(
        state,
        marker(epoch=epoch, coordinator_epoch=coordinator_epoch),
        origin=AppendOrigin.COORDINATOR,
        transaction_version=version,
    )
    assert found == error


def test_a_marker_with_the_largest_producer_epoch_is_accepted_although_the_epoch_cannot_be_raised() -> None:
    state = state_after(data(0, epoch=32767, transactional=True))
    ending = marker(epoch=32767, offset=1)
    assert refusal(state, ending, origin=AppendOrigin.COORDINATOR, transaction_version=2) is None


def test_a_batch_outside_the_open_transaction_of_its_producer_is_refused() -> None:
    state = state_after(data(0, transactional=True))
    assert refusal(state, data(1)) is ErrorCode.INVALID_TXN_STATE
    assert refusal(state, data(1, transactional=True)) is None


# ---- verification ----


def verify(state: ProducerState, sequence: int = 0, epoch: int = 0, *, bump: bool = False) -> VerificationGuard | None:
    return state.start_verification(PRODUCER, sequence, epoch, 1_000, supports_epoch_bump=bump)


def test_a_transaction_opens_only_with_the_verification_guard_of_its_producer() -> None:
    state = ProducerState()
    batch = data(0, transactional=True)
    assert refusal(state, batch) is ErrorCode.INVALID_TXN_STATE
    guard = verify(state)
    assert guard is not None
    assert refusal(state, batch) is ErrorCode.INVALID_TXN_STATE
    assert refusal(state, batch, guard=VerificationGuard()) is ErrorCode.INVALID_TXN_STATE
    assert refusal(state, batch, guard=guard) is None
    assert refusal(state, batch, guard=guard, origin=AppendOrigin.COORDINATOR) is None
    state.update(batch)
    assert state.verification(PRODUCER) is None
    assert verify(state, 1) is None
    assert refusal(state, data(1, transactional=True)) is None


def test_a_marker_between_verification_and_append_invalidates_the_guard() -> None:
    state = ProducerState()
    guard = verify(state)
    state.update(marker(ABORT))
    assert refusal(state, data(0, transactional=True), guard=guard) is ErrorCode.INVALID_TXN_STATE
    assert verify(state) is not guard


def test_the_marker_of_the_previous_transaction_does_not_invalidate_the_guard_of_the_next_epoch() -> None:
    state = ProducerState()
    guard = verify(state, epoch=6, bump=True)
    state.update(marker(COMMIT, epoch=6))
    assert refusal(state, data(0, epoch=6, transactional=True), guard=guard) is None
    state.update(marker(ABORT, epoch=7))
    assert state.verification(PRODUCER) is None


def test_batches_that_wait_for_one_verification_share_its_guard_and_are_appended_in_sequence_order() -> None:
    state = ProducerState()
    guard = verify(state, 4)
    assert verify(state, 2) is guard
    assert verify(state, 6) is guard
    assert refusal(state, data(4, transactional=True), guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, data(2, transactional=True), guard=guard) is None


def test_while_a_lower_sequence_waits_the_next_one_is_not_appended_even_outside_transactions() -> None:
    state = state_after(data(0, 3))
    state.verification_enabled = True
    verify(state, 1)
    assert refusal(state, data(3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(state, data(0, producer=8)) is None


def test_a_higher_producer_epoch_replaces_a_pending_verification_and_a_lower_one_does_not() -> None:
    state = ProducerState()
    verify(state, 4, epoch=1)
    verify(state, 9, epoch=2)
    verify(state, 0, epoch=1)
    verification = state.verification(PRODUCER)
    assert verification is not None
    assert (verification.epoch, verification.lowest_sequence) == (2, 9)


def test_a_producer_of_transaction_version_2_without_state_starts_at_0() -> None:
    state = ProducerState()
    guard = verify(state, 3, bump=True)
    assert refusal(state, data(3, transactional=True), guard=guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    guard = verify(state, 0, bump=True)
    assert refusal(state, data(0, transactional=True), guard=guard) is None


def test_a_batch_with_a_stale_producer_epoch_is_refused_before_the_coordinator_is_asked_to_verify() -> None:
    state = state_after(data(0, epoch=3))
    with pytest.raises(ProducerRefused) as refused:
        verify(state, epoch=2)
    assert refused.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert str(refused.value) == "INVALID_PRODUCER_EPOCH: epoch 2 of producer 7 is below the last one seen, 3"


def test_without_transaction_verification_a_transaction_opens_without_a_guard() -> None:
    state = ProducerState(verification_enabled=False)
    assert refusal(state, data(0, transactional=True)) is None


def test_without_transaction_verification_only_producers_of_transaction_version_2_are_verified() -> None:
    state = ProducerState(verification_enabled=False)
    assert state.start_verification(7, 0, 0, 1_000, supports_epoch_bump=False) is None
    assert state.start_verification(7, 0, 0, 1_000, supports_epoch_bump=True) is not None


def test_a_stale_producer_epoch_and_a_missing_verification_give_different_errors() -> None:
    state = state_after(data(0, epoch=3))
    state.verification_enabled = True
    assert refusal(state, data(0, epoch=2, transactional=True)) is ErrorCode.INVALID_PRODUCER_EPOCH


# ---- the map as a whole ----


def test_idle_producers_expire_unless_their_transaction_is_open() -> None:
    state = state_after(
        data(0, producer=1, timestamp=1_000),
        data(0, producer=2, timestamp=1_001, offset=1),
        data(0, producer=3, timestamp=1_000, offset=2, transactional=True),
    )
    state.start_verification(4, 0, 0, 1_000, supports_epoch_bump=True)
    state.start_verification(5, 0, 0, 1_001, supports_epoch_bump=True)
    assert state.remove_expired(1_000 + DAY_MS, DAY_MS) == 1
    assert [entry.producer_id for entry in state.entries()] == [2, 3]
    assert state.verification(4) is None
    assert state.verification(5) is not None


def test_an_expired_producer_may_start_anywhere_again() -> None:
    state = state_after(data(0))
    assert refusal(state, data(9)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.remove_expired(1_000 + DAY_MS, DAY_MS)
    assert refusal(state, data(9)) is None


def test_loading_producer_entries_restores_open_transactions_in_offset_order() -> None:
    entries = [
        ProducerStateEntry(1, 0, -1, 1_000, current_txn_first_offset=30),
        ProducerStateEntry(2, 0, -1, 1_000, current_txn_first_offset=20),
        ProducerStateEntry(3, 0, -1, 1_000),
    ]
    state = state_after(data(0, producer=9, transactional=True), marker(producer=9, offset=1))
    state.reload(entries, 40, now_ms=1_000 + DAY_MS, expiration_ms=DAY_MS)
    assert [entry.producer_id for entry in state.entries()] == [1, 2]
    assert (first_unstable(state), state.end_offset) == (20, 40)
    ended = state.update(marker(COMMIT, producer=2, offset=40))
    assert ended is not None
    assert state.last_stable_offset(ended) == 30
    state.complete(ended)
    state.on_high_watermark_updated(41)
    assert first_unstable(state) == 30


def test_moving_the_log_start_keeps_producers_and_drops_unreplicated_transactions_below_it() -> None:
    state = state_after(data(0, transactional=True), marker(offset=1))
    state.truncate_head(1)
    assert (first_unstable(state), state.end_offset) == (0, 2)
    state.truncate_head(50)
    assert first_unstable(state) is None
    assert state.end_offset == 50
    assert len(list(state.entries())) == 1


def test_clearing_the_producer_state_removes_all_producers_and_open_transactions() -> None:
    state = state_after(data(0, transactional=True))
    state.clear(100)
    assert state.is_empty
    assert (first_unstable(state), state.end_offset) == (None, 100)


def test_repr_of_producer_state_shows_producers_and_open_transactions() -> None:
    state = state_after(data(0, transactional=True))
    assert repr(state) == (
        "ProducerState(1 producers at offset 1, ongoing {0: 7}, unreplicated [], first unstable 0, 0 verifications)"
    )
