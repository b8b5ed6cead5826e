"""Streams groups in a shard: joining, tasks, internal topics, standbys, revocation, offsets, reload."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pessoa.coordinator.groups.streams.streams_group import (
    OwnedTasks,
    StreamsMember,
    StreamsState,
    TaskOwners,
    TaskRoles,
    TaskState,
)
from pessoa.coordinator.groups.streams.streams_group_config import StreamsGroupConfig
from pessoa.coordinator.groups.streams.task_reconciliation import TaskSituation, reconcile_tasks
from pessoa.coordinator.groups.streams.topology_configuration import (
    ASSIGNMENT_DELAYED,
    INCORRECTLY_PARTITIONED_TOPICS,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    SHUTDOWN_APPLICATION,
    STALE_TOPOLOGY,
    InternalTopic,
)
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pessoa.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pessoa.wire.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from pessoa.wire.api.streams_group_heartbeat import Endpoint, TaskIds, TaskOffset
from pessoa.wire.errors import ErrorCode
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.streams_client import (
    GROUP,
    ORDERS,
    StreamsClient,
    copartition,
    settle,
    streams_group,
    subtopology,
    topic_info,
    topology,
)
from tests.unit.coordinator.images import image

COUNTING = topology(
    subtopology("0", "orders", writes=("app-by-customer",)),
    subtopology(
        "1",
        changelogs=(topic_info("app-counts-changelog", configs={"cleanup.policy": "compact"}),),
        repartition=(topic_info("app-by-customer"),),
    ),
)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_first_member_gets_all_tasks_after_the_initial_delay(bench: Bench) -> None:
    member = StreamsClient(bench, "a")
    assert member.beat() == {}
    assert ASSIGNMENT_DELAYED in member.statuses
    bench.pass_time(3_000)
    assert member.beat() == {"0": [0, 1, 2]}
    assert member.statuses == {}
    assert streams_group(bench).state is StreamsState.STABLE


def test_all_members_of_a_new_group_wait_for_the_initial_delay(bench: Bench) -> None:
    one, other = StreamsClient(bench, "a"), StreamsClient(bench, "b")
    one.beat()
    bench.pass_time(2_999)
    assert (other.beat(), one.beat()) == ({}, {})
    assert ASSIGNMENT_DELAYED in other.statuses
    bench.pass_time(1)
    assert one.beat() == {"0": [0, 2]}


def test_the_initial_delay_is_over_when_the_clock_was_set_back(bench: Bench) -> None:
    member = StreamsClient(bench, "a")
    member.beat()
    bench.now_ms -= 3_600_000
    assert member.beat() == {"0": [0, 1, 2]}


def test_tasks_are_assigned_anew_after_the_clock_was_set_back(bench: Bench) -> None:
    one, other = StreamsClient(bench, "a"), StreamsClient(bench, "b")
    settle(bench, one)
    bench.now_ms -= 3_600_000
    for member in (other, one, other, one, other):
        member.beat()
    assert sorted(map(len, (one.beat()["0"], other.beat()["0"]))) == [1, 2]


def test_a_second_streams_member_gets_tasks_only_when_the_first_has_revoked_them(bench: Bench) -> None:
    one, other = StreamsClient(bench, "a"), StreamsClient(bench, "b")
    settle(bench, one)
    one.clings = True
    settle(bench, other, one, rounds=3)
    assert other.tasks == {}
    assert streams_group(bench).state is StreamsState.RECONCILING
    one.clings = False
    one.tasks = {"0": [0, 1]}
    settle(bench, one, other, rounds=3)
    assert sorted(one.tasks["0"] + other.tasks["0"]) == [0, 1, 2]
    assert len(one.tasks["0"]) == 2
    assert streams_group(bench).state is StreamsState.STABLE


def test_a_streams_member_that_does_not_revoke_its_tasks_in_time_is_fenced(bench: Bench) -> None:
    one, other = StreamsClient(bench, "a"), StreamsClient(bench, "b")
    settle(bench, one)
    one.clings = True
    bench.pass_time(3_000)
    other.beat()
    bench.pass_time(3_000)
    one.beat()
    for _ in range(30):
        bench.pass_time(3_000)
        other.beat()
    assert set(streams_group(bench).members) == {"b"}
    assert other.tasks == {"0": [0, 1, 2]}
    assert one.refusal().code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_streams_member_without_heartbeats_is_removed_and_its_tasks_go_to_the_others(bench: Bench) -> None:
    one, other = StreamsClient(bench, "a"), StreamsClient(bench, "b")
    settle(bench, one, other)
    for _ in range(16):
        bench.pass_time(3_000)
        other.beat()
    settle(bench, other, rounds=3)
    assert other.tasks == {"0": [0, 1, 2]}


def test_missing_internal_topics_are_requested_with_their_partition_counts_and_configs(bench: Bench) -> None:
    member = StreamsClient(bench, "a", COUNTING)
    member.beat()
    assert MISSING_INTERNAL_TOPICS in member.statuses
    (asked,) = bench.missing_topics
    assert asked.topics == (
        InternalTopic("app-by-customer", 3, -1, ()),
        InternalTopic("app-counts-changelog", 3, -1, (("cleanup.policy", "compact"),)),
    )
    assert streams_group(bench).state is StreamsState.NOT_READY
    bench.publish(image(**{"orders": 3, "app-by-customer": 3, "app-counts-changelog": 3}))
    settle(bench, member)
    assert member.tasks == {"0": [0, 1, 2], "1": [0, 1, 2]}
    assert member.statuses == {}


def test_members_get_the_reason_why_internal_topics_cannot_be_created(bench: Bench) -> None:
    bench.creation_trouble = ["app-by-customer: not authorised"]
    member = StreamsClient(bench, "a", COUNTING)
    member.beat()
    assert "Creation failed: app-by-customer: not authorised" in member.statuses[MISSING_INTERNAL_TOPICS]


def test_missing_source_topics_are_named_in_the_status_until_they_are_created(bench: Bench) -> None:
    member = StreamsClient(bench, "a", topology(subtopology("0", "absent")))
    member.beat()
    assert member.statuses[MISSING_SOURCE_TOPICS] == "Source topics absent are missing."
    bench.publish(image(orders=3, absent=1))
    settle(bench, member)
    assert member.tasks == {"0": [0]}


def test_the_tasks_of_a_deleted_source_topic_are_revoked(bench: Bench) -> None:
    member = StreamsClient(bench, "a")
    settle(bench, member)
    bench.publish(image(payments=2))
    settle(bench, member)
    assert member.tasks == {}
    assert MISSING_SOURCE_TOPICS in member.statuses


def test_joined_topics_with_different_counts_are_incorrectly_partitioned(bench: Bench) -> None:
    shape = topology(subtopology("0", "orders", "payments", joined=(copartition((0, 1)),)))
    member = StreamsClient(bench, "a", shape)
    member.beat()
    assert "[{orders=3, payments=2}]" in member.statuses[INCORRECTLY_PARTITIONED_TOPICS]


def test_a_repartition_topic_gets_the_count_of_the_topic_that_it_is_joined_with(bench: Bench) -> None:
    shape = topology(
        subtopology("0", "orders", writes=("app-r",)),
        subtopology("1", "payments", repartition=(topic_info("app-r"),), joined=(copartition((0,), (0,)),)),
    )
    StreamsClient(bench, "a", shape).beat()
    assert bench.missing_topics[0].topics[0][:2] == ("app-r", 2)


def test_an_internal_topic_with_another_count_than_decided_is_incorrectly_partitioned(bench: Bench) -> None:
    bench.publish(image(**{"orders": 3, "app-by-customer": 5, "app-counts-changelog": 3}))
    member = StreamsClient(bench, "a", COUNTING)
    member.beat()
    assert "app-by-customer has 5 partitions" in member.statuses[INCORRECTLY_PARTITIONED_TOPICS]


def test_a_repartition_topic_that_no_subtopology_writes_is_refused(bench: Bench) -> None:
    shape = topology(subtopology("0", repartition=(topic_info("app-r"),)))
    assert StreamsClient(bench, "a", shape).refusal().code is ErrorCode.STREAMS_INVALID_TOPOLOGY


@pytest.mark.parametrize(
    "wrong",
    [
        subtopology("0", "bad name"),
        subtopology("0", "__consumer_offsets"),
        subtopology("0", "orders", changelogs=(topic_info("app-c", partitions=4),)),
        subtopology("0", "orders", joined=(copartition((1,)),)),
    ],
    ids=["name", "internal topic", "changelog with a count", "join of nothing"],
)
def test_an_invalid_topology_is_refused_and_changes_nothing(bench: Bench, wrong: object) -> None:
    shape = topology(wrong)  # type: ignore[arg-type]
    assert StreamsClient(bench, "a", shape).refusal().code is ErrorCode.STREAMS_INVALID_TOPOLOGY
    assert bench.shard.registry.groups == {}
    assert bench.written == []


def test_standby_tasks_are_on_another_process_and_only_for_stateful_subtopologies(bench: Bench) -> None:
    bench.publish(image(**{"orders": 2, "app-by-customer": 2, "app-counts-changelog": 2}))
    bench.shard.streams.config = StreamsGroupConfig(group_streams_num_standby_replicas=1)
    members = [StreamsClient(bench, name, COUNTING) for name in ("a", "b")]
    settle(bench, *members)
    for member, other in (members, members[::-1]):
        assert set(member.standbys) <= {"1"}
        assert set(member.standbys.get("1", ())) == set(other.tasks.get("1", ()))


def test_two_members_of_one_process_get_no_standby_of_each_other(bench: Bench) -> None:
    bench.publish(image(**{"orders": 2, "app-by-customer": 2, "app-counts-changelog": 2}))
    bench.shard.streams.config = StreamsGroupConfig(group_streams_num_standby_replicas=1)
    members = [StreamsClient(bench, name, COUNTING, process="p") for name in ("a", "b")]
    settle(bench, *members)
    assert [member.standbys for member in members] == [{}, {}]
    assert sum(len(tasks) for member in members for tasks in member.tasks.values()) == 4


def test_a_different_topology_is_refused_and_an_older_one_is_stale(bench: Bench) -> None:
    newer = topology(subtopology("0", "orders"), epoch=1)
    settle(bench, StreamsClient(bench, "a", newer))
    other = StreamsClient(bench, "b", topology(subtopology("0", "payments"), epoch=1))
    assert other.refusal().code is ErrorCode.INVALID_REQUEST
    old = StreamsClient(bench, "c", ORDERS)
    old.beat()
    assert STALE_TOPOLOGY in old.statuses


def test_a_topology_may_name_its_topics_in_any_order(bench: Bench) -> None:
    joined = (copartition((0,)),)
    settle(bench, StreamsClient(bench, "a", topology(subtopology("0", "orders", "payments", joined=joined))))
    again = topology(subtopology("0", "payments", "orders", joined=(copartition((1,)),)))
    StreamsClient(bench, "b", again).beat()


def test_after_a_lost_response_a_streams_member_may_heartbeat_with_its_previous_epoch(bench: Bench) -> None:
    one, other = StreamsClient(bench, "a"), StreamsClient(bench, "b")
    settle(bench, one)
    before = one.epoch
    bench.pass_time(3_000)
    other.beat()
    bench.pass_time(3_000)
    one.beat()
    one.tasks = {"0": one.tasks["0"]}
    one.epoch = before
    assert one.beat() == one.tasks
    one.epoch = 1
    assert one.refusal().code is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize(
    "changes",
    [
        {"group_id": " "},
        {"member_id": ""},
        {"instance_id": "static"},
        {"member_epoch": -3},
        {"rebalance_timeout_ms": -1},
        {"topology": None},
        {"active_tasks": None},
        {"standby_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        {"warmup_tasks": [TaskIds(subtopology_id="0", partitions=[0])]},
        {"task_offsets": [TaskOffset(subtopology_id="0", partition=0, offset=0)]},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_malformed_heartbeat_is_refused_and_changes_nothing(bench: Bench, changes: dict[str, object]) -> None:
    member = StreamsClient(bench, "a")
    request = member.request()
    for name, value in changes.items():
        setattr(request, name, value)
    assert member.refusal(request).code is ErrorCode.INVALID_REQUEST
    assert bench.written == []


def test_a_shutdown_request_of_one_streams_member_is_reported_to_all_others(bench: Bench) -> None:
    one, other = StreamsClient(bench, "a"), StreamsClient(bench, "b")
    settle(bench, one, other)
    request = one.request()
    request.shutdown_application = True
    bench.send(request, 0)
    other.beat()
    assert "a encountered a fatal error" in other.statuses[SHUTDOWN_APPLICATION]


def test_streams_heartbeat_responses_name_the_endpoints_where_partitions_can_be_queried(bench: Bench) -> None:
    member = StreamsClient(bench, "a")
    request = member.request()
    request.user_endpoint = Endpoint(host="app", port=8080)
    bench.send(request, 0)
    member.epoch = streams_group(bench).members["a"].epoch
    settle(bench, member, rounds=3)
    assert member.response is not None
    (endpoint,) = member.response.partitions_by_user_endpoint or []
    assert (endpoint.user_endpoint.host, endpoint.user_endpoint.port) == ("app", 8080)
    assert [(one.topic, one.partitions) for one in endpoint.active_partitions] == [("orders", [0, 1, 2])]


def test_a_new_coordinator_has_the_same_streams_group(bench: Bench) -> None:
    bench.publish(image(**{"orders": 2, "app-by-customer": 2, "app-counts-changelog": 2}))
    members = [StreamsClient(bench, name, COUNTING) for name in ("a", "b")]
    settle(bench, *members)
    before = streams_group(bench)
    bench.reload()
    after = streams_group(bench)
    for name in ("epoch", "assignment_epoch", "members", "targets", "topology", "validated_topology_epoch"):
        assert getattr(after, name) == getattr(before, name), name
    written = bench.written_count
    for member in members:
        member.beat()
    assert bench.written_count == written, "nothing changes when a coordinator takes over"
    for _ in range(16):
        bench.pass_time(3_000)
        members[0].beat()
    assert set(streams_group(bench).members) == {"a"}, "sessions run on after a reload"


def commit(epoch: int, topic: str, partition: int, member: str = "a") -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=partition, committed_offset=7, committed_metadata="")
                ],
            )
        ],
    )


def test_streams_commits_are_accepted_at_the_members_epoch_and_at_an_older_one_for_tasks_it_had_then(
    bench: Bench,
) -> None:
    one, other = StreamsClient(bench, "a"), StreamsClient(bench, "b")
    settle(bench, one)
    first = one.epoch
    bench.ask(OffsetCommitResponse, commit(first, "orders", 0))
    settle(bench, one, other)
    assert one.epoch > first
    kept, lost = one.tasks["0"][0], other.tasks["0"][0]
    bench.ask(OffsetCommitResponse, commit(first, "orders", kept))
    assert bench.refusal(commit(first, "orders", lost)).code is ErrorCode.STALE_MEMBER_EPOCH
    assert bench.refusal(commit(one.epoch + 1, "orders", kept)).code is ErrorCode.STALE_MEMBER_EPOCH
    assert bench.refusal(commit(one.epoch, "orders", 0, member="c")).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_streams_group_that_is_deleted_during_its_initial_delay_leaves_no_state(bench: Bench) -> None:
    member = StreamsClient(bench, "a")
    member.beat()
    assert repr(bench.shard.streams) == "<StreamsGroups: 1, waiting for members: 1>"
    member.leave()
    deletion = DeleteGroupsRequest(groups_names=[GROUP])
    assert bench.ask(DeleteGroupsResponse, deletion).results[0].error_code == ErrorCode.NONE
    assert repr(bench.shard.streams) == "<StreamsGroups: 0, waiting for members: 0>"


def test_streams_groups_are_listed_described_and_deleted_when_empty(bench: Bench) -> None:
    member = StreamsClient(bench, "a")
    settle(bench, member)
    bench.ask(OffsetCommitResponse, commit(member.epoch, "orders", 0))
    (listed,) = bench.ask(ListGroupsResponse, ListGroupsRequest(states_filter=[], types_filter=["streams"])).groups
    assert (listed.group_id, listed.group_type, listed.protocol_type, listed.group_state) == (
        GROUP, "streams", "streams", "Stable",
    )  # fmt: skip
    request = StreamsGroupDescribeRequest(group_ids=[GROUP, "absent"], include_authorized_operations=False)
    found, absent = bench.ask(StreamsGroupDescribeResponse, request).groups
    assert absent.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert found.topology is not None
    (described,) = found.members
    assert [(one.subtopology_id, one.partitions) for one in described.assignment.active_tasks] == [("0", [0, 1, 2])]
    deletion = DeleteGroupsRequest(groups_names=[GROUP])
    assert bench.ask(DeleteGroupsResponse, deletion).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    member.leave()
    assert bench.ask(DeleteGroupsResponse, deletion).results[0].error_code == ErrorCode.NONE
    assert bench.shard.registry.groups == {}
    assert bench.replayed().registry.groups == {}


def test_groups_of_other_types_are_refused_and_an_empty_classic_group_is_replaced_by_a_streams_group(
    bench: Bench,
) -> None:
    member = StreamsClient(bench, "a")
    settle(bench, member)
    join = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, member_id="", protocol_type="consumer", protocols=[]
    )
    assert bench.ask(JoinGroupResponse, join).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="c", member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=["orders"],
        topic_partitions=[],
    )  # fmt: skip
    assert bench.refusal(consumer).code is ErrorCode.GROUP_ID_NOT_FOUND
    simple = commit(-1, "orders", 0, member="")
    simple.group_id = "was-classic"
    bench.ask(OffsetCommitResponse, simple)
    convert = StreamsClient(bench, "x", group="was-classic")
    settle(bench, convert)
    assert convert.tasks == {"0": [0, 1, 2]}
    assert bench.shard.offsets.get("was-classic", "orders", 0) is not None
    assert bench.replayed().registry.streams_group("was-classic").members == (
        streams_group(bench, "was-classic").members
    )


def test_a_member_in_an_unknown_state_must_join_again(bench: Bench) -> None:
    member = StreamsClient(bench, "a")
    settle(bench, member)
    group = streams_group(bench)
    group.put_member(replace(group.members["a"], state=TaskState.UNKNOWN))
    assert member.refusal().code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_standby_task_waits_while_its_process_has_the_task_active() -> None:
    owners = TaskOwners()
    owners.count(StreamsMember("a", process_id="p", assigned=OwnedTasks({"0": {0: 1}})), 1)
    target = TaskRoles(standby={"0": frozenset((0,))})
    waiting = reconcile_tasks(StreamsMember("b", process_id="p"), TaskSituation(2, target, owners, TaskRoles()))
    assert (waiting.state, waiting.assigned.standby) == (TaskState.UNRELEASED_TASKS, {})
    elsewhere = reconcile_tasks(StreamsMember("c", process_id="q"), TaskSituation(2, target, owners, TaskRoles()))
    assert (elsewhere.state, elsewhere.assigned.standby) == (TaskState.STABLE, target.standby)
