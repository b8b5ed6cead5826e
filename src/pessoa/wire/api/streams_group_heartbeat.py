"""Joins, keeps up and leaves a streams group (KIP-1071)."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, boolean, int8, int16, int32, int64, string, struct, uint16


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array("int32")


class CopartitionGroup(Struct):
    source_topics: list[int] = array("int16")
    source_topic_regex: list[int] = array("int16")
    repartition_source_topics: list[int] = array("int16")


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array("string")
    source_topic_regex: list[str] = array("string")
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array("string")
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class Topology(Struct):
    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


class StreamsGroupHeartbeatRequest(Message, versions="0", flexible="0+", api_key=88):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable=ALL)
    rack_id: str | None = string(default=None, nullable=ALL)
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = struct(Topology, default=None, nullable=ALL)
    active_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable=ALL)
    standby_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable=ALL)
    warmup_tasks: list[TaskIds] | None = array(TaskIds, default=None, nullable=ALL)
    process_id: str | None = string(default=None, nullable=ALL)
    user_endpoint: Endpoint | None = struct(Endpoint, default=None, nullable=ALL)
    client_tags: list[KeyValue] | None = array(KeyValue, default=None, nullable=ALL)
    task_offsets: list[TaskOffset] | None = array(TaskOffset, default=None, nullable=ALL)
    task_end_offsets: list[TaskOffset] | None = array(TaskOffset, default=None, nullable=ALL)
    shutdown_application: bool = boolean(default=False)


class Status(Struct):
    status_code: int = int8()
    status_detail: str = string()


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array("int32")


class StreamsGroupHeartbeatResponseTaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array("int32")


class StreamsGroupHeartbeatResponseEndpoint(Struct):
    host: str = string()
    port: int = uint16()


class EndpointToPartitions(Struct):
    user_endpoint: StreamsGroupHeartbeatResponseEndpoint = struct(StreamsGroupHeartbeatResponseEndpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


class StreamsGroupHeartbeatResponse(Message, versions="0", flexible="0+", api_key=88):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALL)
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[Status] | None = array(Status, nullable=ALL)
    active_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = array(
        StreamsGroupHeartbeatResponseTaskIds, default=None, nullable=ALL
    )
    standby_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = array(
        StreamsGroupHeartbeatResponseTaskIds, default=None, nullable=ALL
    )
    warmup_tasks: list[StreamsGroupHeartbeatResponseTaskIds] | None = array(
        StreamsGroupHeartbeatResponseTaskIds, default=None, nullable=ALL
    )
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = array(
        EndpointToPartitions, default=None, nullable=ALL
    )
