"""The offsets of share groups as an administrator changes them, and the end of share groups.

What is stored of a share partition is with the share coordinator, and the group coordinator has only to remember what
is under way there. So a change has two or three steps, and the shell (`coordinator.share_group_requests`) goes from
one to the next:

    AlterShareGroupOffsets     plan: initialising ──► InitializeState ──► initialised
    DeleteShareGroupOffsets    plan: deleting     ──► DeleteState     ──► neither
    DeleteGroups               plan: deleting     ──► DeleteState     ──► tombstones of the group

Every one of them needs a group without members. A coordinator that fails in between leaves the topics as deleting: the
same request goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.coordinator.groups.group_registry import Registry
from pessoa.coordinator.groups.share.share_group import InitialisedShares, NamedPartitions, NamedTopics, ShareGroup
from pessoa.coordinator.groups.share.share_group_replay import (
    group_epoch_record,
    share_group_tombstones,
    shares_record,
)
from pessoa.coordinator.shard import CoordinatorRecord, Output
from pessoa.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from pessoa.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message, Struct, array, int16, int32, int64, string, uuid

NO_OFFSET = -1


class PlannedPartition(Struct):
    index: int = int32()
    start_offset: int = int64()
    error_code: int = int16()


class PlannedTopic(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    error_code: int = int16()
    partitions: list[PlannedPartition] = array(PlannedPartition)


class SharePlan(Message, versions="0", flexible="none"):
    """The share partitions for the request to the share coordinator, in the order of the client's request, without
    those that have an error. Never leaves the process."""

    group_id: str = string()
    state_epoch: int = int32()
    topics: list[PlannedTopic] = array(PlannedTopic)


class ShareGroupNamed(Message, versions="0", flexible="none"):
    """A request about one share group. Never leaves the process."""

    group_id: str = string()


class SharesDeleted(Message, versions="0", flexible="none"):
    """The share coordinator has deleted the state of these topics. Never leaves the process."""

    group_id: str = string()
    topic_ids: list[Uuid] = array("uuid")


class ShareOffsets:
    """The offset APIs of share groups; `registry` has the groups of the shard."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __repr__(self) -> str:
        return f"<ShareOffsets of {len(self._registry.share_groups)} groups>"

    def list_initialised(self, request: ShareGroupNamed, token: int) -> Output:
        """Return all initialised share partitions of a group."""
        group = self._registry.share_group(request.group_id)
        topics = [
            PlannedTopic(
                topic_id=topic_id, topic_name=name, error_code=0, partitions=_planned_partitions(sorted(partitions))
            )
            for topic_id, (name, partitions) in sorted(group.shares.initialised.items())
        ]
        return Output.reply(token, SharePlan(group_id=group.id, state_epoch=group.epoch, topics=topics))

    # ── AlterShareGroupOffsets ──

    def plan_alteration(self, request: AlterShareGroupOffsetsRequest, token: int) -> Output:
        """Add the records of the share partitions to initialise, and of the group if it does not exist; return them as
        a plan."""
        group_id = request.group_id
        output = Output()
        if group_id in self._registry.groups:
            self._registry.share_group(group_id)  # raises
        group = self._registry.share_groups.get(group_id)
        if group is None:
            group = ShareGroup(group_id)
            output.records.append(group_epoch_record(group_id, group.epoch, 0))
        _check_empty(group)
        plan = SharePlan(group_id=group_id, state_epoch=group.epoch, topics=[])
        begun: dict[Uuid, NamedPartitions] = {}
        for asked in request.topics:
            topic = self._registry.topic(asked.topic_name)
            known = frozenset[int]() if topic is None else frozenset(topic.partitions)
            partitions = [
                PlannedPartition(
                    index=one.partition_index,
                    start_offset=one.start_offset,
                    error_code=0 if one.partition_index in known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for one in asked.partitions
            ]
            topic_id = ZERO_UUID if topic is None else topic.id
            plan.topics.append(
                PlannedTopic(topic_id=topic_id, topic_name=asked.topic_name, error_code=0, partitions=partitions)
            )
            wanted = frozenset(one.index for one in partitions if not one.error_code)
            if topic_id in group.shares.initialised:
                wanted -= group.shares.initialised[topic_id].partitions
            if wanted:
                begun[topic_id] = NamedPartitions(asked.topic_name, wanted)
        shares = group.shares.begin(begun)
        if shares != group.shares:
            output.records.append(shares_record(group_id, shares))
        output.replies.append((token, plan))
        return output

    # ── DeleteShareGroupOffsets ──

    def plan_offset_deletion(self, request: DeleteShareGroupOffsetsRequest, token: int) -> Output:
        group = self._registry.share_group(request.group_id)
        _check_empty(group)
        plan = SharePlan(group_id=group.id, state_epoch=group.epoch, topics=[])
        deleting: dict[Uuid, str] = {}
        for asked in request.topics:
            topic = self._registry.topic(asked.topic_name)
            if topic is None or not _has(group.shares, topic.id):
                code, topic_id = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ZERO_UUID
            else:
                code, topic_id = ErrorCode.NONE, topic.id
                deleting[topic.id] = topic.name
            plan.topics.append(self._planned_topic(topic_id, asked.topic_name, code))
        return Output(self._begin_deletion(group, deleting), [(token, plan)])

    def finish_deletion(self, request: SharesDeleted, token: int) -> Output:
        group = self._registry.share_groups.get(request.group_id)
        output = Output.reply(token, request)
        if group is not None:
            gone = frozenset(request.topic_ids)
            left = {topic_id: name for topic_id, name in group.shares.deleting.items() if topic_id not in gone}
            if left != group.shares.deleting:
                output.records.append(shares_record(group.id, group.shares._replace(deleting=left)))
        return output

    # ── DeleteGroups ──

    def plan_group_deletion(self, request: ShareGroupNamed, token: int) -> Output:
        group = self._registry.share_group(request.group_id)
        _check_empty(group)
        deleting = {
            topic_id: named.topic_name
            for known in (group.shares.initialising, group.shares.initialised)
            for topic_id, named in known.items()
        } | dict(group.shares.deleting)
        plan = SharePlan(
            group_id=group.id,
            state_epoch=group.epoch,
            topics=[
                self._planned_topic(topic_id, name, ErrorCode.NONE)
                for topic_id, name in sorted(deleting.items())
                if topic_id in self._registry.image.topics.by_id
            ],
        )
        return Output(self._begin_deletion(group, deleting), [(token, plan)])

    def tombstones(self, group: ShareGroup) -> list[CoordinatorRecord]:
        """Return the tombstones of a group whose state the share coordinator has deleted."""
        _check_empty(group)
        if group.shares.initialising or group.shares.initialised:
            # A member has come and gone meanwhile.
            raise Refusal(ErrorCode.NON_EMPTY_GROUP, f"share group {group.id} has begun anew")
        return share_group_tombstones(group)

    def _begin_deletion(self, group: ShareGroup, deleting: Mapping[Uuid, str]) -> list[CoordinatorRecord]:
        shares = group.shares.without_topics(frozenset(deleting))
        shares = shares._replace(deleting={**shares.deleting, **deleting})
        return [shares_record(group.id, shares)] if shares != group.shares else []

    def _planned_topic(self, topic_id: Uuid, name: str, code: ErrorCode) -> PlannedTopic:
        topic = None if code.is_error else self._registry.image.topics.by_id.get(topic_id)
        partitions = _planned_partitions(sorted(topic.partitions)) if topic is not None else []
        return PlannedTopic(topic_id=topic_id, topic_name=name, error_code=code, partitions=partitions)


def initialised_by(plan: SharePlan) -> NamedTopics:
    """Return the share partitions that a plan initialises."""
    found = {
        topic.topic_id: NamedPartitions(
            topic.topic_name, frozenset(one.index for one in topic.partitions if not one.error_code)
        )
        for topic in plan.topics
    }
    return {topic_id: named for topic_id, named in found.items() if named.partitions}


def _planned_partitions(indexes: Iterable[int]) -> list[PlannedPartition]:
    return [PlannedPartition(index=index, start_offset=NO_OFFSET, error_code=0) for index in indexes]


def _has(shares: InitialisedShares, topic_id: Uuid) -> bool:
    return any(topic_id in known for known in (shares.initialising, shares.initialised, shares.deleting))


def _check_empty(group: ShareGroup) -> None:
    if not group.is_empty:
        raise Refusal(ErrorCode.NON_EMPTY_GROUP, f"share group {group.id} has members")
