"""Asks a voter for its vote, or whether it would give it (KIP-595, pre-vote KIP-996)."""

from __future__ import annotations

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, boolean, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()
    replica_epoch: int = int32()
    replica_id: int = int32()
    replica_directory_id: Uuid = uuid("1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: Uuid = uuid("1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: int = int32()
    last_offset: int = int64()
    pre_vote: bool = boolean("2+", default=False)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class VoteRequest(Message, versions="0-2", flexible="0+", api_key=52):
    cluster_id: str | None = string(default=None, nullable=ALL)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)


class VoteResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    vote_granted: bool = boolean()


class VoteResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[VoteResponsePartitionData] = array(VoteResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class VoteResponse(Message, versions="0-2", flexible="0+", api_key=52):
    error_code: int = int16()
    topics: list[VoteResponseTopicData] = array(VoteResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", default=(), tag=0)
