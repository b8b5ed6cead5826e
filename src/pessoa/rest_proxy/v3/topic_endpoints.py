"""Topics: list, create, look at, grow, delete."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, cast

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._topic import TopicDescription
from confluent_kafka.cimpl import NewTopic
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from pessoa.rest_proxy.caller_clients import clients_of
from pessoa.rest_proxy.proxy import Proxy
from pessoa.rest_proxy.proxy_problems import KAFKA_BAD_REQUEST, bad_request, unknown_topic
from pessoa.rest_proxy.request_values import body_of, decoder
from pessoa.rest_proxy.v3.resource_links import Links, Metadata, Related, links_of
from pessoa.web.answers import Answer
from pessoa.web.asgi_app import json_response
from pessoa.web.problems import HttpProblem

CREATED = 201
OK = 200
NO_CONTENT = 204
# Brokers learn of a new topic some milliseconds after the controller has created it.
CREATION_LOOKS = 20
CREATION_LOOK_S = 0.05
Int32 = Annotated[int, Meta(ge=-(2**31), lt=2**31)]
Int16 = Annotated[int, Meta(ge=-(2**15), lt=2**15)]


class Topic(msgspec.Struct, omit_defaults=True):
    kind: str
    metadata: Metadata
    cluster_id: str
    topic_name: str
    is_internal: bool
    replication_factor: int
    partitions_count: int
    partitions: Related
    configs: Related
    partition_reassignments: Related
    authorized_operations: list[str] | None = None


class ReplicasOfPartition(msgspec.Struct):
    partition_id: Int32
    broker_ids: list[Int32]


class NewConfig(msgspec.Struct):
    name: str
    value: str | None = None


class CreateTopic(msgspec.Struct, forbid_unknown_fields=True):
    topic_name: str
    partitions_count: Int32 | None = None
    replication_factor: Int16 | None = None
    replicas_assignments: list[ReplicasOfPartition] | None = None
    configs: list[NewConfig] | None = None
    validate_only: bool = False


class ChangeTopic(msgspec.Struct, forbid_unknown_fields=True):
    partitions_count: Int32


_CREATE = decoder(CreateTopic)
_CHANGE = decoder(ChangeTopic)


class TopicEndpoints:
    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    async def topics(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        admin = clients_of(request).admin
        names = await admin.topic_names()
        found = await admin.describe_topics(names, with_operations=_wants_operations(request))
        # A topic that went between the two questions is not there.
        data = [topic_of(links, each) for each in found.values() if not isinstance(each, KafkaException)]
        return json_response(request, links.collection("KafkaTopic", data, "topics"))

    async def topic(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        name = topic_name(self._proxy, request)
        found = await clients_of(request).admin.describe_topic(name, with_operations=_wants_operations(request))
        return json_response(request, topic_of(links, found))

    async def create(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        body = await body_of(request, _CREATE)
        wanted = new_topic(self._proxy, body)
        await clients_of(request).admin.create_topic(wanted, validate_only=body.validate_only)
        answer = requested_topic(links, body)
        if not body.validate_only:
            answer = await self._find_created(request, links, body.topic_name) or answer
        response = json_response(request, answer, OK if body.validate_only else CREATED)
        response.extra_headers["Location"] = answer.metadata.self_url
        return response

    async def _find_created(self, request: Request, links: Links, name: str) -> Topic | None:
        """Return the new topic as soon as a broker describes it; None if that takes too long."""
        for _ in range(CREATION_LOOKS):
            try:
                return topic_of(links, await clients_of(request).admin.describe_topic(name))
            except HttpProblem:
                await asyncio.sleep(CREATION_LOOK_S)
        return None

    async def change(self, request: Request) -> Response:
        links = await links_of(self._proxy, request)
        name = topic_name(self._proxy, request)
        body = await body_of(request, _CHANGE)
        await clients_of(request).admin.create_partitions(name, body.partitions_count)
        answer = topic_of(links, await clients_of(request).admin.describe_topic(name))
        answer.partitions_count = max(answer.partitions_count, body.partitions_count)
        return json_response(request, answer)

    async def delete(self, request: Request) -> Response:
        await links_of(self._proxy, request)
        name = topic_name(self._proxy, request)
        await clients_of(request).admin.delete_topic(name)
        clients_of(request).topics.forget(name)
        return Answer(status=NO_CONTENT)


def topic_name(proxy: Proxy, request: Request) -> str:
    name: str = request.path_params["topic_name"]
    if not proxy.is_topic_name(name):
        raise unknown_topic()
    return name


def must_be_topic_name(proxy: Proxy, name: str) -> None:
    if not proxy.is_topic_name(name):
        raise HttpProblem(400, f"Topic name {name!r} is invalid.", KAFKA_BAD_REQUEST)


def topic_of(links: Links, found: TopicDescription) -> Topic:
    first = min(found.partitions, key=lambda partition: partition.id, default=None)
    # librdkafka's own types say that there never are any.
    operations: list[AclOperation] | None = cast(Any, found).authorized_operations
    return _topic(
        links,
        found.name,
        is_internal=found.is_internal,
        replication_factor=0 if first is None else len(first.replicas),
        partitions_count=len(found.partitions),
        operations=None if operations is None else sorted(each.name for each in operations),
    )


def requested_topic(links: Links, body: CreateTopic) -> Topic:
    assignments = body.replicas_assignments
    return _topic(
        links,
        body.topic_name,
        is_internal=False,
        replication_factor=len(assignments[0].broker_ids) if assignments else body.replication_factor or 0,
        partitions_count=len(assignments) if assignments else body.partitions_count or 0,
        operations=None,
    )


def _topic(
    links: Links,
    name: str,
    *,
    is_internal: bool,
    replication_factor: int,
    partitions_count: int,
    operations: list[str] | None,
) -> Topic:
    return Topic(
        kind="KafkaTopic",
        metadata=links.metadata("topics", name, name=f"/topic={name}"),
        cluster_id=links.cluster_id,
        topic_name=name,
        is_internal=is_internal,
        replication_factor=replication_factor,
        partitions_count=partitions_count,
        partitions=links.related("topics", name, "partitions"),
        configs=links.related("topics", name, "configs"),
        partition_reassignments=links.related("topics", name, "partitions", "-", "reassignment"),
        authorized_operations=operations,
    )


def new_topic(proxy: Proxy, body: CreateTopic) -> NewTopic:
    must_be_topic_name(proxy, body.topic_name)
    configs = {each.name: each.value for each in body.configs or [] if each.value is not None}
    if any("\0" in text for pair in configs.items() for text in pair):
        raise bad_request("a configuration must not contain the character NUL")
    if body.replicas_assignments is not None:
        if body.partitions_count is not None or body.replication_factor is not None:
            raise bad_request("replicas_assignments goes without partitions_count and replication_factor")
        assignments = sorted(body.replicas_assignments, key=lambda each: each.partition_id)
        if not assignments or [each.partition_id for each in assignments] != list(range(len(assignments))):
            raise bad_request("replicas_assignments must name every partition from 0 on, once")
        replicas = [each.broker_ids for each in assignments]
        return _make_new_topic(body.topic_name, len(replicas), replica_assignment=replicas, config=configs)
    return _make_new_topic(
        body.topic_name,
        -1 if body.partitions_count is None else body.partitions_count,
        -1 if body.replication_factor is None else body.replication_factor,
        config=configs,
    )


def _make_new_topic(*arguments: Any, **options: Any) -> NewTopic:
    """Return a NewTopic. Raises the problem 400 for numbers that librdkafka refuses itself."""
    try:
        return NewTopic(*arguments, **options)
    except (ValueError, TypeError) as wrong:
        raise HttpProblem(400, str(wrong), KAFKA_BAD_REQUEST) from None


def _wants_operations(request: Request) -> bool:
    query = request.query_params
    text = query.get("includeAuthorizedOperations", query.get("include_authorized_operations", "false"))
    return bool(text.lower() == "true")
