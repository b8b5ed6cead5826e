"""The moves of partitions that are going on (KIP-455)."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, int16, int32, string


class ListPartitionReassignmentsTopics(Struct):
    name: str = string()
    partition_indexes: list[int] = array("int32")


class ListPartitionReassignmentsRequest(Message, versions="0", flexible="0+", api_key=46):
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, default=None, nullable=ALL
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = array("int32")
    adding_replicas: list[int] = array("int32")
    removing_replicas: list[int] = array("int32")


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, versions="0", flexible="0+", api_key=46):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=ALL)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
