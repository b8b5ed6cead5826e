"""Which records of a fetch a member acquires.

The leader has read the log from the first available offset on, and knows of every batch that was read its first and
last offset. The plan goes through these batches:

- **In flight before**: what is available is acquired again, its delivery count grows by one.
- **New**: offsets behind the end offset, as long as start and end offset lie less than `record_locks` apart. The limit
  counts everything between them, acknowledged records too: one record that is stuck stops the partition.
- **Gone**: offsets between two batches were compacted away, batches of aborted transactions must not be seen. They are
  archived at once and in memory only, since every leader finds them again. A hole *within* a batch cannot be seen
  here: it is acquired, and the client acknowledges it as a gap.

How many: in the mode BATCH_OPTIMIZED the plan ends with the batch in which `max_records` is reached, so that the
client gets whole batches; RECORD_LIMIT ends it exactly there (KIP-1206). Of a batch with very many records a part is
acquired: start and end offset never lie more than `LONGEST_SPAN` apart, for every record may get a state of its own.

A client gets entries (first offset, last offset, delivery count). Records that follow each other with the same
count make one entry until it has `batch_size` records: a client that polls so many at a time takes entry after entry.

**Bad records.** A record that cannot be processed often fails a client together with all records that were delivered
along with it, and all of them would reach the limit of deliveries. So from half of the limit on, what was
delivered together is delivered in smaller and smaller pieces, mixed with nothing else, and the last attempt is a
record's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from pessoa.share.acknowledgement import Limits
from pessoa.share.in_flight import InFlight, Run
from pessoa.share.state_batches import DeliveryState

# As many as `group.share.partition.max.record.locks` can allow.
LONGEST_SPAN = 10_000


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


class FetchedBatch(NamedTuple):
    first_offset: int
    last_offset: int
    # Of an aborted transaction, for a group that reads only committed records; or no batch of records at all.
    is_gone: bool = False


class AcquireRequest(NamedTuple):
    member_id: str
    max_records: int
    batch_size: int
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


def isolation_threshold(delivery_count_limit: int) -> int:
    """The delivery count from which records are isolated: half of the limit, rounded up, and at least 2."""
    return max(2, (delivery_count_limit + 1) // 2)


def isolated_size(run: Run, delivery_count_limit: int) -> int | None:
    """Return how many offsets of an available run are acquired together, and without others; None if the run need
    not be isolated."""
    threshold = isolation_threshold(delivery_count_limit)
    if run.delivery_count < threshold:
        return None
    if run.delivery_count >= delivery_count_limit - 1 and delivery_count_limit > 2:
        return 1
    return max(1, run.batch_size >> (run.delivery_count - threshold + 1))


class AcquisitionPlan:
    """The runs that replace those in flight, from the first available offset on without a gap."""

    def __init__(self, in_flight: InFlight, request: AcquireRequest, limits: Limits, deadline_ms: int) -> None:
        self.runs: list[Run] = []
        # Those of the runs that this request acquires.
        self.acquired: list[Run] = []
        self._in_flight = in_flight
        self._request = request
        self._limits = limits
        self._deadline_ms = deadline_ms
        self._position = in_flight.first_available_offset()
        self._acquired_count = 0
        # Nothing more may be acquired.
        self._is_full = request.max_records <= 0

    def acquire_from(self, batches: Sequence[FetchedBatch]) -> None:
        """Acquire records of the batches that were read, in order, up to the limits of the request and the group."""
        for batch in batches:
            if batch.last_offset < self._position:
                continue
            if self._is_full:
                return
            if batch.first_offset > self._position:
                self._archive(batch.first_offset - 1)
            if batch.is_gone:
                self._archive(batch.last_offset)
            else:
                self._acquire(batch.last_offset)
            if self._acquired_count >= self._request.max_records:
                self._is_full = True

    def _archive(self, last_offset: int) -> None:
        """Plan to archive the available and new offsets up to this one: the log does not have their records, or must
        not show them."""
        for run in self._in_flight.between(self._position, last_offset):
            self._keep(run._replace(state=DeliveryState.ARCHIVED) if run.is_available else run)
        if self._position <= last_offset and self._has_room():
            self._keep(Run(self._position, last_offset, DeliveryState.ARCHIVED))

    def _acquire(self, last_offset: int) -> None:
        for run in self._in_flight.between(self._position, last_offset):
            if run.is_available:
                self._acquire_again(run)
            else:
                self._keep(run)
            if self._is_full:
                return
        if self._position > last_offset:
            return
        if not self._has_room():
            self._is_full = True
            return
        start_offset = self._in_flight.start_offset
        last_offset = min(last_offset, start_offset + max(LONGEST_SPAN, self._limits.record_locks) - 1)
        if self._request.mode is AcquireMode.RECORD_LIMIT:
            room = self._limits.record_locks - (self._position - start_offset)
            last_offset = min(last_offset, self._position + min(room, self._remaining_records()) - 1)
        if self._position <= last_offset:
            self._take(Run(self._position, last_offset, DeliveryState.AVAILABLE))

    def _acquire_again(self, run: Run) -> None:
        size = isolated_size(run, self._limits.delivery_count)
        if size is not None:
            if not self._acquired_count:
                self._take(run.clip(run.first_offset, run.first_offset + min(size, self._remaining_records()) - 1))
            self._is_full = True
            return
        if self._request.mode is AcquireMode.RECORD_LIMIT and run.size >= self._remaining_records():
            run = run.clip(run.first_offset, run.first_offset + self._remaining_records() - 1)
            self._is_full = True
        self._take(run)

    def _remaining_records(self) -> int:
        return self._request.max_records - self._acquired_count

    def _has_room(self) -> bool:
        end_offset = max(self._position, self._in_flight.end_offset)
        return end_offset - self._in_flight.start_offset < self._limits.record_locks

    def _keep(self, run: Run) -> None:
        self.runs.append(run)
        self._position = run.last_offset + 1

    def _take(self, run: Run) -> None:
        """Plan the acquisition of an available run; it becomes one entry with the run before it if both have the
        same properties."""
        self._acquired_count += run.size
        acquired = run._replace(
            state=DeliveryState.ACQUIRED,
            delivery_count=run.delivery_count + 1,
            batch_size=run.batch_size if run.delivery_count else run.size,
            member_id=self._request.member_id,
            deadline_ms=self._deadline_ms,
        )
        before = self.acquired[-1] if self.acquired else None
        if before is not None and self._makes_one_entry(before, acquired):
            acquired = acquired._replace(
                first_offset=before.first_offset,
                batch_size=(
                    max(before.batch_size, acquired.batch_size)
                    if run.delivery_count
                    else acquired.last_offset - before.first_offset + 1
                ),
            )
            self.runs.pop()
            self.acquired.pop()
        self.acquired.append(acquired)
        self._keep(acquired)

    def _makes_one_entry(self, before: Run, after: Run) -> bool:
        return (
            before.last_offset + 1 == after.first_offset
            and before.size < self._request.batch_size
            and before.delivery_count == after.delivery_count
        )
