"""Calls the listeners of a node with each committed batch, once and in order, and with each new leader of the quorum.

    high watermark moves ──▶ batches from `applied_offset` on ──▶ listeners ──▶ the future of an append has its offset

A leader still has its own appends decoded (`uncommitted_appends`); everything else is read from the log. A snapshot
takes the place of all batches before it.

A leader is announced when it has applied all records of earlier epochs: its own LeaderChange record is committed then,
and with it all that is older. Any other change of the leader or the epoch is announced at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.quorum.batches import MetadataBatch, decode_batch
from pessoa.quorum.quorum_settings import LeaderAndEpoch
from pessoa.raft.messages import NO_NODE
from pessoa.raft.roles import Leader

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.quorum.metadata_log import MetadataLog
    from pessoa.quorum.snapshot_file import SnapshotReader
    from pessoa.quorum.uncommitted_appends import UncommittedAppends
    from pessoa.raft.machine import Raft


class CommittedDelivery:
    """Calls the listeners with committed batches. They have seen exactly the batches below `applied_offset`."""

    def __init__(self, uncommitted: UncommittedAppends) -> None:
        self.listeners: list[Callable[[MetadataBatch], None]] = []
        self.on_snapshot: list[Callable[[SnapshotReader], None]] = []
        self.on_leadership: list[Callable[[LeaderAndEpoch], None]] = []
        # Called with each batch that this node has appended as leader, when it is committed.
        self.on_commit: list[Callable[[MetadataBatch], None]] = []
        self.applied_offset = 0
        self._uncommitted = uncommitted
        self._announced_leader = LeaderAndEpoch(NO_NODE, -1)

    def __repr__(self) -> str:
        return f"<CommittedDelivery: up to {self.applied_offset}, {self._announced_leader}>"

    def deliver(self, log: MetadataLog, end: int) -> bool:
        """Call the listeners with the batches below the high watermark. Return whether there were new ones."""
        if self.applied_offset >= end:
            return False
        log.partition.update_high_watermark(end)
        for _, batch, committed in self._uncommitted.take_committed(self.applied_offset, end):
            self._apply(batch)
            for listener in self.on_commit:
                listener(batch)
            if not committed.done():
                committed.set_result(batch.last_offset)
        if self.applied_offset < end:
            until = self._uncommitted.next_base_offset(end)
            for raw in log.committed_from(self.applied_offset):
                self._apply(decode_batch(raw))
                if self.applied_offset >= until:
                    break
        return True

    def _apply(self, batch: MetadataBatch) -> None:
        self.applied_offset = batch.last_offset + 1
        for listener in self.listeners:
            listener(batch)

    def load_snapshot(self, reader: SnapshotReader) -> None:
        self.applied_offset = reader.snapshot.offset
        for listener in self.on_snapshot:
            listener(reader)

    def announce_leadership(self, raft: Raft) -> bool:
        """Call the listeners if the leader or the epoch has changed. Return whether it has."""
        current = LeaderAndEpoch(raft.leader_id, raft.epoch)
        if current == self._announced_leader:
            return False
        if isinstance(raft.role, Leader) and self.applied_offset <= raft.role.progress.epoch_start_offset:
            return False
        self._announced_leader = current
        for listener in self.on_leadership:
            listener(current)
        return True
