"""From voters that the configuration names to voters that stand in the log: raising `kraft.version` to 1 (KIP-853).

One control batch holds the new level and the voters as they are. It names the directory of each, which no configuration
does; the leader has heard it from the voters themselves, in their fetches. So a voter that has not fetched from this
leader stands in the way, and so does a change of the voters that is under way. There is no way back: a voter that had
been added since would be none any more, and no node could tell what a majority of the others had agreed on without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.raft.roles import Leader
from pessoa.raft.voters import Voter, VoterSet
from pessoa.wire.stored.control_record_bodies import KRaftVersionRecord

if TYPE_CHECKING:
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.records.control_records import QuorumMessage


def upgrade_problem(quorum: RaftQuorum) -> str | None:
    """Return why this node cannot raise kraft.version at this moment; None if it can."""
    role = quorum.raft.role
    if not isinstance(role, Leader) or quorum.high_watermark <= role.progress.epoch_start_offset:
        return "the leader of the quorum has not committed anything of its epoch"
    unknown = [voter.key.id for voter in _voters_with_directories(quorum, role) if voter.key.directory_id == ZERO_UUID]
    if unknown:
        return f"the leader has not heard from the voters {unknown}, whose directories have to be written down"
    return None


def upgrade_messages(quorum: RaftQuorum, level: int) -> list[QuorumMessage]:
    role = quorum.raft.role
    assert isinstance(role, Leader), f"{quorum!r} does not lead"
    return [KRaftVersionRecord(version=0, kraft_version=level), _voters_with_directories(quorum, role).record()]


def _voters_with_directories(quorum: RaftQuorum, role: Leader) -> VoterSet:
    """Return the voters, with the directory id of each that has fetched from this leader."""
    own, replicas = quorum.raft.own, role.progress.replicas

    def with_directory(voter: Voter) -> Voter:
        if voter.key.matches(own):
            return voter._replace(key=own, listeners=quorum.node.listeners or voter.listeners)
        known = replicas.get(voter.key.id)
        return voter if known is None else voter._replace(key=known.key)

    return VoterSet(map(with_directory, quorum.raft.voters))
