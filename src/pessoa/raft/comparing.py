"""Two logs side by side: which of them reaches further, where they part, and where a follower has to cut.

Two logs that have a record of the same offset and epoch are the same up to there: an epoch has one leader, and a leader
writes an offset once. So the last epoch of a log and where it ends say all that another has to know of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pessoa.raft.messages import Fetch, OffsetAndEpoch
    from pessoa.raft.ready import LogState


class Parting(NamedTuple):
    """Why a fetch cannot go on from its offset: the logs part at `diverging`, or only a snapshot has what is wanted."""

    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


def reaches(log: LogState, last_epoch: int, log_end_offset: int) -> bool:
    """Whether a log that ends so has at least as much as this one: what a candidate must show."""
    return (last_epoch, log_end_offset) >= (log.last_epoch, log.log_end_offset)


def parting(log: LogState, request: Fetch) -> Parting | None:
    """As the leader's log sees the asker's; None if the asker's is the beginning of it."""
    start, snapshot = log.log_start_offset, log.latest_snapshot
    if request.offset < start and snapshot is not None:
        return Parting(snapshot=snapshot)
    if request.offset == 0 and request.last_epoch == 0 and start == 0:
        return None
    common = log.end_of_epoch(request.last_epoch)
    if common.epoch == request.last_epoch and common.offset >= request.offset:
        return None
    if common.offset < start and snapshot is not None:
        # Not even the point at which they part is in this log.
        return Parting(snapshot=snapshot)
    return Parting(diverging=common)


def truncation(log: LogState, diverging: OffsetAndEpoch) -> int:
    """Where a follower cuts: the leader's log up to `diverging` and no further may be the same as its own."""
    end = min(diverging.offset, log.log_end_offset)
    if diverging.epoch > 0:
        own = log.end_of_epoch(diverging.epoch)
        return min(own.offset, diverging.offset) if own.epoch == diverging.epoch else min(own.offset, end)
    return end
