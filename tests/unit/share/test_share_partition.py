"""Every rule of a share partition, one at a time."""

from __future__ import annotations

import pytest

from pessoa.share.acknowledgement import Acknowledgement, AcknowledgeType, Limits, check_form
from pessoa.share.acquisition import AcquireMode, AcquireRequest, FetchedBatch, isolation_threshold
from pessoa.share.share_partition import SharePartition, StateWrite
from pessoa.share.state_batches import DeliveryState, StateBatch
from pessoa.wire.errors import ErrorCode, Refusal

AVAILABLE, ACQUIRED = DeliveryState.AVAILABLE, DeliveryState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED
LIMITS = Limits(delivery_count=5, record_locks=100, lock_duration_ms=1_000)
TENS = [FetchedBatch(first, first + 9) for first in range(0, 1_000, 10)]


class Queue:
    """A share partition with a log of batches of ten records, and a share coordinator that the test controls."""

    def __init__(
        self, limits: Limits = LIMITS, start_offset: int = 0, stored: tuple[StateBatch, ...] = (), is_new: bool = False
    ) -> None:
        self.partition = SharePartition(start_offset, stored, limits, is_start_stored=not is_new)
        self.log = list(TENS)
        self.now_ms = 0

    def acquire(
        self, member: str = "a", count: int = 10, batch_size: int = 500, mode: int = 0, batches: int = 50
    ) -> list[tuple[int, int, int]]:
        offset = self.partition.next_fetch_offset()
        read = [batch for batch in self.log if batch.last_offset >= offset][:batches]
        request = AcquireRequest(member, count, batch_size, AcquireMode(mode))
        got = self.partition.acquire(request, read, self.now_ms)
        return [(one.first_offset, one.last_offset, one.delivery_count) for one in got]

    def acknowledge(self, first: int, last: int, *types: int, member: str = "a") -> int | None:
        return self.partition.acknowledge(member, [Acknowledgement(first, last, types)], self.now_ms)

    def refused(self, first: int, last: int, *types: int, member: str = "a") -> ErrorCode:
        with pytest.raises(Refusal) as caught:
            self.acknowledge(first, last, *types, member=member)
        return caught.value.code

    def write(self, error: ErrorCode = ErrorCode.NONE) -> StateWrite:
        write = self.partition.take_write()
        assert write is not None
        self.partition.finish_write(error, self.now_ms)
        return write

    def tick(self, by_ms: int) -> int:
        self.now_ms += by_ms
        return self.partition.tick(self.now_ms)

    def states(self) -> list[tuple[int, int, DeliveryState, int]]:
        return [
            (run.first_offset, run.last_offset, run.state, run.delivery_count) for run in self.partition.in_flight.runs
        ]

    @property
    def borders(self) -> tuple[int, int]:
        return self.partition.in_flight.start_offset, self.partition.in_flight.end_offset


# ── acquiring ──


def test_records_of_a_fetch_are_acquired_with_a_delivery_count_of_one() -> None:
    queue = Queue()
    assert queue.acquire() == [(0, 9, 1)]
    assert queue.states() == [(0, 9, ACQUIRED, 1)]
    assert queue.partition.next_fetch_offset() == 10


def test_a_part_of_a_batch_with_very_many_records_is_acquired_and_then_the_rest() -> None:
    queue = Queue()
    queue.log = [FetchedBatch(0, 14_999), FetchedBatch(15_000, 15_009)]
    assert queue.acquire(count=50_000) == [(0, 9_999, 1)]
    assert queue.acquire("b", count=50_000) == []
    queue.acknowledge(0, 9_999, AcknowledgeType.ACCEPT)
    queue.write()
    assert queue.acquire("b", count=50_000, batch_size=50_000) == [(10_000, 14_999, 1)]


def test_a_share_partition_ends_when_its_coordinator_has_no_state_to_write_to() -> None:
    queue = Queue()
    queue.acquire()
    queue.acknowledge(0, 9, AcknowledgeType.ACCEPT)
    queue.write(ErrorCode.INVALID_REQUEST)
    assert queue.partition.fenced_by is ErrorCode.INVALID_REQUEST
    assert queue.acquire("b") == []


def test_two_members_never_acquire_the_same_record() -> None:
    queue = Queue()
    assert queue.acquire("a") == [(0, 9, 1)]
    assert queue.acquire("b") == [(10, 19, 1)]


