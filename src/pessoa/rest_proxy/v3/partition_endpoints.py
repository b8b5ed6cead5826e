"""Partitions of a topic: their replicas, their offsets, and the moves that are going on."""

from __future__ import annotations

import asyncio

import msgspec
from confluent_kafka import KafkaException, Node, TopicPartitionInfo
from starlette.requests import Request
from starlette.responses import Response

from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import leader_not_available, partition_not_found, unknown_in_cluster
from pessoa.rest_proxy.request_values import path_number
from pessoa.rest_proxy.v3.cluster_endpoints import no_such_broker
from pessoa.rest_proxy.v3.resource_links import Links, Metadata, Related, links_of
from pessoa.rest_proxy.v3.topic_endpoints import topic_name
from pessoa.web.asgi_app import json_response
from pessoa.web.problems import HttpProblem
from pessoa.wire.api.list_partition_reassignments import OngoingPartitionReassignment

OFFSET_TYPES = frozenset({"earliest", "latest", "earliest_and_latest"})


class Partition(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    topic_name: str
    partition_id: int
    leader: Related | None
    replicas: Related
    reassignment: Related


class PartitionWithOffsets(msgspec.Struct, omit_defaults=True):
    kind: str
    metadata: Metadata
    cluster_id: str
    topic_name: str
    partition_id: int
    earliest_offset: int | None = None
    latest_offset: int | None = None


class Replica(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    topic_name: str
    partition_id: int
    broker_id: int
    is_leader: bool
    is_in_sync: bool
    broker: Related


class Reassignment(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    topic_name: str
    partition_id: int
    adding_replicas: list[int]
    removing_replicas: list[int]
    replicas: Related


class PartitionEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def partitions(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        topic = topic_name(self._proxy, request)
        data = [partition_of(links, topic, each) for each in await self._list_partitions(request, topic)]
        return json_response(request, links.collection("KafkaPartition", data, "topics", topic, "partitions"))

    async def partition(self, request: Request) -> Response:
        links, topic, found = await self._find_partition(request)
        return json_response(request, partition_of(links, topic, found))

    async def offsets(self, request: Request) -> Response:
        wanted = request.query_params.get("offset_type", "earliest_and_latest").lower()
        if wanted not in OFFSET_TYPES:
            raise HttpProblem(400, f"offset_type is {wanted!r}; it can be {', '.join(sorted(OFFSET_TYPES))}")
        links, topic, found = await self._find_partition(request)
        place = (topic, found.id)
        first, end = await asyncio.gather(
            clients_of(request).admin.offsets([place] if wanted != "latest" else [], end=False),
            clients_of(request).admin.offsets([place] if wanted != "earliest" else [], end=True),
        )
        if (wanted != "latest" and place not in first) or (wanted != "earliest" and place not in end):
            raise leader_not_available()
        segments = ("topics", topic, "partitions", found.id, "offset")
        answer = PartitionWithOffsets(
            kind="KafkaPartitionWithOffsets",
            metadata=links.metadata(*segments, name=f"/topic={topic}/partition={found.id}"),
            cluster_id=links.cluster_id,
            topic_name=topic,
            partition_id=found.id,
            earliest_offset=first.get(place),
            latest_offset=end.get(place),
        )
        return json_response(request, answer)

    # Replicas.

    async def replicas(self, request: Request) -> Response:
        links, topic, found = await self._find_partition(request)
        data = [replica_of(links, topic, found, node) for node in found.replicas]
        segments = ("topics", topic, "partitions", found.id, "replicas")
        return json_response(request, links.collection("KafkaReplica", data, *segments))

    async def replica(self, request: Request) -> Response:
        links, topic, found = await self._find_partition(request)
        for node in found.replicas:
            if str(node.id) == request.path_params["broker_id"]:
                return json_response(request, replica_of(links, topic, found, node))
        raise unknown_in_cluster(f"Replica {request.path_params['broker_id']} cannot be found.")

    async def replicas_of_broker(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        admin = clients_of(request).admin
        cluster = await admin.describe_cluster()
        broker = next((each for each in cluster.nodes if str(each.id) == request.path_params["broker_id"]), None)
        if broker is None:
            raise no_such_broker(request)
        topics = await admin.describe_topics(await admin.topic_names())
        data = [
            replica_of(links, topic.name, partition, node)
            for topic in topics.values()
            if not isinstance(topic, KafkaException)
            for partition in topic.partitions
            for node in partition.replicas
            if node.id == broker.id
        ]
        segments = ("brokers", broker.id, "partition-replicas")
        return json_response(request, links.collection("KafkaReplica", data, *segments))

    # Reassignments.

    async def reassignment(self, request: Request) -> Response:
        links, topic, found = await self._find_partition(request)
        for name, each in await self._moves(request):
            if (name, each.partition_index) == (topic, found.id):
                return json_response(request, reassignment_of(links, name, each))
        raise unknown_in_cluster(f"No reassignment of partition {topic}-{found.id} is going on.")

    async def reassignments_of_topic(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        topic = topic_name(self._proxy, request)
        await self._list_partitions(request, topic)
        data = [reassignment_of(links, name, each) for name, each in await self._moves(request) if name == topic]
        segments = ("topics", topic, "partitions", "-", "reassignment")
        return json_response(request, links.collection("KafkaReassignment", data, *segments))

    async def reassignments(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        data = [reassignment_of(links, name, each) for name, each in await self._moves(request)]
        segments = ("topics", "-", "partitions", "-", "reassignment")
        return json_response(request, links.collection("KafkaReassignment", data, *segments))

    # Inside.

    async def _moves(self, request: Request) -> list[tuple[str, OngoingPartitionReassignment]]:
        moving = await clients_of(request).admin.reassignments()
        return [(topic.name, each) for topic in moving for each in topic.partitions]

    async def _list_partitions(self, request: Request, topic: str) -> list[TopicPartitionInfo]:
        found = await clients_of(request).admin.describe_topic(topic)
        return sorted(found.partitions, key=lambda each: each.id)

    async def _find_partition(self, request: Request) -> tuple[Links, str, TopicPartitionInfo]:
        links = await links_of(self._proxy, request)
        topic = topic_name(self._proxy, request)
        number = path_number(request, "partition_id")
        for each in await self._list_partitions(request, topic):
            if each.id == number:
                return links, topic, each
        raise partition_not_found()


def partition_of(links: Links, topic: str, found: TopicPartitionInfo) -> Partition:
    segments = ("topics", topic, "partitions", found.id)
    leader: Node | None = found.leader
    return Partition(
        kind="KafkaPartition",
        metadata=links.metadata(*segments, name=f"/topic={topic}/partition={found.id}"),
        cluster_id=links.cluster_id,
        topic_name=topic,
        partition_id=found.id,
        leader=None if leader is None else links.related(*segments, "replicas", leader.id),
        replicas=links.related(*segments, "replicas"),
        reassignment=links.related(*segments, "reassignment"),
    )


def replica_of(links: Links, topic: str, found: TopicPartitionInfo, node: Node) -> Replica:
    leader: Node | None = found.leader
    return Replica(
        kind="KafkaReplica",
        metadata=links.metadata(
            "topics", topic, "partitions", found.id, "replicas", node.id,
            name=f"/topic={topic}/partition={found.id}/replica={node.id}",
        ),
        cluster_id=links.cluster_id,
        topic_name=topic,
        partition_id=found.id,
        broker_id=node.id,
        is_leader=leader is not None and leader.id == node.id,
        is_in_sync=any(each.id == node.id for each in found.isr),
        broker=links.related("brokers", node.id),
    )  # fmt: skip


def reassignment_of(links: Links, topic: str, found: OngoingPartitionReassignment) -> Reassignment:
    segments = ("topics", topic, "partitions", found.partition_index)
    return Reassignment(
        kind="KafkaReassignment",
        metadata=links.metadata(
            *segments, "reassignment", name=f"/topic={topic}/partition={found.partition_index}/reassignment"
        ),
        cluster_id=links.cluster_id,
        topic_name=topic,
        partition_id=found.partition_index,
        adding_replicas=found.adding_replicas,
        removing_replicas=found.removing_replicas,
        replicas=links.related(*segments, "replicas"),
    )
