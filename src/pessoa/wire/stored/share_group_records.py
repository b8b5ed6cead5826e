"""The records of share groups in `__consumer_offsets`."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import (
    ALL,
    Message,
    Struct,
    array,
    int8,
    int32,
    int64,
    string,
    uuid,
)


class ShareGroupMemberMetadataKey(Message, versions="0", flexible="none", api_key=10):
    group_id: str = string()
    member_id: str = string()


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+", api_key=10):
    rack_id: str | None = string(nullable=ALL)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")


class ShareGroupMetadataKey(Message, versions="0", flexible="none", api_key=11):
    group_id: str = string()


class ShareGroupMetadataValue(Message, versions="0", flexible="0+", api_key=11):
    epoch: int = int32()
    metadata_hash: int = int64()


class ShareGroupTargetAssignmentMetadataKey(Message, versions="0", flexible="none", api_key=12):
    group_id: str = string()


class ShareGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+", api_key=12):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


class ShareGroupTargetAssignmentMemberKey(Message, versions="0", flexible="none", api_key=13):
    group_id: str = string()
    member_id: str = string()


class ShareGroupTargetAssignmentMemberValueTopicPartition(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


class ShareGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+", api_key=13):
    topic_partitions: list[ShareGroupTargetAssignmentMemberValueTopicPartition] = array(
        ShareGroupTargetAssignmentMemberValueTopicPartition
    )


class ShareGroupCurrentMemberAssignmentKey(Message, versions="0", flexible="none", api_key=14):
    group_id: str = string()
    member_id: str = string()


class ShareGroupCurrentMemberAssignmentValueTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+", api_key=14):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentValueTopicPartitions] = array(
        ShareGroupCurrentMemberAssignmentValueTopicPartitions
    )


class ShareGroupStatePartitionMetadataKey(Message, versions="0", flexible="none", api_key=15):
    group_id: str = string()


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


class TopicInfo(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+", api_key=15):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = array(TopicInfo)
