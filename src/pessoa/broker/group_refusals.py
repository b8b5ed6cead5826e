"""The error responses of the group APIs: what a request hears whose shard does not want it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pessoa.wire.api.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from pessoa.wire.api.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from pessoa.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pessoa.wire.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from pessoa.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from pessoa.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.coordinator.shard import Refusal
    from pessoa.wire.schema import Message

# What the log says of an append, and what a member of a group hears: it should look for its coordinator again.
_LOG_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def refused_response(request: Message, refusal: Refusal) -> Message:
    code = _LOG_ERRORS.get(refusal.code, refusal.code)
    return _RESPONSES[type(request)](request, code, refusal.message)


def _join(request: JoinGroupRequest, code: ErrorCode, _: str | None) -> Message:
    return JoinGroupResponse(error_code=code, protocol_name="", leader="", member_id=request.member_id, members=[])


def _heartbeat(_: ConsumerGroupHeartbeatRequest, code: ErrorCode, message: str | None) -> Message:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _commit(request: OffsetCommitRequest, code: ErrorCode, _: str | None) -> Message:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _commit_in_transaction(request: TxnOffsetCommitRequest, code: ErrorCode, _: str | None) -> Message:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _fetch(request: OffsetFetchRequest, code: ErrorCode, _: str | None) -> Message:
    groups = [OffsetFetchResponseGroup(group_id=one.group_id, topics=[], error_code=code) for one in request.groups]
    return OffsetFetchResponse(groups=groups)


def _describe(request: DescribeGroupsRequest, code: ErrorCode, message: str | None) -> Message:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(
                error_code=code,
                error_message=message,
                group_id=name,
                group_state="",
                protocol_type="",
                protocol_data="",
                members=[],
            )
            for name in request.groups
        ]
    )


def _describe_consumers(request: ConsumerGroupDescribeRequest, code: ErrorCode, message: str | None) -> Message:
    return ConsumerGroupDescribeResponse(
        throttle_time_ms=0,
        groups=[
            DescribedConsumerGroup(
                error_code=code,
                error_message=message,
                group_id=name,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for name in request.group_ids
        ],
    )


def _delete(request: DeleteGroupsRequest, code: ErrorCode, _: str | None) -> Message:
    results = [DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


_RESPONSES: dict[type[Message], Callable[[Any, ErrorCode, str | None], Message]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: lambda _, code, __: SyncGroupResponse(error_code=code, assignment=b""),
    HeartbeatRequest: lambda _, code, __: HeartbeatResponse(error_code=code),
    LeaveGroupRequest: lambda _, code, __: LeaveGroupResponse(error_code=code),
    ConsumerGroupHeartbeatRequest: _heartbeat,
    OffsetCommitRequest: _commit,
    TxnOffsetCommitRequest: _commit_in_transaction,
    OffsetFetchRequest: _fetch,
    OffsetDeleteRequest: lambda _, code, __: OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=[]),
    ListGroupsRequest: lambda _, code, __: ListGroupsResponse(error_code=code, groups=[]),
    DescribeGroupsRequest: _describe,
    ConsumerGroupDescribeRequest: _describe_consumers,
    DeleteGroupsRequest: _delete,
}
