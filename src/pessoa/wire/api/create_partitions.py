"""Raises the number of partitions of topics."""

from __future__ import annotations

from pessoa.wire.schema import ALL, Message, Struct, array, boolean, int16, int32, string


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array("int32")


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(CreatePartitionsAssignment, nullable=ALL)


class CreatePartitionsRequest(Message, versions="0-3", flexible="2+", api_key=37):
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALL)


class CreatePartitionsResponse(Message, versions="0-3", flexible="2+", api_key=37):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
