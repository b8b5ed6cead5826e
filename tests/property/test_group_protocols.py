"""Members of both protocols in one group, from a seed: the group migrates between the protocols (KIP-848).

Members of the classic protocol are eager, and revoke all partitions before they rejoin, or cooperative, and keep those
that the leader leaves them. A member of the consumer protocol revokes partitions that are no longer assigned. A member
that gets UNKNOWN_MEMBER_ID or an old generation or epoch stops using all partitions and joins again.

After every step no partition is used by two live members. After the last event all partitions are used, and a new
coordinator has the same group as the old one, also from a compacted log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import settings

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.classic.classic_group import ClassicGroup, ClassicState
from pessoa.coordinator.groups.classic.consumer_payloads import read_assignment, read_subscription, write_assignment
from pessoa.coordinator.groups.consumer.consumer_group import ConsumerGroup, ConsumerState
from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig
from pessoa.coordinator.groups.group_registry import Group
from pessoa.wire.api.heartbeat import HeartbeatResponse
from pessoa.wire.api.join_group import JoinGroupResponse
from pessoa.wire.api.sync_group import SyncGroupResponse
from pessoa.wire.errors import ErrorCode, Refusal
from tests.property.test_group_consumer import Client
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.groups.classic_client import GROUP, ClassicClient, subscription
from tests.unit.coordinator.images import image, topic_id

PARTITION_COUNT = 4
ORDERS = topic_id("orders")
SESSION_MS = 10_000


class ClassicMember:
    """A classic member, which sends JoinGroup, SyncGroup and heartbeats, one request at a time."""

    def __init__(self, bench: Bench, instance: str | None, is_cooperative: bool) -> None:
        self.bench = bench
        self.client = ClassicClient(bench)
        self.instance = instance
        self.is_cooperative = is_cooperative
        self.id = ""
        self.generation = -1
        self.owned: list[int] = []
        self.joining: int | None = None
        self.syncing: int | None = None
        self.heard_ms = bench.now_ms

    def places(self) -> Iterator[tuple[Uuid, int]]:
        return ((ORDERS, index) for index in self.owned)

    def advance(self) -> None:
        """Handle the response to the request in flight, or send the next request."""
        self.heard_ms = self.bench.now_ms
        if self.joining is not None:
            self._take_join()
        elif self.syncing is not None:
            self._take_sync()
        elif self.generation < 0:
            self._join()
        else:
            self._heartbeat()

    def _join(self) -> None:
        if not self.is_cooperative:
            self.owned = []
        metadata = subscription("orders", owned=[("orders", self.owned)] if self.owned else [])
        self.joining = self.client.join(
            self.id, instance=self.instance, protocols=[("range", metadata)], session_ms=SESSION_MS
        )
        self._take_join()

    def _take_join(self) -> None:
        assert self.joining is not None
        if self.bench.is_waiting(self.joining):
            return
        reply = self.bench.replies[self.joining]
        self.joining = None
        if isinstance(reply, Refusal):
            self._failed(reply.code)
            return
        assert isinstance(reply, JoinGroupResponse)
        if reply.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = reply.member_id
        elif reply.error_code != ErrorCode.NONE:
            self._failed(reply.error_code)
        else:
            self.id, self.generation = reply.member_id, reply.generation_id
            leads = reply.leader == self.id and not reply.skip_assignment
            dealt = _dealt({each.member_id: each.metadata for each in reply.members}) if leads else None
            self.syncing = self.client.sync(self.id, self.generation, dealt, instance=self.instance)
            self._take_sync()

    def _take_sync(self) -> None:
        assert self.syncing is not None
        if self.bench.is_waiting(self.syncing):
            return
        reply = self.bench.replies[self.syncing]
        self.syncing = None
        if isinstance(reply, Refusal):
            self._failed(reply.code)
            return
        assert isinstance(reply, SyncGroupResponse)
        if reply.error_code != ErrorCode.NONE:
            self._failed(reply.error_code)
        elif reply.assignment:
            topics = read_assignment(reply.assignment).assigned_partitions
            given = [index for topic in topics for index in topic.partitions]
            if set(self.owned) - set(given):
                # It has given something up, so it joins again for the others to get it.
                self.generation = -1
            self.owned = given

    def _heartbeat(self) -> None:
        request = self.client.heartbeat_request(self.id, self.generation, self.instance)
        reply = self.bench.replies[self.bench.send(request, 4)]
        if isinstance(reply, Refusal):
            self._failed(reply.code)
        else:
            assert isinstance(reply, HeartbeatResponse)
            if reply.error_code != ErrorCode.NONE:
                self._failed(reply.error_code)

    def _failed(self, code: int) -> None:
        expected = (
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        )
        assert code in expected, code
        self.generation = -1
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            self.owned = []
            if code != ErrorCode.ILLEGAL_GENERATION:
                self.id = ""

    def leave(self) -> None:
        if self.id:
            self.client.leave((self.id, self.instance))


def _dealt(members: dict[str, bytes]) -> dict[str, bytes]:
    """Return the leader's assignment: partitions in turn, but none that another member still owns."""
    owners = {
        index: member
        for member, metadata in members.items()
        for topic in read_subscription(metadata).owned_partitions
        for index in topic.partitions
    }
    dealt: dict[str, list[int]] = {member: [] for member in members}
    for position, member in enumerate(members):
        for index in range(position, PARTITION_COUNT, len(members)):
            if owners.get(index, member) == member:
                dealt[member].append(index)
    return {member: write_assignment([("orders", indexes)], 1) for member, indexes in dealt.items()}


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        config = GroupCoordinatorConfig(group_initial_rebalance_delay_ms=1_000)
        self.bench = Bench(config, image(orders=PARTITION_COUNT))
        self.classic: list[ClassicMember] = []
        self.consumers: list[Client] = []
        self.count = 0
        # The members of a group agree on how they rebalance.
        self.is_cooperative = self.random.random() < 0.5
        self.steps: dict[Callable[[], None], int] = {
            self.come: 3,
            self.advance: 40,
            self.leave: 2,
            self.crash: 1,
            self.pass_time: 10,
        }

    def run(self, count: int) -> None:
        for step in self.random.choices(list(self.steps), list(self.steps.values()), k=count):
            step()
            self.check_use()
        self.calm_down()

    @property
    def members(self) -> list[ClassicMember | Client]:
        return [*self.classic, *self.consumers]

    def come(self) -> None:
        self.count += 1
        if len(self.members) >= 5:
            return
        if self.random.random() < 0.5:
            instance = f"i{self.count}" if self.random.random() < 0.3 else None
            self.classic.append(ClassicMember(self.bench, instance, self.is_cooperative))
        else:
            self.consumers.append(Client(self.bench, f"c{self.count}", "orders"))

    def advance(self) -> None:
        if self.members:
            self._advance(self.random.choice(self.members))

    def _advance(self, member: ClassicMember | Client, at_once: bool = False) -> None:
        if isinstance(member, ClassicMember):
            member.advance()
        elif not member.is_in:
            member.try_join()
        else:
            if at_once or self.random.random() < 0.5:
                member.give_up()
            member.report()

    def leave(self) -> None:
        if self.classic and self.random.random() < 0.5:
            self.classic.pop(self.random.randrange(len(self.classic))).leave()
        elif self.consumers:
            client = self.consumers.pop(self.random.randrange(len(self.consumers)))
            if client.is_in:
                self.bench.send(client.request(member_epoch=-1), 1)

    def crash(self) -> None:
        members = self.random.choice((self.classic, self.consumers))
        if members:
            members.pop(self.random.randrange(len(members)))

    def pass_time(self) -> None:
        self._pass_time(self.random.choice((500, 1_000, 3_000)))

    def _pass_time(self, duration_ms: int) -> None:
        self.bench.pass_time(duration_ms)
        for member in self.members:
            if self.bench.now_ms - member.heard_ms > SESSION_MS // 3:
                self._advance(member, at_once=True)

    def check_use(self) -> None:
        users: dict[tuple[Uuid, int], object] = {}
        for member in self.members:
            for place in member.places():
                other = users.setdefault(place, member)
                assert other is member, f"{place} is used by {other} and {member}"

    def calm_down(self) -> None:
        for _ in range(60):
            self._pass_time(2_000)
            for member in self.members:
                self._advance(member, at_once=True)
                self.check_use()
        group = self.bench.shard.registry.groups.get(GROUP)
        members = self.members
        if group is None or not members:
            return
        assert group.state in (ClassicState.STABLE, ConsumerState.STABLE), group
        assert isinstance(group, ConsumerGroup) or not self.consumers
        assert len(group.members) == len(members)
        assert {place for member in members for place in member.places()} == {
            (ORDERS, index) for index in range(PARTITION_COUNT)
        }
        clean_end = self.random.randint(0, self.bench.end_offset)
        check_same(group, self.bench.replayed().registry.groups[GROUP])
        for keeps_tombstones in (True, False):
            check_same(group, self.bench.replayed_compacted(clean_end, keeps_tombstones).registry.groups[GROUP])


def check_same(group: Group, after: Group) -> None:
    assert type(after) is type(group)
    if isinstance(group, ConsumerGroup) and isinstance(after, ConsumerGroup):
        assert (after.members, after.targets, after.epoch) == (group.members, group.targets, group.epoch)
    elif isinstance(group, ClassicGroup) and isinstance(after, ClassicGroup):
        assert after.generation == group.generation
        assert after.leader == group.leader
        assert after.static_members == group.static_members
        assert {each.id: each.assignment for each in after.members.values()} == {
            each.id: each.assignment for each in group.members.values()
        }


@pytest.mark.parametrize("seed", range(settings().max_examples))
def test_no_partition_has_two_owners_in_a_group_of_both_protocols(seed: int) -> None:
    Simulation(seed).run(150)
