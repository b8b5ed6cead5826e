"""Compaction in the simulation: how passes run, and the check of what they may remove.

A node's cleaner is the real one, but its passes run in the same process (`PassInPlace`), as another process could not
access a simulated disk. A pass that is killed with its node leaves on the disk what it had written by then.

`CommittedBatches` has all batches that a compacted partition has ever committed, as they were before any compaction. A
replica is compared with it after every pass, and whenever a node has opened the log again:

    every batch that is present   was committed, with the same offsets, leader epoch, producer and sequence; and its
                                  records are some of those that it had, unchanged
    a record that is missing      was aborted; or a later record with its key is committed; or it is a tombstone, old
                                  enough, and no older value of its key is left
    a marker that is missing      is old enough, and no record of its transaction is left
    a batch that is missing       is not the last of its producer, from which sequence numbers are read

Two replicas may differ, since each is cleaned when it is due; as both agree with the committed batches, they agree on
the last value of every key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.compaction.cleaning_pass import CleaningPass
from pessoa.log.compaction.cleaning_plan import Finished, Pause, SwapReady
from pessoa.log.compaction.cleaning_process import CleanerDied
from pessoa.records.control_records import ControlRecordType, control_records
from pessoa.records.record import records
from tests.simulation.history import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pessoa.log.compaction.cleaning_plan import CleaningPlan
    from pessoa.log.files import Disk
    from pessoa.log.partition_log import PartitionLog
    from pessoa.records.batch import RecordBatch
    from pessoa.records.record import Record

# Clocks of two nodes may differ so much, and a pass reads its clock once, when it begins.
_TOLERANCE_S = 0.5


class PassInPlace:
    """A compaction pass that runs in the thread that asks for its next step."""

    def __init__(
        self, disk: Disk, seconds: Callable[[], float], on_cleaned: Callable[[str], None], plan: CleaningPlan
    ) -> None:
        self._steps = CleaningPass(disk, plan, seconds).steps()
        self._directory = plan.directory
        self._on_cleaned = on_cleaned
        self._is_stopped = False

    def next_step(self) -> SwapReady | Finished:
        if self._is_stopped:
            raise CleanerDied("it was stopped")
        step = next(one for one in self._steps if not isinstance(one, Pause))
        if isinstance(step, Finished):
            # The cleaner asks for this last step after it has swapped all cleaned segments into the log.
            self._on_cleaned(self._directory)
        return step

    def stop(self) -> None:
        self._is_stopped = True

    def close(self) -> None:
        self._steps.close()


class _Batch(NamedTuple):
    """A batch as it was committed."""

    base_offset: int
    identity: tuple[int, ...]
    producer_id: int
    producer_epoch: int
    is_transactional: bool
    records: dict[int, Record]
    committed_s: float
    # None for data, otherwise COMMIT or ABORT.
    marker: ControlRecordType | None


class CommittedBatches:
    """All batches that one compacted partition has committed, to check what compaction has removed from its
    replicas."""

    def __init__(self, name: object, retention_s: float | None) -> None:
        self._name = name
        # How long a tombstone has to stay; None where clocks jump, so that it cannot be checked.
        self._retention_s = retention_s
        self._batches: dict[int, _Batch] = {}
        # Offset of a transactional record → whether its transaction was committed
        self._decided: dict[int, bool] = {}
        # Marker → the offsets of its transaction
        self._of_marker: dict[int, list[int]] = {}
        # Producer → the offsets of its open transaction, and the records there
        self._open: dict[int, list[int]] = {}
        self._undecided: dict[int, Record] = {}
        # Key → the offset of its last committed record
        self._latest: dict[bytes | None, int] = {}
        # Producer → its last data batch, and its last marker
        self._last_data: dict[int, _Batch] = {}
        self._last_marker: dict[int, _Batch] = {}

    def __repr__(self) -> str:
        return f"<Memory of {self._name}: {len(self._batches)} batches, {len(self._latest)} keys>"

    def commit(self, batch: RecordBatch, now_s: float, host: str) -> None:
        """Note a batch that is below the high watermark of a replica, or compare it with the batch noted at its
        offset."""
        known = self._batches.get(batch.base_offset)
        if known is None:
            self._remember(batch, now_s)
        else:
            self._compare(batch, known, host)

    def _remember(self, batch: RecordBatch, now_s: float) -> None:
        marker = next(control_records(batch)).type if batch.is_control else None
        found = {one.offset: one for one in records(batch)}
        known = self._batches[batch.base_offset] = _Batch(
            batch.base_offset,
            _identity(batch),
            batch.producer_id,
            batch.producer_epoch,
            batch.is_transactional,
            found,
            now_s,
            marker,
        )
        if marker is not None:
            self._end_transaction(known)
        elif batch.is_transactional:
            self._open.setdefault(batch.producer_id, []).extend(found)
            self._undecided.update(found)
        else:
            self._supersede(found.values())
        if batch.producer_id >= 0:
            (self._last_data if marker is None else self._last_marker)[batch.producer_id] = known

    def _end_transaction(self, marker: _Batch) -> None:
        offsets = self._open.pop(marker.producer_id, [])
        self._of_marker[marker.base_offset] = offsets
        is_committed = marker.marker is ControlRecordType.COMMIT
        for offset in offsets:
            self._decided[offset] = is_committed
        if is_committed:
            self._supersede(self._undecided[offset] for offset in offsets)
        for offset in offsets:
            del self._undecided[offset]

    def _supersede(self, found: Iterable[Record]) -> None:
        for one in found:
            self._latest[one.key] = max(one.offset, self._latest.get(one.key, -1))

    def _compare(self, batch: RecordBatch, known: _Batch, host: str) -> None:
        if _identity(batch) != known.identity:
            raise Violation(
                f"inconsistent: at {batch.base_offset} of {self._name} {host} has {_identity(batch)}, and committed "
                f"was {known.identity}"
            )
        for one in records(batch):
            if known.records.get(one.offset) != one:
                raise Violation(
                    f"inconsistent: {self._name}@{one.offset} is {one!r} on {host}, and was "
                    f"{known.records.get(one.offset)!r} when it was committed"
                )

    # What was removed.

    def check(self, log: PartitionLog, now_s: float, host: str) -> None:
        """Assert that compaction was allowed to remove everything that a replica lacks below its high watermark."""
        present, bases = self._present(log, host)
        for batch in self._batches.values():
            if not log.log_start_offset <= batch.base_offset < log.high_watermark:
                continue
            for offset, one in batch.records.items():
                if offset in present:
                    continue
                if batch.marker is not None:
                    self._check_marker(batch, present, now_s, host)
                elif not self._may_be_gone(batch, one, present, now_s):
                    raise Violation(
                        f"compacted away: {self._name}@{offset}, {one.key!r}: {one.value!r}, is gone from {host}, and "
                        f"the last committed record of its key is at {self._latest.get(one.key)}; {log!r}"
                    )
        self._check_producers(log, bases, host)

    def _present(self, log: PartitionLog, host: str) -> tuple[dict[int, Record], set[int]]:
        present: dict[int, Record] = {}
        bases: set[int] = set()
        for segment in log.segments:
            for _, batch in segment.batches():
                if batch.last_offset < log.high_watermark:
                    known = self._batches.get(batch.base_offset)
                    if known is None:
                        raise Violation(f"{self._name}: {batch!r} was never committed, and {host} has it")
                    self._compare(batch, known, host)
                    bases.add(batch.base_offset)
                    present.update((one.offset, one) for one in records(batch))
        return present, bases

    def _may_be_gone(self, batch: _Batch, one: Record, present: dict[int, Record], now_s: float) -> bool:
        if batch.is_transactional:
            is_committed = self._decided.get(one.offset)
            if is_committed is not True:
                return is_committed is False
        # A replica that catches up may not have the later record yet; it is in sync only when it has.
        if one.offset < self._latest[one.key]:
            return True
        if one.value is not None or not self._is_old(batch, now_s):
            return False
        # Aborted records may be left: consumers skip them because of their markers.
        return not any(
            other.key == one.key and offset < one.offset and self._decided.get(offset, True)
            for offset, other in present.items()
        )

    def _is_old(self, batch: _Batch, now_s: float) -> bool:
        return self._retention_s is None or now_s >= batch.committed_s + self._retention_s - _TOLERANCE_S

    def _check_marker(self, marker: _Batch, present: dict[int, Record], now_s: float, host: str) -> None:
        left = [offset for offset in self._of_marker[marker.base_offset] if offset in present]
        if left or not self._is_old(marker, now_s):
            raise Violation(
                f"compacted away: the marker at {marker.base_offset} of {self._name} is gone from {host}, and of its "
                f"transaction {left} is left"
            )

    def _check_producers(self, log: PartitionLog, bases: set[int], host: str) -> None:
        for producer_id, data in self._last_data.items():
            marker = self._last_marker.get(producer_id)
            last = marker if marker is not None and marker.producer_epoch > data.producer_epoch else data
            # A batch above the high watermark may be the producer's last one.
            is_known = log.log_start_offset <= last.base_offset < log.high_watermark
            if is_known and last.base_offset not in bases:
                raise Violation(
                    f"the last batch of producer {producer_id} in {self._name}, at {last.base_offset}, is gone from "
                    f"{host}, and its sequence numbers with it; {log!r}"
                )


def _identity(batch: RecordBatch) -> tuple[int, ...]:
    """Return what compaction must not change: last offset, leader epoch, producer, its epoch and sequence, and kind."""
    return (
        batch.last_offset,
        batch.partition_leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        batch.is_control,
    )
