"""The `quorum-state` file: the vote and the epoch of a member of the metadata quorum."""

from __future__ import annotations

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, int32, int64, string, uuid


class Voter(Struct):
    voter_id: int = int32()


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    cluster_id: str = string("0", default="")
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    voted_id: int = int32(default=-1)
    voted_directory_id: Uuid = uuid("1+", default=ZERO_UUID)
    applied_offset: int = int64("0", default=0)
    current_voters: list[Voter] | None = array(Voter, "0", default=(), nullable=ALL)
