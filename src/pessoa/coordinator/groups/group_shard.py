"""One partition of `__consumer_offsets`: routes requests, records and the passing of time to the parts that know them.

A request that is expected to be refused is answered with a raised `Refusal`; the group coordinator makes the error
response of the API out of it.
"""

from __future__ import annotations

from collections.abc import Callable

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups import group_descriptions
from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicState
from pessoa.coordinator.groups.classic.join import ClassicJoin
from pessoa.coordinator.groups.classic.rebalance import ClassicRebalance, join_response, sync_response
from pessoa.coordinator.groups.classic.sync import ClassicSync
from pessoa.coordinator.groups.committed_offsets import Offsets, are_unstable
from pessoa.coordinator.groups.consumer.classic_members import ClassicMembers
from pessoa.coordinator.groups.consumer.consumer_group import ConsumerGroup, MemberState
from pessoa.coordinator.groups.consumer.consumer_heartbeat import ConsumerHeartbeat
from pessoa.coordinator.groups.consumer.consumer_records import ConsumerReplay, consumer_group_tombstones
from pessoa.coordinator.groups.consumer.heartbeat_steps import HeartbeatSteps
from pessoa.coordinator.groups.consumer.regex_refresh import RegexRefresh
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.coordinator.groups.group_registry import Group, MayDescribe, Registry
from pessoa.coordinator.groups.protocol_migration import ProtocolMigration
from pessoa.coordinator.groups.share import share_descriptions
from pessoa.coordinator.groups.share.share_group_config import DEFAULT_SHARE_CONFIG, ShareGroupConfig
from pessoa.coordinator.groups.share.share_heartbeat import ShareGroups
from pessoa.coordinator.groups.share.share_initialisation import InitializeShares, SharesInitialised
from pessoa.coordinator.groups.share.share_offsets import ShareGroupNamed, ShareOffsets, SharesDeleted
from pessoa.coordinator.groups.streams import streams_descriptions
from pessoa.coordinator.groups.streams.streams_group import StreamsGroup
from pessoa.coordinator.groups.streams.streams_group_config import DEFAULT_STREAMS_CONFIG, StreamsGroupConfig
from pessoa.coordinator.groups.streams.streams_heartbeat import CreateInternalTopics, StreamsGroups
from pessoa.coordinator.groups.streams.streams_replay import streams_group_tombstones
from pessoa.coordinator.shard import CoordinatorRecord, Delta, Image, Output
from pessoa.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pessoa.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from pessoa.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.heartbeat import HeartbeatRequest
from pessoa.wire.api.join_group import JoinGroupRequest
from pessoa.wire.api.leave_group import LeaveGroupRequest
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.api.offset_commit import OffsetCommitRequest
from pessoa.wire.api.offset_delete import OffsetDeleteRequest
from pessoa.wire.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from pessoa.wire.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from pessoa.wire.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from pessoa.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from pessoa.wire.api.sync_group import SyncGroupRequest
from pessoa.wire.api.txn_offset_commit import TxnOffsetCommitRequest
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Caller
from pessoa.wire.schema import Message
from pessoa.wire.stored import group_records

_EXPIRY_KEY = ("offset expiry",)


