"""Groups that migrate between the protocols while they have members (KIP-848)."""

from __future__ import annotations

import pytest

from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicState
from pessoa.coordinator.groups.classic.consumer_payloads import read_assignment, write_assignment
from pessoa.coordinator.groups.consumer.consumer_group import ConsumerGroup
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig, MigrationPolicy
from pessoa.wire.api.join_group import JoinGroupResponse
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.consumer_protocol import ConsumerProtocolAssignment
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.classic_client import DELAY_MS, GROUP, ClassicClient, subscription
from tests.unit.coordinator.groups.consumer_client import Member, consumer_group

ORDERS = (("range", subscription("orders")),)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def client(bench: Bench) -> ClassicClient:
    return ClassicClient(bench)


def classic_group(bench: Bench) -> ClassicGroup:
    found = bench.shard.registry.groups[GROUP]
    assert isinstance(found, ClassicGroup)
    return found


def classic_members(bench: Bench, client: ClassicClient, **assignments: list[int]) -> list[str]:
    """Create a stable classic group of dynamic members with these partitions of `orders`; return the member ids."""
    members = [client.member_id() for _ in assignments]
    for member in members:
        client.join(member)
    bench.pass_time(2 * DELAY_MS)
    given = {
        member: write_assignment([("orders", indexes)], 1)
        for member, indexes in zip(members, assignments.values(), strict=True)
    }
    for index, member in enumerate(members):
        client.sync(member, 1, given if index == 0 else None)
    assert classic_group(bench).state is ClassicState.STABLE
    return members


def join_refusal(member: Member) -> Refusal:
    return member.refusal(rebalance_timeout_ms=1, subscribed_topic_names=["orders"], topic_partitions=[])


class ClassicFollower:
    """A member of the classic protocol in a consumer group, with cooperative rebalancing."""

    def __init__(self, client: ClassicClient, member_id: str = "", instance: str | None = None) -> None:
        self.client = client
        self.id = member_id
        self.instance = instance
        self.generation = -1
        self.owned: list[int] = []

    def join(self) -> JoinGroupResponse:
        owned = [("orders", self.owned)] if self.owned else []
        protocols = [("range", subscription("orders", owned=owned))]
        response = self.client.joined(self.client.join(self.id, instance=self.instance, protocols=protocols))
        if response.error_code == ErrorCode.NONE:
            self.generation = response.generation_id
        self.id = response.member_id or self.id
        return response

    def sync(self) -> list[int]:
        response = self.client.synced(self.client.sync(self.id, self.generation, instance=self.instance))
        assert response.error_code == ErrorCode.NONE
        self.owned = [
            index for topic in read_assignment(response.assignment).assigned_partitions for index in topic.partitions
        ]
        return self.owned

    def rejoin(self) -> list[int]:
        assert self.join().error_code == ErrorCode.NONE
        return self.sync()

    def heartbeat(self) -> int:
        return self.client.heartbeat(self.id, self.generation, self.instance)


# ── up ──


def test_a_classic_group_is_upgraded_when_a_member_of_the_consumer_protocol_joins(
    bench: Bench, client: ClassicClient
) -> None:
    first, second = classic_members(bench, client, a=[0, 1], b=[2])
    newcomer = Member(bench, "new", "orders")
    assert newcomer.join() == {}
    group = consumer_group(bench)
    assert (group.epoch, group.assignment_epoch) == (2, 2)
    assert set(group.members) == {first, second, "new"}
    assert group.members[first].epoch == 1
    assert group.members[first].uses_classic_protocol
    assert not group.members["new"].uses_classic_protocol


def test_after_an_upgrade_every_member_is_assigned_partitions(bench: Bench, client: ClassicClient) -> None:
    first, second = classic_members(bench, client, a=[0, 1], b=[2])
    newcomer = Member(bench, "new", "orders")
    newcomer.join()
    followers = [ClassicFollower(client, first), ClassicFollower(client, second)]
    for follower, owned in zip(followers, ([0, 1], [2]), strict=True):
        follower.generation, follower.owned = 1, owned
        assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        follower.rejoin()
    for follower in followers:
        if follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            follower.rejoin()
    newcomer.beat()
    shares = [*(follower.owned for follower in followers), newcomer.names["orders"]]
    assert sorted(index for share in shares for index in share) == [0, 1, 2]
    assert [len(share) for share in shares] == [1, 1, 1]
    assert all(follower.heartbeat() == ErrorCode.NONE for follower in followers)


