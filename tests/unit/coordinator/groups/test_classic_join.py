"""Joining a classic group: member ids, the join barrier, timeouts, limits, and the records written."""

from __future__ import annotations

import pytest

from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicState
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.wire.errors import ErrorCode
from pessoa.wire.stored.group_records import GroupMetadataKey, GroupMetadataValue
from tests.unit.coordinator.groups.bench import START_MS, Bench
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


def test_the_first_join_of_a_dynamic_member_returns_a_member_id_and_writes_an_empty_group(
    bench: Bench, client: ClassicClient
) -> None:
    response = client.joined(client.join(client_id="shop"))
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert response.member_id == "shop-00000000-0000-0000-0000-000000000001"
    (record,) = bench.written
    assert record == (
        GroupMetadataKey(group=GROUP),
        GroupMetadataValue(
            protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=START_MS, members=[]
        ),
        3,
    )


@pytest.mark.parametrize("version", [0, 3])
def test_before_join_group_version_4_a_member_joins_without_a_second_request(
    bench: Bench, client: ClassicClient, version: int
) -> None:
    token = client.join(version=version)
    bench.pass_time(DELAY_MS)
    response = client.joined(token)
    assert response.error_code == ErrorCode.NONE
    assert response.leader == response.member_id


def test_in_version_0_the_session_timeout_is_the_rebalance_timeout(bench: Bench, client: ClassicClient) -> None:
    client.join(version=0, session_ms=7_000, rebalance_ms=-1)
    (member,) = group(bench).members.values()
    assert member.rebalance_timeout_ms == 7_000


def test_a_member_id_that_was_given_but_not_used_expires_after_the_session_timeout(
    bench: Bench, client: ClassicClient
) -> None:
    member = client.member_id()
    bench.pass_time(10_000)
    assert client.joined(client.join(member)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_unknown_member_id_cannot_join_an_unknown_group(client: ClassicClient) -> None:
    response = client.joined(client.join("ghost"))
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "ghost")


def test_the_first_rebalance_of_a_group_waits_for_further_members(bench: Bench, client: ClassicClient) -> None:
    first, second = client.member_id(), client.member_id()
    token = client.join(first)
    bench.pass_time(DELAY_MS - 1)
    other = client.join(second)
    bench.pass_time(1)
    assert bench.is_waiting(token), "the second one came, so it waits once more"
    bench.pass_time(DELAY_MS)
    leader, follower = client.joined(token), client.joined(other)
    assert (leader.generation_id, follower.generation_id) == (1, 1)
    assert leader.leader == follower.leader == first
    assert [each.member_id for each in leader.members] == [first, second]
    assert leader.members[0].metadata == ORDERS
    assert follower.members == []
    assert (leader.protocol_type, leader.protocol_name) == ("consumer", "range")


def test_the_first_rebalance_does_not_wait_longer_than_the_rebalance_timeout(
    bench: Bench, client: ClassicClient
) -> None:
    token = client.join(client.member_id(), rebalance_ms=7_000)
    for _ in range(3):
        bench.pass_time(2_000)
        client.join(client.member_id(), rebalance_ms=7_000)
    assert bench.is_waiting(token)
    bench.pass_time(1_000)
    assert len(client.joined(token).members) == 4


def test_without_an_initial_rebalance_delay_the_first_rebalance_ends_with_the_next_tick() -> None:
    bench = Bench(GroupCoordinatorConfig(group_initial_rebalance_delay_ms=0))
    client = ClassicClient(bench)
    token = client.join(client.member_id())
    bench.pass_time(0)
    assert client.joined(token).generation_id == 1


def test_a_new_member_makes_the_others_join_again(bench: Bench, client: ClassicClient) -> None:
    first, second = client.stable_group(2)
    newcomer = client.member_id()
    joining = client.join(newcomer)
    assert group(bench).state is ClassicState.PREPARING_REBALANCE
    assert client.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    tokens = [client.join(first), client.join(second)]
    assert client.joined(joining).generation_id == 2
    assert [client.joined(token).generation_id for token in tokens] == [2, 2]
    assert client.joined(tokens[0]).leader == first
    assert {each.member_id for each in client.joined(tokens[0]).members} == {first, second, newcomer}


