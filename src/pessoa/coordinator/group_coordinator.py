"""The group coordinator as the broker's handlers see it: a request of an API goes in, its response comes out.

Here requests are checked for what no shard need know and cut into the parts of the shards that have the groups; and
what the shards refuse becomes the error response that the API has for it. Offsets have a file of their own,
`group_offsets`.

`submit` returns the response, or an awaitable of it where something waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar
from uuid import uuid4

from pessoa.base.clock import Clock
from pessoa.base.ids import Uuid
from pessoa.coordinator.answers import Maybe, all_of, ask, then
from pessoa.coordinator.group_offsets import OffsetService
from pessoa.coordinator.groups.classic import join_response, sync_response
from pessoa.coordinator.groups.config import GroupCoordinatorConfig
from pessoa.coordinator.groups.consumer import JOIN_EPOCH
from pessoa.coordinator.groups.consumer_group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from pessoa.coordinator.groups.describe import consumer_group_error
from pessoa.coordinator.groups.shard import GroupShard
from pessoa.coordinator.log import CoordinatorLog
from pessoa.coordinator.runtime import WRITE_TIMEOUT_MS, CoordinatorRuntime
from pessoa.coordinator.shard import Delta, Image, RequestContext
from pessoa.records.compression import Codec
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from pessoa.wire.api.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from pessoa.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.api.offset_commit import OffsetCommitRequest
from pessoa.wire.api.offset_delete import OffsetDeleteRequest
from pessoa.wire.api.offset_fetch import OffsetFetchRequest
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from pessoa.wire.api.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from pessoa.wire.stored.framing import GROUP_LOG

# From this version of ConsumerGroupHeartbeat on members choose their ids themselves.
_OWN_MEMBER_ID_VERSION = 1
_LEAVE_SEVERAL_VERSION = 3
_SYNC_PROTOCOL_VERSION = 5
_JOIN_NULL_PROTOCOL_VERSION = 7

# What can be allowed with a group, bits by the number of the operation: read, delete, describe, describe and alter
# configs. Without an authorizer everybody may do all of it.
_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))

# The number that base64 writes as a dash.
_DASH = 62


def random_uuid() -> Uuid:
    """Never one whose text begins with a dash, which a tool would take for an option."""
    while (uuid := Uuid(uuid4().bytes))[0] >> 2 == _DASH:
        pass
    return uuid


Described = TypeVar("Described", DescribedGroup, DescribedConsumerGroup)


class GroupCoordinator:
    def __init__(
        self,
        config: GroupCoordinatorConfig,
        log: CoordinatorLog,
        clock: Clock,
        image: Image,
        new_uuid: Callable[[], Uuid] = random_uuid,
        write_timeout_ms: int = WRITE_TIMEOUT_MS,
        codec: Codec = Codec.NONE,
    ) -> None:
        """`write_timeout_ms` is offsets.commit.timeout.ms, `codec` offsets.topic.compression.codec."""
        self._config = config
        self._image = image
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            GROUP_LOG,
            log,
            lambda _: GroupShard(self._config, self._image, new_uuid),
            clock,
            image,
            write_timeout_ms,
            codec,
        )
        self._offsets = OffsetService(self.runtime, lambda: self._image)
        self._services: dict[type[Message], Callable[[Any, RequestContext], Maybe[Any]]] = {
            ConsumerGroupDescribeRequest: self._describe_consumer_groups,
            ConsumerGroupHeartbeatRequest: self._consumer_heartbeat,
            DeleteGroupsRequest: self._delete_groups,
            DescribeGroupsRequest: self._describe_groups,
            HeartbeatRequest: self._heartbeat,
            JoinGroupRequest: self._join,
            LeaveGroupRequest: self._leave,
            ListGroupsRequest: self._list_groups,
            OffsetCommitRequest: self._offsets.commit,
            OffsetDeleteRequest: self._offsets.delete,
            OffsetFetchRequest: self._offsets.fetch,
            SyncGroupRequest: self._sync,
        }

    def __repr__(self) -> str:
        return f"<GroupCoordinator of {len(self.runtime.active_partitions())} partitions>"

    # ── what the broker tells it ──

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps the group; its leader is the group's coordinator."""
        return self.runtime.partition_for(group_id)

    def elect(self, partition: int, leader_epoch: int) -> asyncio.Task[None] | None:
        return self.runtime.elect(partition, leader_epoch)

    def resign(self, partition: int, leader_epoch: int | None = None) -> None:
        self.runtime.resign(partition, leader_epoch)

    def publish(self, image: Image, delta: Delta) -> None:
        self._image = image
        self.runtime.publish(image, delta)

    def configure(self, config: GroupCoordinatorConfig) -> None:
        """Settings have changed, dynamically: they hold for every group from now on."""
        self._config = config
        for slot in self.runtime.slots():
            slot.shard.registry.config = config

    def complete_transaction(
        self, partition: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, committed: bool
    ) -> Awaitable[None]:
        """End a transaction that has committed offsets in this partition. Raises `Refusal`."""
        return self.runtime.complete_transaction(partition, producer_id, producer_epoch, coordinator_epoch, committed)

    def close(self) -> None:
        self.runtime.close()

    # ── requests ──

    def submit(self, request: Message, context: RequestContext) -> Maybe[Message]:
        """Serve any request about groups and their offsets, but TxnOffsetCommit."""
        return self._services[type(request)](request, context)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, context: RequestContext, guard: object = None
    ) -> Maybe[TxnOffsetCommitResponse]:
        """Serve TxnOffsetCommit. `guard` is what verifying the transaction has given, for `CoordinatorLog.append`."""
        return self._offsets.commit_in_transaction(request, context, guard)

    def _join(self, request: JoinGroupRequest, context: RequestContext) -> Maybe[JoinGroupResponse]:
        config = self._config
        shortest_ms, longest_ms = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not request.group_id:
            return _fit_join(join_response(request.member_id, ErrorCode.INVALID_GROUP_ID), context)
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return _fit_join(join_response(request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT), context)
        answer = ask(
            self.runtime,
            self.partition_for(request.group_id),
            request,
            context,
            JoinGroupResponse,
            lambda code, _: join_response("", code),
        )
        return then(answer, lambda response: _fit_join(response, context))

    def _sync(self, request: SyncGroupRequest, context: RequestContext) -> Maybe[SyncGroupResponse]:
        names_protocol = request.protocol_type is not None and request.protocol_name is not None
        if context.version >= _SYNC_PROTOCOL_VERSION and not names_protocol:
            return sync_response(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return sync_response(ErrorCode.INVALID_GROUP_ID)
        return ask(
            self.runtime,
            self.partition_for(request.group_id),
            request,
            context,
            SyncGroupResponse,
            lambda code, _: sync_response(code),
        )

    def _heartbeat(self, request: HeartbeatRequest, context: RequestContext) -> Maybe[HeartbeatResponse]:
        def failed(code: ErrorCode, _: str | None) -> HeartbeatResponse:
            # A coordinator that loads gives the member a whole session afterwards; no need to alarm it.
            is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)

        if not request.group_id:
            return failed(ErrorCode.INVALID_GROUP_ID, None)
        partition = self.partition_for(request.group_id)
        return ask(self.runtime, partition, request, context, HeartbeatResponse, failed)

    def _leave(self, request: LeaveGroupRequest, context: RequestContext) -> Maybe[LeaveGroupResponse]:
        if not request.group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        is_single = context.version < _LEAVE_SEVERAL_VERSION
        members = [MemberIdentity(member_id=request.member_id)] if is_single else request.members

        def failed(code: ErrorCode, _: str | None) -> LeaveGroupResponse:
            if code is not ErrorCode.UNKNOWN_MEMBER_ID:
                return LeaveGroupResponse(error_code=code)
            # No group is as good as no member.
            responses = [
                MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
                for each in members
            ]
            return LeaveGroupResponse(error_code=ErrorCode.NONE, members=responses)

        answer = ask(
            self.runtime,
            self.partition_for(request.group_id),
            LeaveGroupRequest(group_id=request.group_id, members=members),
            context,
            LeaveGroupResponse,
            failed,
        )
        return then(answer, _fit_single_leave) if is_single else answer

    def _consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: RequestContext
    ) -> Maybe[ConsumerGroupHeartbeatResponse]:
        def failed(code: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
            return ConsumerGroupHeartbeatResponse(
                throttle_time_ms=0, error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
            )

        problem = _consumer_heartbeat_problem(request, context.version)
        if problem is not None:
            return failed(ErrorCode.INVALID_REQUEST, problem)
        assignors = self._config.group_consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            known = ", ".join(assignors)
            return failed(
                ErrorCode.UNSUPPORTED_ASSIGNOR, f"there is no assignor {request.server_assignor}, but there are {known}"
            )
        partition = self.partition_for(request.group_id)
        return ask(self.runtime, partition, request, context, ConsumerGroupHeartbeatResponse, failed)

    # ── administration ──

    def _list_groups(self, request: ListGroupsRequest, context: RequestContext) -> Maybe[ListGroupsResponse]:
        def failed(code: ErrorCode, _: str | None) -> ListGroupsResponse:
            # A partition that has gone to another broker is listed there.
            is_gone = code is ErrorCode.NOT_COORDINATOR
            return ListGroupsResponse(error_code=ErrorCode.NONE if is_gone else code, groups=[])

        answers = [
            ask(self.runtime, slot.partition, request, context, ListGroupsResponse, failed)
            for slot in self.runtime.slots()
        ]

        def join(responses: list[ListGroupsResponse]) -> ListGroupsResponse:
            for response in responses:
                if response.error_code != ErrorCode.NONE:
                    return ListGroupsResponse(error_code=response.error_code, groups=[])
            groups = [group for response in responses for group in response.groups]
            return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)

        return all_of(answers, join)

    def _describe_groups(
        self, request: DescribeGroupsRequest, context: RequestContext
    ) -> Maybe[DescribeGroupsResponse]:
        def answer(group_id: str) -> Maybe[DescribeGroupsResponse]:
            return ask(
                self.runtime,
                self.partition_for(group_id),
                DescribeGroupsRequest(groups=[group_id]),
                context,
                DescribeGroupsResponse,
                lambda code, _: DescribeGroupsResponse(groups=[_classic_group_error(group_id, code)]),
            )

        return all_of(
            [answer(group_id) for group_id in dict.fromkeys(request.groups)],
            lambda responses: DescribeGroupsResponse(
                groups=_with_operations([each.groups[0] for each in responses], request.include_authorized_operations)
            ),
        )

    def _describe_consumer_groups(
        self, request: ConsumerGroupDescribeRequest, context: RequestContext
    ) -> Maybe[ConsumerGroupDescribeResponse]:
        def failed(group_id: str, code: ErrorCode) -> ConsumerGroupDescribeResponse:
            return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[consumer_group_error(group_id, code)])

        def answer(group_id: str) -> Maybe[ConsumerGroupDescribeResponse]:
            if not group_id:
                return failed(group_id, ErrorCode.INVALID_GROUP_ID)
            return ask(
                self.runtime,
                self.partition_for(group_id),
                ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False),
                context,
                ConsumerGroupDescribeResponse,
                lambda code, _: failed(group_id, code),
            )

        return all_of(
            [answer(group_id) for group_id in dict.fromkeys(request.group_ids)],
            lambda responses: ConsumerGroupDescribeResponse(
                throttle_time_ms=0,
                groups=_with_operations([each.groups[0] for each in responses], request.include_authorized_operations),
            ),
        )

    def _delete_groups(self, request: DeleteGroupsRequest, context: RequestContext) -> Maybe[DeleteGroupsResponse]:
        # Named twice, deleted once.
        names = list(dict.fromkeys(request.groups_names))
        by_partition: dict[int, list[str]] = {}
        for name in names:
            by_partition.setdefault(self.partition_for(name), []).append(name)
        answers = [
            ask(
                self.runtime,
                partition,
                DeleteGroupsRequest(groups_names=group_ids),
                context,
                DeleteGroupsResponse,
                _failed_deletion(group_ids),
            )
            for partition, group_ids in by_partition.items()
        ]

        def join(responses: list[DeleteGroupsResponse]) -> DeleteGroupsResponse:
            results = {each.group_id: each for response in responses for each in response.results}
            return DeleteGroupsResponse(throttle_time_ms=0, results=[results[name] for name in names])

        return all_of(answers, join)