def test_an_upgrade_is_written_in_one_batch_and_known_to_a_new_coordinator(bench: Bench, client: ClassicClient) -> None:
    first, _ = classic_members(bench, client, a=[0, 1], b=[2])
    newcomer = Member(bench, "new", "orders")
    newcomer.join()
    before = consumer_group(bench).members
    bench.reload()
    assert consumer_group(bench).members == before
    follower = ClassicFollower(client, first)
    follower.generation = 1
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_classic_members_that_wait_for_a_join_are_told_to_rejoin_after_an_upgrade(
    bench: Bench, client: ClassicClient
) -> None:
    first, _ = classic_members(bench, client, a=[0, 1], b=[2])
    waiting = client.join(first)
    assert bench.is_waiting(waiting)
    Member(bench, "new", "orders").join()
    assert client.joined(waiting).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_group_before_its_first_generation_is_upgraded(bench: Bench, client: ClassicClient) -> None:
    waiting = client.join(client.member_id())
    Member(bench, "new", "orders").join()
    response = client.joined(waiting)
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    follower = ClassicFollower(client, response.member_id)
    follower.rejoin()
    bench.pass_time(2 * DELAY_MS)
    assert isinstance(bench.shard.registry.groups[GROUP], ConsumerGroup), "the old timer has nothing to say"


def test_an_empty_classic_group_becomes_a_consumer_group_under_any_migration_policy(bench: Bench) -> None:
    bench = Bench(GroupCoordinatorConfig(group_consumer_migration_policy=MigrationPolicy.DISABLED))
    client = ClassicClient(bench)
    (member,) = client.stable_group(1)
    client.leave((member, None))
    assert Member(bench, "new", "orders").join() == {"orders": [0, 1, 2]}
    bench.reload()
    assert consumer_group(bench).epoch == 2


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
def test_the_migration_policy_may_forbid_upgrades(policy: MigrationPolicy) -> None:
    bench = Bench(GroupCoordinatorConfig(group_consumer_migration_policy=policy))
    classic_members(bench, ClassicClient(bench), a=[0, 1, 2])
    assert join_refusal(Member(bench, "new")).code is ErrorCode.GROUP_ID_NOT_FOUND
    assert classic_group(bench).state is ClassicState.STABLE


def test_a_classic_group_with_another_protocol_type_than_consumer_is_not_upgraded(
    bench: Bench, client: ClassicClient
) -> None:
    client.join(protocol_type="connect", protocols=[("eager", b"")], version=3)
    bench.pass_time(DELAY_MS)
    assert join_refusal(Member(bench, "new")).code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_group_whose_subscriptions_cannot_be_parsed_is_not_upgraded(
    bench: Bench, client: ClassicClient
) -> None:
    client.join(protocols=[("range", b"\x00\x01garbage")], version=3)
    bench.pass_time(DELAY_MS)
    assert join_refusal(Member(bench, "new")).code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_group_whose_assignment_has_user_data_is_not_upgraded(bench: Bench, client: ClassicClient) -> None:
    member = client.joined(client.join()).member_id
    client.join(member)
    bench.pass_time(DELAY_MS)
    data = ConsumerProtocolAssignment(assigned_partitions=[], user_data=b"sticky")
    client.sync(member, 1, {member: b"\x00\x00" + data.encode(0)})
    assert join_refusal(Member(bench, "new")).code is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_upgrade_that_cannot_be_written_is_undone(bench: Bench, client: ClassicClient) -> None:
    first, _ = classic_members(bench, client, a=[0, 1], b=[2])
    bench.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert join_refusal(Member(bench, "new")).code is ErrorCode.NOT_ENOUGH_REPLICAS
    bench.refuses_with = None
    assert client.heartbeat(first, 1) == ErrorCode.NONE


# ── classic members in a consumer group ──


