"""Streams groups (KIP-1071): their members, the subtopologies of their application, and which tasks a member has.

Confluent calls these endpoints early access. A member has two assignments, the one that it has and the one that it is
to have; each has active, standby and warm-up tasks, and a task is a subtopology and a partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import group_not_found, unknown_in_cluster
from pessoa.rest_proxy.v3.resource_links import Links, Metadata, Related, links_of
from pessoa.web.asgi_app import json_response
from pessoa.web.routing import Handler

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.wire.api.streams_group_describe import DescribedGroup, Member, Subtopology, TaskIds

# What a member has, and what it is to have.
CURRENT, TARGET = "assignments", "target-assignments"
KINDS = ("active", "standby", "warmup")


class StreamsGroup(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    group_id: str
    state: str
    member_count: int
    subtopology_count: int
    group_epoch: int
    topology_epoch: int
    target_assignment_epoch: int
    members: Related
    subtopologies: Related


class StreamsMember(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    group_id: str
    member_id: str
    process_id: str
    client_id: str
    instance_id: str
    member_epoch: int
    topology_epoch: int
    is_classic: bool
    assignments: Related
    target_assignment: Related


class StreamsSubtopology(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    group_id: str
    subtopology_id: str
    source_topics: list[str]


class StreamsAssignment(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    group_id: str
    member_id: str
    active_tasks: Related
    standby_tasks: Related
    warmup_tasks: Related


class StreamsTasks(msgspec.Struct):
    kind: str
    metadata: Metadata
    subtopology_id: str
    partition_ids: list[int]


class Found(NamedTuple):
    links: Links
    group: DescribedGroup


class StreamsGroupEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def groups(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        found = await clients_of(request).admin.ask(_describe_all)
        data = [group_of(links, each) for each in found]
        return json_response(request, links.collection("KafkaStreamsGroup", data, "streams-groups"))

    async def group(self, request: Request) -> Response:
        return json_response(request, group_of(*await self._find_group(request)))

    async def members(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        members = sorted(group.members, key=lambda each: each.member_id)
        data = [member_of(links, group, each) for each in members]
        segments = ("streams-groups", group.group_id, "members")
        return json_response(request, links.collection("KafkaStreamsGroupMember", data, *segments))

    async def member(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        return json_response(request, member_of(links, group, _member(group, request)))

    async def subtopologies(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        data = [subtopology_of(links, group, each) for each in _subtopologies(group)]
        segments = ("streams-groups", group.group_id, "subtopologies")
        return json_response(request, links.collection("KafkaStreamsGroupSubtopology", data, *segments))

    async def subtopology(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        wanted = request.path_params["subtopology_id"]
        for each in _subtopologies(group):
            if each.subtopology_id == wanted:
                return json_response(request, subtopology_of(links, group, each))
        raise unknown_in_cluster(f"Subtopology {wanted} cannot be found.")

    def assignment(self, which: str) -> Handler:
        async def handle(request: Request) -> Response:
            links, group = await self._find_group(request)
            return json_response(request, assignment_of(links, group, _member(group, request), which))

        return handle

    def tasks(self, which: str) -> Handler:
        async def handle(request: Request) -> Response:
            links, group = await self._find_group(request)
            member, kind = _member(group, request), _kind(request)
            segments = ("streams-groups", group.group_id, "members", member.member_id, which, kind)
            data = [tasks_of(links, segments, each) for each in _tasks(member, which, kind)]
            return json_response(request, links.collection("KafkaStreamsTask", data, *segments))

        return handle

    def tasks_of_subtopology(self, which: str) -> Handler:
        async def handle(request: Request) -> Response:
            links, group = await self._find_group(request)
            member, kind = _member(group, request), _kind(request)
            segments = ("streams-groups", group.group_id, "members", member.member_id, which, kind)
            for each in _tasks(member, which, kind):
                if each.subtopology_id == request.path_params["subtopology_id"]:
                    return json_response(request, tasks_of(links, segments, each))
            raise unknown_in_cluster("The member has no such task.")

        return handle

    async def _find_group(self, request: Request) -> Found:
        links = await links_of(self._proxy, request)
        group_id: str = request.path_params["group_id"]
        group = await clients_of(request).admin.ask(lambda cluster: _describe(cluster, group_id))
        if group is None:
            raise group_not_found(group_id)
        return Found(links, group)


def _describe(cluster: Cluster, group_id: str) -> DescribedGroup | None:
    """Return the group, or None if there is no streams group of this name."""
    from pessoa.client.client_errors import RequestFailed, check
    from pessoa.client.group_admin import at_coordinator
    from pessoa.wire.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
    from pessoa.wire.errors import ErrorCode

    request = StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)

    def attempt(node: int) -> DescribedGroup:
        answer = cluster.ask(
            request, StreamsGroupDescribeResponse, coordinator=node, name="describeStreamsGroups"
        ).groups[0]
        check(answer.error_code, answer.error_message)
        return answer

    try:
        return at_coordinator(cluster, group_id, attempt)
    except RequestFailed as failure:
        if failure.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise


def _describe_all(cluster: Cluster) -> list[DescribedGroup]:
    """Return all streams groups; one that is deleted before it is described is left out."""
    from pessoa.client.group_admin import list_groups

    names = sorted(each.group_id for each in list_groups(cluster, kinds=["streams"]))
    found = (_describe(cluster, name) for name in names)
    return [each for each in found if each is not None]


def group_of(links: Links, group: DescribedGroup) -> StreamsGroup:
    segments = ("streams-groups", group.group_id)
    return StreamsGroup(
        kind="KafkaStreamsGroup",
        metadata=links.metadata(*segments, name=f"/streams-group={group.group_id}"),
        cluster_id=links.cluster_id,
        group_id=group.group_id,
        # "NotReady" is one word in Kafka and two in Confluent's list.
        state="NOT_READY" if group.group_state == "NotReady" else group.group_state.upper(),
        member_count=len(group.members),
        subtopology_count=len(_subtopologies(group)),
        group_epoch=group.group_epoch,
        topology_epoch=-1 if group.topology is None else group.topology.epoch,
        target_assignment_epoch=group.assignment_epoch,
        members=links.related(*segments, "members"),
        subtopologies=links.related(*segments, "subtopologies"),
    )


def member_of(links: Links, group: DescribedGroup, member: Member) -> StreamsMember:
    segments = ("streams-groups", group.group_id, "members", member.member_id)
    return StreamsMember(
        kind="KafkaStreamsGroupMember",
        metadata=links.metadata(*segments, name=f"/streams-group={group.group_id}/member={member.member_id}"),
        cluster_id=links.cluster_id,
        group_id=group.group_id,
        member_id=member.member_id,
        process_id=member.process_id,
        client_id=member.client_id,
        instance_id=member.instance_id or "",
        member_epoch=member.member_epoch,
        topology_epoch=member.topology_epoch,
        is_classic=member.is_classic,
        assignments=links.related(*segments, CURRENT),
        target_assignment=links.related(*segments, TARGET),
    )


def subtopology_of(links: Links, group: DescribedGroup, subtopology: Subtopology) -> StreamsSubtopology:
    segments = ("streams-groups", group.group_id, "subtopologies", subtopology.subtopology_id)
    name = f"/streams-group={group.group_id}/subtopology={subtopology.subtopology_id}"
    return StreamsSubtopology(
        kind="KafkaStreamsGroupSubtopology",
        metadata=links.metadata(*segments, name=name),
        cluster_id=links.cluster_id,
        group_id=group.group_id,
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
    )


def assignment_of(links: Links, group: DescribedGroup, member: Member, which: str) -> StreamsAssignment:
    segments = ("streams-groups", group.group_id, "members", member.member_id, which)
    active, standby, warmup = (links.related(*segments, kind) for kind in KINDS)
    return StreamsAssignment(
        kind="KafkaStreamsGroupMemberAssignment",
        metadata=links.metadata(*segments, name=f"/streams-group={group.group_id}/member={member.member_id}/{which}"),
        cluster_id=links.cluster_id,
        group_id=group.group_id,
        member_id=member.member_id,
        active_tasks=active,
        standby_tasks=standby,
        warmup_tasks=warmup,
    )


def tasks_of(links: Links, segments: tuple[str, ...], tasks: TaskIds) -> StreamsTasks:
    _, group_id, _, member_id, which, kind = segments
    name = f"/streams-group={group_id}/member={member_id}/{which}={kind}/subtopology={tasks.subtopology_id}"
    return StreamsTasks(
        kind="KafkaStreamsTask",
        metadata=links.metadata(*segments, "subtopologies", tasks.subtopology_id, name=name),
        subtopology_id=tasks.subtopology_id,
        partition_ids=sorted(tasks.partitions),
    )


def _member(group: DescribedGroup, request: Request) -> Member:
    for each in group.members:
        if each.member_id == request.path_params["member_id"]:
            return each
    raise unknown_in_cluster(f"Member {request.path_params['member_id']} cannot be found.")


def _subtopologies(group: DescribedGroup) -> list[Subtopology]:
    return [] if group.topology is None else group.topology.subtopologies or []


def _kind(request: Request) -> str:
    kind: str = request.path_params["assignments_type"]
    if kind not in KINDS:
        raise unknown_in_cluster(f"There are no {kind} tasks; tasks are {', '.join(KINDS)}.")
    return kind


def _tasks(member: Member, which: str, kind: str) -> list[TaskIds]:
    assignment = member.assignment if which == CURRENT else member.target_assignment
    of_kind: list[TaskIds] = getattr(assignment, f"{kind}_tasks")
    return sorted(of_kind, key=lambda each: each.subtopology_id)
