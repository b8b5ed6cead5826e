"""What a controller does about its own place among the voters, where they stand in the log (KIP-853).

    a voter that listens elsewhere than the log says        UpdateRaftVoter
    no voter, and it may join by itself                     AddRaftVoter; after RemoveRaftVoter, if the log has a voter
                                                            with its id and another directory: a disk that was lost

It looks now and then and asks the leader of the quorum, which may be this node. What is refused is tried again the next
time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.net.channel import ChannelFailed
from pessoa.raft.roles import Follower
from pessoa.raft.voters import KRAFT_VERSION_DYNAMIC, KRAFT_VERSION_STATIC, Voter
from pessoa.wire.api import add_raft_voter, update_raft_voter
from pessoa.wire.api.remove_raft_voter import RemoveRaftVoterRequest
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.wire.schema import Message

log = logging.getLogger("pessoa.quorum")


async def keep_membership(quorum: RaftQuorum) -> None:
    """Add this node to the voters, or update its entry, whenever that is necessary, as long as the quorum runs."""
    while True:
        await quorum.wait_ms(quorum.settings.fetch_timeout_ms)
        request = wanted_change(quorum)
        address = quorum.endpoint_of(quorum.leader_id)
        if request is None or address is None:
            continue
        try:
            response = await quorum.send(*address, request)
        except ChannelFailed as failure:
            log.debug("%s: %s", type(request).__name__, failure)
            continue
        error = ErrorCode.of(response.error_code)  # type: ignore[attr-defined]
        if error is not ErrorCode.NONE:
            log.info("the leader answers %s to %s of node %s", error.name, type(request).__name__, quorum.node_id)


def wanted_change(quorum: RaftQuorum) -> Message | None:
    """Return the request by which this node joins the voters or updates its own entry; None if there is nothing to
    change, or no leader is known."""
    raft, history = quorum.raft, quorum.log.history
    if history.kraft_version < KRAFT_VERSION_DYNAMIC:
        return None
    if not raft.is_leader and not (isinstance(raft.role, Follower) and raft.role.trusts_leader):
        return None
    known = raft.voters.by_id.get(quorum.node_id)
    if known is not None and known.key == raft.own:
        wanted = Voter(raft.own, quorum.node.listeners)
        return None if known == wanted else _update(quorum, wanted)
    if not quorum.node.auto_join or raft.is_leader:
        return None
    if known is not None:
        return RemoveRaftVoterRequest(
            cluster_id=quorum.cluster_id, voter_id=known.key.id, voter_directory_id=known.key.directory_id
        )
    return add_raft_voter.AddRaftVoterRequest(
        cluster_id=quorum.cluster_id,
        timeout_ms=quorum.settings.request_timeout_ms,
        voter_id=raft.own.id,
        voter_directory_id=raft.own.directory_id,
        listeners=[
            add_raft_voter.Listener(name=name, host=one.host, port=one.port)
            for name, one in quorum.node.listeners.items()
        ],
        # The node itself helps to commit it, so it must not wait for that.
        ack_when_committed=False,
    )


def _update(quorum: RaftQuorum, wanted: Voter) -> Message:
    return update_raft_voter.UpdateRaftVoterRequest(
        cluster_id=quorum.cluster_id,
        current_leader_epoch=quorum.epoch,
        voter_id=wanted.key.id,
        voter_directory_id=wanted.key.directory_id,
        listeners=[
            update_raft_voter.Listener(name=name, host=one.host, port=one.port)
            for name, one in wanted.listeners.items()
        ],
        kraft_version_feature=update_raft_voter.KRaftVersionFeature(
            min_supported_version=KRAFT_VERSION_STATIC, max_supported_version=KRAFT_VERSION_DYNAMIC
        ),
    )
