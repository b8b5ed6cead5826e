"""GET /topics, /topics/{topic}, its partitions and their offsets, and GET /brokers: what there is."""

from __future__ import annotations

import asyncio

from confluent_kafka import Node
from confluent_kafka.admin._topic import TopicDescription
from starlette.requests import Request
from starlette.responses import Response

from pessoa.rest_proxy.async_admin import TOPIC
from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import leader_not_available, partition_not_found, topic_not_found
from pessoa.rest_proxy.v2.produce_endpoints import partition_number
from pessoa.rest_proxy.v2.v2_bodies import Bounds, Brokers, PartitionOfTopic, ReplicaOfPartition, Topic
from pessoa.web.asgi_app import json_response
from pessoa.web.problems import HttpProblem

UNKNOWN_TOPIC_CODES = frozenset({40002, 40403})


class MetadataEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def root(self, request: Request) -> Response:
        return json_response(request, {})

    async def topics(self, request: Request) -> Response:
        return json_response(request, await clients_of(request).admin.topic_names())

    async def topic(self, request: Request) -> Response:
        found = await self._describe(request)
        [configs] = await clients_of(request).admin.describe_configs(TOPIC, [found.name])
        values = {each.name: each.value for each in sorted(configs.configs, key=lambda each: each.name)}
        return json_response(request, Topic(found.name, values, partitions_of(found)))

    async def partitions(self, request: Request) -> Response:
        return json_response(request, partitions_of(await self._describe(request)))

    async def partition(self, request: Request) -> Response:
        return json_response(request, await self._partition(request))

    async def offsets(self, request: Request) -> Response:
        place = (request.path_params["topic"], (await self._partition(request)).partition)
        first, end = await asyncio.gather(
            clients_of(request).admin.offsets([place], end=False),
            clients_of(request).admin.offsets([place], end=True),
        )
        if place not in first or place not in end:
            raise leader_not_available()
        return json_response(request, Bounds(first[place], end[place]))

    async def brokers(self, request: Request) -> Response:
        found = await clients_of(request).admin.describe_cluster()
        return json_response(request, Brokers(sorted(node.id for node in found.nodes)))

    async def _partition(self, request: Request) -> PartitionOfTopic:
        number = partition_number(request)
        for each in partitions_of(await self._describe(request)):
            if each.partition == number:
                return each
        raise partition_not_found()

    async def _describe(self, request: Request) -> TopicDescription:
        name = request.path_params["topic"]
        if not self._proxy.is_topic_name(name):
            raise topic_not_found()
        try:
            return await clients_of(request).admin.describe_topic(name)
        except HttpProblem as problem:
            if problem.code in UNKNOWN_TOPIC_CODES:
                raise topic_not_found() from None
            raise


def partitions_of(topic: TopicDescription) -> list[PartitionOfTopic]:
    found = []
    for each in sorted(topic.partitions, key=lambda partition: partition.id):
        # librdkafka has no node for a partition without a leader, though its types say otherwise.
        node: Node | None = each.leader
        leader = -1 if node is None else node.id
        in_sync = {node.id for node in each.isr}
        replicas = [ReplicaOfPartition(node.id, node.id == leader, node.id in in_sync) for node in each.replicas]
        found.append(PartitionOfTopic(each.id, leader, replicas))
    return found
