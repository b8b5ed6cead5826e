"""What a log learns from a batch besides its bytes: leader epochs, producers, transactions.

The leader, a follower, recovery and the reload after a truncation all go through these functions, batch by batch in the
order of the log, so that the same log means the same on every replica and after every restart.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.log.aborted_transactions import AbortedTransaction
from pessoa.records.invalid_batch import InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.log.leader_epoch_cache import LeaderEpochCache
    from pessoa.log.producer_snapshot_files import ProducerSnapshots
    from pessoa.log.producer_state import ProducerState
    from pessoa.log.segment import Segment
    from pessoa.records.batch import RecordBatch

log = logging.getLogger("pessoa.log")


def note_epoch(epochs: LeaderEpochCache, batch: RecordBatch) -> bool:
    """Add the leader epoch of a batch to the cache; return whether it is new."""
    epoch = batch.partition_leader_epoch
    return epoch >= 0 and epochs.assign(epoch, batch.base_offset)


def note_producer(producers: ProducerState, batch: RecordBatch, segment: Segment | None) -> None:
    """Update the producer state with a batch. Transactions that it aborts are added to the segment's transaction
    index."""
    completed = producers.update(batch)
    if completed is not None:
        if completed.is_aborted and segment is not None:
            stable = producers.last_stable_offset(completed)
            segment.append_aborted(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )
        producers.complete(completed)


def replay_producers(
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    segments: Sequence[Segment],
    end_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> None:
    """Rebuild the producer state up to `end_offset`: from the last snapshot, and from the batches after it."""
    found = snapshots.latest(end_offset)
    start = found[0] if found is not None else segments[0].base_offset
    producers.reload(found[1] if found is not None else (), start, now_ms, expiration_ms)
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= start:
            continue
        if segment.base_offset >= end_offset or start >= end_offset:
            break
        try:
            _replay_segment(producers, segment, start, end_offset)
        except InvalidBatch as problem:
            log.warning("%r is damaged (%s): what its producers did behind that place is not known", segment, problem)
    producers.end_offset = end_offset


def _replay_segment(producers: ProducerState, segment: Segment, start: int, end_offset: int) -> None:
    for _, batch in segment.batches(segment.position_of(start)):
        if batch.base_offset >= end_offset:
            break
        if batch.base_offset >= start:
            note_producer(producers, batch, None)
