"""Between the machine's words and Kafka's: `pessoa.raft.messages` ⇄ `pessoa.wire.api`.

Every request of the quorum is about partition 0 of `__cluster_metadata` and names the cluster. One that is about
something else, or from another cluster, is a `Refusal` with the error that Kafka gives for it, as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pessoa.quorum.metadata_log import METADATA_TOPIC, METADATA_TOPIC_ID
from pessoa.raft.messages import (
    NO_NODE,
    BeginEpoch,
    EndEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    OffsetAndEpoch,
    ReplicaKey,
    Reply,
    Request,
    Vote,
    VoteReply,
)
from pessoa.raft.voters import Address
from pessoa.wire.api import begin_quorum_epoch as begin_api
from pessoa.wire.api import end_quorum_epoch as end_api
from pessoa.wire.api import fetch as fetch_api
from pessoa.wire.api import fetch_snapshot as snapshot_api
from pessoa.wire.api import vote as vote_api
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message


class Introduction(NamedTuple):
    """The cluster id, listeners and fetch limits that a member puts into its requests."""

    cluster_id: str
    listeners: Mapping[str, Address]
    fetch_max_bytes: int
    fetch_max_wait_ms: int


# Requests out.


def request_of(request: Request, own: Introduction) -> Message:
    match request:
        case Vote():
            return vote_api.VoteRequest(
                cluster_id=own.cluster_id,
                voter_id=request.voter.id,
                topics=[vote_api.TopicData(topic_name=METADATA_TOPIC, partitions=[_vote_partition(request)])],
            )
        case BeginEpoch():
            partition = begin_api.PartitionData(
                partition_index=0,
                voter_directory_id=request.voter.directory_id,
                leader_id=request.leader_id,
                leader_epoch=request.epoch,
            )
            return begin_api.BeginQuorumEpochRequest(
                cluster_id=own.cluster_id,
                voter_id=request.voter.id,
                topics=[begin_api.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
                leader_endpoints=[
                    begin_api.LeaderEndpoint(name=name, host=address.host, port=address.port)
                    for name, address in own.listeners.items()
                ],
            )
        case EndEpoch():
            return _end_request(request, own)
        case Fetch():
            return _fetch_request(request, own)


def _vote_partition(request: Vote) -> vote_api.PartitionData:
    return vote_api.PartitionData(
        partition_index=0,
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory_id,
        voter_directory_id=request.voter.directory_id,
        last_offset_epoch=request.last_epoch,
        last_offset=request.log_end_offset,
        pre_vote=request.pre_vote,
    )


def _end_request(request: EndEpoch, own: Introduction) -> Message:
    partition = end_api.PartitionData(
        partition_index=0,
        leader_id=request.leader_id,
        leader_epoch=request.epoch,
        preferred_successors=[key.id for key in request.successors],
        preferred_candidates=[
            end_api.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in request.successors
        ],
    )
    return end_api.EndQuorumEpochRequest(
        cluster_id=own.cluster_id,
        topics=[end_api.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        leader_endpoints=[
            end_api.LeaderEndpoint(name=name, host=address.host, port=address.port)
            for name, address in own.listeners.items()
        ],
    )


def _fetch_request(request: Fetch, own: Introduction) -> Message:
    partition = fetch_api.FetchPartition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        partition_max_bytes=own.fetch_max_bytes,
        replica_directory_id=request.replica.directory_id,
        high_watermark=request.high_watermark,
    )
    topic = fetch_api.FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    return fetch_api.FetchRequest(
        cluster_id=own.cluster_id,
        replica_state=fetch_api.ReplicaState(replica_id=request.replica.id),
        max_wait_ms=own.fetch_max_wait_ms,
        min_bytes=0,
        max_bytes=own.fetch_max_bytes,
        topics=[topic],
    )


# Requests in.


def check_cluster(named: str | None, cluster_id: str) -> None:
    if named is not None and named != cluster_id:
        raise Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID)


def vote_of(request: vote_api.VoteRequest, own: ReplicaKey) -> Vote:
    if [topic.topic_name for topic in request.topics] != [METADATA_TOPIC] or len(request.topics[0].partitions) != 1:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    (partition,) = request.topics[0].partitions
    if partition.partition_index != 0 or partition.last_offset < 0 or partition.last_offset_epoch < 0:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    voter = own.id if request.voter_id == NO_NODE else request.voter_id
    return Vote(
        partition.replica_epoch,
        ReplicaKey(partition.replica_id, partition.replica_directory_id),
        partition.last_offset_epoch,
        partition.last_offset,
        partition.pre_vote,
        ReplicaKey(voter, partition.voter_directory_id),
    )


def begin_of(request: begin_api.BeginQuorumEpochRequest, own: ReplicaKey) -> BeginEpoch:
    if [topic.topic_name for topic in request.topics] != [METADATA_TOPIC] or len(request.topics[0].partitions) != 1:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    (partition,) = request.topics[0].partitions
    voter = own.id if request.voter_id == NO_NODE else request.voter_id
    return BeginEpoch(partition.leader_epoch, partition.leader_id, ReplicaKey(voter, partition.voter_directory_id))


def end_of(request: end_api.EndQuorumEpochRequest) -> EndEpoch:
    if [topic.topic_name for topic in request.topics] != [METADATA_TOPIC] or len(request.topics[0].partitions) != 1:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    (partition,) = request.topics[0].partitions
    successors = [ReplicaKey(one.candidate_id, one.candidate_directory_id) for one in partition.preferred_candidates]
    return EndEpoch(
        partition.leader_epoch,
        partition.leader_id,
        tuple(successors or map(ReplicaKey, partition.preferred_successors)),
    )


def fetch_of(request: fetch_api.FetchRequest) -> Fetch:
    topics = request.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    if topics[0].topic != METADATA_TOPIC and topics[0].topic_id != METADATA_TOPIC_ID:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    (partition,) = topics[0].partitions
    if partition.partition != 0 or partition.fetch_offset < 0 or request.max_wait_ms < 0:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    replica_id = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    return Fetch(
        partition.current_leader_epoch,
        ReplicaKey(replica_id, partition.replica_directory_id),
        partition.fetch_offset,
        max(partition.last_fetched_epoch, 0),
        partition.high_watermark,
    )


def snapshot_of(request: snapshot_api.FetchSnapshotRequest) -> snapshot_api.PartitionSnapshot:
    if [topic.name for topic in request.topics] != [METADATA_TOPIC] or len(request.topics[0].partitions) != 1:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    return request.topics[0].partitions[0]


# Answers out.


# Node ids and addresses; in a response of a node that does not lead, the leader's.
Endpoints: TypeAlias = Sequence[tuple[int, Address]]


def vote_response(reply: VoteReply, leader: Endpoints) -> vote_api.VoteResponse:
    partition = vote_api.VoteResponsePartitionData(
        partition_index=0,
        error_code=reply.error,
        leader_id=reply.leader_id,
        leader_epoch=reply.epoch,
        vote_granted=reply.granted,
    )
    topic = vote_api.VoteResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    endpoints = [vote_api.NodeEndpoint(node_id=node_id, host=host, port=port) for node_id, (host, port) in leader]
    return vote_api.VoteResponse(error_code=ErrorCode.NONE, topics=[topic], node_endpoints=endpoints)


def begin_response(reply: EpochReply, leader: Endpoints) -> begin_api.BeginQuorumEpochResponse:
    partition = begin_api.BeginQuorumEpochResponsePartitionData(
        partition_index=0, error_code=reply.error, leader_id=reply.leader_id, leader_epoch=reply.epoch
    )
    topic = begin_api.BeginQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    endpoints = [begin_api.NodeEndpoint(node_id=node_id, host=host, port=port) for node_id, (host, port) in leader]
    return begin_api.BeginQuorumEpochResponse(error_code=ErrorCode.NONE, topics=[topic], node_endpoints=endpoints)


def end_response(reply: EpochReply, leader: Endpoints) -> end_api.EndQuorumEpochResponse:
    partition = end_api.EndQuorumEpochResponsePartitionData(
        partition_index=0, error_code=reply.error, leader_id=reply.leader_id, leader_epoch=reply.epoch
    )
    topic = end_api.EndQuorumEpochResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])
    endpoints = [end_api.NodeEndpoint(node_id=node_id, host=host, port=port) for node_id, (host, port) in leader]
    return end_api.EndQuorumEpochResponse(error_code=ErrorCode.NONE, topics=[topic], node_endpoints=endpoints)


def fetch_response(reply: FetchReply, log_start_offset: int, leader: Endpoints) -> fetch_api.FetchResponse:
    diverging, snapshot = reply.diverging, reply.snapshot
    partition = fetch_api.PartitionData(
        partition_index=0,
        error_code=reply.error,
        high_watermark=reply.high_watermark,
        log_start_offset=log_start_offset,
        current_leader=fetch_api.LeaderIdAndEpoch(leader_id=reply.leader_id, leader_epoch=reply.epoch),
        diverging_epoch=None
        if diverging is None
        else fetch_api.EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.offset),
        snapshot_id=None
        if snapshot is None
        else fetch_api.SnapshotId(end_offset=snapshot.offset, epoch=snapshot.epoch),
        aborted_transactions=[],
        records=reply.records if reply.records is not None else memoryview(b""),
    )
    topic = fetch_api.FetchableTopicResponse(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition])
    endpoints = [fetch_api.NodeEndpoint(node_id=node_id, host=host, port=port) for node_id, (host, port) in leader]
    return fetch_api.FetchResponse(throttle_time_ms=0, session_id=0, responses=[topic], node_endpoints=endpoints)


# Answers in.


def reply_of(response: Message) -> Reply:
    """Return the reply of a peer. Raises Refusal if its response has an error, or nothing about the metadata log."""
    if isinstance(response, fetch_api.FetchResponse):
        return _fetch_reply(response)
    assert isinstance(
        response, vote_api.VoteResponse | begin_api.BeginQuorumEpochResponse | end_api.EndQuorumEpochResponse
    )
    if response.error_code or not response.topics or not response.topics[0].partitions:
        raise Refusal(ErrorCode.of(response.error_code))
    partition = response.topics[0].partitions[0]
    error = ErrorCode.of(partition.error_code)
    if isinstance(partition, vote_api.VoteResponsePartitionData):
        return VoteReply(error, partition.leader_epoch, partition.leader_id, partition.vote_granted)
    return EpochReply(error, partition.leader_epoch, partition.leader_id)


def _fetch_reply(response: fetch_api.FetchResponse) -> FetchReply:
    if response.error_code or not response.responses or not response.responses[0].partitions:
        raise Refusal(ErrorCode.of(response.error_code))
    partition = response.responses[0].partitions[0]
    leader, diverging, snapshot = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    return FetchReply(
        ErrorCode.of(partition.error_code),
        -1 if leader is None else leader.leader_epoch,
        NO_NODE if leader is None else leader.leader_id,
        partition.high_watermark,
        None if diverging is None or diverging.epoch < 0 else OffsetAndEpoch(diverging.end_offset, diverging.epoch),
        None if snapshot is None or snapshot.end_offset < 0 else OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
        partition.records,
    )


def addresses_in(response: Message) -> Endpoints:
    """Return the ids and addresses of members that a response names."""
    return [(one.node_id, Address(one.host, one.port)) for one in getattr(response, "node_endpoints", ())]