def test_a_member_that_misses_the_rebalance_timeout_is_removed_and_a_new_leader_is_elected(
    bench: Bench, client: ClassicClient
) -> None:
    first, second = client.stable_group(2)
    token = client.join(second, protocols=[("range", subscription("payments"))])
    while bench.is_waiting(token):
        assert client.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        bench.pass_time(5_000)
    response = client.joined(token)
    assert response.leader == second
    assert [each.member_id for each in response.members] == [second]
    assert client.heartbeat_error(first, 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_follower_that_joins_a_stable_group_unchanged_gets_the_current_generation(
    bench: Bench, client: ClassicClient
) -> None:
    first, second = client.stable_group(2)
    response = client.joined(client.join(second))
    assert (response.generation_id, response.leader, response.members) == (1, first, [])
    assert group(bench).state is ClassicState.STABLE


def test_a_leader_that_joins_a_stable_group_rebalances_it(bench: Bench, client: ClassicClient) -> None:
    first, _ = client.stable_group(2)
    assert bench.is_waiting(client.join(first))
    assert group(bench).state is ClassicState.PREPARING_REBALANCE


def test_a_join_whose_response_was_lost_is_answered_again(bench: Bench, client: ClassicClient) -> None:
    first, second = client.member_id(), client.member_id()
    client.join(first)
    client.join(second)
    bench.pass_time(2 * DELAY_MS)
    again = client.joined(client.join(first))
    assert (again.generation_id, len(again.members)) == (1, 2)
    assert client.joined(client.join(second)).members == []
    assert group(bench).state is ClassicState.COMPLETING_REBALANCE


def test_a_second_join_of_a_waiting_member_replaces_the_first(bench: Bench, client: ClassicClient) -> None:
    first, _ = client.stable_group(2)
    abandoned = client.join(first)
    kept = client.join(first)
    assert client.joined(abandoned).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert bench.is_waiting(kept)
    assert group(bench).awaiting_join_count == 1


def test_the_protocol_is_the_one_that_all_support_and_most_prefer(bench: Bench, client: ClassicClient) -> None:
    offers = [
        [("range", b"r"), ("sticky", b"s")],
        [("sticky", b"s"), ("range", b"r"), ("exotic", b"x")],
        [("sticky", b"s"), ("range", b"r")],
    ]
    members = [client.member_id() for _ in offers]
    tokens = [client.join(member, protocols=offer) for member, offer in zip(members, offers, strict=True)]
    bench.pass_time(2 * DELAY_MS)
    assert {client.joined(token).protocol_name for token in tokens} == {"sticky"}
    assert [each.metadata for each in client.joined(tokens[0]).members] == [b"s"] * 3


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("consumer", [("exotic", b"")]), ("connect", [("range", b"")]), ("consumer", [])],
)
def test_a_member_that_shares_no_protocol_is_refused(
    client: ClassicClient, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    client.stable_group(1)
    response = client.joined(client.join(protocol_type=protocol_type, protocols=protocols))
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", [("range", b"")]), ("consumer", [])])
def test_the_first_member_must_name_a_protocol(
    client: ClassicClient, protocol_type: str, protocols: list[tuple[str, bytes]]
) -> None:
    response = client.joined(client.join(protocol_type=protocol_type, protocols=protocols))
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_takes_any_protocol_type(bench: Bench, client: ClassicClient) -> None:
    (member,) = client.stable_group(1)
    client.leave((member, None))
    newcomer = client.joined(client.join(protocol_type="connect", protocols=[("eager", b"")]))
    assert newcomer.error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_join_to_a_group_of_max_size_is_refused(bench: Bench) -> None:
    bench = Bench(GroupCoordinatorConfig(group_max_size=2))
    client = ClassicClient(bench)
    client.stable_group(2)
    response = client.joined(client.join())
    assert (response.error_code, response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_in_a_rebalance_members_beyond_the_max_size_are_refused_in_order_of_arrival(bench: Bench) -> None:
    bench = Bench(GroupCoordinatorConfig(group_max_size=2))
    client = ClassicClient(bench)
    members = [client.member_id() for _ in range(3)]
    tokens = [client.join(member) for member in members]
    assert client.joined(tokens[2]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    bench.pass_time(2 * DELAY_MS)
    assert len(client.joined(tokens[0]).members) == 2


def test_a_member_that_waits_to_join_again_does_not_time_out_but_a_new_one_does(
    bench: Bench, client: ClassicClient
) -> None:
    first, second = client.stable_group(2)
    rejoining = client.join(first, rebalance_ms=600_000)
    newcomer = client.join(client.member_id(), rebalance_ms=600_000)
    for _ in range(60):
        client.heartbeat(second, 1)
        bench.pass_time(5_000)
    assert client.joined(newcomer).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert bench.is_waiting(rejoining)


def test_a_group_that_loses_its_last_member_is_written_as_empty(bench: Bench, client: ClassicClient) -> None:
    (member,) = client.stable_group(1)
    bench.pass_time(10_000)
    assert group(bench).state is ClassicState.EMPTY
    assert client.heartbeat_error(member, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    last = bench.written[-1].value
    assert last == GroupMetadataValue(
        protocol_type="consumer",
        generation=2,
        protocol=None,
        leader=None,
        current_state_timestamp=bench.now_ms,
        members=[],
    )


def test_a_join_fails_if_the_group_cannot_be_written(bench: Bench, client: ClassicClient) -> None:
    bench.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    token = client.join()
    reply = bench.replies[token]
    assert getattr(reply, "code", None) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_new_coordinator_keeps_generation_members_and_sessions(bench: Bench, client: ClassicClient) -> None:
    first, second = client.stable_group(2)
    bench.pass_time(9_000)
    bench.reload()
    assert group(bench).state is ClassicState.STABLE
    assert (group(bench).generation, group(bench).leader) == (1, first)
    assert client.heartbeat(first, 1) == ErrorCode.NONE
    response = client.synced(client.sync(second, 1))
    assert response.assignment == f"assignment of {second}".encode()
    bench.pass_time(9_000)
    assert client.heartbeat(first, 1) == ErrorCode.NONE
    bench.pass_time(1_000)
    assert client.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS, "the second has not been heard of"


def test_a_new_coordinator_rebalances_a_group_that_exceeds_its_max_size(bench: Bench, client: ClassicClient) -> None:
    client.stable_group(3)
    bench.config = GroupCoordinatorConfig(group_max_size=2)
    bench.reload()
    assert group(bench).state is ClassicState.PREPARING_REBALANCE