def test_in_batch_optimized_mode_acquisition_ends_with_the_batch_that_reaches_the_limit() -> None:
    assert Queue().acquire(count=13) == [(0, 19, 1)]


def test_in_record_limit_mode_acquisition_ends_exactly_at_the_limit_and_the_next_continues_there() -> None:
    queue = Queue()
    assert queue.acquire(count=13, mode=1) == [(0, 12, 1)]
    assert queue.acquire(count=4, mode=1) == [(13, 16, 1)]


def test_acquired_entries_are_split_at_batch_borders_at_the_batch_size() -> None:
    assert Queue().acquire(count=50, batch_size=15) == [(0, 19, 1), (20, 39, 1), (40, 49, 1)]


def test_acquiring_zero_records_or_from_no_batches_acquires_none() -> None:
    queue = Queue()
    assert queue.acquire(count=0) == []
    assert queue.acquire(batches=0) == []
    assert queue.borders == (0, 0)


def test_a_fetch_that_begins_within_a_batch_does_not_acquire_earlier_records_of_it() -> None:
    assert Queue(start_offset=5).acquire() == [(5, 19, 1)]


def test_the_span_of_in_flight_offsets_is_limited_so_that_one_stuck_record_stops_the_partition() -> None:
    queue = Queue(Limits(record_locks=20))
    assert queue.acquire(count=100) == [(0, 19, 1)]
    queue.acknowledge(1, 19, 1)
    queue.write()
    assert not queue.partition.can_acquire()
    assert queue.acquire() == []
    queue.acknowledge(0, 0, 1)
    assert queue.acquire() == [], "what is not stored does not count"
    queue.write()
    assert queue.partition.can_acquire()
    assert queue.acquire() == [(20, 29, 1)]


def test_available_records_are_acquired_even_if_the_in_flight_span_is_full() -> None:
    queue = Queue(Limits(record_locks=20))
    queue.acquire(count=20)
    queue.acknowledge(5, 6, 2)
    queue.write()
    assert queue.partition.can_acquire()
    assert queue.acquire(count=100) == [(5, 6, 2)]


def test_record_limit_mode_keeps_within_the_span_and_batch_optimized_may_exceed_it_by_one_batch() -> None:
    assert Queue(Limits(record_locks=15)).acquire(count=100) == [(0, 19, 1)]
    assert Queue(Limits(record_locks=15)).acquire(count=100, mode=1) == [(0, 14, 1)]


def test_offsets_between_batches_and_aborted_batches_are_archived_in_memory() -> None:
    queue = Queue()
    queue.log = [FetchedBatch(0, 4), FetchedBatch(8, 9), FetchedBatch(10, 14, is_gone=True), FetchedBatch(15, 19)]
    assert queue.acquire(count=20) == [(0, 4, 1), (8, 9, 1), (15, 19, 1)]
    assert queue.partition.take_write() is None
    queue.acknowledge(0, 4, 1)
    queue.write()
    assert queue.borders == (8, 20)


def test_compacted_offsets_at_the_front_move_the_start_offset() -> None:
    queue = Queue()
    queue.log = [FetchedBatch(40, 49)]
    assert queue.acquire() == [(40, 49, 1)]
    assert queue.borders == (40, 50)


def test_a_record_that_was_compacted_away_while_available_is_archived() -> None:
    queue = Queue()
    queue.acquire()
    queue.acknowledge(0, 9, 2)
    queue.write()
    queue.log = TENS[1:]
    assert queue.acquire() == [(10, 19, 1)]
    assert queue.borders == (10, 20)


# ── bad records ──


def test_the_isolation_threshold_is_half_of_the_limit_and_at_least_two() -> None:
    assert [isolation_threshold(limit) for limit in (2, 3, 4, 5, 9, 10)] == [2, 2, 2, 3, 5, 5]


def test_records_whose_delivery_fails_repeatedly_are_delivered_in_smaller_batches_and_finally_alone() -> None:
    queue = Queue(Limits(delivery_count=5, record_locks=100))
    for count in (1, 2, 3):
        assert queue.acquire(count=10)[0] == (0, 9, count)
        queue.acknowledge(0, 9, 2)
        queue.write()
    assert queue.acquire(count=10) == [(0, 4, 4)]
    assert queue.acquire(count=10) == [(5, 9, 4)]
    queue.acknowledge(0, 9, 2)
    queue.write()
    assert [queue.acquire(count=10) for _ in range(3)] == [[(0, 0, 5)], [(1, 1, 5)], [(2, 2, 5)]]


