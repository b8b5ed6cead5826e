"""`quorum-state`: the epoch that this node has seen and whom it has voted for, which it may never forget.

One line of JSON in the fields' wire names, with the version at the end; version 0 belongs to a quorum whose voters the
configuration names (`kraft.version` 0), version 1 to one whose voters stand in the log (KIP-853):

    {"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}
    {"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}

It is on the disk before anything is said or done in the epoch it names.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.raft.messages import NO_NODE, ElectionState, ReplicaKey
from pessoa.raft.voters import KRAFT_VERSION_STATIC
from pessoa.wire.stored.quorum_state import QuorumStateData, Voter

if TYPE_CHECKING:
    from pessoa.log.files import Disk
    from pessoa.raft.voters import VoterHistory

QUORUM_STATE_FILE = "quorum-state"
STATIC_VOTERS = 0
VOTERS_IN_LOG = 1


_WHAT_TO_DO = (
    "Without it this controller could vote twice in one epoch. Restore it from a copy; or give the node an empty "
    "directory, so that it gets the metadata from the other controllers"
)


class CorruptQuorumState(Exception):
    """The `quorum-state` file is damaged. A node that went on without it could vote twice in one epoch."""


def election_of(state: QuorumStateData) -> ElectionState:
    voted = None if state.voted_id == NO_NODE else ReplicaKey(state.voted_id, state.voted_directory_id)
    return ElectionState(max(state.leader_epoch, 0), state.leader_id, voted)


def state_of(election: ElectionState, node_id: int, history: VoterHistory) -> tuple[QuorumStateData, int]:
    """Return the content of `quorum-state` for this node, and the version in which it is written."""
    has_static_voters = history.kraft_version == KRAFT_VERSION_STATIC
    voted = election.voted
    state = QuorumStateData(
        leader_id=election.leader_id,
        leader_epoch=election.epoch,
        # A leader's own vote goes without saying; that of a follower still binds it.
        voted_id=NO_NODE if voted is None or election.leader_id == node_id else voted.id,
        voted_directory_id=ZERO_UUID if voted is None else voted.directory_id,
        current_voters=[Voter(voter_id=voter) for voter in history.voters.ids] if has_static_voters else [],
    )
    return state, STATIC_VOTERS if has_static_voters else VOTERS_IN_LOG


def render_quorum_state(state: QuorumStateData, version: int) -> bytes:
    fields: dict[str, object] = {}
    if version == STATIC_VOTERS:
        fields["clusterId"] = state.cluster_id
    fields |= {"leaderId": state.leader_id, "leaderEpoch": state.leader_epoch, "votedId": state.voted_id}
    if version == STATIC_VOTERS:
        fields["appliedOffset"] = state.applied_offset
        fields["currentVoters"] = [{"voterId": voter.voter_id} for voter in state.current_voters or ()]
    else:
        fields["votedDirectoryId"] = str(state.voted_directory_id)
    fields["data_version"] = version
    return json.dumps(fields, separators=(",", ":")).encode()


def parse_quorum_state(data: bytes, file_name: str = QUORUM_STATE_FILE) -> tuple[QuorumStateData, int]:
    """Return the state and the version in which it was written."""
    try:
        fields = json.loads(data)
        version = int(fields["data_version"])
        if version not in QuorumStateData.versions:
            raise CorruptQuorumState(f"{file_name} is of a newer Kafka: version {version}, where 0 and 1 are known")
        voters = [Voter(voter_id=int(voter["voterId"])) for voter in fields.get("currentVoters") or ()]
        state = QuorumStateData(
            cluster_id=str(fields.get("clusterId", "")),
            leader_id=int(fields["leaderId"]),
            leader_epoch=int(fields["leaderEpoch"]),
            voted_id=int(fields["votedId"]),
            voted_directory_id=Uuid.parse(fields["votedDirectoryId"]) if "votedDirectoryId" in fields else ZERO_UUID,
            applied_offset=int(fields.get("appliedOffset", 0)),
            current_voters=voters,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptQuorumState(f"{file_name} is damaged: {_excerpt(data)} says nothing. {_WHAT_TO_DO}") from error
    return state, version


def _excerpt(data: bytes) -> str:
    return repr(data[:60]) if data else "an empty file"


def read_quorum_state(disk: Disk, path: str) -> QuorumStateData | None:
    """Return the stored state; None if this node has never taken part in an election."""
    if not disk.exists(path):
        return None
    return parse_quorum_state(disk.read_file(path), path)[0]


def write_quorum_state(disk: Disk, path: str, state: QuorumStateData, version: int = STATIC_VOTERS) -> None:
    disk.write_file(path, render_quorum_state(state, version))
