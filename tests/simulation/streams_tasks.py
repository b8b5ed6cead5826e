"""What a cluster with a streams group has in addition: its members, the checks after every step, and those at the end.

The plan says whether a seed has one (`Plan.streams_members`). What its members draw comes from a generator of their
own, as with share groups.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from pessoa.coordinator.groups.streams.streams_group import StreamsGroup, StreamsState, each_task
from pessoa.coordinator.runtime import LoadState
from tests.simulation.history import Violation
from tests.simulation.streams_members import STREAMS_GROUP, SUBTOPOLOGIES, StreamsMember, TaskLedger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.broker.broker_coordinators import BrokerCoordinators
    from tests.simulation.client import Client
    from tests.simulation.cluster import Cluster
    from tests.simulation.history import TopicPartition
    from tests.simulation.node import Node

# After healing: sessions of dead members expire, and the others get their tasks.
_DONE_WITHIN_S = 60.0
_LOOK_EVERY_S = 0.25
_LAST_MEMBERS = 2


class StreamsWatch:
    """Checks the state of the group on each broker that coordinates it."""

    def __init__(self, ledger: TaskLedger) -> None:
        self._ledger = ledger
        # Shard → the highest group epoch that was seen in it
        self._epochs: dict[object, int] = {}
        self.states: dict[str, StreamsState] = {}

    def __repr__(self) -> str:
        return f"<StreamsWatch: {self.states}>"

    def look(self, node: Node, coordinators: BrokerCoordinators) -> None:
        self.states.pop(node.host, None)
        if coordinators._groups is None:
            return
        for led in coordinators._groups.runtime.led_partitions():
            group = led.shard.registry.groups.get(STREAMS_GROUP)
            if isinstance(group, StreamsGroup) and led.state is LoadState.ACTIVE:
                self._look_at(node, led.shard, group)

    def _look_at(self, node: Node, shard: object, group: StreamsGroup) -> None:
        if shard not in self._epochs:
            self._ledger.reigns += 1
        elif group.epoch < self._epochs[shard]:
            raise Violation(f"{group!r} on {node.host} has been in epoch {self._epochs[shard]}")
        self._epochs[shard] = group.epoch
        self.states[node.host] = group.state
        if group.assignment_epoch > group.epoch:
            raise Violation(f"{group!r} on {node.host} has an assignment of an epoch to come")
        owners: dict[tuple[str, int], str] = {}
        for member in group.members.values():
            if member.epoch > group.epoch:
                raise Violation(f"{member.id} is in epoch {member.epoch} of {group!r} on {node.host}")
            for tasks in (member.assigned.active, member.pending_revocation.active):
                for task in each_task(tasks):
                    if owners.setdefault(task, member.id) != member.id:
                        raise Violation(
                            f"task {task[0]}_{task[1]} is active at {member.id} and {owners[task]} on {node.host}"
                        )


class Streams:
    def __init__(self, cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
        self._cluster = cluster
        self._topic = partitions[0].topic
        self._tasks = {(name, one.number) for name in SUBTOPOLOGIES for one in partitions if one.topic == self._topic}
        self._rng = Random(cluster.plan.seed ^ 0x57E40)
        self.ledger = TaskLedger()
        self.watch = cluster.watch.streams = StreamsWatch(self.ledger)

    def __repr__(self) -> str:
        return f"<Streams: {self.ledger!r}>"

    def start(self) -> list[Client]:
        return [self._member(f"t{number}") for number in range(self._cluster.plan.streams_members)]

    def _member(self, name: str) -> StreamsMember:
        member: StreamsMember = self._cluster.client(StreamsMember, name, Random(self._rng.random()))
        member.topic, member.ledger = self._topic, self.ledger
        return member

    async def finish(self) -> None:
        """Let two more members join, and wait until they share all tasks and stay in one epoch."""
        cluster = self._cluster
        members = [self._member(f"last{number}") for number in range(_LAST_MEMBERS)]
        for member in members:
            member.is_last = True
        works = [cluster.run_client(member) for member in members]
        end_s = cluster.loop.now_s + _DONE_WITHIN_S
        while not self._is_settled(members):
            if cluster.loop.now_s > end_s or any(work.done() for work in works):
                tasks = {member.name: (member.epoch, member.tasks) for member in members}
                raise Violation(f"the streams group does not settle: {tasks}, {self.watch!r}")
            await asyncio.sleep(_LOOK_EVERY_S)
        for member in members:
            member.is_stopping = True
        await asyncio.wait(works, timeout=_DONE_WITHIN_S)

    def _is_settled(self, members: Sequence[StreamsMember]) -> bool:
        tasks = [task for member in members for task in member.tasks]
        sizes = [len(member.tasks) for member in members]
        return (
            sorted(tasks) == sorted(self._tasks)
            and max(sizes) - min(sizes) <= 1
            and len({member.epoch for member in members}) == 1
            and StreamsState.STABLE in self.watch.states.values()
        )
