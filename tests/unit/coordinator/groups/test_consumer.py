"""The consumer protocol: joining, epochs, reconciliation, timeouts, changes of topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pessoa.coordinator.groups.consumer.consumer_group import ConsumerState, MemberState
from pessoa.coordinator.groups.group_config import GROUP_RESOURCE, GroupCoordinatorConfig
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored import group_records
from tests.unit.coordinator.groups.bench import START_MS, Bench
from tests.unit.coordinator.groups.consumer_client import GROUP, Member, consumer_group, listed, reconcile, shown
from tests.unit.coordinator.images import FakeConfigs, image, topic_id

SESSION_MS = 45_000


@pytest.fixture
def bench() -> Bench:
    return Bench()


def keep_alive(bench: Bench, duration_ms: int, *members: Member) -> None:
    """Advance the clock while these members send heartbeats without changes."""
    for _ in range(duration_ms // 5_000):
        bench.pass_time(5_000)
        for member in members:
            member.ping()


# ── joining ──


def test_the_first_member_of_a_consumer_group_gets_all_partitions_with_its_first_heartbeat(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    assert member.join() == {"orders": [0, 1, 2]}
    assert member.last == ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=0,
        member_id="a",
        member_epoch=2,
        heartbeat_interval_ms=5_000,
        assignment=member.last.assignment if member.last else None,
    )
    assert consumer_group(bench).state is ConsumerState.STABLE


def test_the_first_join_of_a_consumer_group_writes_the_same_records_as_apache_kafka_in_its_order(bench: Bench) -> None:
    Member(bench, "a", "orders", rebalance_ms=30_000).join()
    group = consumer_group(bench)
    orders = topic_id("orders")
    assert [(record.key, record.value, record.value_version) for record in bench.written] == [
        (
            group_records.ConsumerGroupMemberMetadataKey(group_id=GROUP, member_id="a"),
            group_records.ConsumerGroupMemberMetadataValue(
                instance_id=None,
                rack_id=None,
                client_id="client",
                client_host="/10.0.0.1",
                subscribed_topic_names=["orders"],
                subscribed_topic_regex="",
                rebalance_timeout_ms=30_000,
                server_assignor=None,
            ),
            0,
        ),
        (
            group_records.ConsumerGroupMetadataKey(group_id=GROUP),
            group_records.ConsumerGroupMetadataValue(epoch=2, metadata_hash=group.metadata_hash),
            0,
        ),
        (
            group_records.ConsumerGroupTargetAssignmentMemberKey(group_id=GROUP, member_id="a"),
            group_records.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[group_records.TopicPartition(topic_id=orders, partitions=[0, 1, 2])]
            ),
            0,
        ),
        (
            group_records.ConsumerGroupTargetAssignmentMetadataKey(group_id=GROUP),
            group_records.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=2, assignment_timestamp=START_MS),
            0,
        ),
        (
            group_records.ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a"),
            group_records.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=2,
                previous_member_epoch=0,
                state=0,
                assigned_partitions=[
                    group_records.TopicPartitions(topic_id=orders, partitions=[0, 1, 2], assignment_epochs=[2, 2, 2])
                ],
                partitions_pending_revocation=[],
            ),
            0,
        ),
    ]


def test_in_consumer_heartbeat_version_0_the_coordinator_chooses_the_member_id(bench: Bench) -> None:
    member = Member(bench, "", "orders")
    member.join()
    assert member.id == "AAAAAAAAAAAAAAAAAAAAAQ"


def test_a_heartbeat_without_changes_writes_no_record(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    before = bench.written_count
    assert member.ping().assignment is None
    assert bench.records_since(before) == []


def test_a_heartbeat_with_all_fields_is_answered_with_the_whole_assignment(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    response = member.send(
        rebalance_timeout_ms=60_000, subscribed_topic_names=["orders"], topic_partitions=listed(member.owned)
    )
    assert shown(response.assignment) == {"orders": [0, 1, 2]}


def test_a_subscribed_topic_is_assigned_when_it_is_created(bench: Bench) -> None:
    member = Member(bench, "a", "refunds")
    assert member.join() == {}
    bench.publish(image(orders=3, payments=2, refunds=2))
    bench.pass_time(1_000)
    assert member.beat() == {"refunds": [0, 1]}


def test_a_consumer_group_has_a_max_size(bench: Bench) -> None:
    bench = Bench(GroupCoordinatorConfig(group_consumer_max_size=1))
    member = Member(bench, "a", "orders")
    member.join()
    other = Member(bench, "b", "orders")
    join = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    assert other.refusal(**join).code is ErrorCode.GROUP_MAX_SIZE_REACHED
    member.join()


def test_the_configs_of_a_group_override_those_of_the_broker(bench: Bench) -> None:
    configs = {
        (GROUP_RESOURCE, GROUP): {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    }
    bench = Bench(metadata=replace(image(orders=3), configs=FakeConfigs(configs)))
    member = Member(bench, "a", "orders")
    member.join()
    assert member.last is not None
    assert member.last.heartbeat_interval_ms == 7_000
    bench.pass_time(49_999)
    member.ping()
    bench.pass_time(50_000)
    assert member.refusal().code is ErrorCode.UNKNOWN_MEMBER_ID


# ── reconciliation ──


def test_a_partition_is_revoked_from_its_owner_before_another_member_gets_it(bench: Bench) -> None:
    first, second = Member(bench, "a", "orders"), Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    assert second.join() == {}, "the first still has all"
    assert second.epoch == 3
    group = consumer_group(bench)
    assert group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    assert second.beat() == {}

    response = first.ping()
    assert response.member_epoch == 2, "it keeps its epoch until it has given up"
    assert shown(response.assignment) == {"orders": [0, 1]}
    assert group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert second.beat() == {}, "the first has not said that it has given up"

    first.beat()
    assert first.epoch == 3
    assert second.beat() == {"orders": [2]}
    assert group.state is ConsumerState.STABLE


def test_a_member_that_omits_its_partitions_in_heartbeats_keeps_them(bench: Bench) -> None:
    first, second = Member(bench, "a", "orders"), Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    first.ping()
    first.ping()
    assert first.epoch == 2
    assert second.beat() == {}


def test_a_revocation_is_written_with_the_assigned_and_the_revoked_partitions(bench: Bench) -> None:
    first, second = Member(bench, "a", "orders"), Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    first.ping()
    orders = topic_id("orders")
    assert bench.written[-1].value == group_records.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=2,
        previous_member_epoch=2,
        state=1,
        assigned_partitions=[
            group_records.TopicPartitions(topic_id=orders, partitions=[0, 1], assignment_epochs=[2, 2])
        ],
        partitions_pending_revocation=[
            group_records.TopicPartitions(topic_id=orders, partitions=[2], assignment_epochs=[2])
        ],
    )


def test_three_members_share_the_partitions_and_a_fourth_gets_none(bench: Bench) -> None:
    members = [Member(bench, name, "orders") for name in "abcd"]
    for member in members:
        member.join()
        reconcile(*members[: members.index(member) + 1])
    assert sorted(len(member.names.get("orders", [])) for member in members) == [0, 1, 1, 1]


def test_the_partitions_of_a_member_that_leaves_are_assigned_to_others_at_once(bench: Bench) -> None:
    first, second = Member(bench, "a", "orders"), Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    reconcile(first, second)
    first.leave()
    bench.pass_time(1_000)
    assert second.beat() == {"orders": [0, 1, 2]}
    assert first.refusal().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_assignments_are_not_computed_more_often_than_the_interval(bench: Bench) -> None:
    first, second = Member(bench, "a", "orders"), Member(bench, "b", "orders")
    first.join()
    bench.pass_time(999)
    second.join()
    assert (second.epoch, consumer_group(bench).state) == (2, ConsumerState.ASSIGNING)
    bench.pass_time(1)
    second.beat()
    assert second.epoch == 3


def test_members_choose_the_assignor_by_majority(bench: Bench) -> None:
    bench = Bench(metadata=image(orders=3, payments=3))
    members = [Member(bench, name, "orders", "payments", assignor="range") for name in "ab"]
    for member in members:
        member.join()
    reconcile(*members)
    assert [member.names for member in members] == [
        {"orders": [0, 1], "payments": [0, 1]},
        {"orders": [2], "payments": [2]},
    ]


def test_a_changed_subscription_changes_the_members_assignment(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    bench.pass_time(1_000)
    response = member.send(subscribed_topic_names=["payments"], topic_partitions=listed(member.owned))
    assert shown(response.assignment) == {}, "first it gives up what it had"
    assert member.beat() == {"payments": [0, 1]}


def test_partitions_of_unsubscribed_topics_are_revoked_even_without_a_new_target_assignment(
    bench: Bench,
) -> None:
    member = Member(bench, "a", "orders", "payments")
    member.join()
    response = member.send(subscribed_topic_names=["payments"])
    assert shown(response.assignment) == {"payments": [0, 1]}
    assert member.epoch == 2, "the assignment interval has not passed"
    member.beat()
    bench.pass_time(1_000)
    assert member.beat() == {"payments": [0, 1]}
    assert member.epoch == 3


def test_a_new_target_is_computed_after_the_clock_was_set_back(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    bench.now_ms -= 3_600_000
    member.send(subscribed_topic_names=["payments"], topic_partitions=listed(member.owned))
    assert member.beat() == {"payments": [0, 1]}


# ── fencing ──


def test_a_heartbeat_with_a_member_epoch_that_was_never_given_is_fenced(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    assert member.refusal(member_epoch=3).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert member.refusal(member_epoch=1).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert Member(bench, "ghost").refusal(member_epoch=2).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert Member(bench, "a", group="unknown").refusal(member_epoch=2).code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_whose_response_was_lost_may_heartbeat_with_its_previous_epoch(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    bench.publish(image(orders=4, payments=2))
    bench.pass_time(1_000)
    owned = listed(member.owned)
    member.beat()
    assert member.epoch == 3
    again = member.send(member_epoch=2, topic_partitions=owned)
    assert again.member_epoch == 3
    assert member.refusal(member_epoch=2).code is ErrorCode.FENCED_MEMBER_EPOCH, "it must say what it owns"
    too_much = listed({topic_id("payments"): [0]})
    fenced = member.refusal(member_epoch=2, topic_partitions=too_much)
    assert fenced.code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_may_join_again_at_any_time(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    assert member.join() == {"orders": [0, 1, 2]}
    assert member.epoch == 2


def test_a_consumer_without_heartbeats_is_removed_after_its_session_timeout(bench: Bench) -> None:
    first, second = Member(bench, "a", "orders"), Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    reconcile(first, second)
    keep_alive(bench, SESSION_MS, second)
    assert "a" not in consumer_group(bench).members
    assert second.beat() == {"orders": [0, 1, 2]}


def test_a_member_that_does_not_revoke_partitions_in_time_is_fenced(bench: Bench) -> None:
    first = Member(bench, "a", "orders", rebalance_ms=30_000)
    second = Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    first.ping()
    keep_alive(bench, 25_000, first, second)
    bench.pass_time(5_000)
    assert first.refusal().code is ErrorCode.UNKNOWN_MEMBER_ID
    assert second.beat() == {"orders": [0, 1, 2]}


def test_a_member_that_revokes_partitions_in_time_is_not_fenced(bench: Bench) -> None:
    first = Member(bench, "a", "orders", rebalance_ms=30_000)
    second = Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    reconcile(first, second)
    keep_alive(bench, 60_000, first, second)
    assert len(consumer_group(bench).members) == 2


def test_fencing_a_member_is_retried_if_it_cannot_be_written(bench: Bench) -> None:
    Member(bench, "a", "orders").join()
    bench.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.pass_time(SESSION_MS + 1_000)
    assert "a" in consumer_group(bench).members
    bench.refuses_with = None
    bench.pass_time(500)
    assert consumer_group(bench).is_empty


# ── static members ──


def test_a_static_member_that_leaves_temporarily_keeps_its_partitions(bench: Bench) -> None:
    first = Member(bench, "a", "orders", instance="i-a")
    second = Member(bench, "b", "orders", instance="i-b")
    first.join()
    bench.pass_time(1_000)
    second.join()
    reconcile(first, second)
    had = first.names
    first.leave(-2)
    bench.pass_time(1_000)
    second.beat()
    assert len(second.names["orders"]) == 1
    before = bench.written_count
    back = Member(bench, "a2", "orders", instance="i-a")
    assert back.join() == had
    group = consumer_group(bench)
    assert list(group.members) == ["b", "a2"]
    assert back.epoch == group.epoch == 3, "nothing has changed for the group"
    keys = [type(record.key).__name__.removeprefix("ConsumerGroup") for record in bench.records_since(before)]
    assert keys == [
        "CurrentMemberAssignmentKey",
        "TargetAssignmentMemberKey",
        "MemberMetadataKey",
        "MemberMetadataKey",
        "TargetAssignmentMemberKey",
        "CurrentMemberAssignmentKey",
        "CurrentMemberAssignmentKey",
    ]
    bench.reload()
    assert back.beat() == had


def test_a_second_member_with_the_instance_id_of_an_active_member_is_refused(bench: Bench) -> None:
    Member(bench, "a", "orders", instance="i").join()
    thief = Member(bench, "b", "orders", instance="i")
    join = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["orders"], "topic_partitions": []}
    assert thief.refusal(**join).code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert thief.refusal(member_epoch=2).code is ErrorCode.FENCED_INSTANCE_ID
    assert thief.refusal(member_epoch=-1).code is ErrorCode.FENCED_INSTANCE_ID
    stranger = Member(bench, "c", "orders", instance="other")
    assert stranger.refusal(member_epoch=2).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_leaves_temporarily_and_stays_away_is_fenced(bench: Bench) -> None:
    member = Member(bench, "a", "orders", instance="i")
    member.join()
    member.leave(-2)
    bench.pass_time(SESSION_MS)
    assert consumer_group(bench).is_empty


def test_a_static_member_may_leave_permanently(bench: Bench) -> None:
    member = Member(bench, "a", "orders", instance="i")
    member.join()
    member.leave(-1)
    assert consumer_group(bench).static_members == {}


# ── topics ──


def test_partitions_that_are_added_to_a_topic_are_assigned(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    bench.publish(image(orders=5, payments=2))
    bench.pass_time(1_000)
    assert member.beat() == {"orders": [0, 1, 2, 3, 4]}
    assert member.epoch == 3


def test_partitions_of_a_deleted_topic_are_revoked(bench: Bench) -> None:
    member = Member(bench, "a", "orders", "payments")
    member.join()
    bench.publish(image(payments=2))
    bench.pass_time(1_000)
    member.beat()
    assert member.beat() == {"payments": [0, 1]}


def test_a_change_of_a_topic_without_subscribers_does_not_raise_the_group_epoch(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    before = bench.written_count
    bench.publish(image(orders=3, payments=7))
    bench.pass_time(1_000)
    member.beat()
    assert bench.records_since(before) == []


# ── the coordinator moves ──


def test_a_new_coordinator_has_the_same_consumer_group(bench: Bench) -> None:
    first, second = Member(bench, "a", "orders"), Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    first.ping()
    before = consumer_group(bench)
    bench.reload()
    after = consumer_group(bench)
    assert (after.epoch, after.assignment_epoch, after.metadata_hash) == (3, 3, before.metadata_hash)
    assert after.members == before.members
    assert after.targets == before.targets
    assert after.partition_epochs == before.partition_epochs
    first.beat()
    assert second.beat() == {"orders": [2]}


def test_a_new_coordinator_restarts_session_and_revocation_timeouts(bench: Bench) -> None:
    first = Member(bench, "a", "orders", rebalance_ms=20_000)
    second = Member(bench, "b", "orders")
    first.join()
    bench.pass_time(1_000)
    second.join()
    first.ping()
    bench.pass_time(15_000)
    bench.reload()
    bench.pass_time(15_000)
    first.ping()
    bench.pass_time(5_000)
    assert first.refusal().code is ErrorCode.UNKNOWN_MEMBER_ID
    bench.pass_time(SESSION_MS)
    assert consumer_group(bench).is_empty


def test_stored_partitions_without_assignment_epochs_get_the_epoch_of_their_member(bench: Bench) -> None:
    key = group_records.ConsumerGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="a")
    value = group_records.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7,
        previous_member_epoch=6,
        state=99,
        assigned_partitions=[group_records.TopicPartitions(topic_id=topic_id("orders"), partitions=[0, 1])],
        partitions_pending_revocation=[],
    )
    bench.shard.replay(key, value, 0, -1, -1)
    member = consumer_group(bench).members["a"]
    assert member.assigned == {topic_id("orders"): {0: 7, 1: 7}}
    assert member.state is MemberState.UNKNOWN


def test_a_member_in_an_unknown_state_must_join_again(bench: Bench) -> None:
    member = Member(bench, "a", "orders")
    member.join()
    group = consumer_group(bench)
    group.put_member(replace(group.members["a"], state=MemberState.UNKNOWN))
    assert member.refusal().code is ErrorCode.FENCED_MEMBER_EPOCH
    assert member.join() == {"orders": [0, 1, 2]}
