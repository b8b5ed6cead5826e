"""The group coordinator as the broker's handlers see it: a request of an API goes in, its response comes out.

Here requests are checked for what no shard need know and cut into the parts of the shards that have the groups; and
what the shards refuse becomes the error response that the API has for it. Offsets have a file of their own,
`offset_requests`, and share groups another, `share_group_requests`.

A request is answered with its response, or with an awaitable of it where something waits.

Groups are answered for in Apache's order, which is not that of the request: by partition, as its hash tables list them
(`base.java_order`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeVar

from pessoa.base.clock import Clock
from pessoa.base.ids import Uuid
from pessoa.base.java_order import computed_hash_order, concurrent_hash_order, hash_order, partition_hash, string_hash
from pessoa.coordinator.coordinator_log import CoordinatorLog
from pessoa.coordinator.groups.classic.rebalance import join_response, sync_response
from pessoa.coordinator.groups.consumer.consumer_group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from pessoa.coordinator.groups.consumer.consumer_heartbeat import JOIN_EPOCH
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.coordinator.groups.group_descriptions import consumer_group_error
from pessoa.coordinator.groups.group_registry import MayDescribe
from pessoa.coordinator.groups.group_shard import GroupShard
from pessoa.coordinator.groups.share.share_group_config import ShareGroupConfig
from pessoa.coordinator.groups.streams.streams_group_config import StreamsGroupConfig
from pessoa.coordinator.offset_requests import OffsetService
from pessoa.coordinator.runtime import CoordinatorRuntime, LedPartition
from pessoa.coordinator.shard import Delta, Image
from pessoa.coordinator.shard_answers import all_of, ask, then
from pessoa.coordinator.share_group_requests import LatestOffsets, ShareGroupService, SharePersister
from pessoa.coordinator.streams_group_requests import CreateTopics, StreamsGroupService
from pessoa.records.compression import Codec
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from pessoa.wire.api.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from pessoa.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.join_group import FIRST_JOIN_WITH_NULL_PROTOCOL, JoinGroupRequest, JoinGroupResponse
from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.internal_topics import GROUP_TOPIC
from pessoa.wire.request_context import Answer, Caller
from pessoa.wire.stored.record_framing import GROUP_LOG

# From this version of ConsumerGroupHeartbeat on members choose their ids themselves.
_OWN_MEMBER_ID_VERSION = 1
_LEAVE_SEVERAL_VERSION = 3
_SYNC_PROTOCOL_VERSION = 5

# What can be allowed with a group, bits by the number of the operation: read, delete, describe, describe and alter
# configs. Without an authorizer every principal may do all of it.
_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))

# The first group.version that has them (KIP-848).
_VERSION_WITH_CONSUMER_GROUPS = 1
# The first streams.version that has them (KIP-1071).
_VERSION_WITH_STREAMS_GROUPS = 1

Described = TypeVar("Described", DescribedGroup, DescribedConsumerGroup)


class GroupConfigs(NamedTuple):
    """The settings of all groups, of share groups and of streams groups."""

    groups: GroupCoordinatorConfig
    share: ShareGroupConfig
    streams: StreamsGroupConfig


class FeatureLevels(NamedTuple):
    """Functions that return the levels of group.version, share.version and streams.version."""

    groups: Callable[[], int]
    share: Callable[[], int]
    streams: Callable[[], int]


class GroupCoordinator:
    def __init__(
        self,
        configs: GroupConfigs,
        log: CoordinatorLog,
        clock: Clock,
        image: Image,
        *,
        new_uuid: Callable[[], Uuid],
        write_timeout_ms: int,
        codec: Codec,
        levels: FeatureLevels,
        may_describe: MayDescribe,
        persister: SharePersister,
        latest_offsets: LatestOffsets,
        create_topics: CreateTopics,
    ) -> None:
        """`write_timeout_ms` is offsets.commit.timeout.ms, `codec` offsets.topic.compression.codec. `may_describe` says
        whether a member may know of a topic. `persister` asks the share coordinators, `latest_offsets` the leaders of
        partitions, and `create_topics` the controller."""
        self._configs = configs
        self._levels = levels
        self._image = image
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            GROUP_LOG,
            log,
            lambda _: GroupShard(
                self._configs.groups,
                self._image,
                new_uuid,
                may_describe,
                self._configs.share,
                self.share.initialize,
                self._configs.streams,
                self.streams.create_topics,
            ),
            clock,
            image,
            write_timeout_ms,
            codec,
        )
        # OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit.
        self.offsets = OffsetService(self.runtime, lambda: self._image)
        # What is asked about share groups alone.
        self.share = ShareGroupService(self.runtime, lambda: self._image, persister, latest_offsets, levels.share)
        # What is asked about streams groups alone.
        self.streams = StreamsGroupService(
            self.runtime,
            clock,
            lambda: self.serves_streams_groups,
            lambda: self._configs.streams.group_streams_heartbeat_interval_ms,
            create_topics,
        )

    def __repr__(self) -> str:
        return f"<GroupCoordinator of {len(self.runtime.active_partitions())} partitions>"

    # ── what the broker tells it ──

    def partition_for(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that keeps the group; its leader is the group's coordinator."""
        return self.runtime.partition_for(group_id)

    def elect(self, partition: int, leader_epoch: int) -> asyncio.Task[None] | None:
        return self.runtime.elect(partition, leader_epoch)

    def resign(self, partition: int, leader_epoch: int | None = None) -> None:
        self.runtime.resign(partition, leader_epoch)

    def publish(self, image: Image, delta: Delta) -> None:
        self._image = image
        self.runtime.publish(image, delta)

    def configure(self, configs: GroupConfigs) -> None:
        """Take over settings that were changed dynamically, for all groups."""
        self._configs = configs
        for led in self.runtime.led_partitions():
            led.shard.registry.config = configs.groups
            led.shard.share.config = configs.share
            led.shard.streams.config = configs.streams

    def complete_transaction(
        self, partition: int, producer_id: int, producer_epoch: int, coordinator_epoch: int, committed: bool
    ) -> Awaitable[None]:
        """End a transaction that has committed offsets in this partition. Raises `Refusal`."""
        return self.runtime.complete_transaction(partition, producer_id, producer_epoch, coordinator_epoch, committed)

    def close(self) -> None:
        self.share.close()
        self.streams.close()
        self.runtime.close()

    # ── requests ──

    def join(self, request: JoinGroupRequest, context: Caller) -> Answer[JoinGroupResponse]:
        config = self._configs.groups
        shortest_ms, longest_ms = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not request.group_id:
            return _fit_join(join_response(request.member_id, ErrorCode.INVALID_GROUP_ID), context)
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return _fit_join(join_response(request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT), context)
        answer = ask(
            self.runtime,
            self.partition_for(request.group_id),
            GroupShard.join,
            request,
            context,
            JoinGroupResponse,
            lambda code, _: join_response("", code),
        )
        return then(answer, lambda response: _fit_join(response, context))

    def sync(self, request: SyncGroupRequest, context: Caller) -> Answer[SyncGroupResponse]:
        names_protocol = request.protocol_type is not None and request.protocol_name is not None
        if context.version >= _SYNC_PROTOCOL_VERSION and not names_protocol:
            return sync_response(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if not request.group_id:
            return sync_response(ErrorCode.INVALID_GROUP_ID)
        return ask(
            self.runtime,
            self.partition_for(request.group_id),
            GroupShard.sync,
            request,
            context,
            SyncGroupResponse,
            lambda code, _: sync_response(code),
        )

    def heartbeat(self, request: HeartbeatRequest, context: Caller) -> Answer[HeartbeatResponse]:
        def failed(code: ErrorCode, _: str | None) -> HeartbeatResponse:
            # A coordinator that loads gives the member a whole session afterwards; no need to alarm it.
            is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)

        if not request.group_id:
            return failed(ErrorCode.INVALID_GROUP_ID, None)
        partition = self.partition_for(request.group_id)
        return ask(self.runtime, partition, GroupShard.heartbeat, request, context, HeartbeatResponse, failed)

    def leave(self, request: LeaveGroupRequest, context: Caller) -> Answer[LeaveGroupResponse]:
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
            GroupShard.leave,
            LeaveGroupRequest(group_id=request.group_id, members=members),
            context,
            LeaveGroupResponse,
            failed,
        )
        return then(answer, _fit_single_leave) if is_single else answer

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: Caller
    ) -> Answer[ConsumerGroupHeartbeatResponse]:
        def failed(code: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
            return ConsumerGroupHeartbeatResponse(
                throttle_time_ms=0, error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
            )

        if not self.serves_consumer_groups:
            return failed(ErrorCode.UNSUPPORTED_VERSION, None)
        problem = _consumer_heartbeat_problem(request, context.version)
        if problem is not None:
            return failed(ErrorCode.INVALID_REQUEST, problem)
        assignors = self._configs.groups.group_consumer_assignors
        if request.server_assignor is not None and request.server_assignor not in assignors:
            known = ", ".join(assignors)
            return failed(
                ErrorCode.UNSUPPORTED_ASSIGNOR, f"there is no assignor {request.server_assignor}, but there are {known}"
            )
        partition = self.partition_for(request.group_id)
        return ask(
            self.runtime,
            partition,
            GroupShard.consumer_heartbeat,
            request,
            context,
            ConsumerGroupHeartbeatResponse,
            failed,
        )

    # ── administration ──

    def list_groups(self, request: ListGroupsRequest, context: Caller) -> Answer[ListGroupsResponse]:
        def failed(code: ErrorCode, _: str | None) -> ListGroupsResponse:
            # A partition that has gone to another broker is listed there.
            is_gone = code is ErrorCode.NOT_COORDINATOR
            return ListGroupsResponse(error_code=ErrorCode.NONE if is_gone else code, groups=[])

        answers = [
            ask(self.runtime, led.partition, GroupShard.list_groups, request, context, ListGroupsResponse, failed)
            for led in self._led_in_order()
        ]

        def join(responses: list[ListGroupsResponse]) -> ListGroupsResponse:
            for response in responses:
                if response.error_code != ErrorCode.NONE:
                    return ListGroupsResponse(error_code=response.error_code, groups=[])
            groups = [group for response in responses for group in response.groups]
            return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)

        return all_of(answers, join)

    def describe_classic(self, request: DescribeGroupsRequest, context: Caller) -> Answer[DescribeGroupsResponse]:
        def answer(group_id: str) -> Answer[DescribeGroupsResponse]:
            return ask(
                self.runtime,
                self.partition_for(group_id),
                GroupShard.describe_classic,
                DescribeGroupsRequest(groups=[group_id]),
                context,
                DescribeGroupsResponse,
                lambda code, _: DescribeGroupsResponse(groups=[_classic_group_error(group_id, code)]),
            )

        return all_of(
            [answer(group_id) for group_ids in self._by_partition(request.groups).values() for group_id in group_ids],
            lambda responses: DescribeGroupsResponse(
                groups=_with_operations([each.groups[0] for each in responses], request.include_authorized_operations)
            ),
        )

    def describe_consumer(
        self, request: ConsumerGroupDescribeRequest, context: Caller
    ) -> Answer[ConsumerGroupDescribeResponse]:
        if not self.serves_consumer_groups:
            # In the order of the request: no shard has looked at them.
            groups = [consumer_group_error(name, ErrorCode.UNSUPPORTED_VERSION) for name in request.group_ids]
            return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)
        # The empty one is refused before anything is looked for.
        wanted = [""] if "" in request.group_ids else []
        for group_ids in self._by_partition(filter(None, request.group_ids)).values():
            wanted += group_ids

        def failed(group_id: str, code: ErrorCode) -> ConsumerGroupDescribeResponse:
            return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[consumer_group_error(group_id, code)])

        def answer(group_id: str) -> Answer[ConsumerGroupDescribeResponse]:
            if not group_id:
                return failed(group_id, ErrorCode.INVALID_GROUP_ID)
            return ask(
                self.runtime,
                self.partition_for(group_id),
                GroupShard.describe_consumer,
                ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False),
                context,
                ConsumerGroupDescribeResponse,
                lambda code, _: failed(group_id, code),
            )

        return all_of(
            [answer(group_id) for group_id in wanted],
            lambda responses: ConsumerGroupDescribeResponse(
                throttle_time_ms=0,
                groups=_with_operations([each.groups[0] for each in responses], request.include_authorized_operations),
            ),
        )

    def delete(self, request: DeleteGroupsRequest, context: Caller) -> Answer[DeleteGroupsResponse]:
        answers: list[Answer[DeleteGroupsResponse]] = []
        for partition, group_ids in self._by_partition(request.groups_names).items():
            led = self.runtime.led_partition(partition)
            shared = set() if led is None else led.shard.registry.share_groups.keys() & set(group_ids)
            ordered = hash_order(group_ids, string_hash)
            answers.append(
                self._delete_with_shares(partition, ordered, shared, context)
                if shared
                else self._delete_in(partition, ordered, context)
            )

        def join(responses: list[DeleteGroupsResponse]) -> DeleteGroupsResponse:
            results = [each for response in responses for each in response.results]
            return DeleteGroupsResponse(throttle_time_ms=0, results=results)

        return all_of(answers, join)

    def _delete_in(self, partition: int, group_ids: list[str], context: Caller) -> Answer[DeleteGroupsResponse]:
        return ask(
            self.runtime,
            partition,
            GroupShard.delete_groups,
            DeleteGroupsRequest(groups_names=group_ids),
            context,
            DeleteGroupsResponse,
            _failed_deletion(group_ids),
        )

    async def _delete_with_shares(
        self, partition: int, group_ids: list[str], shared: AbstractSet[str], context: Caller
    ) -> DeleteGroupsResponse:
        """Delete groups, the state of share groups at the share coordinator first; a group of which some state is left
        stays."""
        kept: dict[str, ErrorCode] = {}
        for group_id in group_ids:
            if group_id in shared and (code := await self.share.delete_state_of(group_id)).is_error:
                kept[group_id] = code
        answer = self._delete_in(partition, [one for one in group_ids if one not in kept], context)
        response = answer if isinstance(answer, DeleteGroupsResponse) else await answer
        response.results += [DeletableGroupResult(group_id=one, error_code=code) for one, code in kept.items()]
        return response

    @property
    def serves_consumer_groups(self) -> bool:
        is_switched_on = "consumer" in self._configs.groups.group_coordinator_rebalance_protocols
        return is_switched_on and self._levels.groups() >= _VERSION_WITH_CONSUMER_GROUPS

    @property
    def serves_streams_groups(self) -> bool:
        is_switched_on = "streams" in self._configs.groups.group_coordinator_rebalance_protocols
        return is_switched_on and self._levels.streams() >= _VERSION_WITH_STREAMS_GROUPS

    def _led_in_order(self) -> list[LedPartition[GroupShard]]:
        by_partition = {led.partition: led for led in self.runtime.led_partitions()}
        return [
            by_partition[partition] for partition in concurrent_hash_order(sorted(by_partition), _hash_of_partition)
        ]

    def _by_partition(self, group_ids: Iterable[str]) -> dict[int, list[str]]:
        """Return the groups, each once, by the partition of `__consumer_offsets` that keeps them."""
        found: dict[int, list[str]] = {}
        for group_id in dict.fromkeys(group_ids):
            found.setdefault(self.partition_for(group_id), []).append(group_id)
        return {partition: found[partition] for partition in computed_hash_order(found, _hash_of_partition)}


def _hash_of_partition(partition: int) -> int:
    return partition_hash((GROUP_TOPIC, partition))


def _consumer_heartbeat_problem(request: ConsumerGroupHeartbeatRequest, version: int) -> str | None:
    """Return what makes the request invalid; None if it is valid."""
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


def _fit_join(response: JoinGroupResponse, context: Caller) -> JoinGroupResponse:
    """Set a missing protocol name to null, or to "" in versions that have no null there."""
    response.protocol_name = response.protocol_name or (
        None if context.version >= FIRST_JOIN_WITH_NULL_PROTOCOL else ""
    )
    return response


def _fit_single_leave(response: LeaveGroupResponse) -> LeaveGroupResponse:
    """Return the response in the form of the versions in which one member leaves: its error is that of the response."""
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
