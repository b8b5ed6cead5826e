"""A broker tells the controller in which log directories its replicas live (KIP-858)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import Message, Struct, array, int16, int32, int64, uuid


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DirectoryData(Struct):
    id: Uuid = uuid()
    topics: list[TopicData] = array(TopicData)


class AssignReplicasToDirsRequest(Message, versions="0", flexible="0+", api_key=73):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


class AssignReplicasToDirsResponsePartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class AssignReplicasToDirsResponseTopicData(Struct):
    topic_id: Uuid = uuid()
    partitions: list[AssignReplicasToDirsResponsePartitionData] = array(AssignReplicasToDirsResponsePartitionData)


class AssignReplicasToDirsResponseDirectoryData(Struct):
    id: Uuid = uuid()
    topics: list[AssignReplicasToDirsResponseTopicData] = array(AssignReplicasToDirsResponseTopicData)


class AssignReplicasToDirsResponse(Message, versions="0", flexible="0+", api_key=73):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[AssignReplicasToDirsResponseDirectoryData] = array(AssignReplicasToDirsResponseDirectoryData)
