"""One partition as one share group reads it: a pure machine on the leader of the partition.

    AVAILABLE ── acquire, +1 ──► ACQUIRED ── accept ──► ACKNOWLEDGED
        ▲                           │├────── reject, gap ──► ARCHIVED
        └── release, lock ended ────┘└────── release, lock ended, delivered as often as is allowed ──► ARCHIVED

`in_flight` holds the records between start and end offset. Acknowledged and archived records at its front are passed
by the start offset. A record comes back to AVAILABLE with its delivery count; the count grows when it is acquired.

**Two phases.** What a member asks for (an acknowledgement, or to leave) is tentative until the share coordinator has
stored it: the records are in transition, and nothing else can be done with them. If the write fails they are ACQUIRED
again; if the lock's deadline has passed meanwhile, it ends then. Locks that end are different: no client waits for
an answer, so the records change at once, and the write that follows only tells the coordinator. If it fails and the
leader fails too, a record gets one delivery more.

**Writes.** One write is under way at a time, and what comes meanwhile goes into the next one. So writes reach the
coordinator in their order, and many acknowledgements cost one write when the coordinator is slow. A write carries the
start offset from before its own transitions, as Kafka's do; a leader that loads the state moves it past them itself.

    acknowledge, release, tick ──► take_write() ──► (share coordinator) ──► finish_write(error)

**The first offset.** A share partition whose start offset the group has never stored begins where
`share.auto.offset.reset` says. That offset is stored first of all, before a record is acquired: a new leader that
resolved `latest` again would skip records. (Kafka stores it with the first acknowledgement.)

**Fencing.** A coordinator that knows a newer leader epoch or state epoch refuses the write. Then another leader has
loaded the state, or the group's offsets were reset; this machine is at its end, and the shell drops it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pessoa.share.acknowledgement import Acknowledgement, Limits, plan_acknowledgements, released_state
from pessoa.share.acquisition import AcquireRequest, AcquisitionPlan, FetchedBatch
from pessoa.share.in_flight import NO_MEMBER, NO_TRANSITION, InFlight, Run
from pessoa.share.state_batches import DeliveryState, StateBatch, combine
from pessoa.wire.errors import ErrorCode, Refusal

# The errors after which this leader must not write again: its epoch is old, or the group or partition was deleted.
FENCING_ERRORS = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        # There is no state to write to: the group, or its offsets, were deleted.
        ErrorCode.INVALID_REQUEST,
    }
)


class AcquiredRecords(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int


class StateWrite(NamedTuple):
    """The state that the share coordinator must store. The shell adds the group, the partition and its epochs."""

    number: int
    start_offset: int
    # How many records from the start offset on are acknowledged or archived.
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class SharePartition:
    """A partition as one share group reads it: its records in flight, and the writes of their state.

    Invariant: at most one write is under way, `_current_write`; every run in transition belongs to it or to the next.
    """

    def __init__(
        self, start_offset: int, stored: Iterable[StateBatch], limits: Limits, *, is_start_stored: bool = True
    ) -> None:
        self.limits = limits
        self.in_flight = InFlight(start_offset, _load_runs(start_offset, stored))
        self.fenced_by: ErrorCode | None = None
        self._is_start_stored = is_start_stored
        # The number of the next write: of the transitions that it will decide about.
        self._next_write = 1
        self._current_write: StateWrite | None = None
        # Of the next write.
        self._changed_batches: list[StateBatch] = []
        # Not after the earliest deadline of a lock; None if no record is locked.
        self._earliest_deadline_ms: int | None = None
        self._has_freed = False
        self.in_flight.pass_done()

    def __repr__(self) -> str:
        writing = f", write {self._current_write.number} under way" if self._current_write else ""
        fenced = f", fenced by {self.fenced_by.name}" if self.fenced_by else ""
        return f"<SharePartition {self.in_flight!r}{writing}{fenced}>"

    # ── fetching ──

    @property
    def start_offset(self) -> int:
        return self.in_flight.start_offset

    @property
    def is_start_stored(self) -> bool:
        """Whether the share coordinator has stored the group's start offset: no record is acquired before that."""
        return self._is_start_stored

    def next_fetch_offset(self) -> int:
        """Return the offset from which the log must be read for the next `acquire`."""
        return self.in_flight.first_available_offset()

    def can_acquire(self) -> bool:
        """Return False if a read of the log would be useless: the partition is fenced, too many records are in
        flight, or the start offset is not stored."""
        if self.fenced_by is not None or not self._is_start_stored:
            return False
        return self.next_fetch_offset() < self.in_flight.end_offset or self._has_room()

    def _has_room(self) -> bool:
        return self.in_flight.span < self.limits.record_locks

    def acquire(self, request: AcquireRequest, batches: Sequence[FetchedBatch], now_ms: int) -> list[AcquiredRecords]:
        """Acquire records for a member, and return their ranges. `batches` were read from `next_fetch_offset` on, up
        to the high watermark, or the last stable offset for a group that reads committed records only."""
        if not self.can_acquire():
            return []
        deadline_ms = now_ms + self.limits.lock_duration_ms
        plan = AcquisitionPlan(self.in_flight, request, self.limits, deadline_ms)
        plan.acquire_from(batches)
        self.in_flight.overwrite(plan.runs)
        if plan.acquired:
            self._note_deadline(deadline_ms)
        self._pass_done()
        return [AcquiredRecords(run.first_offset, run.last_offset, run.delivery_count) for run in plan.acquired]

    # ── acknowledging ──

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], now_ms: int) -> int | None:
        """Return the number of the write that stores these acknowledgements; None if no state changes. Raises
        `Refusal`, and then leaves all records as they were."""
        if self.fenced_by is not None:
            raise Refusal(self.fenced_by)
        plan = plan_acknowledgements(self.in_flight, member_id, acknowledgements, self.limits, self._next_write, now_ms)
        self.in_flight.overwrite(plan)
        for run in plan:
            if run.is_acquired:
                self._note_deadline(run.deadline_ms)
        changed = [run for run in plan if run.transition == self._next_write]
        return self._begin_transition(changed)

    def release(self, member_id: str) -> int | None:
        """Release the records that a member has acquired, because its session was closed. Return the number of the
        write, as `acknowledge` does."""
        if self.fenced_by is not None:
            return None
        changed: list[Run] = []

        def release(run: Run) -> Run:
            if not run.is_acquired or run.member_id != member_id:
                return run
            run = run._replace(state=released_state(run, self.limits), transition=self._next_write)
            changed.append(run)
            return run

        self.in_flight.change_all(release)
        return self._begin_transition(changed)

    def _begin_transition(self, changed: list[Run]) -> int | None:
        if not changed:
            return None
        self._changed_batches.extend(run.to_batch() for run in changed)
        return self._next_write

    # ── time ──

    def next_deadline_ms(self) -> int | None:
        """Return when `tick` must be called: at the earliest deadline of a lock, or before it; None if no record is
        locked."""
        return self._earliest_deadline_ms

    def tick(self, now_ms: int) -> int:
        """End the locks whose deadline has passed. Return how many records were taken from their members."""
        if self._earliest_deadline_ms is None or now_ms < self._earliest_deadline_ms:
            return 0
        return self._end_locks(now_ms)

    def _end_locks(self, now_ms: int) -> int:
        ended: list[Run] = []

        def end_lock(run: Run) -> Run:
            if not run.is_acquired or run.deadline_ms > now_ms:
                return run
            run = _unlock(run._replace(state=released_state(run, self.limits)))
            ended.append(run)
            return run

        self.in_flight.change_all(end_lock)
        self._earliest_deadline_ms = min(
            (run.deadline_ms for run in self.in_flight.runs if run.is_acquired), default=None
        )
        self._changed_batches.extend(run.to_batch() for run in ended)
        self._has_freed = self._has_freed or bool(ended)
        self._pass_done()
        return sum(run.size for run in ended)

    def _note_deadline(self, deadline_ms: int) -> None:
        if self._earliest_deadline_ms is None or deadline_ms < self._earliest_deadline_ms:
            self._earliest_deadline_ms = deadline_ms

    # ── the log ──

    def begin_at(self, log_start_offset: int) -> None:
        """Remove the records in flight below the log start offset: the log has deleted them."""
        if self.in_flight.begin_at(log_start_offset):
            self._has_freed = True
            self._pass_done()

    # ── writes to the share coordinator ──

    def take_write(self) -> StateWrite | None:
        """Return the next write; None if one is under way, or there is nothing to write."""
        if self._current_write is not None or self.fenced_by is not None:
            return None
        if not self._changed_batches and self._is_start_stored:
            return None
        self._current_write = StateWrite(
            self._next_write, self.start_offset, self.in_flight.done_count, tuple(_join_batches(self._changed_batches))
        )
        self._next_write += 1
        self._changed_batches = []
        return self._current_write

    def finish_write(self, error: ErrorCode, now_ms: int) -> None:
        """Apply the result of the write that is under way; `error` says whether the share coordinator stored it,
        fenced it, or could not be reached."""
        assert self._current_write is not None, "no write is under way"
        number, self._current_write = self._current_write.number, None
        if error in FENCING_ERRORS:
            self.fenced_by = error
        elif error.is_error:
            self._roll_back(number, now_ms)
        else:
            self._has_freed = self._has_freed or not self._is_start_stored
            self._is_start_stored = True
            self._commit(number)

    def _commit(self, number: int) -> None:
        def commit(run: Run) -> Run:
            return _unlock(run) if run.transition == number else run

        self._has_freed = self.in_flight.change_all(commit) or self._has_freed
        self._pass_done()

    def _roll_back(self, number: int, now_ms: int) -> None:
        def roll_back(run: Run) -> Run:
            if run.transition != number:
                return run
            return run._replace(state=DeliveryState.ACQUIRED, transition=NO_TRANSITION)

        if self.in_flight.change_all(roll_back):
            self._end_locks(now_ms)

    def take_freed(self) -> bool:
        """Return True, once for each change, if a fetch that found no records may find some now."""
        has_freed, self._has_freed = self._has_freed, False
        return has_freed

    def _pass_done(self) -> None:
        self._has_freed = self.in_flight.pass_done() or self._has_freed


