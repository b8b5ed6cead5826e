"""The state of share groups (KIP-932)."""

from __future__ import annotations

from pessoa.base.ids import Uuid
from pessoa.wire.primitives import MIN_INT32
from pessoa.wire.schema import ALL, Message, Struct, array, boolean, int16, int32, string, struct, uuid


class ShareGroupDescribeRequest(Message, versions="1", flexible="0+", api_key=77):
    group_ids: list[str] = array("string")
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array("int32")


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    member_id: str = string()
    rack_id: str | None = string(default=None, nullable=ALL)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array("string")
    assignment: Assignment = struct(Assignment)


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable=ALL)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=MIN_INT32)


class ShareGroupDescribeResponse(Message, versions="1", flexible="0+", api_key=77):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
