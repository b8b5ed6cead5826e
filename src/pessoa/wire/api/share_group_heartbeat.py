"""Joins, keeps up and leaves a share group (KIP-932)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.schema import ALL, Message, Struct, array, int16, int32, string, struct, uuid


class ShareGroupHeartbeatRequest(Message, versions="1", flexible="0+", api_key=76):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(default=None, nullable=ALL)
    subscribed_topic_names: list[str] | None = array("string", default=None, nullable=ALL)


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Message, versions="1", flexible="0+", api_key=76):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALL)
    member_id: str | None = string(default=None, nullable=ALL)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, default=None, nullable=ALL)
