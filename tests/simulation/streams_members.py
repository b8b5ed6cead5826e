"""Members of a streams group (KIP-1071): each runs the tasks that the coordinator assigns to it, and no others.

    heartbeat ─▶ active tasks ─▶ revoke tasks that are missing, run tasks that are new ─▶ heartbeat with its tasks …

Sometimes a member keeps tasks that it should revoke until its next heartbeat, as if it had to finish work. A member
lives a few seconds, and ends by leaving the group or by sending nothing. It then joins with another member id.

The ledger is told when a member begins and ends to run a task, and checks that no other runs it at that time: the
earlier one has revoked it, or has sent no heartbeat for the time of a session.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from pessoa.net.channel import ChannelFailed
from pessoa.wire.api.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    TaskIds,
    Topology,
)
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import GROUP, TRANSIENT, Client
from tests.simulation.history import Violation

STREAMS_GROUP = "tasks"
# All subtopologies read the one topic, so that there are tasks to move.
SUBTOPOLOGIES = ("0", "1", "2")
SESSION_S = 2.0
# A coordinator counts whole milliseconds, as Kafka's does: a session may expire up to one millisecond early. A change
# of the wall clock does not shorten it: Kafka's timers use the monotonic clock.
_MILLISECOND_S = 0.001
_HEARTBEAT_S = 0.4
_JOIN_EPOCH, _LEAVE_EPOCH = 0, -1
_END_OF_LIFE = 0.15
_CLINGS = 0.3
# Longer than any run: late revocation is not tested.
_REBALANCE_TIMEOUT_MS = 120_000
_FORGOTTEN = frozenset(
    (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND),
)


# Subtopology and partition.
Task = tuple[str, int]


class Running(NamedTuple):
    """A task that a member runs."""

    member_id: str
    # How many coordinators the group had had when the task was assigned.
    reign: int


class TaskLedger:
    def __init__(self) -> None:
        self._running: dict[Task, Running] = {}
        # Member → when it sent the last heartbeat that was answered
        self._heard_s: dict[str, float] = {}
        # How many brokers have begun to coordinate the group. A deposed one may answer heartbeats from memory, while
        # the next one, which does not get them, lets the session expire.
        self.reigns = 0
        # The highest member epoch in any response.
        self.epoch = 0
        self.given = 0

    def __repr__(self) -> str:
        return f"<TaskLedger: {self._running}>"

    def hear(self, member_id: str, sent_s: float) -> None:
        self._heard_s[member_id] = sent_s

    def begin(self, member_id: str, task: Task, now_s: float) -> None:
        earlier = self._running.get(task)
        if (
            earlier is not None
            and earlier.member_id != member_id
            and earlier.reign == self.reigns
            and now_s < self._heard_s[earlier.member_id] + SESSION_S - _MILLISECOND_S
        ):
            raise Violation(
                f"task {task[0]}_{task[1]} is active at {member_id}, and {earlier.member_id} has not given it up"
            )
        self.given += 1
        self._running[task] = Running(member_id, self.reigns)

    def end(self, member_id: str, task: Task) -> None:
        running = self._running.get(task)
        if running is not None and running.member_id == member_id:
            del self._running[task]


class StreamsMember(Client):
    topic = ""
    ledger: TaskLedger
    # The members at the end revoke tasks at once, and live until they are stopped.
    is_last = False
    epoch = _JOIN_EPOCH
    tasks: frozenset[Task] = frozenset()
    _lives = 0

    async def run(self) -> None:
        while not self.is_stopping:
            self._lives += 1
            self._member_id, self.epoch = f"{self.name}/{self._lives}", _JOIN_EPOCH
            while not self.is_stopping:
                try:
                    await self._beat()
                except ChannelFailed:
                    self.forget_coordinator(GROUP, STREAMS_GROUP)
                    await self.back_off()
                if not self.is_last and self.rng.random() < _END_OF_LIFE:
                    break
                await asyncio.sleep(_HEARTBEAT_S * (0.5 + self.rng.random()))
            await self._die()

    async def _die(self) -> None:
        """End the member: it leaves the group, or sends nothing and keeps its tasks in the ledger until its session
        expires."""
        if self.is_last or self.rng.random() < 0.5:
            self._run_only(frozenset())
            request = StreamsGroupHeartbeatRequest(
                group_id=STREAMS_GROUP,
                member_id=self._member_id,
                member_epoch=_LEAVE_EPOCH,
                endpoint_information_epoch=0,
            )
            try:
                await self.ask_coordinator(GROUP, STREAMS_GROUP, request, StreamsGroupHeartbeatResponse, 0)
            except ChannelFailed:
                self.trace("%s leaves without a word", self._member_id)
        self.tasks = frozenset()

    def _request(self) -> StreamsGroupHeartbeatRequest:
        joins = self.epoch == _JOIN_EPOCH
        runs: dict[str, list[int]] = {}
        for name, partition in sorted(self.tasks):
            runs.setdefault(name, []).append(partition)
        return StreamsGroupHeartbeatRequest(
            group_id=STREAMS_GROUP,
            member_id=self._member_id,
            member_epoch=self.epoch,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS if joins else -1,
            topology=_topology(self.topic) if joins else None,
            active_tasks=[TaskIds(subtopology_id=name, partitions=each) for name, each in runs.items()],
            standby_tasks=[],
            warmup_tasks=[],
            process_id=self._member_id if joins else None,
            client_tags=[] if joins else None,
        )

    async def _beat(self) -> None:
        sent_s, known_epoch = self.loop.now_s, self.ledger.epoch
        response = await self.ask_coordinator(GROUP, STREAMS_GROUP, self._request(), StreamsGroupHeartbeatResponse, 0)
        error = ErrorCode.of(response.error_code)
        if error in TRANSIENT:
            raise ChannelFailed(f"its heartbeat: {error.name}")
        if error in _FORGOTTEN:
            self.trace("its heartbeat: %s", error.name)
            self._run_only(frozenset())
            self.epoch = _JOIN_EPOCH
            return
        if error.is_error:
            raise Violation(f"{self.name} meets {error.name} at its heartbeat: {response.error_message}")
        # The response to a join is sent when the coordinator's records are committed, so it has the newest epoch.
        least = known_epoch if self.epoch == _JOIN_EPOCH else self.epoch
        if response.member_epoch < least:
            raise Violation(f"{self._member_id} is told epoch {response.member_epoch} after {least}")
        self.epoch = response.member_epoch
        self.ledger.epoch = max(self.ledger.epoch, self.epoch)
        self.ledger.hear(self._member_id, sent_s)
        if response.active_tasks is not None:
            shall = frozenset((one.subtopology_id, each) for one in response.active_tasks for each in one.partitions)
            self.trace("epoch %s: shall run %s, runs %s", self.epoch, sorted(shall), sorted(self.tasks))
            if self.tasks <= shall or self.is_last or self.rng.random() >= _CLINGS:
                self._run_only(shall)

    def _run_only(self, tasks: frozenset[Task]) -> None:
        for task in sorted(self.tasks - tasks):
            self.ledger.end(self._member_id, task)
        for task in sorted(tasks - self.tasks):
            self.ledger.begin(self._member_id, task, self.loop.now_s)
        self.tasks = tasks


def _topology(topic: str) -> Topology:
    return Topology(
        epoch=0,
        subtopologies=[
            Subtopology(
                subtopology_id=name,
                source_topics=[topic],
                source_topic_regex=[],
                state_changelog_topics=[],
                repartition_sink_topics=[],
                repartition_source_topics=[],
                copartition_groups=[],
            )
            for name in SUBTOPOLOGIES
        ],
    )
