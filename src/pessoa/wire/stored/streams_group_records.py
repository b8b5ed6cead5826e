"""The records of streams groups in `__consumer_offsets`."""

from __future__ import annotations

from pessoa.wire.schema import (
    ALL,
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
)


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
