"""A quorum leader steps down (KIP-595)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, int16, int32, string, uint16, uuid


class ReplicaInfo(Struct):
    candidate_id: int = int32()
    candidate_directory_id: Uuid = uuid()


class PartitionData(Struct):
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32()
    preferred_successors: list[int] = array("int32", "0", default=(), ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", default=(), ignorable=True)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class LeaderEndpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class EndQuorumEpochRequest(Message, versions="0-1", flexible="1+", api_key=54):
    cluster_id: str | None = string(default=None, nullable=ALL)
    topics: list[TopicData] = array(TopicData)
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", default=(), ignorable=True)


class EndQuorumEpochResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()


class EndQuorumEpochResponseTopicData(Struct):
    topic_name: str = string()
    partitions: list[EndQuorumEpochResponsePartitionData] = array(EndQuorumEpochResponsePartitionData)


class NodeEndpoint(Struct):
    node_id: int = int32()
    host: str = string()
    port: int = uint16()


class EndQuorumEpochResponse(Message, versions="0-1", flexible="1+", api_key=54):
    error_code: int = int16()
    topics: list[EndQuorumEpochResponseTopicData] = array(EndQuorumEpochResponseTopicData)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", default=(), tag=0)
