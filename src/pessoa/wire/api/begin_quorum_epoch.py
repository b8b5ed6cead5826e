"""A new quorum leader announces itself to the voters (KIP-595)."""

from __future__ import annotations

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, int16, int32, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32()
    voter_directory_id: Uuid = uuid("1+", default=ZERO_UUID, ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class LeaderEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class BeginQuorumEpochRequest(Message, versions="0-1", flexible="1+", api_key=53):
    cluster_id: str | None = string(default=None, nullable=ALL)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", default=(), ignorable=True)


class BeginQuorumEpochResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class BeginQuorumEpochResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[BeginQuorumEpochResponsePartitionData] = array(BeginQuorumEpochResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class BeginQuorumEpochResponse(Message, versions="0-1", flexible="1+", api_key=53):
    error_code: int = int16()
    topics: list[BeginQuorumEpochResponseTopicData] = array(BeginQuorumEpochResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", default=(), tag=0)
