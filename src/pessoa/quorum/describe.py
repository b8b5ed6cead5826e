"""DescribeQuorum: leader, voters and how far they are (KIP-836).

Only the leader of the quorum can answer, and only about partition 0 of `__cluster_metadata`: a request that names
anything else gets UNKNOWN_TOPIC_OR_PARTITION for all it names. A leader counts as having fetched from itself this very
moment.

    v1   when each replica fetched last, and when it had caught up
    v2   the directory of each replica, and the listeners of the voters (KIP-853); older versions leave both out
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.quorum.metadata_log import METADATA_TOPIC
from pessoa.raft.messages import ReplicaKey
from pessoa.raft.roles import Leader
from pessoa.wire.api.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.raft.progress import ReplicaProgress

_FIRST_VERSION_WITH_DIRECTORIES = 2


def describe_quorum(quorum: RaftQuorum, request: DescribeQuorumRequest, version: int) -> DescribeQuorumResponse:
    """Return the state of the quorum as its leader knows it, with the offsets that voters and observers have
    fetched."""
    wanted = [(topic.topic_name, [one.partition_index for one in topic.partitions]) for topic in request.topics]
    if wanted != [(METADATA_TOPIC, [0])]:
        topics = [
            DescribeQuorumResponseTopicData(topic_name=name, partitions=[_unknown(index) for index in indexes])
            for name, indexes in wanted
        ]
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, error_message="", topics=topics)
    role = quorum.raft.role
    if not isinstance(role, Leader):
        refused = _partition_error(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        topics = [DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[refused])]
        return DescribeQuorumResponse(error_code=ErrorCode.NONE, error_message="", topics=topics)
    voters, now_ms = quorum.raft.voters, quorum.monotonic_ms()
    states = {one.key.id: _state(quorum, one) for one in role.progress.replicas.values()}
    own = quorum.raft.own
    current_voters = [
        _own_state(quorum, voter.key) if voter.key.matches(own) else _voter_state(voter.key, states) for voter in voters
    ]
    observers = [states[one.key.id] for one in role.progress.observers(voters, now_ms)]
    has_directories = version >= _FIRST_VERSION_WITH_DIRECTORIES
    if not has_directories:
        for state in (*current_voters, *observers):
            state.replica_directory_id = ZERO_UUID
    partition = DescribeQuorumResponsePartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message="",
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=current_voters,
        observers=observers,
    )
    nodes = [
        Node(
            node_id=voter.key.id,
            listeners=[
                Listener(name=name, host=address.host, port=address.port) for name, address in voter.listeners.items()
            ],
        )
        for voter in voters
    ]
    topics = [DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    return DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message="",
        topics=topics,
        nodes=nodes if has_directories else [],
    )


def _state(quorum: RaftQuorum, progress: ReplicaProgress) -> ReplicaState:
    # Fetch times are kept on the monotonic clock, and the response has them on the wall clock.
    shift_ms = quorum.now_ms() - quorum.monotonic_ms()
    return ReplicaState(
        replica_id=progress.key.id,
        replica_directory_id=progress.key.directory_id,
        log_end_offset=progress.end_offset,
        last_fetch_timestamp=progress.last_fetch_ms + shift_ms if progress.last_fetch_ms >= 0 else -1,
        last_caught_up_timestamp=progress.last_caught_up_ms + shift_ms if progress.last_caught_up_ms >= 0 else -1,
    )


def _own_state(quorum: RaftQuorum, key: ReplicaKey) -> ReplicaState:
    now_ms = quorum.now_ms()
    return ReplicaState(
        replica_id=key.id,
        replica_directory_id=key.directory_id,
        log_end_offset=quorum.log_end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )


def _voter_state(key: ReplicaKey, states: Mapping[int, ReplicaState]) -> ReplicaState:
    known = states.get(key.id)
    if known is not None and key.matches(ReplicaKey(key.id, known.replica_directory_id)):
        # As the voters are known: where the configuration names them, without a directory.
        known.replica_directory_id = key.directory_id
        return known
    return ReplicaState(replica_id=key.id, replica_directory_id=key.directory_id, log_end_offset=-1)


def _unknown(index: int) -> DescribeQuorumResponsePartitionData:
    return _partition_error(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _partition_error(index: int, code: ErrorCode) -> DescribeQuorumResponsePartitionData:
    return DescribeQuorumResponsePartitionData(
        partition_index=index,
        error_code=code,
        error_message=code.text,
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )
