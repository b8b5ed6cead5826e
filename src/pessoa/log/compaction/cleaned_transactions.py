"""What a pass of compaction knows about transactions (pure).

Everything that it reads lies below the last stable offset, so every transaction is decided:

- data of an aborted transaction goes, wherever it lies;
- a marker says how a transaction ended. It may go when nothing of the transaction is left: when a pass meets the marker
  and has met no batch of the transaction before it, not even an empty one or one that this very pass has dropped. Then
  it first gets a delete horizon, like a tombstone, for readers who are in the middle;
- an aborted transaction stays in the transaction index as long as its marker has to stay.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from pessoa.records.control_records import ControlRecordType, control_records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.log.aborted_transactions import AbortedTransaction
    from pessoa.records.batch import RecordBatch


class MarkerVerdict(NamedTuple):
    """What compaction does with a marker. `is_idle`: no record of its transaction is left. `entry` stays in the
    transaction index."""

    is_idle: bool
    entry: AbortedTransaction | None


class AbortedRanges:
    """Finds the aborted transaction that a batch belongs to, by producer and offset."""

    __slots__ = ("_by_marker", "_by_producer")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_marker = {(one.producer_id, one.last_offset): one for one in aborted}
        # producer → first offsets, rising, and the markers' offsets beside them
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for one in sorted(self._by_marker.values(), key=lambda transaction: transaction.first_offset):
            firsts, lasts = self._by_producer.setdefault(one.producer_id, ([], []))
            firsts.append(one.first_offset)
            lasts.append(one.last_offset)

    def holds(self, batch: RecordBatch) -> bool:
        """Return whether the data batch belongs to an aborted transaction."""
        if not self._by_producer or not batch.is_transactional:
            return False
        found = self._by_producer.get(batch.producer_id)
        if found is None:
            return False
        number = bisect_right(found[0], batch.base_offset) - 1
        return number >= 0 and batch.base_offset < found[1][number]

    def ended_by(self, marker: RecordBatch) -> AbortedTransaction | None:
        return self._by_marker.get((marker.producer_id, marker.base_offset))


class CleanedTransactions:
    """Follows the transactions while a pass reads the log from its start; batches must come in order."""

    __slots__ = ("_is_aborted_by_producer", "aborted")

    def __init__(self, aborted: AbortedRanges) -> None:
        self.aborted = aborted
        # Producers of whose undecided-so-far transaction a batch was met, and whether that one will be aborted.
        self._is_aborted_by_producer: dict[int, bool] = {}

    def read_data_batch(self, batch: RecordBatch) -> bool:
        """Note the batch as one of its producer's transaction. Return whether that transaction is aborted."""
        if not batch.is_transactional:
            return False
        is_aborted = self.aborted.holds(batch)
        self._is_aborted_by_producer[batch.producer_id] = is_aborted
        return is_aborted

    def read_marker(self, batch: RecordBatch) -> MarkerVerdict:
        marker = next(control_records(batch), None)
        if marker is None:
            # An earlier pass has emptied it.
            return MarkerVerdict(True, None)
        if marker.type not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):
            return MarkerVerdict(False, None)
        was_met = self._is_aborted_by_producer.pop(batch.producer_id, None) is not None
        entry = self.aborted.ended_by(batch) if was_met and marker.type is ControlRecordType.ABORT else None
        return MarkerVerdict(not was_met, entry)
