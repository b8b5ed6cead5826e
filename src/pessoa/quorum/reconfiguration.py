"""Changing the voters: AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter (KIP-853).

One change at a time, and none before the leader has committed something of its own epoch: then the majority of the
voters before and that of those after have a member in common, whatever became of changes that were never committed.

A new voter must have caught up before it counts, or the quorum would wait for it. A leader that removes itself goes on
until that is committed, without counting itself, and resigns then by itself: see `pessoa.raft.machine`.

The errors are Kafka's: what may pass if one tries again is REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.net.channel import ChannelFailed
from pessoa.raft.messages import ReplicaKey
from pessoa.raft.roles import Leader
from pessoa.raft.voters import KRAFT_VERSION_DYNAMIC, KRAFT_VERSION_STATIC, Address, Voter, VoterSet
from pessoa.wire.api.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from pessoa.wire.api.update_raft_voter import CurrentLeader, UpdateRaftVoterRequest, UpdateRaftVoterResponse
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.quorum.raft_quorum import RaftQuorum

KRAFT_VERSION = "kraft.version"


class Problem(NamedTuple):
    error: ErrorCode
    message: str | None = None


_DONE = Problem(ErrorCode.NONE)


async def add_voter(quorum: RaftQuorum, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    problem = await _add(quorum, request)
    return AddRaftVoterResponse(throttle_time_ms=0, error_code=problem.error, error_message=problem.message)


async def _add(quorum: RaftQuorum, request: AddRaftVoterRequest) -> Problem:
    deadline_ms = quorum.monotonic_ms() + request.timeout_ms
    if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
        return Problem(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if not request.listeners or request.voter_id < 0:
        return Problem(ErrorCode.INVALID_REQUEST, "a voter has an id and at least one listener")
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    listeners = {one.name: Address(one.host, one.port) for one in request.listeners}
    problem = _why_not(quorum)
    if problem is None and key.id in quorum.raft.voters.by_id:
        problem = Problem(ErrorCode.DUPLICATE_VOTER, f"node {key.id} is a voter")
    if problem is not None:
        return problem
    levels = await _supported_levels(quorum, next(iter(listeners.values())))
    if levels is None:
        return Problem(ErrorCode.REQUEST_TIMED_OUT, f"node {key.id} cannot be asked what it supports")
    if not levels[0] <= quorum.log.history.kraft_version <= levels[1]:
        return Problem(ErrorCode.INVALID_REQUEST, f"node {key.id} supports {KRAFT_VERSION} {levels[0]} to {levels[1]}")
    target = quorum.log_end_offset
    while isinstance(role := quorum.raft.role, Leader) and role.progress.end_offset_of(key) < target:
        if quorum.monotonic_ms() >= deadline_ms:
            return Problem(ErrorCode.REQUEST_TIMED_OUT, f"node {key.id} has not caught up")
        # Fetches are many, and call no subscriber; this is rare.
        await quorum.wait_ms(quorum.settings.retry_backoff_ms)
    problem = _why_not(quorum)
    if problem is None and key.id in quorum.raft.voters.by_id:
        problem = Problem(ErrorCode.DUPLICATE_VOTER, f"node {key.id} is a voter")
    if problem is not None:
        return problem
    voters = quorum.raft.voters.with_voter(Voter(key, listeners, *levels))
    return await _change(quorum, voters, deadline_ms, waits=request.ack_when_committed)


async def remove_voter(quorum: RaftQuorum, request: RemoveRaftVoterRequest) -> RemoveRaftVoterResponse:
    problem = await _remove(quorum, request)
    return RemoveRaftVoterResponse(throttle_time_ms=0, error_code=problem.error, error_message=problem.message)


async def _remove(quorum: RaftQuorum, request: RemoveRaftVoterRequest) -> Problem:
    if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
        return Problem(ErrorCode.INCONSISTENT_CLUSTER_ID)
    problem = _why_not(quorum)
    if problem is not None:
        return problem
    voters = quorum.raft.voters
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    known = voters.by_id.get(key.id)
    if known is None or known.key != key:
        return Problem(ErrorCode.VOTER_NOT_FOUND, f"no voter has the id {key.id} and the directory {key.directory_id}")
    if len(voters) == 1:
        return Problem(ErrorCode.INVALID_REQUEST, "a quorum cannot be without voters")
    deadline_ms = quorum.monotonic_ms() + quorum.settings.request_timeout_ms
    return await _change(quorum, voters.without(key.id), deadline_ms, waits=True)


async def update_voter(quorum: RaftQuorum, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    problem = await _update(quorum, request)
    leader = quorum.leader_id
    address = quorum.endpoint_of(leader)
    return UpdateRaftVoterResponse(
        throttle_time_ms=0,
        error_code=problem.error,
        current_leader=CurrentLeader(
            leader_id=leader,
            leader_epoch=quorum.epoch,
            host="" if address is None else address[0],
            port=0 if address is None else address[1],
        ),
    )


async def _update(quorum: RaftQuorum, request: UpdateRaftVoterRequest) -> Problem:
    if request.cluster_id is not None and request.cluster_id != quorum.cluster_id:
        return Problem(ErrorCode.INCONSISTENT_CLUSTER_ID)
    if request.current_leader_epoch != quorum.epoch:
        is_old = request.current_leader_epoch < quorum.epoch
        return Problem(ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH)
    if not quorum.is_leader:
        return Problem(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if quorum.log.history.kraft_version == KRAFT_VERSION_STATIC:
        # The configuration names the voters; there is nothing to write.
        return _DONE
    problem = _why_not(quorum)
    if problem is not None:
        return problem
    feature = request.kraft_version_feature
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    known = quorum.raft.voters.by_id.get(key.id)
    if known is None or known.key != key:
        return Problem(ErrorCode.VOTER_NOT_FOUND)
    level = quorum.log.history.kraft_version
    if not request.listeners or not feature.min_supported_version <= level <= feature.max_supported_version:
        return Problem(ErrorCode.INVALID_REQUEST)
    listeners = {one.name: Address(one.host, one.port) for one in request.listeners}
    updated = Voter(key, listeners, feature.min_supported_version, feature.max_supported_version)
    if updated == known:
        return _DONE
    deadline_ms = quorum.monotonic_ms() + quorum.settings.request_timeout_ms
    return await _change(quorum, quorum.raft.voters.with_voter(updated), deadline_ms, waits=True)


def _why_not(quorum: RaftQuorum) -> Problem | None:
    """Return why this node cannot change the voters at this moment; None if it can."""
    role, history = quorum.raft.role, quorum.log.history
    if not isinstance(role, Leader):
        return Problem(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if quorum.high_watermark <= role.progress.epoch_start_offset:
        return Problem(ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed anything of its epoch")
    if history.kraft_version < KRAFT_VERSION_DYNAMIC:
        return Problem(
            ErrorCode.UNSUPPORTED_VERSION,
            f"the voters of {KRAFT_VERSION} {KRAFT_VERSION_STATIC} stand in the configuration",
        )
    if history.voters_offset >= quorum.high_watermark:
        return Problem(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way")
    return None


async def _change(quorum: RaftQuorum, voters: VoterSet, deadline_ms: int, *, waits: bool) -> Problem:
    epoch = quorum.epoch
    offset = quorum.append_control([voters.record()])
    while waits and quorum.high_watermark <= offset:
        if not quorum.is_leader or quorum.epoch != epoch:
            return Problem(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not await quorum.wait_for_change(deadline_ms):
            return Problem(ErrorCode.REQUEST_TIMED_OUT, "the change is written and not committed")
    return _DONE


async def _supported_levels(quorum: RaftQuorum, address: Address) -> tuple[int, int] | None:
    """Return the levels of kraft.version that a node supports; None if it does not answer."""
    request = ApiVersionsRequest(client_software_name="pessoa", client_software_version="1")
    try:
        response = await quorum.send(*address, request)
    except ChannelFailed:
        return None
    assert isinstance(response, ApiVersionsResponse)
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION:
            return feature.min_version, feature.max_version
    return KRAFT_VERSION_STATIC, KRAFT_VERSION_STATIC
