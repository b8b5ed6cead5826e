"""Consumer groups: members, their partitions, and how far behind they are.

Lag is the end of a partition less what the group has committed there; a partition without a commit has none. A lag
names the member that has the partition, if one has it.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin._group import ConsumerGroupDescription, MemberDescription
from starlette.requests import Request
from starlette.responses import Response

from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import group_not_found, unknown_in_cluster
from pessoa.rest_proxy.v3.resource_links import Links, Metadata, Related, links_of
from pessoa.rest_proxy.v3.topic_endpoints import topic_name
from pessoa.web.asgi_app import json_response

# librdkafka has its own names for two of Kafka's states.
STATES = {
    ConsumerGroupState.PREPARING_REBALANCING.name: "PREPARING_REBALANCE",
    ConsumerGroupState.COMPLETING_REBALANCING.name: "COMPLETING_REBALANCE",
}


class ConsumerGroup(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    is_simple: bool
    partition_assignor: str
    state: str
    type: str
    is_mixed_consumer_group: bool
    coordinator: Related
    consumers: Related
    lag_summary: Related


class Consumer(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    instance_id: str | None
    client_id: str
    assignments: Related


class Assignment(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    consumer_id: str
    topic_name: str
    partition_id: int
    partition: Related
    lag: Related


class ConsumerLag(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    topic_name: str
    partition_id: int
    current_offset: int
    log_end_offset: int
    lag: int
    consumer_id: str
    instance_id: str | None
    client_id: str


class LagSummary(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    consumer_group_id: str
    max_lag_consumer_id: str
    max_lag_instance_id: str | None
    max_lag_client_id: str
    max_lag_topic_name: str
    max_lag_partition_id: int
    max_lag: int
    total_lag: int
    max_lag_consumer: Related
    max_lag_partition: Related


class Found(NamedTuple):
    links: Links
    group: ConsumerGroupDescription


class GroupEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def groups(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        admin = clients_of(request).admin
        found = await admin.describe_groups(await admin.group_ids())
        data = [group_of(links, each) for each in sorted(found, key=lambda each: each.group_id)]
        return json_response(request, links.collection("KafkaConsumerGroup", data, "consumer-groups"))

    async def group(self, request: Request) -> Response:
        return json_response(request, group_of(*await self._find_group(request)))

    async def consumers(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        data = [consumer_of(links, group, each) for each in _members(group)]
        segments = ("consumer-groups", group.group_id, "consumers")
        return json_response(request, links.collection("KafkaConsumer", data, *segments))

    async def consumer(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        return json_response(request, consumer_of(links, group, _member(group, request)))

    async def assignments(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        member = _member(group, request)
        data = [assignment_of(links, group, member, *place) for place in _partitions(member)]
        segments = ("consumer-groups", group.group_id, "consumers", member.member_id, "assignments")
        return json_response(request, links.collection("KafkaConsumerAssignment", data, *segments))

    async def assignment(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        member = _member(group, request)
        for topic, number in _partitions(member):
            if (topic, str(number)) == (request.path_params["topic_name"], request.path_params["partition_id"]):
                return json_response(request, assignment_of(links, group, member, topic, number))
        raise unknown_in_cluster("The partition is not assigned to this consumer.")

    async def lags(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        data = await self._lags(request, links, group)
        if not data:
            raise unknown_in_cluster(f"Consumer group {group.group_id} has committed no offsets.")
        data.sort(key=lambda each: (-each.lag, each.topic_name, each.partition_id))
        segments = ("consumer-groups", group.group_id, "lags")
        return json_response(request, links.collection("KafkaConsumerLag", data, *segments))

    async def lag(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        topic = topic_name(self._proxy, request)
        for each in await self._lags(request, links, group):
            if (each.topic_name, str(each.partition_id)) == (topic, request.path_params["partition_id"]):
                return json_response(request, each)
        raise unknown_in_cluster("The group has committed no offset of this partition.")

    async def lag_summary(self, request: Request) -> Response:
        links, group = await self._find_group(request)
        lags = await self._lags(request, links, group)
        if not lags:
            raise unknown_in_cluster(f"Consumer group {group.group_id} has committed no offsets.")
        return json_response(request, summary_of(links, group, lags))

    async def _find_group(self, request: Request) -> Found:
        links = await links_of(self._proxy, request)
        group_id = request.path_params["consumer_group_id"]
        if "\0" in group_id:
            raise group_not_found(group_id)
        groups = await clients_of(request).admin.describe_groups([group_id])
        # Older brokers call a group that is not there dead.
        if not groups or groups[0].state is ConsumerGroupState.DEAD:
            raise group_not_found(group_id)
        return Found(links, groups[0])

    async def _lags(self, request: Request, links: Links, group: ConsumerGroupDescription) -> list[ConsumerLag]:
        admin = clients_of(request).admin
        committed = await admin.committed(group.group_id)
        ends = await admin.offsets([(each.topic, each.partition) for each in committed], end=True)
        owners = {place: member for member in group.members for place in _partitions(member)}
        lags = []
        for each in committed:
            place = (each.topic, each.partition)
            if place in ends:
                lags.append(lag_of(links, group, place, each.offset, ends[place], owners.get(place)))
        return lags


def group_of(links: Links, group: ConsumerGroupDescription) -> ConsumerGroup:
    segments = ("consumer-groups", group.group_id)
    return ConsumerGroup(
        kind="KafkaConsumerGroup",
        metadata=links.metadata(*segments, name=f"/consumer-group={group.group_id}"),
        cluster_id=links.cluster_id,
        consumer_group_id=group.group_id,
        is_simple=group.is_simple_consumer_group,
        partition_assignor=group.partition_assignor,
        state=STATES.get(group.state.name, group.state.name),
        type=group.type.name,
        # librdkafka does not return which protocol a member uses.
        is_mixed_consumer_group=False,
        coordinator=links.related("brokers", group.coordinator.id),
        consumers=links.related(*segments, "consumers"),
        lag_summary=links.related(*segments, "lag-summary"),
    )


def consumer_of(links: Links, group: ConsumerGroupDescription, member: MemberDescription) -> Consumer:
    segments = ("consumer-groups", group.group_id, "consumers", member.member_id)
    return Consumer(
        kind="KafkaConsumer",
        metadata=links.metadata(*segments, name=f"/consumer-group={group.group_id}/consumer={member.member_id}"),
        cluster_id=links.cluster_id,
        consumer_group_id=group.group_id,
        consumer_id=member.member_id,
        instance_id=member.group_instance_id or None,
        client_id=member.client_id,
        assignments=links.related(*segments, "assignments"),
    )


def assignment_of(
    links: Links, group: ConsumerGroupDescription, member: MemberDescription, topic: str, number: int
) -> Assignment:
    owner = ("consumer-groups", group.group_id, "consumers", member.member_id)
    place = ("topics", topic, "partitions", number)
    name = f"/consumer-group={group.group_id}/consumer={member.member_id}/assignment={topic}/partition={number}"
    return Assignment(
        kind="KafkaConsumerAssignment",
        metadata=links.metadata(*owner, "assignments", topic, "partitions", number, name=name),
        cluster_id=links.cluster_id,
        consumer_group_id=group.group_id,
        consumer_id=member.member_id,
        topic_name=topic,
        partition_id=number,
        partition=links.related(*place),
        lag=links.related("consumer-groups", group.group_id, "lags", topic, "partitions", number),
    )


def lag_of(
    links: Links,
    group: ConsumerGroupDescription,
    place: tuple[str, int],
    committed: int,
    end: int,
    owner: MemberDescription | None,
) -> ConsumerLag:
    topic, number = place
    return ConsumerLag(
        kind="KafkaConsumerLag",
        metadata=links.metadata(
            "consumer-groups", group.group_id, "lags", topic, "partitions", number,
            name=f"/consumer-group={group.group_id}/lag={topic}/partition={number}",
        ),
        cluster_id=links.cluster_id,
        consumer_group_id=group.group_id,
        topic_name=topic,
        partition_id=number,
        current_offset=committed,
        log_end_offset=end,
        lag=end - committed,
        consumer_id="" if owner is None else owner.member_id,
        instance_id=None if owner is None else owner.group_instance_id or None,
        client_id="" if owner is None else owner.client_id,
    )  # fmt: skip


def summary_of(links: Links, group: ConsumerGroupDescription, lags: list[ConsumerLag]) -> LagSummary:
    worst = max(lags, key=lambda each: each.lag)
    segments = ("consumer-groups", group.group_id, "lag-summary")
    return LagSummary(
        kind="KafkaConsumerGroupLagSummary",
        metadata=links.metadata(*segments, name=f"/consumer-group={group.group_id}/lag-summary"),
        cluster_id=links.cluster_id,
        consumer_group_id=group.group_id,
        max_lag_consumer_id=worst.consumer_id,
        max_lag_instance_id=worst.instance_id,
        max_lag_client_id=worst.client_id,
        max_lag_topic_name=worst.topic_name,
        max_lag_partition_id=worst.partition_id,
        max_lag=worst.lag,
        total_lag=sum(each.lag for each in lags),
        max_lag_consumer=links.related("consumer-groups", group.group_id, "consumers", worst.consumer_id),
        max_lag_partition=links.related("topics", worst.topic_name, "partitions", worst.partition_id),
    )


def _members(group: ConsumerGroupDescription) -> list[MemberDescription]:
    return sorted(group.members, key=lambda each: each.member_id)


def _member(group: ConsumerGroupDescription, request: Request) -> MemberDescription:
    for each in group.members:
        if each.member_id == request.path_params["consumer_id"]:
            return each
    raise unknown_in_cluster(f"Consumer {request.path_params['consumer_id']} cannot be found.")


def _partitions(member: MemberDescription) -> list[tuple[str, int]]:
    return sorted((each.topic, each.partition) for each in member.assignment.topic_partitions)
