"""What the topics of the cluster make of a topology: how many tasks it has, which internal topics it needs.

    1. every source topic exists                            else MISSING_SOURCE_TOPICS
    2. a repartition topic without a count of its own gets the largest count among what its writers read, in turn
    3. topics that are joined have equal counts             else INCORRECTLY_PARTITIONED_TOPICS
    4. a changelog has as many partitions as its subtopology has tasks
    5. an internal topic that exists has the decided count  else INCORRECTLY_PARTITIONED_TOPICS
    6. one that does not exist is to be created             until then MISSING_INTERNAL_TOPICS

A subtopology has a task for each partition number of the largest topic that it reads. Only a topology without a status
is ready, and has tasks. Topologies come from clients: a repartition topic that no subtopology with a known count writes
is refused, not waited for.

Pure: topology and partition counts in, a value out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.streams_group_records import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    StreamsGroupTopologyValueTopicInfo,
    Subtopology,
)

# The codes of StreamsGroupHeartbeat.
STALE_TOPOLOGY = 0
MISSING_SOURCE_TOPICS = 1
INCORRECTLY_PARTITIONED_TOPICS = 2
MISSING_INTERNAL_TOPICS = 3
SHUTDOWN_APPLICATION = 4
ASSIGNMENT_DELAYED = 5

# The number of partitions of a topic, or None if it does not exist.
CountOf = Callable[[str], int | None]


class TopologyStatus(NamedTuple):
    code: int
    detail: str


class InternalTopic(NamedTuple):
    name: str
    partitions: int
    # -1: the default of the cluster.
    replication_factor: int
    configs: tuple[tuple[str, str], ...]


class ConfiguredTopology(NamedTuple):
    epoch: int
    status: TopologyStatus | None
    # subtopology → how many tasks; empty unless the topology is ready.
    task_counts: Mapping[str, int]
    # Subtopologies with a changelog: only those have standby tasks.
    stateful: frozenset[str]
    # Those that do not exist.
    to_create: tuple[InternalTopic, ...]
    # The internal topics with their decided counts, for descriptions.
    internal_counts: Mapping[str, int]

    @property
    def is_ready(self) -> bool:
        return self.status is None


class _NotConfigured(Exception):
    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.status = TopologyStatus(code, detail)


def required_topics(topology: StreamsGroupTopologyValue) -> set[str]:
    """Return the topics whose metadata the group depends on: sources, repartition topics and changelogs."""
    return {
        name
        for one in topology.subtopologies
        for name in (
            *one.source_topics,
            *(info.name for info in one.repartition_source_topics),
            *(info.name for info in one.state_changelog_topics),
        )
    }


def configure(topology: StreamsGroupTopologyValue, count_of: CountOf) -> ConfiguredTopology:
    stateful = frozenset(one.subtopology_id for one in topology.subtopologies if one.state_changelog_topics)
    counts: dict[str, int] = {}
    try:
        tasks = _decide_counts(topology, count_of, counts)
        missing = _missing_internal(topology, count_of, counts)
    except _NotConfigured as reason:
        return ConfiguredTopology(topology.epoch, reason.status, {}, stateful, (), {})
    internal = {name: counts[name] for name in _internal_topics(topology)}
    if missing:
        names = ", ".join(sorted(topic.name for topic in missing))
        status = TopologyStatus(MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
        return ConfiguredTopology(topology.epoch, status, {}, stateful, missing, internal)
    return ConfiguredTopology(topology.epoch, None, tasks, stateful, (), internal)


def _decide_counts(topology: StreamsGroupTopologyValue, count_of: CountOf, counts: dict[str, int]) -> dict[str, int]:
    """Fill in the partition count of every topic; return the number of tasks of every subtopology."""
    sources = sorted({name for one in topology.subtopologies for name in one.source_topics})
    if absent := [name for name in sources if count_of(name) is None]:
        raise _NotConfigured(MISSING_SOURCE_TOPICS, f"Source topics {', '.join(absent)} are missing.")
    counts.update((name, count_of(name) or 0) for name in sources)
    _count_repartition_topics(topology, counts)
    fixed = {info.name for info in _repartition_topics(topology) if info.partitions > 0}
    for one in topology.subtopologies:
        for group in one.copartition_groups:
            _copartition(one, group, counts, fixed)
    tasks = {
        one.subtopology_id: max((counts[name] for name in _read_by(one)), default=0) for one in topology.subtopologies
    }
    for one in topology.subtopologies:
        counts.update((info.name, tasks[one.subtopology_id]) for info in one.state_changelog_topics)
    return tasks


def _repartition_topics(topology: StreamsGroupTopologyValue) -> Iterable[StreamsGroupTopologyValueTopicInfo]:
    return (info for one in topology.subtopologies for info in one.repartition_source_topics)


def _internal_topics(topology: StreamsGroupTopologyValue) -> dict[str, StreamsGroupTopologyValueTopicInfo]:
    found = {info.name: info for info in _repartition_topics(topology)}
    found.update((info.name, info) for one in topology.subtopologies for info in one.state_changelog_topics)
    return found


def _read_by(one: Subtopology) -> list[str]:
    return [*one.source_topics, *(info.name for info in one.repartition_source_topics)]


def _count_repartition_topics(topology: StreamsGroupTopologyValue, counts: dict[str, int]) -> None:
    open_topics = set()
    for info in _repartition_topics(topology):
        if info.partitions > 0:
            counts[info.name] = info.partitions
        else:
            open_topics.add(info.name)
    writers = {
        name: [one for one in topology.subtopologies if name in one.repartition_sink_topics] for name in open_topics
    }
    while open_topics:
        decided = {}
        for name in open_topics:
            read = [topic for one in writers[name] for topic in _read_by(one)]
            if read and all(topic in counts for topic in read):
                decided[name] = max(counts[topic] for topic in read)
        if not decided:
            raise Refusal(
                ErrorCode.STREAMS_INVALID_TOPOLOGY,
                f"the partition counts of repartition topics {', '.join(sorted(open_topics))} follow from nothing",
            )
        counts |= decided
        open_topics -= decided.keys()


def _copartition(one: Subtopology, group: CopartitionGroup, counts: dict[str, int], fixed: set[str]) -> None:
    """Set the partition count of the repartition topics of a join to that of its other topics, or to the largest among
    themselves."""
    sources = [one.source_topics[index] for index in group.source_topics]
    repartition = [one.repartition_source_topics[index].name for index in group.repartition_source_topics]
    given = {name: counts[name] for name in (*sources, *(name for name in repartition if name in fixed))}
    if len(set(given.values())) > 1:
        shown = ", ".join(f"{name}={count}" for name, count in sorted(given.items()))
        raise _NotConfigured(
            INCORRECTLY_PARTITIONED_TOPICS, f"Following topics do not have the same number of partitions: [{{{shown}}}]"
        )
    wanted = next(iter(given.values())) if given else max((counts[name] for name in repartition), default=0)
    counts.update((name, wanted) for name in repartition)


def _missing_internal(
    topology: StreamsGroupTopologyValue, count_of: CountOf, counts: Mapping[str, int]
) -> tuple[InternalTopic, ...]:
    missing = []
    for name, info in sorted(_internal_topics(topology).items()):
        count = count_of(name)
        if count is None:
            configs = tuple((each.key, each.value) for each in info.topic_configs)
            missing.append(InternalTopic(name, counts[name], info.replication_factor or -1, configs))
        elif count != counts[name]:
            raise _NotConfigured(
                INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing internal topic {name} has {count} partitions, and the topology wants {counts[name]}.",
            )
    return tuple(missing)
