"""What a controller that starts can rely on of what its directory has: see `pessoa.raft.memory` for what follows.

Where offsets or epochs are damaged, the log is truncated before the first of them: a follower gets what was there from
its leader. The only voter has no leader to get it from, and misleads no other by an epoch: it keeps its log, and goes
on in the largest epoch that it finds. It does not start if that epoch is so large that no row of elections can have led
to it, since no broker would follow, or if an offset is another one, since every broker would read another record there.
What recovery has truncated of the only voter's log by then is kept in copies (`log_loader.DAMAGED_SUFFIX`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.quorum.metadata_log import CorruptMetadataLog
from pessoa.raft.machine import MAX_EPOCH_LEAP
from pessoa.raft.memory import Memory

if TYPE_CHECKING:
    from pessoa.quorum.metadata_log import MetadataLog
    from pessoa.raft.messages import ReplicaKey


def memory_of(metadata_log: MetadataLog, own: ReplicaKey, latest_epoch: int | None, now_ms: int) -> Memory:
    """Return whether this voter's log still has everything that the voter has acknowledged. `latest_epoch` is that of
    `quorum-state`, None if there is none. Raises CorruptMetadataLog if records are lost and no other voter can have
    them."""
    voters = metadata_log.history.voters
    is_alone = voters.has(own) and len(voters) == 1
    if metadata_log.damaged_from is not None:
        if not is_alone:
            metadata_log.forget_damage(now_ms)
            voters = metadata_log.history.voters
        elif metadata_log.is_displaced:
            raise CorruptMetadataLog(_displaced_batch_message(metadata_log))
        elif latest_epoch is not None and metadata_log.last_epoch > latest_epoch + MAX_EPOCH_LEAP:
            raise CorruptMetadataLog(_impossible_epoch_message(metadata_log, latest_epoch))
    voter = voters.by_id.get(own.id)
    if metadata_log.has_forgotten:
        if is_alone:
            raise CorruptMetadataLog(_lost_log_message(metadata_log))
        # The leader has what was damaged. Whether this node is a voter may be among what it has forgotten.
        metadata_log.remove_damaged_copies()
        return Memory.DAMAGED
    if voter is None or not voter.key.matches(own):
        # Before an observer becomes a voter it has caught up.
        return Memory.WHOLE
    has_nothing = latest_epoch is None and metadata_log.log_end_offset == 0
    if has_nothing and len(voters) > 1 and voter.key.directory_id == ZERO_UUID:
        return Memory.NEW
    return Memory.WHOLE


def _lost_log_message(metadata_log: MetadataLog) -> str:
    synced = metadata_log.durable_offset_file
    return (
        f"{metadata_log.directory} ends at {metadata_log.log_end_offset} and was synced up to {synced.offset}: the "
        "disk has lost or changed what this controller, the only voter, had acknowledged. Restore the directory from a "
        f"copy, or delete {synced.path} to go on without what is missing{_damaged_copies_sentence(metadata_log)}"
    )


def _displaced_batch_message(metadata_log: MetadataLog) -> str:
    return (
        f"{metadata_log.directory} has another batch at {metadata_log.damaged_from} than belongs there: the disk has "
        "changed what this controller, the only voter, had acknowledged. Restore the directory from a "
        f"copy{_damaged_copies_sentence(metadata_log)}"
    )


def _damaged_copies_sentence(metadata_log: MetadataLog) -> str:
    names = metadata_log.damaged_copies()
    return f". The damaged segments are kept as {', '.join(names)}" if names else ""


def _impossible_epoch_message(metadata_log: MetadataLog, latest_epoch: int) -> str:
    return (
        f"{metadata_log.directory} has batches of epoch {metadata_log.last_epoch}, and the latest epoch of this "
        f"controller, the only voter, was {latest_epoch}: the disk has changed one of both. Restore the directory from "
        "a copy"
    )
