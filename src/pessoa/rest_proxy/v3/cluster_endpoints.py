"""Clusters (there is one) and their brokers."""

from __future__ import annotations

import msgspec
from confluent_kafka import Node
from starlette.requests import Request
from starlette.responses import Response

from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import unknown_in_cluster
from pessoa.rest_proxy.v3.resource_links import Collection, CollectionMetadata, Links, Metadata, Related, links_of
from pessoa.web.asgi_app import json_response


class Cluster(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    controller: Related | None
    acls: Related
    brokers: Related
    broker_configs: Related
    consumer_groups: Related
    topics: Related
    partition_reassignments: Related


class Broker(msgspec.Struct):
    kind: str
    metadata: Metadata
    cluster_id: str
    broker_id: int
    host: str | None
    port: int | None
    rack: str | None
    configs: Related
    partition_replicas: Related


class ClusterEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def clusters(self, request: Request) -> Response:
        links = Links(self._proxy.base_url(request), await clients_of(request).admin.cluster_id())
        data = [await self._cluster(request, links)]
        return json_response(request, Collection("KafkaClusterList", CollectionMetadata(links.clusters()), data))

    async def cluster(self, request: Request) -> Response:
        return json_response(request, await self._cluster(request, await links_of(self._proxy, request)))

    async def brokers(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        found = await clients_of(request).admin.describe_cluster()
        data = [broker_of(links, node) for node in sorted(found.nodes, key=lambda node: node.id)]
        return json_response(request, links.collection("KafkaBroker", data, "brokers"))

    async def broker(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        found = await clients_of(request).admin.describe_cluster()
        for node in found.nodes:
            if str(node.id) == request.path_params["broker_id"]:
                return json_response(request, broker_of(links, node))
        raise no_such_broker(request)

    async def _cluster(self, request: Request, links: Links) -> Cluster:
        found = await clients_of(request).admin.describe_cluster()
        node: Node | None = found.controller
        return Cluster(
            kind="KafkaCluster",
            metadata=links.metadata(),
            cluster_id=links.cluster_id,
            controller=None if node is None else links.related("brokers", node.id),
            acls=links.related("acls"),
            brokers=links.related("brokers"),
            broker_configs=links.related("broker-configs"),
            consumer_groups=links.related("consumer-groups"),
            topics=links.related("topics"),
            partition_reassignments=links.related("topics", "-", "partitions", "-", "reassignment"),
        )


def broker_of(links: Links, node: Node) -> Broker:
    return Broker(
        kind="KafkaBroker",
        metadata=links.metadata("brokers", node.id, name=f"/broker={node.id}"),
        cluster_id=links.cluster_id,
        broker_id=node.id,
        host=node.host,
        port=node.port,
        rack=node.rack or None,
        configs=links.related("brokers", node.id, "configs"),
        partition_replicas=links.related("brokers", node.id, "partition-replicas"),
    )


def no_such_broker(request: Request) -> Exception:
    return unknown_in_cluster(f"Broker {request.path_params['broker_id']} cannot be found.")
