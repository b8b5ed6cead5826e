"""A member of a streams group for tests: sends heartbeats as Kafka Streams does, and follows its assignment."""

from __future__ import annotations

from collections.abc import Mapping

from pessoa.coordinator.groups.streams.streams_group import StreamsGroup
from pessoa.wire.api.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupHeartbeatResponseTaskIds,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from pessoa.wire.errors import Refusal
from pessoa.wire.schema import Message
from tests.unit.coordinator.groups.bench import Bench

GROUP = "app"
# subtopology → partitions
Tasks = dict[str, list[int]]


def topic_info(
    name: str, partitions: int = 0, replicas: int = 0, configs: Mapping[str, str] | None = None
) -> TopicInfo:
    pairs = [KeyValue(key=key, value=value) for key, value in (configs or {}).items()]
    return TopicInfo(name=name, partitions=partitions, replication_factor=replicas, topic_configs=pairs)


def subtopology(
    name: str,
    *sources: str,
    changelogs: tuple[TopicInfo, ...] = (),
    writes: tuple[str, ...] = (),
    repartition: tuple[TopicInfo, ...] = (),
    joined: tuple[CopartitionGroup, ...] = (),
) -> Subtopology:
    return Subtopology(
        subtopology_id=name,
        source_topics=list(sources),
        source_topic_regex=[],
        state_changelog_topics=list(changelogs),
        repartition_sink_topics=list(writes),
        repartition_source_topics=list(repartition),
        copartition_groups=list(joined),
    )


def copartition(sources: tuple[int, ...] = (), repartition: tuple[int, ...] = ()) -> CopartitionGroup:
    return CopartitionGroup(
        source_topics=list(sources), source_topic_regex=[], repartition_source_topics=list(repartition)
    )


def topology(*subtopologies: Subtopology, epoch: int = 0) -> Topology:
    return Topology(epoch=epoch, subtopologies=list(subtopologies))


ORDERS = topology(subtopology("0", "orders"))


class StreamsClient:
    """A member that runs `tasks` and `standbys`. It reports them with every heartbeat, and stops revoked tasks at once
    unless `clings` is set."""

    def __init__(
        self, bench: Bench, name: str, shape: Topology = ORDERS, group: str = GROUP, process: str | None = None
    ) -> None:
        self.bench = bench
        self.name = name
        self.group = group
        self.process = process or f"process-{name}"
        self.shape = shape
        self.epoch = 0
        self.tasks: Tasks = {}
        self.standbys: Tasks = {}
        self.statuses: dict[int, str] = {}
        self.clings = False
        self.response: StreamsGroupHeartbeatResponse | None = None

    def __repr__(self) -> str:
        return f"<StreamsClient {self.name} at {self.epoch}: {self.tasks}>"

    def request(self) -> StreamsGroupHeartbeatRequest:
        joins = self.epoch == 0
        return StreamsGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.name,
            member_epoch=self.epoch,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=60_000 if joins else -1,
            topology=self.shape if joins else None,
            active_tasks=[] if joins else _ids(self.tasks),
            standby_tasks=[] if joins else _ids(self.standbys),
            warmup_tasks=[],
            process_id=self.process if joins else None,
            client_tags=[] if joins else None,
        )

    def beat(self) -> Tasks:
        """Send a heartbeat; return the tasks that the member has to run afterwards."""
        return self.follow(self.bench.ask(StreamsGroupHeartbeatResponse, self.request(), version=0))

    def follow(self, response: Message) -> Tasks:
        assert isinstance(response, StreamsGroupHeartbeatResponse)
        self.response = response
        self.epoch = response.member_epoch
        self.statuses = {one.status_code: one.status_detail for one in response.status or ()}
        if response.active_tasks is not None and not self.clings:
            self.tasks, self.standbys = _tasks(response.active_tasks), _tasks(response.standby_tasks or [])
        return self.tasks

    def refusal(self, request: StreamsGroupHeartbeatRequest | None = None) -> Refusal:
        return self.bench.refusal(request or self.request(), version=0)

    def leave(self) -> None:
        self.epoch = -1
        self.bench.ask(
            StreamsGroupHeartbeatResponse,
            StreamsGroupHeartbeatRequest(
                group_id=self.group, member_id=self.name, member_epoch=-1, endpoint_information_epoch=0
            ),
            version=0,
        )


def _ids(tasks: Tasks) -> list[TaskIds]:
    return [TaskIds(subtopology_id=name, partitions=list(each)) for name, each in tasks.items()]


def _tasks(ids: list[StreamsGroupHeartbeatResponseTaskIds]) -> Tasks:
    return {one.subtopology_id: list(one.partitions) for one in ids}


def settle(bench: Bench, *members: StreamsClient, rounds: int = 8) -> None:
    """Let time pass and members send heartbeats until no assignment changes any more."""
    for _ in range(rounds):
        bench.pass_time(3_000)
        for member in members:
            member.beat()


def streams_group(bench: Bench, group: str = GROUP) -> StreamsGroup:
    return bench.shard.registry.streams_group(group)
