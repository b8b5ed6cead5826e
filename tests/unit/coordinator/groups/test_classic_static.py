"""Static members of classic groups (KIP-345): they rejoin with a new member id, which fences the old one."""

from __future__ import annotations

import pytest

from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicState
from pessoa.wire.errors import ErrorCode
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.classic_client import DELAY_MS, GROUP, ORDERS, ClassicClient, subscription


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> ClassicClient:
    return ClassicClient(bench)


def group(bench: Bench) -> ClassicGroup:
    found = bench.shard.registry.groups[GROUP]
    assert isinstance(found, ClassicGroup)
    return found


def static_group(bench: Bench, client: ClassicClient) -> list[str]:
    """Create a stable group of the instances "a" (the leader) and "b"; return their member ids."""
    tokens = [client.join(instance=instance) for instance in ("a", "b")]
    bench.pass_time(2 * DELAY_MS)
    members = [client.joined(token).member_id for token in tokens]
    client.sync(members[0], 1, {member: member.encode() for member in members}, instance="a")
    client.sync(members[1], 1, instance="b")
    return members


def test_a_static_member_needs_no_second_join_and_is_named_after_its_instance(
    bench: Bench, client: ClassicClient
) -> None:
    members = static_group(bench, client)
    assert members[0] == "a-00000000-0000-0000-0000-000000000001"
    assert group(bench).state is ClassicState.STABLE


def test_a_static_follower_that_rejoins_causes_no_rebalance(bench: Bench, client: ClassicClient) -> None:
    leader, old = static_group(bench, client)
    response = client.joined(client.join(instance="b"))
    assert response.error_code == ErrorCode.NONE
    assert (response.generation_id, response.leader, response.skip_assignment) == (1, leader, False)
    assert response.members == []
    assert response.member_id != old
    assert group(bench).state is ClassicState.STABLE
    synced = client.synced(client.sync(response.member_id, 1, instance="b"))
    assert synced.assignment == old.encode(), "it takes over what it had"
    assert client.heartbeat_error(old, 1, "b") is ErrorCode.FENCED_INSTANCE_ID
    assert client.heartbeat_error(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_leader_that_rejoins_is_told_to_skip_the_assignment(bench: Bench, client: ClassicClient) -> None:
    static_group(bench, client)
    response = client.joined(client.join(instance="a", version=9))
    assert response.leader == response.member_id
    assert response.skip_assignment
    assert len(response.members) == 2


def test_before_join_group_version_9_a_rejoined_static_leader_sees_its_old_id_as_leader_and_does_not_assign(
    bench: Bench, client: ClassicClient
) -> None:
    old, _ = static_group(bench, client)
    response = client.joined(client.join(instance="a", version=8))
    assert response.leader == old != response.member_id
    assert response.members == []
    assert group(bench).leader == response.member_id


def test_the_new_member_id_of_a_static_member_is_written_and_known_to_a_new_coordinator(
    bench: Bench, client: ClassicClient
) -> None:
    static_group(bench, client)
    new = client.joined(client.join(instance="b")).member_id
    bench.reload()
    assert group(bench).static_members["b"] == new
    assert client.heartbeat(new, 1, "b") == ErrorCode.NONE


def test_the_new_member_id_of_a_static_member_is_undone_if_it_cannot_be_written(
    bench: Bench, client: ClassicClient
) -> None:
    leader, old = static_group(bench, client)
    bench.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    response = client.joined(client.join(instance="b", session_ms=20_000))
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (response.member_id, response.leader) == ("", leader)
    assert client.heartbeat(old, 1, "b") == ErrorCode.NONE
    assert group(bench).members[old].session_timeout_ms == 10_000


def test_a_static_member_that_rejoins_with_another_protocol_causes_a_rebalance(
    bench: Bench, client: ClassicClient
) -> None:
    offers = [("range", ORDERS), ("sticky", ORDERS)]
    tokens = [client.join(instance=instance, protocols=offers) for instance in ("a", "b")]
    bench.pass_time(2 * DELAY_MS)
    members = [client.joined(token).member_id for token in tokens]
    client.sync(members[0], 1, {}, instance="a")
    assert bench.is_waiting(client.join(instance="b", protocols=[("sticky", ORDERS)]))
    assert group(bench).state is ClassicState.PREPARING_REBALANCE


def test_a_changed_subscription_alone_does_not_rebalance_a_returning_static_member(
    bench: Bench, client: ClassicClient
) -> None:
    static_group(bench, client)
    token = client.join(instance="b", protocols=[("range", subscription("payments"))])
    assert client.joined(token).generation_id == 1
    assert group(bench).state is ClassicState.STABLE


def test_a_request_that_waits_under_the_old_member_id_of_a_static_member_is_fenced(
    bench: Bench, client: ClassicClient
) -> None:
    _, old = static_group(bench, client)
    client.join(client.member_id())
    joining = client.join(old, instance="b")
    taking_over = client.join(instance="b")
    assert client.joined(joining).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert bench.is_waiting(taking_over)


def test_a_static_member_that_is_replaced_while_the_leader_assigns_causes_a_new_rebalance(
    bench: Bench, client: ClassicClient
) -> None:
    tokens = [client.join(instance=instance) for instance in ("a", "b")]
    bench.pass_time(2 * DELAY_MS)
    waiting = client.sync(client.joined(tokens[1]).member_id, 1, instance="b")
    client.join(instance="b")
    assert client.synced(waiting).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert group(bench).state is ClassicState.PREPARING_REBALANCE


def test_a_rejoin_with_the_wrong_id_for_the_instance_is_fenced(bench: Bench, client: ClassicClient) -> None:
    leader, follower = static_group(bench, client)
    assert client.joined(client.join(leader, instance="b")).error_code == ErrorCode.FENCED_INSTANCE_ID
    assert client.joined(client.join(follower, instance="c")).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_absent_static_members_stay_in_the_group_until_their_session_times_out(
    bench: Bench, client: ClassicClient
) -> None:
    leader, follower = static_group(bench, client)
    token = client.join(client.member_id(), session_ms=10_000, rebalance_ms=5_000)
    rejoined = client.join(leader, instance="a", rebalance_ms=5_000, session_ms=60_000)
    client.heartbeat(follower, 1, "b")
    group(bench).members[follower].rebalance_timeout_ms = 5_000
    bench.pass_time(9_000)
    client.heartbeat(follower, 1, "b")
    bench.pass_time(9_000)
    client.heartbeat(follower, 1, "b")
    while bench.is_waiting(token):
        client.heartbeat(follower, 1, "b")
        bench.pass_time(1_000)
    assert {each.member_id for each in client.joined(rejoined).members} >= {leader, follower}


def test_an_administrator_removes_a_static_member_by_its_instance(bench: Bench, client: ClassicClient) -> None:
    _, follower = static_group(bench, client)
    assert client.leave(("", "b"), ("", "unknown"), ("", None), (follower, "a")) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert list(group(bench).static_members) == ["a"]
