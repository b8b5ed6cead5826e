"""Share groups (KIP-932): their members, and the partitions that these share.

A partition may be assigned to several members, so a group counts it once. A group without members keeps the partitions
that it has begun to deliver: they are those with a start offset. Deleting is for a group without members.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pessoa.rest_proxy.async_admin import Administrator
from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import group_has_members, group_not_found, unknown_in_cluster
from pessoa.rest_proxy.v3.resource_links import Links, Metadata, Related, links_of
from pessoa.rest_proxy.v3.topic_endpoints import NO_CONTENT
from pessoa.web.asgi_app import json_response

if TYPE_CHECKING:
    from pessoa.client.cluster_client import Cluster
    from pessoa.client.group_admin import Group, Member
    from pessoa.client.offset_admin import TopicPartition


class SharePartition(msgspec.Struct):
    kind: str
    metadata: Metadata
    topic_name: str
    partition_id: int
    partition: Related


class ShareGroup(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    share_group_id: str
    state: str
    coordinator: Related
    consumer_count: int
    consumers: Related
    partition_count: int
    assigned_topic_partitions: list[SharePartition]


class ShareConsumer(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    group_id: str
    consumer_id: str
    client_id: str
    assignments: Related


class ShareAssignment(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    group_id: str
    consumer_id: str
    topic_name: str
    partition_id: int
    partition: Related


class Found(NamedTuple):
    links: Links
    group: Group
    partitions: list[TopicPartition]


class ShareGroupEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def groups(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        found = await clients_of(request).admin.ask(_describe_all)
        data = [group_of(Found(links, *each)) for each in found]
        return json_response(request, links.collection("KafkaShareGroup", data, "share-groups"))

    async def group(self, request: Request) -> Response:
        return json_response(request, group_of(await self._find_group(request)))

    async def delete(self, request: Request) -> Response:
        found = await self._find_group(request)
        await clients_of(request).admin.ask(lambda cluster: _delete(cluster, found.group.group_id))
        return Response(status_code=NO_CONTENT)

    async def consumers(self, request: Request) -> Response:
        links, group, _ = await self._find_group(request)
        data = [consumer_of(links, group, each) for each in sorted(group.members)]
        segments = ("share-groups", group.group_id, "consumers")
        return json_response(request, links.collection("KafkaShareGroupConsumer", data, *segments))

    async def consumer(self, request: Request) -> Response:
        links, group, _ = await self._find_group(request)
        return json_response(request, consumer_of(links, group, _member(group, request)))

    async def assignments(self, request: Request) -> Response:
        links, group, _ = await self._find_group(request)
        member = _member(group, request)
        data = [assignment_of(links, group, member, *place) for place in sorted(member.assignment)]
        segments = ("share-groups", group.group_id, "consumers", member.member_id, "assignments")
        return json_response(request, links.collection("KafkaShareGroupConsumerAssignment", data, *segments))

    async def _find_group(self, request: Request) -> Found:
        links = await links_of(self._proxy, request)
        group_id: str = request.path_params["group_id"]
        found = await describe(clients_of(request).admin, group_id)
        if found is None:
            raise group_not_found(group_id)
        return Found(links, *found)


async def describe(admin: Administrator, group_id: str) -> tuple[Group, list[TopicPartition]] | None:
    """Return the group and its partitions, or None if there is no share group of this name."""
    return await admin.ask(lambda cluster: _describe(cluster, group_id))


def _describe(cluster: Cluster, group_id: str) -> tuple[Group, list[TopicPartition]] | None:
    from pessoa.client.client_errors import RequestFailed
    from pessoa.client.share_group_admin import describe_share_group, share_offsets
    from pessoa.wire.errors import ErrorCode

    try:
        group = describe_share_group(cluster, group_id)
        start_offsets = share_offsets(cluster, group_id)
    except RequestFailed as failure:
        if failure.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        raise
    return group, sorted({*start_offsets, *(place for member in group.members for place in member.assignment)})


def _describe_all(cluster: Cluster) -> list[tuple[Group, list[TopicPartition]]]:
    """Return all share groups; one that is deleted before it is described is left out."""
    from pessoa.client.group_admin import list_groups

    names = sorted(each.group_id for each in list_groups(cluster, kinds=["share"]))
    found = (_describe(cluster, name) for name in names)
    return [each for each in found if each is not None]


def _delete(cluster: Cluster, group_id: str) -> None:
    from pessoa.client.client_errors import RequestFailed
    from pessoa.client.group_admin import delete_group
    from pessoa.wire.errors import ErrorCode

    try:
        delete_group(cluster, group_id)
    except RequestFailed as failure:
        if failure.code is ErrorCode.NON_EMPTY_GROUP:
            raise group_has_members(group_id) from None
        raise


def group_of(found: Found) -> ShareGroup:
    links, group, partitions = found
    segments = ("share-groups", group.group_id)
    name = f"/share-group={group.group_id}"
    return ShareGroup(
        kind="KafkaShareGroup",
        metadata=links.metadata(*segments, name=name),
        cluster_id=links.cluster_id,
        share_group_id=group.group_id,
        state=group.state.upper(),
        coordinator=links.related("brokers", group.coordinator.node_id),
        consumer_count=len(group.members),
        consumers=links.related(*segments, "consumers"),
        partition_count=len(partitions),
        assigned_topic_partitions=[
            SharePartition(
                kind="KafkaShareGroupTopicPartition",
                metadata=links.metadata("topics", topic, "partitions", number, name=f"{name}/{topic}/{number}"),
                topic_name=topic,
                partition_id=number,
                partition=links.related("topics", topic, "partitions", number),
            )
            for topic, number in partitions
        ],
    )


def consumer_of(links: Links, group: Group, member: Member) -> ShareConsumer:
    segments = ("share-groups", group.group_id, "consumers", member.member_id)
    return ShareConsumer(
        kind="KafkaShareGroupConsumer",
        metadata=links.metadata(*segments, name=f"/share-group={group.group_id}/consumer={member.member_id}"),
        cluster_id=links.cluster_id,
        group_id=group.group_id,
        consumer_id=member.member_id,
        client_id=member.client_id,
        assignments=links.related(*segments, "assignments"),
    )


def assignment_of(links: Links, group: Group, member: Member, topic: str, number: int) -> ShareAssignment:
    owner = ("share-groups", group.group_id, "consumers", member.member_id)
    name = f"/share-group={group.group_id}/consumer={member.member_id}/assignment={topic}/partition={number}"
    return ShareAssignment(
        kind="KafkaShareGroupConsumerAssignment",
        metadata=links.metadata(*owner, "assignments", name=name),
        cluster_id=links.cluster_id,
        group_id=group.group_id,
        consumer_id=member.member_id,
        topic_name=topic,
        partition_id=number,
        partition=links.related("topics", topic, "partitions", number),
    )


def _member(group: Group, request: Request) -> Member:
    for each in group.members:
        if each.member_id == request.path_params["consumer_id"]:
            return each
    raise unknown_in_cluster(f"Consumer {request.path_params['consumer_id']} cannot be found.")