def _unlock(run: Run) -> Run:
    return run._replace(member_id=NO_MEMBER, deadline_ms=0, transition=NO_TRANSITION)


def _join_batches(batches: Iterable[StateBatch]) -> Iterable[StateBatch]:
    """Return the batches with one state for each offset: since the last write a lock may have ended and its record
    been acknowledged."""
    return combine((), batches, 0)


def _load_runs(start_offset: int, stored: Iterable[StateBatch]) -> list[Run]:
    """Return the stored batches as runs. The offsets between them were acquired when the last leader failed, and
    never acknowledged: they are available, and their first delivery is not counted."""
    runs: list[Run] = []
    position = start_offset
    for batch in combine((), stored, start_offset):
        if batch.first_offset > position:
            runs.append(Run(position, batch.first_offset - 1, DeliveryState.AVAILABLE))
        # ACQUIRED is stored by no one, ARCHIVING by Kafka 4.4: a record that no member shall get again.
        state = (
            DeliveryState.AVAILABLE
            if batch.state is DeliveryState.ACQUIRED
            else DeliveryState.ARCHIVED
            if batch.state is DeliveryState.ARCHIVING
            else batch.state
        )
        size = batch.last_offset - batch.first_offset + 1
        runs.append(Run(batch.first_offset, batch.last_offset, state, batch.delivery_count, size))
        position = batch.last_offset + 1
    return runs
