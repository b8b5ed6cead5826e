"""Where a follower's log parts from its leader's, and what to do about it.

Two logs that hold an offset in the same leader epoch are equal up to there. A follower tells with every fetch where its
log ends and in which epoch its last record was written. If the leader's log has no such place, it answers with the
largest epoch up to that one which it knows, and where that ends (KIP-101, KIP-320). The follower truncates its log and
fetches again from its new end:

    leader                1 1 1 3 3 3          follower            1 1 1 2 2 2 2          fetches 7 in epoch 2
    "epoch 1 ends at 3"                        truncates to 3      1 1 1                  fetches 3 in epoch 1 ✓

If the follower does not know the epoch of the answer either, it truncates to the end of the largest that it knows below
it, and asks again: with every round the epoch gets smaller, so it ends (KIP-279). It never truncates to a high
watermark, which may be behind what is committed.

A follower may also ask for something that the leader does not have at all: its log was deleted, or the leader's was, or
a replica was elected that had less (`reset_for_range`); or a disk has changed an epoch into one that never was
(`Partition.resolve_impossible_epochs`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.leader_epoch_cache import UNDEFINED_EPOCH, UNDEFINED_OFFSET

if TYPE_CHECKING:
    from pessoa.log.leader_epoch_cache import LeaderEpochCache


def truncation_offset(
    epochs: LeaderEpochCache, log_end_offset: int, high_watermark: int, leader_epoch: int, leader_end_offset: int
) -> int:
    """The offset that a follower truncates its log to, by the leader's answer about the diverging epoch."""
    if leader_end_offset == UNDEFINED_OFFSET:
        # A leader that cannot say; the high watermark is the best that is known.
        return min(high_watermark, log_end_offset)
    if leader_epoch == UNDEFINED_EPOCH:
        return min(leader_end_offset, log_end_offset)
    ours = epochs.end_offset_for(leader_epoch, log_end_offset)
    if ours.end_offset == UNDEFINED_OFFSET:
        # All our epochs are smaller than that one: the end of the latest of them is the end of the log.
        return min(leader_end_offset, log_end_offset)
    if ours.epoch != leader_epoch:
        return min(ours.end_offset, log_end_offset)
    return min(ours.end_offset, leader_end_offset, log_end_offset)


class Reset(NamedTuple):
    """Truncate the log to an offset, or drop all of it and continue at that offset."""

    offset: int
    drops_all: bool


def reset_for_range(log_end_offset: int, leader_start_offset: int, leader_end_offset: int) -> Reset:
    """Return the offset at which a follower continues after OFFSET_OUT_OF_RANGE, and whether it first drops its whole
    log."""
    if leader_end_offset < log_end_offset:
        # A replica was elected that had less, and what this one has beyond it was never committed under that leader.
        return Reset(leader_end_offset, drops_all=False)
    # The leader has deleted what would come next, or the offset is good again.
    return Reset(max(leader_start_offset, log_end_offset), drops_all=leader_start_offset > log_end_offset)
