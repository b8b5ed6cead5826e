"""Streams groups (KIP-1071): describe them. Their offsets are committed offsets, as those of consumer groups are."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.client.client_errors import check
from pessoa.client.group_admin import at_coordinator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.client.cluster_client import Cluster, Node
    from pessoa.wire.api.streams_group_describe import Assignment as WireAssignment
    from pessoa.wire.api.streams_group_describe import TaskIds

# Subtopology and partitions, in the order of the response.
Tasks = list[tuple[str, list[int]]]


class StreamsAssignment(NamedTuple):
    active: Tasks
    standby: Tasks
    warmup: Tasks


class StreamsMember(NamedTuple):
    member_id: str
    process_id: str
    client_id: str
    epoch: int
    is_classic: bool
    assignment: StreamsAssignment
    target: StreamsAssignment


class Subtopology(NamedTuple):
    name: str
    sources: list[str]
    # Internal topics.
    repartitions: list[str]
    changelogs: list[str]


class StreamsGroup(NamedTuple):
    group_id: str
    state: str
    coordinator: Node
    epoch: int
    target_epoch: int
    topology_epoch: int
    members: list[StreamsMember]
    subtopologies: list[Subtopology]


def describe_streams_group(cluster: Cluster, group_id: str) -> StreamsGroup:
    from pessoa.wire.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse

    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)

    def attempt(node: int) -> StreamsGroup:
        answer = cluster.ask(
            request, StreamsGroupDescribeResponse, coordinator=node, name="describeStreamsGroups"
        ).groups[0]
        check(answer.error_code, answer.error_message)
        topology = answer.topology
        return StreamsGroup(
            group_id,
            answer.group_state,
            cluster.node(node),
            answer.group_epoch,
            answer.assignment_epoch,
            -1 if topology is None else topology.epoch,
            [
                StreamsMember(
                    one.member_id,
                    one.process_id,
                    one.client_id,
                    one.member_epoch,
                    one.is_classic,
                    _assignment(one.assignment),
                    _assignment(one.target_assignment),
                )
                for one in answer.members
            ],
            [
                Subtopology(
                    one.subtopology_id,
                    one.source_topics,
                    [each.name for each in one.repartition_source_topics],
                    [each.name for each in one.state_changelog_topics],
                )
                for one in (topology.subtopologies or () if topology is not None else ())
            ],
        )

    return at_coordinator(cluster, group_id, attempt)


def _assignment(found: WireAssignment) -> StreamsAssignment:
    return StreamsAssignment(_tasks(found.active_tasks), _tasks(found.standby_tasks), _tasks(found.warmup_tasks))


def _tasks(found: Sequence[TaskIds]) -> Tasks:
    return [(one.subtopology_id, one.partitions) for one in found]