def test_a_classic_member_that_joins_a_consumer_group_gets_a_member_id(bench: Bench, client: ClassicClient) -> None:
    Member(bench, "new", "orders").join()
    follower = ClassicFollower(client)
    response = follower.join()
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert "-" not in follower.id, "a consumer group's ids are short"
    bench.pass_time(1_000)
    response = follower.join()
    assert (response.error_code, response.generation_id, response.leader) == (0, 3, "")
    assert (response.protocol_type, response.protocol_name, response.members) == ("consumer", "range", [])


def test_a_classic_member_that_does_not_sync_or_join_in_time_is_fenced(bench: Bench, client: ClassicClient) -> None:
    consumer = Member(bench, "new", "orders")
    consumer.join()
    bench.pass_time(1_000)
    follower = ClassicFollower(client, "f")
    follower.join()
    for _ in range(12):
        bench.pass_time(5_000)
        consumer.beat()
        if "f" in consumer_group(bench).members:
            client.heartbeat("f", follower.generation)
    assert "f" not in consumer_group(bench).members


def test_a_classic_member_keeps_its_own_session_timeout(bench: Bench, client: ClassicClient) -> None:
    consumer = Member(bench, "new", "orders")
    consumer.join()
    bench.pass_time(1_000)
    follower = ClassicFollower(client, "f")
    follower.rejoin()
    bench.pass_time(9_999)
    follower.heartbeat()
    bench.pass_time(10_000)
    assert "f" not in consumer_group(bench).members


