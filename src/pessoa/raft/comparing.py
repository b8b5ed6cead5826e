"""Two logs compared: which of them is more up to date, where they diverge, and where a follower has to truncate.

Two logs that have a record of the same offset and epoch are the same up to there: an epoch has one leader, and a leader
writes an offset once. So the last epoch of a log and where it ends say all that another has to know of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pessoa.raft.messages import Fetch, OffsetAndEpoch
    from pessoa.raft.ready import RaftLogView


class Divergence(NamedTuple):
    """Why a replica cannot fetch from its offset: its log diverges after `diverging`, or only `snapshot` still has that
    offset."""

    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None


def reaches(log: RaftLogView, last_epoch: int, log_end_offset: int) -> bool:
    """Return whether a candidate's log, with this last epoch and end offset, is at least as up to date as `log`; if
    not, it gets no vote."""
    return (last_epoch, log_end_offset) >= (log.last_epoch, log.log_end_offset)


def find_divergence(log: RaftLogView, request: Fetch) -> Divergence | None:
    """Return why the fetch cannot continue from its offset; None if the log of the replica that fetches is a prefix of
    the leader's."""
    start, snapshot = log.log_start_offset, log.latest_snapshot
    if request.offset < start and snapshot is not None:
        return Divergence(snapshot=snapshot)
    if request.offset == 0 and request.last_epoch == 0 and start == 0:
        return None
    common = log.end_of_epoch(request.last_epoch)
    if common.epoch == request.last_epoch and common.offset >= request.offset:
        return None
    if common.offset < start and snapshot is not None:
        # Not even the offset at which they diverge is in this log.
        return Divergence(snapshot=snapshot)
    return Divergence(diverging=common)


def truncation(log: RaftLogView, diverging: OffsetAndEpoch) -> int:
    """Return the offset to which a follower truncates, given the `diverging` offset and epoch of its leader: only up to
    there can the two logs be equal."""
    end = min(diverging.offset, log.log_end_offset)
    if diverging.epoch > 0:
        own = log.end_of_epoch(diverging.epoch)
        return min(own.offset, diverging.offset) if own.epoch == diverging.epoch else min(own.offset, end)
    return end
