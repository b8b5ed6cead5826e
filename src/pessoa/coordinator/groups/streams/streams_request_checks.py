"""StreamsGroupHeartbeat requests that no group could take, whatever its state, and the topology of a request as stored.

A topology that is refused here is refused before anything of it is looked up: names that are no topic names, a
changelog that asks for a count of its own, indexes of joined topics that point nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from pessoa.coordinator.groups.consumer.consumer_group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from pessoa.wire.api import streams_group_heartbeat as api
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.internal_topics import is_internal
from pessoa.wire.stored import streams_group_records as stored

JOIN_EPOCH = 0
# Kafka's rule of topic names: these characters, at most so many of them, and neither . nor ..
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LONGEST_NAME = 249


def check_form(request: api.StreamsGroupHeartbeatRequest) -> None:
    """Raise INVALID_REQUEST for a heartbeat that is invalid for every group."""
    _refuse_if(not request.member_id.strip(), "MemberId can't be empty.")
    _refuse_if(not request.group_id.strip(), "GroupId can't be empty.")
    _refuse_if(request.instance_id is not None, "Static membership is not yet supported.")
    _refuse_if(request.task_offsets is not None, "TaskOffsets are not supported yet.")
    _refuse_if(request.task_end_offsets is not None, "TaskEndOffsets are not supported yet.")
    _refuse_if(bool(request.warmup_tasks), "WarmupTasks are not supported yet.")
    if request.topology is not None and any(one.source_topic_regex for one in request.topology.subtopologies):
        raise Refusal(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")
    if request.member_epoch == JOIN_EPOCH:
        _check_joining(request)
    elif request.member_epoch > JOIN_EPOCH:
        roles = (request.active_tasks, request.standby_tasks, request.warmup_tasks)
        _refuse_if(
            len({tasks is None for tasks in roles}) > 1,
            "ActiveTasks, StandbyTasks and WarmupTasks must be all null or all non-null.",
        )
        _refuse_if(request.topology is not None, "Topology can only be provided when (re-)joining.")
    else:
        _refuse_if(request.member_epoch not in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH), "MemberEpoch is invalid.")


def _check_joining(request: api.StreamsGroupHeartbeatRequest) -> None:
    _refuse_if(request.rebalance_timeout_ms == -1, "RebalanceTimeoutMs must be provided in first request.")
    _refuse_if(request.topology is None, "Topology must be non-null when (re-)joining.")
    for name, tasks in (
        ("ActiveTasks", request.active_tasks),
        ("StandbyTasks", request.standby_tasks),
        ("WarmupTasks", request.warmup_tasks),
    ):
        _refuse_if(tasks is None or bool(tasks), f"{name} must be empty when (re-)joining.")
    assert request.topology is not None
    check_topology(request.topology)


def _refuse_if(is_wrong: bool, message: str) -> None:
    if is_wrong:
        raise Refusal(ErrorCode.INVALID_REQUEST, message)


def check_topology(topology: api.Topology) -> None:
    """Raise STREAMS_INVALID_TOPOLOGY for a topology with invalid topics or indexes."""
    for one in topology.subtopologies:
        names = [*one.source_topics, *one.repartition_sink_topics]
        names += (info.name for info in (*one.repartition_source_topics, *one.state_changelog_topics))
        for name in names:
            if not _is_topic_name(name):
                raise _invalid_topology(f"Topic name {name} is not valid.")
            if is_internal(name):
                raise _invalid_topology(
                    f"Use of Kafka internal topic {name} in a Kafka Streams topology is prohibited."
                )
        for info in one.state_changelog_topics:
            if info.partitions:
                raise _invalid_topology(f"Changelog topic {info.name} must have an undefined partition count.")
        for group in one.copartition_groups:
            _check_indexes(group.source_topics, len(one.source_topics))
            _check_indexes(group.repartition_source_topics, len(one.repartition_source_topics))


def _is_topic_name(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and name not in (".", "..") and _NAME_CHARACTERS.issuperset(name)


def _check_indexes(indexes: Iterable[int], count: int) -> None:
    if any(not 0 <= index < count for index in indexes):
        raise _invalid_topology("A copartition group names a topic that its subtopology does not have.")


def _invalid_topology(message: str) -> Refusal:
    return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def stored_topology(topology: api.Topology) -> stored.StreamsGroupTopologyValue:
    """Return the topology of a request as a record; lists are sorted, so that equal topologies have equal bytes."""
    return stored.StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[_subtopology(one) for one in sorted(topology.subtopologies, key=lambda one: one.subtopology_id)],
    )


def _subtopology(one: api.Subtopology) -> stored.Subtopology:
    # Copartition groups point into these lists, so what moves takes its new place along.
    sources = sorted(range(len(one.source_topics)), key=lambda index: one.source_topics[index])
    repartition = sorted(
        range(len(one.repartition_source_topics)), key=lambda index: one.repartition_source_topics[index].name
    )
    return stored.Subtopology(
        subtopology_id=one.subtopology_id,
        source_topics=[one.source_topics[index] for index in sources],
        source_topic_regex=[],
        state_changelog_topics=[
            _topic_info(info) for info in sorted(one.state_changelog_topics, key=lambda info: info.name)
        ],
        repartition_sink_topics=sorted(one.repartition_sink_topics),
        repartition_source_topics=[_topic_info(one.repartition_source_topics[index]) for index in repartition],
        copartition_groups=[
            stored.CopartitionGroup(
                source_topics=sorted(sources.index(index) for index in group.source_topics),
                source_topic_regex=[],
                repartition_source_topics=sorted(repartition.index(each) for each in group.repartition_source_topics),
            )
            for group in one.copartition_groups
        ],
    )


def _topic_info(info: api.TopicInfo) -> stored.StreamsGroupTopologyValueTopicInfo:
    return stored.StreamsGroupTopologyValueTopicInfo(
        name=info.name,
        partitions=info.partitions,
        replication_factor=info.replication_factor,
        topic_configs=[
            stored.TopicConfig(key=each.key, value=each.value)
            for each in sorted(info.topic_configs, key=lambda each: each.key)
        ],
    )
