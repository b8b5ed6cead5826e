"""Members of the consumer protocol, for short tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pessoa.base.ids import Uuid
from pessoa.coordinator.groups.consumer.consumer_group import ConsumerGroup
from pessoa.wire.api.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pessoa.wire.errors import ErrorCode, Refusal
from tests.unit.coordinator.groups.bench import Bench
from tests.unit.coordinator.images import topic_id

GROUP = "group"
Owned = dict[str, list[int]]


def listed(partitions: Mapping[Uuid, Iterable[int]]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=each, partitions=sorted(indexes)) for each, indexes in partitions.items()]


class Member:
    """A member that adopts its assignment at once, and reports it with the next heartbeat."""

    def __init__(
        self,
        bench: Bench,
        member_id: str,
        *topics: str,
        group: str = GROUP,
        instance: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = 60_000,
    ) -> None:
        self.bench = bench
        self.id = member_id
        self.group = group
        self.instance = instance
        self.topics: Sequence[str] | None = topics
        self.regex = regex
        self.assignor = assignor
        self.rebalance_ms = rebalance_ms
        self.epoch = 0
        self.owned: dict[Uuid, frozenset[int]] = {}
        self.last: ConsumerGroupHeartbeatResponse | None = None

    def request(self, **changes: object) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.id, member_epoch=self.epoch, instance_id=self.instance
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def send(self, **changes: object) -> ConsumerGroupHeartbeatResponse:
        response = self.bench.ask(ConsumerGroupHeartbeatResponse, self.request(**changes), 1)
        assert response.error_code == ErrorCode.NONE
        return self._take(response)

    def _take(self, response: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        self.last = response
        assert response.member_id is not None
        self.id, self.epoch = response.member_id, response.member_epoch
        if response.assignment is not None:
            self.owned = {each.topic_id: frozenset(each.partitions) for each in response.assignment.topic_partitions}
        return response

    def join(self) -> Owned:
        self.owned = {}
        self.send(
            member_epoch=0,
            rebalance_timeout_ms=self.rebalance_ms,
            subscribed_topic_names=None if self.topics is None else list(self.topics),
            subscribed_topic_regex=self.regex,
            server_assignor=self.assignor,
            topic_partitions=[],
        )
        return self.names

    def beat(self) -> Owned:
        """Send a heartbeat with the owned partitions; return what the member owns afterwards."""
        self.send(topic_partitions=listed(self.owned))
        return self.names

    def ping(self) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat without any optional field; return the response."""
        return self.send()

    def refusal(self, **changes: object) -> Refusal:
        return self.bench.refusal(self.request(**changes), 1)

    def leave(self, epoch: int = -1) -> None:
        response = self.bench.ask(ConsumerGroupHeartbeatResponse, self.request(member_epoch=epoch), 1)
        assert response.member_epoch == epoch

    @property
    def names(self) -> Owned:
        """Return the owned partitions by topic name."""
        topics = self.bench.image.topics.by_id
        return {topics[each].name: sorted(indexes) for each, indexes in sorted(self.owned.items()) if indexes}


def shown(assignment: Assignment | None) -> Owned | None:
    if assignment is None:
        return None
    names = {topic_id(name): name for name in ("orders", "payments", "refunds")}
    return {names[each.topic_id]: each.partitions for each in assignment.topic_partitions}


def consumer_group(bench: Bench, group: str = GROUP) -> ConsumerGroup:
    found = bench.shard.registry.groups[group]
    assert isinstance(found, ConsumerGroup)
    return found


def reconcile(*members: Member) -> None:
    """Send heartbeats until no member's epoch or assignment changes. The assignment interval passes in between."""
    for _ in range(10):
        before = [(member.epoch, member.names) for member in members]
        members[0].bench.pass_time(1_000)
        for member in members:
            member.beat()
        if before == [(member.epoch, member.names) for member in members]:
            return
    raise AssertionError(
        f"the group does not become stable: {[(member.id, member.epoch, member.names) for member in members]}"
    )