def test_records_near_the_delivery_limit_are_not_delivered_with_others() -> None:
    queue = Queue(Limits(delivery_count=5, record_locks=100))
    queue.acquire(count=20)
    for _ in range(2):
        queue.acknowledge(10, 19, 2)
        queue.write()
        queue.acquire(count=10)
    queue.acknowledge(0, 9, 2)
    queue.acknowledge(10, 19, 2)
    queue.write()
    assert queue.states() == [(0, 9, AVAILABLE, 1), (10, 19, AVAILABLE, 3)]
    assert queue.acquire(count=100) == [(0, 9, 2)]
    assert queue.acquire(count=100) == [(10, 19, 4)], "half of the twenty that were delivered together"


# ── acknowledging ──


@pytest.mark.parametrize(("kind", "state"), [(0, ARCHIVED), (1, ACKNOWLEDGED), (2, AVAILABLE), (3, ARCHIVED)], ids=str)
def test_an_acknowledgement_is_written_with_the_start_offset_from_before_it(kind: int, state: DeliveryState) -> None:
    queue = Queue()
    queue.acquire()
    number = queue.acknowledge(0, 9, kind)
    write = queue.write()
    done = 0 if state is AVAILABLE else 10
    assert write == (number, 0, done, (StateBatch(0, 9, state, 1),))
    assert queue.borders == ((10, 10) if done else (0, 10))


def test_acknowledgement_types_per_offset_are_merged_into_runs_of_equal_types() -> None:
    queue = Queue()
    queue.acquire()
    queue.acknowledge(0, 9, 1, 1, 1, 2, 2, 3, 3, 0, 1, 1)
    assert queue.write().batches == (
        StateBatch(0, 2, ACKNOWLEDGED, 1),
        StateBatch(3, 4, AVAILABLE, 1),
        StateBatch(5, 7, ARCHIVED, 1),
        StateBatch(8, 9, ACKNOWLEDGED, 1),
    )
    assert queue.borders == (3, 10)


def test_a_record_in_transition_is_neither_acquired_nor_acknowledged() -> None:
    queue = Queue()
    queue.acquire()
    queue.acknowledge(0, 9, 2)
    assert queue.acquire() == [(10, 19, 1)]
    assert queue.refused(0, 9, 1) is ErrorCode.INVALID_RECORD_STATE
    queue.write()
    assert queue.acquire() == [(0, 9, 2)]


