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
    int32,
    int64,
    string,
    struct,
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


class ConsumerGroupRegularExpressionKey(Message, versions="0", flexible="none", api_key=16):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+", api_key=16):
    topics: list[str] = array("string")
    version: int = int64()
    timestamp: int = int64()