class GroupShard:
    """The groups of one partition of `__consumer_offsets`. Requests are those of the APIs, with only the groups of this
    shard in them."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        image: Image,
        new_uuid: Callable[[], Uuid],
        may_describe: MayDescribe = lambda _member, _topic: True,
        share_config: ShareGroupConfig = DEFAULT_SHARE_CONFIG,
        initialize_shares: Callable[[InitializeShares], None] = lambda _asked: None,
        streams_config: StreamsGroupConfig = DEFAULT_STREAMS_CONFIG,
        create_topics: Callable[[CreateInternalTopics], list[str]] = lambda _asked: [],
    ) -> None:
        self.registry = Registry(config, image, new_uuid, may_describe)
        self.classic_rebalance = ClassicRebalance(self.registry)
        self.classic_join = ClassicJoin(self.classic_rebalance)
        self.classic_sync = ClassicSync(self.classic_rebalance)
        self.offsets = Offsets(self.registry, self.classic_rebalance.expect_heartbeat)
        self.steps = HeartbeatSteps(self.registry, ProtocolMigration(self.registry, self.classic_rebalance))
        regexes = RegexRefresh(self.registry)
        self.consumer = ConsumerHeartbeat(self.steps, regexes)
        self.classic_in_consumer = ClassicMembers(self.steps, regexes, self.consumer)
        self._consumer_replay = ConsumerReplay(self.registry)
        self.share = ShareGroups(self.registry, share_config, initialize_shares)
        self.share_offsets = ShareOffsets(self.registry)
        self.streams = StreamsGroups(self.registry, streams_config, create_topics)

    def __repr__(self) -> str:
        return f"<GroupShard: {len(self.registry.groups)} groups>"

    # ── the classic protocol ──

    def join(self, request: JoinGroupRequest, context: Caller, token: int, now_ms: int) -> Output:
        group = self.registry.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and not group.is_empty:
            return self.classic_in_consumer.join(group, request, context, token, now_ms)
        if isinstance(group, ClassicGroup):
            return self.classic_join.join(group, request, context, token, now_ms)
        if request.group_id in self.registry.share_groups or (isinstance(group, StreamsGroup) and group.members):
            return Output.reply(token, join_response(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if request.member_id:
            return Output.reply(token, join_response(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID))
        created = ClassicGroup(request.group_id, state_since_ms=now_ms)
        self.registry.groups[created.id] = created
        output = self.classic_join.join(created, request, context, token, now_ms)
        self._announce(output, created, group)
        return output

    def _announce(self, output: Output, group: ClassicGroup, former: ConsumerGroup | StreamsGroup | None) -> None:
        """Add the record of a new group, so that it exists after a fail-over, before its first members have joined. It
        may replace a consumer or streams group without members."""
        assert not output.records
        if former is not None:
            output.records += group_tombstones(former)
        output.records.append(group.empty_record())

        def on_outcome(code: ErrorCode, _: int) -> Output:
            is_there = self.registry.groups.get(group.id) is group
            if code is not ErrorCode.NONE and is_there and not group.members and not group.pending_join:
                del self.registry.groups[group.id]
                if former is not None:
                    self.registry.groups[group.id] = former
            return Output()

        output.on_outcome = on_outcome

    def sync(self, request: SyncGroupRequest, context: Caller, token: int, now_ms: int) -> Output:
        group = self.registry.groups.get(request.group_id)
        if group is None or group.is_empty or isinstance(group, StreamsGroup):
            return Output.reply(token, sync_response(ErrorCode.UNKNOWN_MEMBER_ID))
        if isinstance(group, ConsumerGroup):
            return self.classic_in_consumer.sync(group, request, token, now_ms)
        return self.classic_sync.sync(group, request, token, now_ms)

    def heartbeat(self, request: HeartbeatRequest, context: Caller, token: int, now_ms: int) -> Output:
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self.classic_in_consumer.heartbeat(group, request, token, now_ms)
        return self.classic_sync.heartbeat(group, request, token, now_ms)

    def leave(self, request: LeaveGroupRequest, context: Caller, token: int, now_ms: int) -> Output:
        group = self._group_of_member(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self.classic_in_consumer.leave(group, request, token, now_ms)
        return self.classic_sync.leave(group, request, token, now_ms)

    def _group_of_member(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        group = self.registry.groups.get(group_id)
        if group is None:
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id}")
        if isinstance(group, StreamsGroup):
            raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{group_id} is a streams group")
        return group

    # ── the consumer protocol ──

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, context: Caller, token: int, now_ms: int
    ) -> Output:
        return self.consumer.heartbeat(request, context, token, now_ms)

    # ── share groups ──

    def share_heartbeat(self, request: ShareGroupHeartbeatRequest, context: Caller, token: int, now_ms: int) -> Output:
        return self.share.heartbeat(request, context, token, now_ms)

    def note_shares_initialised(self, request: SharesInitialised, context: Caller, token: int, now_ms: int) -> Output:
        return self.share.note_initialised(request, token)

    def describe_share(self, request: ShareGroupDescribeRequest, context: Caller, token: int, now_ms: int) -> Output:
        groups = [share_descriptions.describe_share_group(self.registry, each) for each in request.group_ids]
        return Output.reply(token, ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups))

    def list_initialised_shares(self, request: ShareGroupNamed, context: Caller, token: int, now_ms: int) -> Output:
        return self.share_offsets.list_initialised(request, token)

    def plan_share_alteration(
        self, request: AlterShareGroupOffsetsRequest, context: Caller, token: int, now_ms: int
    ) -> Output:
        return self.share_offsets.plan_alteration(request, token)

    def plan_share_offset_deletion(
        self, request: DeleteShareGroupOffsetsRequest, context: Caller, token: int, now_ms: int
    ) -> Output:
        return self.share_offsets.plan_offset_deletion(request, token)

    def plan_share_group_deletion(self, request: ShareGroupNamed, context: Caller, token: int, now_ms: int) -> Output:
        return self.share_offsets.plan_group_deletion(request, token)

    def note_shares_deleted(self, request: SharesDeleted, context: Caller, token: int, now_ms: int) -> Output:
        return self.share_offsets.finish_deletion(request, token)

    # ── streams groups ──

    def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, context: Caller, token: int, now_ms: int
    ) -> Output:
        return self.streams.heartbeat(request, context, token, now_ms)

    def describe_streams(
        self, request: StreamsGroupDescribeRequest, context: Caller, token: int, now_ms: int
    ) -> Output:
        groups = [streams_descriptions.describe_streams_group(self.registry, each) for each in request.group_ids]
        return Output.reply(token, StreamsGroupDescribeResponse(throttle_time_ms=0, groups=groups))

    # ── offsets ──

    def commit_offsets(self, request: OffsetCommitRequest, context: Caller, token: int, now_ms: int) -> Output:
        return self.offsets.commit(request, context, token, now_ms)

    def commit_offsets_in_transaction(
        self, request: TxnOffsetCommitRequest, context: Caller, token: int, now_ms: int
    ) -> Output:
        return self.offsets.commit_in_transaction(request, token, now_ms)

    def fetch_offsets(self, request: OffsetFetchRequest, context: Caller, token: int, now_ms: int) -> Output:
        groups = [self.offsets.fetch(group, request.require_stable) for group in request.groups]
        output = Output.reply(token, OffsetFetchResponse(groups=groups))
        output.is_confirmed = request.require_stable and not are_unstable(groups)
        return output

    def delete_offsets(self, request: OffsetDeleteRequest, context: Caller, token: int, now_ms: int) -> Output:
        return self.offsets.delete(request, token)

    # ── administration ──

    def list_groups(self, request: ListGroupsRequest, context: Caller, token: int, now_ms: int) -> Output:
        groups = group_descriptions.list_groups(self.registry, request)
        return Output.reply(token, ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups))

    def describe_classic(self, request: DescribeGroupsRequest, context: Caller, token: int, now_ms: int) -> Output:
        groups = [group_descriptions.describe_classic(self.registry, each, context.version) for each in request.groups]
        return Output.reply(token, DescribeGroupsResponse(groups=groups))

    def describe_consumer(
        self, request: ConsumerGroupDescribeRequest, context: Caller, token: int, now_ms: int
    ) -> Output:
        groups = [group_descriptions.describe_consumer(self.registry, each) for each in request.group_ids]
        return Output.reply(token, ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups))

    def delete_groups(self, request: DeleteGroupsRequest, context: Caller, token: int, now_ms: int) -> Output:
        output = Output()
        response = DeleteGroupsResponse(throttle_time_ms=0, results=[])
        for group_id in request.groups_names:
            code = ErrorCode.NONE
            try:
                if (shared := self.registry.share_groups.get(group_id)) is not None:
                    output.records += self.share_offsets.tombstones(shared)
                else:
                    group = self.registry.group(group_id)
                    group.check_delete()
                    output.records += self.offsets.tombstones(group_id)
                    output.records += group_tombstones(group)
                output.notes.append(f"group {group_id} is deleted")
            except Refusal as refusal:
                code = refusal.code
            response.results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        output.replies.append((token, response))
        return output

    # ── what is stored ──

    def replay(self, key: Message, value: Message | None, offset: int, producer_id: int, producer_epoch: int) -> None:
        if isinstance(key, group_records.OffsetCommitKey):
            assert value is None or isinstance(value, group_records.OffsetCommitValue)
            self.offsets.replay(key, value, offset, producer_id)
        elif isinstance(key, group_records.GroupMetadataKey):
            assert value is None or isinstance(value, group_records.GroupMetadataValue)
            self._replay_classic(key, value)
        elif isinstance(key, group_records.LegacyOffsetCommitKey):
            assert value is None or isinstance(value, group_records.LegacyOffsetCommitValue)
            self._replay_legacy(key, value, offset, producer_id)
        elif not self._consumer_replay.replay(key, value) and not self.share.replay(key, value):
            self.streams.replay(key, value)

    def _replay_classic(
        self, key: group_records.GroupMetadataKey, value: group_records.GroupMetadataValue | None
    ) -> None:
        if value is None:
            if isinstance(self.registry.groups.get(key.group), ClassicGroup):
                del self.registry.groups[key.group]
        else:
            self.registry.groups[key.group] = ClassicGroup.from_record(key.group, value)

    def _replay_legacy(
        self,
        key: group_records.LegacyOffsetCommitKey,
        value: group_records.LegacyOffsetCommitValue | None,
        offset: int,
        producer_id: int,
    ) -> None:
        """Apply a record in a version that Kafka wrote before 0.9."""
        today = None
        if value is not None:
            today = group_records.OffsetCommitValue(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            )
        self.offsets.replay(
            group_records.OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition),
            today,
            offset,
            producer_id,
        )

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.offsets.replay_end_transaction(producer_id, committed)

    # ── time and metadata ──

    def next_deadline_ms(self) -> int | None:
        return self.registry.timers.next_deadline_ms()

    def expire(self, now_ms: int) -> Output:
        action = self.registry.timers.pop_due(now_ms)
        return Output() if action is None else action(now_ms)

    def shift_deadlines(self, by_ms: int) -> None:
        self.registry.timers.shift(by_ms)

    def on_loaded(self, image: Image, now_ms: int) -> Output:
        self.registry.image = image
        self.registry.last_new_topics_version = image.offset
        output = Output(replays=False)
        for group in self.registry.groups.values():
            if isinstance(group, ClassicGroup):
                self._resume_classic(output, group, now_ms)
            elif isinstance(group, StreamsGroup):
                self.streams.resume(group, now_ms)
            else:
                self._resume_consumer(group, now_ms)
        self.share.resume(now_ms)
        self._schedule_expiry(now_ms)
        return output

    def _resume_classic(self, output: Output, group: ClassicGroup, now_ms: int) -> None:
        for member in group.members.values():
            self.classic_rebalance.expect_heartbeat(group, member, now_ms)
        limit = self.registry.config.group_max_size
        if len(group.members) > limit:
            assert group.state is ClassicState.STABLE
            self.classic_rebalance.rebalance(output, group, f"it has more members than group.max.size={limit}", now_ms)

    def _resume_consumer(self, group: ConsumerGroup, now_ms: int) -> None:
        deadline_ms = now_ms + self.steps.session_timeout_ms(group.id)
        for member in group.members.values():
            self.steps.expect_heartbeat(group.id, member.id, deadline_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                self.steps.expect_revocation(group.id, member, now_ms)

    def on_image(self, image: Image, delta: Delta, now_ms: int) -> Output:
        deleted = {
            topic.name: topic_id
            for topic_id in delta.deleted_topics
            if (topic := delta.old.topics.by_id.get(topic_id)) is not None
        }
        changed = {
            topic.name for topic_id in delta.changed_topics if (topic := image.topics.by_id.get(topic_id)) is not None
        }
        if any(topic_id not in delta.old.topics.by_id for topic_id in delta.changed_topics):
            self.registry.last_new_topics_version = image.offset
        self.registry.image = image
        self.registry.forget_topics(sorted(changed | deleted.keys()))
        output = Output(is_atomic=False)
        if deleted:
            output.records += self.offsets.tombstones_of_topics(deleted)
            output.records += self.share.initialisation.forget_topics(frozenset(deleted.values()))
        return output

    def _schedule_expiry(self, now_ms: int) -> None:
        interval_ms = self.registry.config.offsets_retention_check_interval_ms
        self.registry.timers.schedule(_EXPIRY_KEY, now_ms + interval_ms, self._expire_offsets)

    def _expire_offsets(self, now_ms: int) -> Output:
        """Remove the offsets that have expired, and with its last offset a group without members."""
        output = Output(is_atomic=False)
        for group in self.registry.groups.values():
            expired, is_bare = self.offsets.expire(group, now_ms)
            output.records += expired
            if is_bare and group.is_empty:
                output.records += group_tombstones(group)
        self._schedule_expiry(now_ms)
        return output


def group_tombstones(group: Group) -> list[CoordinatorRecord]:
    if isinstance(group, StreamsGroup):
        return streams_group_tombstones(group)
    return group.tombstones() if isinstance(group, ClassicGroup) else consumer_group_tombstones(group)