def test_a_failed_write_returns_the_records_to_their_member_under_their_old_lock() -> None:
    queue = Queue()
    queue.acquire()
    queue.tick(400)
    queue.acknowledge(0, 9, 1)
    queue.write(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert queue.states() == [(0, 9, ACQUIRED, 1)]
    assert queue.tick(599) == 0
    assert queue.tick(1) == 10


def test_a_lock_that_expired_during_a_failed_write_is_released_after_it() -> None:
    queue = Queue()
    queue.acquire()
    queue.acknowledge(0, 9, 1)
    assert queue.partition.take_write() is not None
    assert queue.tick(1_000) == 0, "in transition"
    queue.partition.finish_write(ErrorCode.COORDINATOR_NOT_AVAILABLE, queue.now_ms)
    assert queue.states() == [(0, 9, AVAILABLE, 1)]
    assert queue.write().batches == (StateBatch(0, 9, AVAILABLE, 1),)


def test_a_lock_that_expired_at_the_delivery_limit_during_a_failed_write_archives_the_record() -> None:
    queue = Queue(Limits(delivery_count=2, lock_duration_ms=1_000))
    queue.acquire()
    queue.acknowledge(0, 9, 2)
    queue.write()
    queue.acquire()
    queue.acknowledge(0, 9, 2)
    assert queue.partition.take_write() is not None
    queue.tick(1_000)
    queue.partition.finish_write(ErrorCode.REQUEST_TIMED_OUT, queue.now_ms)
    assert queue.borders == (10, 10)


def test_one_state_write_is_in_flight_and_later_changes_go_into_the_next() -> None:
    queue = Queue()
    queue.acquire()
    assert queue.acknowledge(0, 0, 1) == 1
    first = queue.partition.take_write()
    assert queue.acknowledge(1, 1, 1) == 2
    assert queue.acknowledge(2, 2, 3) == 2
    assert queue.partition.take_write() is None
    queue.partition.finish_write(ErrorCode.NONE, 0)
    assert first == (1, 0, 1, (StateBatch(0, 0, ACKNOWLEDGED, 1),))
    assert queue.write() == (2, 1, 2, (StateBatch(1, 1, ACKNOWLEDGED, 1), StateBatch(2, 2, ARCHIVED, 1)))
    assert queue.borders == (3, 10)


def test_a_released_record_is_archived_when_it_has_reached_the_delivery_limit() -> None:
    queue = Queue(Limits(delivery_count=2))
    queue.acquire()
    queue.acknowledge(0, 9, 2)
    queue.write()
    assert queue.acquire()[0] == (0, 9, 2)
    queue.acknowledge(0, 9, 2)
    assert queue.write().batches == (StateBatch(0, 9, ARCHIVED, 2),)


def test_renewing_a_lock_restores_its_full_duration_and_writes_nothing() -> None:
    queue = Queue()
    queue.acquire()
    queue.tick(900)
    assert queue.acknowledge(0, 4, 4) is None
    assert queue.partition.take_write() is None
    assert queue.tick(100) == 5
    assert queue.states() == [(0, 4, ACQUIRED, 1), (5, 9, AVAILABLE, 1)]
    assert queue.tick(900) == 5


def test_renewing_a_lock_is_refused_if_the_group_does_not_allow_it() -> None:
    queue = Queue(LIMITS._replace(can_renew=False))
    queue.acquire()
    assert queue.refused(0, 9, 4) is ErrorCode.INVALID_RECORD_STATE


def test_acknowledging_records_that_the_member_has_not_acquired_is_refused() -> None:
    queue = Queue()
    assert queue.refused(0, 0, 1) is ErrorCode.INVALID_RECORD_STATE, "nothing was acquired"
    queue.acquire()
    assert queue.refused(0, 9, 1, member="b") is ErrorCode.INVALID_RECORD_STATE
    assert queue.refused(5, 10, 1) is ErrorCode.INVALID_REQUEST, "behind the end offset"
    queue.tick(1_000)
    assert queue.refused(0, 9, 1) is ErrorCode.INVALID_RECORD_STATE, "the lock has ended"


def test_acknowledgements_below_the_start_offset_are_ignored() -> None:
    queue = Queue()
    queue.acquire()
    queue.acknowledge(0, 4, 1)
    queue.write()
    assert queue.acknowledge(0, 3, 1) is None
    assert queue.acknowledge(2, 9, 1) is not None
    assert queue.write().batches == (StateBatch(5, 9, ACKNOWLEDGED, 1),)


def test_one_invalid_acknowledgement_refuses_all_of_the_partition() -> None:
    queue = Queue()
    queue.acquire("a")
    queue.acquire("b")
    before = list(queue.partition.in_flight.runs)
    ranges = [Acknowledgement(0, 4, [1]), Acknowledgement(5, 5, [4]), Acknowledgement(10, 12, [1])]
    with pytest.raises(Refusal) as refused:
        queue.partition.acknowledge("a", ranges, 500)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert list(queue.partition.in_flight.runs) == before
    with pytest.raises(Refusal):
        queue.partition.acknowledge("a", [Acknowledgement(0, 4, [1]), Acknowledgement(4, 5, [1])], 500)
    assert queue.partition.take_write() is None


@pytest.mark.parametrize(
    "ranges",
    [
        [(5, 4, [1])],
        [(5, 9, [1]), (0, 4, [1])],
        [(0, 9, [1, 1])],
        [(0, 9, [])],
        [(0, 0, [5])],
        [(0, 0, [-1])],
        [(0, 0, [4])],
    ],
    ids=str,
)
def test_malformed_acknowledgements_are_an_invalid_request(
    ranges: list[tuple[int, int, list[int]]],
) -> None:
    with pytest.raises(Refusal) as refused:
        check_form([Acknowledgement(*one) for one in ranges], knows_renew=True, is_renewal=False)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_renew_acknowledgements_are_refused_in_versions_without_them() -> None:
    renewal = [Acknowledgement(0, 1, [AcknowledgeType.RENEW, AcknowledgeType.ACCEPT])]
    check_form(renewal, knows_renew=True, is_renewal=True)
    with pytest.raises(Refusal):
        check_form(renewal, knows_renew=False, is_renewal=True)


# ── locks, members and the log ──


def test_an_expired_lock_makes_the_record_available_at_once_and_is_written() -> None:
    queue = Queue()
    queue.acquire()
    assert queue.partition.next_deadline_ms() == 1_000
    assert queue.tick(999) == 0
    assert queue.tick(1) == 10
    assert queue.partition.next_deadline_ms() is None
    assert queue.acquire("b") == [(0, 9, 2)]
    assert queue.write(ErrorCode.NOT_COORDINATOR).batches == (StateBatch(0, 9, AVAILABLE, 1),)
    assert queue.states() == [(0, 9, ACQUIRED, 2)], "a failed write undoes nothing"


def test_an_expired_lock_and_an_acknowledgement_of_the_same_record_are_written_as_one_batch() -> None:
    queue = Queue()
    queue.acquire()
    queue.tick(1_000)
    queue.acquire("b")
    queue.acknowledge(0, 4, 1, member="b")
    assert queue.write().batches == (StateBatch(0, 4, ACKNOWLEDGED, 2), StateBatch(5, 9, AVAILABLE, 1))


def test_an_expired_lock_at_the_delivery_limit_archives_the_record() -> None:
    queue = Queue(Limits(delivery_count=2, lock_duration_ms=10))
    queue.acquire()
    queue.tick(10)
    queue.acquire()
    queue.tick(10)
    assert queue.borders == (10, 10)
    assert queue.write() == (1, 10, 0, (StateBatch(0, 9, ARCHIVED, 2),))


def test_a_member_that_leaves_releases_its_own_records_only() -> None:
    queue = Queue()
    queue.acquire("a")
    queue.acquire("b")
    queue.acknowledge(0, 4, 1)
    assert queue.partition.release("a") == 1
    assert queue.write().batches == (StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(5, 9, AVAILABLE, 1))
    assert queue.states() == [(5, 9, AVAILABLE, 1), (10, 19, ACQUIRED, 1)]
    assert queue.partition.release("a") is None
    assert queue.partition.release("c") is None


def test_deleted_records_are_removed_from_the_state_and_their_acknowledgements_succeed() -> None:
    queue = Queue()
    queue.acquire(count=20)
    queue.acknowledge(0, 9, 1)
    queue.partition.begin_at(15)
    assert queue.borders == (15, 20)
    assert queue.acknowledge(10, 14, 1) is None
    queue.write(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert queue.states() == [(15, 19, ACQUIRED, 1)]
    queue.partition.begin_at(12)
    assert queue.borders == (15, 20)
    queue.partition.begin_at(100)
    assert queue.borders == (100, 100)


def test_waiting_fetches_are_woken_once_when_records_become_available() -> None:
    queue = Queue()
    queue.acquire()
    assert not queue.partition.take_freed()
    queue.acknowledge(0, 9, 2)
    assert not queue.partition.take_freed()
    queue.write()
    assert queue.partition.take_freed()
    assert not queue.partition.take_freed()
    queue.acquire()
    queue.tick(1_000)
    assert queue.partition.take_freed()


# ── loading and fencing ──


def test_a_new_leader_continues_from_the_stored_state() -> None:
    stored = (
        StateBatch(0, 9, ACKNOWLEDGED, 1),
        StateBatch(12, 14, AVAILABLE, 2),
        StateBatch(15, 19, DeliveryState.ARCHIVING, 5),
    )
    queue = Queue(stored=stored)
    assert queue.borders == (10, 20)
    assert queue.states() == [(10, 11, AVAILABLE, 0), (12, 14, AVAILABLE, 2), (15, 19, ARCHIVED, 5)]
    assert queue.acquire(count=5) == [(10, 11, 1), (12, 14, 3)]


def test_the_first_start_offset_is_stored_before_any_record_is_acquired() -> None:
    queue = Queue(start_offset=40, is_new=True)
    assert not queue.partition.can_acquire()
    assert queue.acquire() == []
    assert queue.write(ErrorCode.COORDINATOR_NOT_AVAILABLE) == (1, 40, 0, ())
    assert not queue.partition.can_acquire()
    assert queue.write() == (2, 40, 0, ())
    assert queue.partition.take_freed()
    assert queue.acquire() == [(40, 49, 1)]
    assert queue.partition.take_write() is None


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH])
def test_a_fenced_share_partition_refuses_everything(error: ErrorCode) -> None:
    queue = Queue()
    queue.acquire()
    queue.acknowledge(0, 4, 1)
    queue.write(error)
    assert queue.partition.fenced_by is error
    assert queue.refused(5, 9, 1) is error
    assert queue.acquire() == []
    assert queue.partition.release("a") is None
    assert queue.partition.take_write() is None
    assert queue.borders == (0, 10)