def test_requests_of_classic_members_in_a_consumer_group_are_checked(bench: Bench, client: ClassicClient) -> None:
    Member(bench, "new", "orders").join()
    bench.pass_time(1_000)
    follower = ClassicFollower(client, "f")
    follower.rejoin()
    assert client.heartbeat_error("f", 1) is ErrorCode.ILLEGAL_GENERATION
    assert client.heartbeat_error("new", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert client.heartbeat_error("ghost", 3) is ErrorCode.UNKNOWN_MEMBER_ID
    for token, code in (
        (client.sync("f", 1), ErrorCode.ILLEGAL_GENERATION),
        (client.sync("f", 3, protocol="sticky"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (client.join("g", protocols=[("exotic", ORDERS[0][1])]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (client.join("g", protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (client.join("g", protocols=[("range", b"\x00")]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        reply = bench.replies[token]
        assert isinstance(reply, Refusal)
        assert reply.code is code


def test_with_migration_policy_disabled_no_classic_member_joins_a_consumer_group(bench: Bench) -> None:
    bench = Bench(GroupCoordinatorConfig(group_consumer_migration_policy=MigrationPolicy.DISABLED))
    Member(bench, "new", "orders").join()
    reply = bench.replies[ClassicClient(bench).join()]
    assert isinstance(reply, Refusal)
    assert reply.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_sync_is_answered_rebalance_in_progress_when_there_is_a_newer_assignment(
    bench: Bench, client: ClassicClient
) -> None:
    Member(bench, "new", "orders").join()
    bench.pass_time(1_000)
    follower = ClassicFollower(client, "f")
    follower.join()
    bench.pass_time(1_000)
    Member(bench, "third", "orders").join()
    reply = bench.replies[client.sync("f", follower.generation)]
    assert isinstance(reply, Refusal)
    assert reply.code is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_classic_member_is_converted_by_a_heartbeat_of_the_consumer_protocol(
    bench: Bench, client: ClassicClient
) -> None:
    (member,) = classic_members(bench, client, a=[0, 1, 2])
    same = Member(bench, member, "orders")
    same.join()
    group = consumer_group(bench)
    assert list(group.members) == [member]
    assert not group.members[member].uses_classic_protocol


# ── down ──


def test_a_consumer_group_is_downgraded_when_its_last_member_of_the_consumer_protocol_leaves(
    bench: Bench, client: ClassicClient
) -> None:
    first, second = classic_members(bench, client, a=[0, 1], b=[2])
    newcomer = Member(bench, "new", "orders")
    newcomer.join()
    newcomer.leave()
    group = classic_group(bench)
    assert group.state is ClassicState.PREPARING_REBALANCE
    assert set(group.members) == {first, second}
    assert group.generation == 2
    assert client.heartbeat_error(first, 1) is ErrorCode.ILLEGAL_GENERATION
    tokens = [client.join(first), client.join(second)]
    assert [client.joined(token).generation_id for token in tokens] == [3, 3]
    assert bench.shard.registry.groups_by_topic == {}


def test_a_downgrade_is_known_to_a_new_coordinator(bench: Bench, client: ClassicClient) -> None:
    first, second = classic_members(bench, client, a=[0, 1], b=[2])
    newcomer = Member(bench, "new", "orders")
    newcomer.join()
    newcomer.leave()
    bench.reload()
    group = classic_group(bench)
    assert group.state is ClassicState.STABLE
    assert set(group.members) == {first, second}
    assert client.heartbeat(first, 2) == ErrorCode.NONE


def test_a_consumer_group_is_downgraded_when_its_last_member_of_the_consumer_protocol_is_fenced(
    bench: Bench, client: ClassicClient
) -> None:
    (first,) = classic_members(bench, client, a=[0, 1, 2])
    newcomer = Member(bench, "new", "orders")
    newcomer.join()
    follower = ClassicFollower(client, first)
    follower.generation, follower.owned = 1, [0, 1, 2]
    while isinstance(bench.shard.registry.groups[GROUP], ConsumerGroup):
        if follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            follower.rejoin()
        bench.pass_time(5_000)
    assert set(classic_group(bench).members) == {first}


@pytest.mark.parametrize("policy", [MigrationPolicy.UPGRADE])
def test_the_migration_policy_may_forbid_downgrades(policy: MigrationPolicy) -> None:
    bench = Bench(GroupCoordinatorConfig(group_consumer_migration_policy=policy))
    client = ClassicClient(bench)
    (first,) = classic_members(bench, client, a=[0, 1, 2])
    newcomer = Member(bench, "new", "orders")
    newcomer.join()
    newcomer.leave()
    assert list(consumer_group(bench).members) == [first]


def test_a_downgrade_that_cannot_be_written_is_undone(bench: Bench, client: ClassicClient) -> None:
    classic_members(bench, client, a=[0, 1, 2])
    newcomer = Member(bench, "new", "orders")
    newcomer.join()
    bench.refuses_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert newcomer.refusal(member_epoch=-1).code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "new" in consumer_group(bench).members
    bench.refuses_with = None
    newcomer.ping()


def test_leave_group_removes_classic_members_of_a_consumer_group(bench: Bench, client: ClassicClient) -> None:
    first, second = classic_members(bench, client, a=[0, 1], b=[2])
    Member(bench, "new", "orders").join()
    assert client.leave((second, None), ("ghost", None), ("", "unknown")) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert set(consumer_group(bench).members) == {first, "new"}


def test_a_static_member_that_returns_with_the_classic_protocol_causes_a_downgrade(
    bench: Bench, client: ClassicClient
) -> None:
    (first,) = classic_members(bench, client, a=[0, 1, 2])
    static = Member(bench, "s", "orders", instance="i")
    static.join()
    follower = ClassicFollower(client, first)
    follower.generation, follower.owned = 1, [0, 1, 2]
    follower.rejoin()
    follower.rejoin()
    static.beat()
    assert static.names["orders"]
    returned = ClassicFollower(client, instance="i")
    response = returned.join()
    assert response.error_code == ErrorCode.NONE
    group = classic_group(bench)
    assert set(group.members) == {first, returned.id}
    assert group.static_members == {"i": returned.id}
    assert group.state is ClassicState.STABLE, "nothing has changed but the protocol"
    assert returned.sync() == static.names["orders"]
    assert client.heartbeat(first, group.generation) == ErrorCode.NONE
    bench.reload()
    assert classic_group(bench).static_members == {"i": returned.id}


def test_a_classic_join_to_an_empty_consumer_group_creates_a_classic_group(bench: Bench, client: ClassicClient) -> None:
    consumer = Member(bench, "new", "orders")
    consumer.join()
    consumer.leave()
    client.stable_group(1)
    bench.reload()
    assert classic_group(bench).state is ClassicState.STABLE
