"""The one request of the KIP-848 consumer protocol: joins, reports, receives assignments, leaves."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, int16, int32, string, struct, uuid


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


class ConsumerGroupHeartbeatRequest(Message, versions="0-1", flexible="0+", api_key=68):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(default=None, nullable=ALL)
    rack_id: str | None = string(default=None, nullable=ALL)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array("string", default=None, nullable=ALL)
    subscribed_topic_regex: str | None = string("1+", default=None, nullable=ALL)
    server_assignor: str | None = string(default=None, nullable=ALL)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, default=None, nullable=ALL)


class ConsumerGroupHeartbeatResponseTopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = array(
        ConsumerGroupHeartbeatResponseTopicPartitions
    )


class ConsumerGroupHeartbeatResponse(Message, versions="0-1", flexible="0+", api_key=68):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALL)
    member_id: str | None = string(default=None, nullable=ALL)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, default=None, nullable=ALL)