def _consumer_heartbeat_problem(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """What makes the request senseless, if anything does."""
    epoch = request.member_epoch
    needs_id = version >= _OWN_MEMBER_ID_VERSION or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    if needs_id and not request.member_id.strip():
        return "the member id is empty"
    for name, text in (
        ("group id", request.group_id),
        ("instance id", request.instance_id),
        ("rack id", request.rack_id),
    ):
        if text is not None and not text.strip():
            return f"the {name} is empty"
    if epoch < STATIC_LEAVE_EPOCH:
        return f"no member has epoch {epoch}"
    if epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return f"a member that leaves with epoch {epoch} must have an instance id"
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            return "a member that joins must name its rebalance timeout"
        if request.topic_partitions is None or request.topic_partitions:
            return "a member that joins owns no partitions, and must say so"
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            return "a member that joins must be subscribed to topics by name or by expression"
    return None


def _fit_join(response: JoinGroupResponse, context: RequestContext) -> JoinGroupResponse:
    """No protocol is a null where the version knows nulls, and an empty string before."""
    response.protocol_name = response.protocol_name or (None if context.version >= _JOIN_NULL_PROTOCOL_VERSION else "")
    return response


def _fit_single_leave(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """The versions that let one member leave have one error."""
    code = response.error_code
    if code == ErrorCode.NONE:
        code = response.members[0].error_code
    return LeaveGroupResponse(error_code=code)


def _failed_deletion(group_ids: Iterable[str]) -> Callable[[ErrorCode, str | None], DeleteGroupsResponse]:
    return lambda code, _: DeleteGroupsResponse(
        throttle_time_ms=0,
        results=[DeletableGroupResult(group_id=group_id, error_code=code) for group_id in group_ids],
    )


def _with_operations(groups: list[Described], are_wanted: bool) -> list[Described]:
    for group in groups if are_wanted else ():
        if not group.error_code:
            group.authorized_operations = _OPERATIONS
    return groups


def _classic_group_error(group_id: str, code: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=code, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )
