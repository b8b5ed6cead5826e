"""SyncGroup, Heartbeat and LeaveGroup of the classic protocol."""

from __future__ import annotations

import pytest

from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicState
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.group_records import GroupMetadataValue, MemberMetadata
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.classic_client import DELAY_MS, GROUP, ORDERS, ClassicClient


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


def joined_group(bench: Bench, client: ClassicClient, count: int = 2) -> list[str]:
    """Create a group whose members have joined and not synced; return their ids, with the leader first."""
    members = [client.member_id() for _ in range(count)]
    for member in members:
        client.join(member)
    bench.pass_time(2 * DELAY_MS)
    return members


def test_followers_wait_for_the_leaders_sync_and_each_gets_its_own_assignment(
    bench: Bench, client: ClassicClient
) -> None:
    leader, follower = joined_group(bench, client)
    waiting = client.sync(follower, 1)
    assert bench.is_waiting(waiting)
    led = client.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert client.synced(led) == SyncGroupResponse(
        error_code=0, protocol_type="consumer", protocol_name="range", assignment=b"L"
    )
    assert client.synced(waiting).assignment == b"F"
    assert group(bench).state is ClassicState.STABLE


def test_a_stable_generation_is_written_with_all_state_that_a_new_coordinator_needs(
    bench: Bench, client: ClassicClient
) -> None:
    leader, follower = joined_group(bench, client)
    entered_ms = bench.now_ms
    bench.pass_time(100)
    client.sync(leader, 1, {leader: b"L"})
    value, version = bench.written[-1].value, bench.written[-1].value_version
    assert version == 3
    assert value == GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=leader,
        current_state_timestamp=entered_ms,
        members=[
            MemberMetadata(
                member_id=member,
                group_instance_id=None,
                client_id="client",
                client_host="/10.0.0.1",
                rebalance_timeout=60_000,
                session_timeout=10_000,
                subscription=ORDERS,
                assignment=assignment,
            )
            for member, assignment in ((leader, b"L"), (follower, b""))
        ],
    )


def test_a_group_is_not_stable_before_its_assignment_is_committed(bench: Bench, client: ClassicClient) -> None:
    leader, follower = joined_group(bench, client)
    waiting = client.sync(follower, 1)
    bench.holds_back = True
    led = client.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert group(bench).state is ClassicState.COMPLETING_REBALANCE
    assert bench.is_waiting(led)
    bench.commit()
    assert client.synced(waiting).assignment == b"F"


def test_an_assignment_that_cannot_be_written_causes_a_rebalance(bench: Bench, client: ClassicClient) -> None:
    leader, follower = joined_group(bench, client)
    waiting = client.sync(follower, 1)
    bench.refuses_with = ErrorCode.NOT_LEADER_OR_FOLLOWER
    led = client.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert client.synced(led).error_code == ErrorCode.NOT_COORDINATOR
    assert client.synced(waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert client.synced(waiting).assignment == b""
    assert group(bench).state is ClassicState.PREPARING_REBALANCE


def test_a_rebalance_that_begins_before_the_assignment_is_committed_takes_precedence(
    bench: Bench, client: ClassicClient
) -> None:
    leader, follower = joined_group(bench, client)
    bench.holds_back = True
    led = client.sync(leader, 1, {leader: b"L", follower: b"F"})
    client.join(follower, protocols=[("range", b"changed")])
    bench.commit()
    assert client.synced(led).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert group(bench).state is ClassicState.PREPARING_REBALANCE


def test_a_sync_of_a_stable_group_returns_the_assignment_again(client: ClassicClient) -> None:
    _, follower = client.stable_group(2)
    assert client.synced(client.sync(follower, 1)).assignment == f"assignment of {follower}".encode()


def test_syncs_with_a_wrong_member_generation_or_protocol_are_refused(bench: Bench, client: ClassicClient) -> None:
    leader, _ = joined_group(bench, client)
    assert client.synced(client.sync("ghost", 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.synced(client.sync(leader, 2)).error_code == ErrorCode.ILLEGAL_GENERATION
    wrong_name = client.sync(leader, 1, protocol="sticky")
    assert client.synced(wrong_name).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong_type = client.sync(leader, 1, protocol_type="connect")
    assert client.synced(wrong_type).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    client.join(client.member_id())
    assert client.synced(client.sync(leader, 1)).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_sync_to_an_unknown_or_empty_group_is_answered_unknown_member_id(bench: Bench, client: ClassicClient) -> None:
    request = SyncGroupRequest(group_id="unknown", generation_id=1, member_id="m", assignments=[])
    assert bench.ask(SyncGroupResponse, request, 5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    client.member_id()
    assert client.synced(client.sync("m", 0)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_sync_in_time_is_removed(bench: Bench, client: ClassicClient) -> None:
    leader, follower = joined_group(bench, client)
    client.sync(leader, 1, {leader: b"L", follower: b"F"})
    for _ in range(12):
        client.heartbeat(leader, 1)
        client.heartbeat(follower, 1)
        bench.pass_time(5_000)
    assert group(bench).state is ClassicState.PREPARING_REBALANCE
    assert list(group(bench).members) == [leader]


def test_a_rebalance_answers_waiting_syncs(bench: Bench, client: ClassicClient) -> None:
    _, follower = joined_group(bench, client)
    waiting = client.sync(follower, 1)
    client.join(client.member_id())
    assert client.synced(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_stays_while_it_sends_heartbeats_and_is_removed_after_its_session_timeout(
    bench: Bench, client: ClassicClient
) -> None:
    first, second = client.stable_group(2)
    for _ in range(5):
        bench.pass_time(9_999)
        assert client.heartbeat(first, 1) == ErrorCode.NONE
        assert client.heartbeat(second, 1) == ErrorCode.NONE
    bench.pass_time(5_000)
    client.heartbeat(first, 1)
    bench.pass_time(5_000)
    assert client.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(group(bench).members) == [first]


def test_heartbeats_with_a_wrong_member_or_generation_are_refused(client: ClassicClient) -> None:
    first, _ = client.stable_group(2)
    assert client.heartbeat_error(first, 0) is ErrorCode.ILLEGAL_GENERATION
    assert client.heartbeat_error(first, 2) is ErrorCode.ILLEGAL_GENERATION
    assert client.heartbeat_error("ghost", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert ClassicClient(client.bench, "unknown").heartbeat_error(first, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_while_the_leader_assigns_is_answered_without_an_error(bench: Bench, client: ClassicClient) -> None:
    leader, _ = joined_group(bench, client)
    assert client.heartbeat(leader, 1) == ErrorCode.NONE


def test_a_leave_rebalances_the_remaining_members(bench: Bench, client: ClassicClient) -> None:
    first, second = client.stable_group(2)
    assert client.leave((second, None)) == [ErrorCode.NONE]
    assert client.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert client.leave((second, None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_group_is_empty_when_its_last_member_leaves(bench: Bench, client: ClassicClient) -> None:
    first, second = client.stable_group(2)
    assert client.leave((first, None), (second, None), ("ghost", None)) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert group(bench).state is ClassicState.EMPTY
    assert group(bench).generation == 2


def test_a_member_that_leaves_while_its_join_waits_is_answered(bench: Bench, client: ClassicClient) -> None:
    first, second = client.stable_group(2)
    joining = client.join(first)
    client.leave((first, None))
    assert client.joined(joining).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.is_waiting(client.join(second)) is False, "it is alone now, and all have joined"


def test_a_rebalance_ends_when_the_pending_member_that_it_waits_for_leaves(bench: Bench, client: ClassicClient) -> None:
    first, second = client.stable_group(2)
    pending = client.member_id()
    tokens = [client.join(first), client.join(second)]
    assert bench.is_waiting(tokens[0])
    assert client.leave((pending, None)) == [ErrorCode.NONE]
    assert [client.joined(token).generation_id for token in tokens] == [2, 2]


def test_leaving_an_unknown_group_is_answered_unknown_member_id(client: ClassicClient) -> None:
    from pessoa.wire.api.leave_group import LeaveGroupRequest, MemberIdentity

    request = LeaveGroupRequest(group_id="unknown", members=[MemberIdentity(member_id="m")])
    assert client.bench.refusal(request, 5).code is ErrorCode.UNKNOWN_MEMBER_ID
