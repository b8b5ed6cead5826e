"""The records of a shard when offsets of share groups are altered and deleted, and when share groups are deleted."""

from __future__ import annotations

import pytest

from pessoa.base.ids import ZERO_UUID
from pessoa.coordinator.groups.group_shard import GroupShard
from pessoa.coordinator.groups.share.share_group import ShareGroup
from pessoa.coordinator.groups.share.share_group_replay import topic_infos
from pessoa.coordinator.groups.share.share_initialisation import SharesInitialised
from pessoa.coordinator.groups.share.share_offsets import ShareGroupNamed, SharePlan, SharesDeleted, initialised_by
from pessoa.wire.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pessoa.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pessoa.wire.errors import ErrorCode, Refusal
from tests.unit.coordinator.groups.bench import Bench, Context
from tests.unit.coordinator.groups.consumer_client import Member
from tests.unit.coordinator.images import image, topic_id

GROUP = "workers"


def altered(**topics: dict[int, int]) -> AlterShareGroupOffsetsRequest:
    return AlterShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )


def deleted(*names: str) -> DeleteShareGroupOffsetsRequest:
    return DeleteShareGroupOffsetsRequest(
        group_id=GROUP, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
    )


def finish(bench: Bench, plan: SharePlan, code: ErrorCode = ErrorCode.NONE) -> None:
    topics = topic_infos(initialised_by(plan))
    bench.ask(SharesInitialised, SharesInitialised(group_id=plan.group_id, error_code=code, topics=topics))


def group_of(bench: Bench) -> ShareGroup:
    return bench.shard.registry.share_groups[GROUP]


def plan_end(bench: Bench) -> SharePlan:
    output = bench.shard.plan_share_group_deletion(ShareGroupNamed(group_id=GROUP), Context(), 77, bench.now_ms)
    bench.perform(output)
    plan = bench.replies.pop(77)
    assert isinstance(plan, SharePlan)
    return plan


def end(bench: Bench) -> int:
    return int(bench.ask(DeleteGroupsResponse, DeleteGroupsRequest(groups_names=[GROUP])).results[0].error_code)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_altering_the_offsets_of_an_unknown_share_group_creates_it_and_initialises_them_with_its_epoch(
    bench: Bench,
) -> None:
    plan = bench.ask(SharePlan, altered(orders={0: 5, 7: 1}, absent={0: 1}))
    assert [
        (topic.topic_id, [(one.index, one.start_offset, ErrorCode.of(one.error_code)) for one in topic.partitions])
        for topic in plan.topics
    ] == [
        (topic_id("orders"), [(0, 5, ErrorCode.NONE), (7, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
        (ZERO_UUID, [(0, 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]
    group = group_of(bench)
    assert plan.state_epoch == group.epoch
    assert dict(group.shares.initialising) == {topic_id("orders"): ("orders", frozenset({0}))}
    finish(bench, plan)
    assert dict(group.shares.initialised) == {topic_id("orders"): ("orders", frozenset({0}))}
    bench.reload()
    assert dict(group_of(bench).shares.initialised) == {topic_id("orders"): ("orders", frozenset({0}))}


def test_initialised_share_partitions_stay_initialised_when_a_second_alteration_fails(bench: Bench) -> None:
    finish(bench, bench.ask(SharePlan, altered(orders={0: 5})))
    finish(bench, bench.ask(SharePlan, altered(orders={0: 7, 1: 7})), ErrorCode.COORDINATOR_NOT_AVAILABLE)
    shares = group_of(bench).shares
    assert (dict(shares.initialised), dict(shares.initialising)) == (
        {topic_id("orders"): ("orders", frozenset({0}))},
        {},
    )


def test_altering_the_offsets_of_a_share_group_with_members_or_of_another_group_type_is_refused(bench: Bench) -> None:
    bench.ask(
        ShareGroupHeartbeatResponse,
        ShareGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=0, subscribed_topic_names=["orders"]),
    )
    assert bench.refusal(altered(orders={0: 5})).code is ErrorCode.NON_EMPTY_GROUP
    assert bench.refusal(deleted("orders")).code is ErrorCode.NON_EMPTY_GROUP
    assert end(bench) == ErrorCode.NON_EMPTY_GROUP
    other = Bench()
    Member(other, "m", "orders", group=GROUP).join()
    assert other.refusal(altered(orders={0: 5})).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert other.refusal(deleted("orders")).code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_share_group_topic_is_deleting_until_the_share_coordinator_has_deleted_its_state(bench: Bench) -> None:
    finish(bench, bench.ask(SharePlan, altered(orders={0: 5})))
    plan = bench.ask(SharePlan, deleted("orders", "payments", "absent"))
    assert [(topic.topic_name, ErrorCode.of(topic.error_code), len(topic.partitions)) for topic in plan.topics] == [
        ("orders", ErrorCode.NONE, 3),
        ("payments", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ("absent", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
    ]
    bench.reload()
    assert group_of(bench).shares.deleting == {topic_id("orders"): "orders"}
    again = bench.ask(SharePlan, deleted("orders"))
    assert [topic.error_code for topic in again.topics] == [ErrorCode.NONE], "a coordinator failed in between"
    bench.ask(SharesDeleted, SharesDeleted(group_id=GROUP, topic_ids=[topic_id("orders")]))
    shares = group_of(bench).shares
    assert (dict(shares.initialised), dict(shares.deleting)) == ({}, {})


def test_a_share_group_is_deleted_after_the_deletion_of_its_state_is_planned_and_no_member_has_joined(
    bench: Bench,
) -> None:
    finish(bench, bench.ask(SharePlan, altered(orders={0: 5}, payments={1: 2})))
    assert end(bench) == ErrorCode.NON_EMPTY_GROUP, "its state is not deleted"
    plan = plan_end(bench)
    assert {topic.topic_name: len(topic.partitions) for topic in plan.topics} == {"orders": 3, "payments": 2}
    assert end(bench) == ErrorCode.NONE
    assert GROUP not in bench.shard.registry.share_groups
    bench.reload()
    assert GROUP not in bench.shard.registry.share_groups
    with pytest.raises(Refusal) as caught:
        plan_end(bench)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_share_group_whose_topics_are_deleted_is_deleted_without_the_share_coordinator(bench: Bench) -> None:
    finish(bench, bench.ask(SharePlan, altered(orders={0: 5})))
    bench.publish(image(payments=2))
    assert plan_end(bench).topics == []
    assert end(bench) == ErrorCode.NONE


def test_the_initialised_share_partitions_of_a_group_are_listed(bench: Bench) -> None:
    finish(bench, bench.ask(SharePlan, altered(orders={2: 5, 0: 5})))
    output = GroupShard.list_initialised_shares(
        bench.shard, ShareGroupNamed(group_id=GROUP), Context(), 78, bench.now_ms
    )
    bench.perform(output)
    plan = bench.replies[78]
    assert isinstance(plan, SharePlan)
    assert [(one.topic_name, [each.index for each in one.partitions]) for one in plan.topics] == [("orders", [0, 2])]
