"""What a controller that starts can rely on of what its directory has: see `pessoa.raft.memory` for what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.quorum.metadata_log import CorruptMetadataLog
from pessoa.raft.memory import Memory

if TYPE_CHECKING:
    from pessoa.quorum.metadata_log import MetadataLog
    from pessoa.raft.messages import ReplicaKey


def memory_of(metadata_log: MetadataLog, own: ReplicaKey, *, has_state: bool) -> Memory:
    """`has_state` is whether there is a `quorum-state`. CorruptMetadataLog where only this node could know better."""
    voters = metadata_log.history.voters
    voter = voters.by_id.get(own.id)
    if metadata_log.has_forgotten:
        if voters.has(own) and len(voters) == 1:
            raise CorruptMetadataLog(_alone(metadata_log))
        # Whether it is a voter may be among what it has forgotten.
        return Memory.DAMAGED
    if voter is None or not voter.key.matches(own):
        # Before an observer becomes a voter it has caught up.
        return Memory.WHOLE
    has_nothing = not has_state and metadata_log.log_end_offset == 0
    if has_nothing and len(voters) > 1 and voter.key.directory_id == ZERO_UUID:
        return Memory.NEW
    return Memory.WHOLE


def _alone(metadata_log: MetadataLog) -> str:
    mark = metadata_log.mark
    return (
        f"{metadata_log.directory} ends at {metadata_log.log_end_offset} and was synced up to {mark.offset}: the "
        "disk has lost or changed what this controller, the only voter, had acknowledged. Restore the directory from a "
        f"copy, or delete {mark.path} to go on without what is missing"
    )
