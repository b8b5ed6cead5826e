"""The records of `__consumer_offsets`: committed offsets and the state of every kind of group."""

from __future__ import annotations

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.wire.schema import (
    ALL,
    Message,
    Struct,
    array,
    binary,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)


class LegacyOffsetCommitKey(Message, versions="0", flexible="none", api_key=0):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class LegacyOffsetCommitValue(Message, versions="0", flexible="none", api_key=0):
    offset: int = int64()
    metadata: str = string()
    commit_timestamp: int = int64()


class OffsetCommitKey(Message, versions="0", flexible="none", api_key=1):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-4", flexible="4+", api_key=1):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", default=ZERO_UUID, tag=0, ignorable=True)


class GroupMetadataKey(Message, versions="0", flexible="none", api_key=2):
    group: str = string()


class MemberMetadata(Struct):
    member_id: str = string()
    group_instance_id: str | None = string("3+", default=None, nullable=ALL, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = binary()
    assignment: bytes = binary()


class GroupMetadataValue(Message, versions="0-4", flexible="4+", api_key=2):
    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable=ALL)
    leader: str | None = string(nullable=ALL)
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerGroupMetadataKey(Message, versions="0", flexible="none", api_key=3):
    group_id: str = string()


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+", api_key=3):
    epoch: int = int32()
    metadata_hash: int = int64(default=0, tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="0", flexible="none", api_key=4):
    group_id: str = string()


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: list[str] = array("string")


class TopicMetadata(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+", api_key=4):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message, versions="0", flexible="none", api_key=5):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = binary()


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+", api_key=5):
    instance_id: str | None = string(nullable=ALL)
    rack_id: str | None = string(nullable=ALL)
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    subscribed_topic_regex: str | None = string(nullable=ALL)
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = string(nullable=ALL)
    classic_member_metadata: ClassicMemberMetadata | None = struct(
        ClassicMemberMetadata, default=None, nullable=ALL, tag=0
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="0", flexible="none", api_key=6):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+", api_key=6):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="0", flexible="none", api_key=7):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+", api_key=7):
    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="0", flexible="none", api_key=8):
    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")
    assignment_epochs: list[int] | None = array("int32", default=(), nullable=ALL, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+", api_key=8):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


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


class ConsumerGroupRegularExpressionKey(Message, versions="0", flexible="none", api_key=16):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+", api_key=16):
    topics: list[str] = array("string")
    version: int = int64()
    timestamp: int = int64()


class StreamsGroupMetadataKey(Message, versions="0", flexible="none", api_key=17):
    group_id: str = string()


class LastAssignmentConfig(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMetadataValue(Message, versions="0", flexible="0+", api_key=17):
    epoch: int = int32()
    metadata_hash: int = int64()
    validated_topology_epoch: int = int32(default=-1, tag=0)
    last_assignment_configs: list[LastAssignmentConfig] | None = array(
        LastAssignmentConfig, default=(), nullable=ALL, tag=1
    )


class StreamsGroupMemberMetadataKey(Message, versions="0", flexible="none", api_key=19):
    group_id: str = string()
    member_id: str = string()


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMemberMetadataValue(Message, versions="0", flexible="0+", api_key=19):
    instance_id: str | None = string(nullable=ALL)
    rack_id: str | None = string(nullable=ALL)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = struct(Endpoint, default=None, nullable=ALL)
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(Message, versions="0", flexible="none", api_key=20):
    group_id: str = string()


class StreamsGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+", api_key=20):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(default=0, tag=0)


class StreamsGroupTargetAssignmentMemberKey(Message, versions="0", flexible="none", api_key=21):
    group_id: str = string()
    member_id: str = string()


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array("int32")


class StreamsGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+", api_key=21):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class StreamsGroupCurrentMemberAssignmentKey(Message, versions="0", flexible="none", api_key=22):
    group_id: str = string()
    member_id: str = string()


class StreamsGroupCurrentMemberAssignmentValueTaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array("int32")
    assignment_epochs: list[int] | None = array("int32", default=(), nullable=ALL, tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+", api_key=22):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentValueTaskIds
    )
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentValueTaskIds
    )
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentValueTaskIds
    )
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentValueTaskIds
    )
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentValueTaskIds
    )
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValueTaskIds] = array(
        StreamsGroupCurrentMemberAssignmentValueTaskIds
    )


class StreamsGroupTopologyKey(Message, versions="0", flexible="none", api_key=23):
    group_id: str = string()


class TopicConfig(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupTopologyValueTopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[TopicConfig] = array(TopicConfig)


class CopartitionGroup(Struct):
    source_topics: list[int] = array("int16")
    source_topic_regex: list[int] = array("int16")
    repartition_source_topics: list[int] = array("int16")


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array("string")
    source_topic_regex: list[str] = array("string")
    state_changelog_topics: list[StreamsGroupTopologyValueTopicInfo] = array(StreamsGroupTopologyValueTopicInfo)
    repartition_sink_topics: list[str] = array("string")
    repartition_source_topics: list[StreamsGroupTopologyValueTopicInfo] = array(StreamsGroupTopologyValueTopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class StreamsGroupTopologyValue(Message, versions="0", flexible="0+", api_key=23):
    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
