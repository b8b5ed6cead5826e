"""Metadata: the brokers, the controller, and topics with their partitions and leaders.

    v0      an empty list of topics means all; from v1 null means all and an empty list none
    v4      the client says whether unknown topics may be created
    v5      offline replicas          v7  leader epochs        v8  authorised operations
    v10     topic ids                 v12 topics may be asked for by id        v13 an error for the whole

A topic that does not exist and may be created (`auto.create.topics.enable`) is created first, and the answer waits
for it: to the client it looks as if it had asked a moment later.

Authorised: DESCRIBE on each topic; to have one created CREATE on the cluster or on the topic. A list of all topics
leaves out those that are hidden from the client. One that it names is TOPIC_AUTHORIZATION_FAILED, whether it exists or
not; for one that it knows by id the answer does not tell the name. Brokers are listed for every client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import cluster_operations, denied_names, may, may_in_cluster, topic_operations
from pessoa.broker.slices import Sliced
from pessoa.broker.topic_listing import (
    is_valid_topic_name,
    live_leader,
    offline_replicas,
    partition_error,
)
from pessoa.broker.topic_requests import create_missing_topics
from pessoa.security.acl import CREATE, DESCRIBE, TOPIC
from pessoa.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.internal_topics import is_internal
from pessoa.wire.primitives import MIN_INT32

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.topics_image import PartitionImage, TopicImage
    from pessoa.wire.request_context import Answer, RequestContext


# Two versions before it have the fields already, and may not use them.
_FIRST_VERSION_BY_ID = 12


def handle(broker: BrokerServices, context: RequestContext, request: MetadataRequest) -> Answer[MetadataResponse]:
    wanted = _requested_topics(request, context.version)
    if wanted and context.version < _FIRST_VERSION_BY_ID and not all(map(_is_by_name, wanted)):
        return _malformed_response(wanted)
    missing = _creatable(broker, context, request, wanted)
    if missing:
        return _create_and_respond(broker, context, request, missing)
    return _response(broker, context, request, wanted)


async def _create_and_respond(
    broker: BrokerServices, context: RequestContext, request: MetadataRequest, missing: list[str]
) -> MetadataResponse:
    await create_missing_topics(broker, missing, context)
    return _response(broker, context, request, _requested_topics(request, context.version))


def _requested_topics(request: MetadataRequest, version: int) -> list[MetadataRequestTopic] | None:
    """Return the topics that the request names, each once, since a topic may have ten thousand partitions; None for all
    topics."""
    if request.topics is None or (version == 0 and not request.topics):
        return None
    return list({(topic.name, topic.topic_id): topic for topic in request.topics}.values())


def _is_by_name(topic: MetadataRequestTopic) -> bool:
    return topic.name is not None and topic.topic_id == ZERO_UUID


def _malformed_response(wanted: list[MetadataRequestTopic]) -> MetadataResponse:
    """Return INVALID_REQUEST for every topic of a request that breaks the rules of its version."""
    topics = [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id, partitions=[]
        )
        for topic in wanted
    ]
    return MetadataResponse(throttle_time_ms=0, brokers=[], topics=topics)


def _creatable(
    broker: BrokerServices,
    context: RequestContext,
    request: MetadataRequest,
    wanted: list[MetadataRequestTopic] | None,
) -> list[str]:
    names = [
        name
        for name in _topics_to_create(broker, request, wanted)
        if is_valid_topic_name(name) and may(broker, context, DESCRIBE, TOPIC, name)
    ]
    denied = _uncreatable(broker, context, names)
    return [name for name in names if name not in denied]


def _topics_to_create(
    broker: BrokerServices, request: MetadataRequest, wanted: list[MetadataRequestTopic] | None
) -> list[str]:
    """Return the topics that do not exist and that the request creates automatically."""
    if not wanted or not request.allow_auto_topic_creation or not broker.config.auto_create_topics_enable:
        return []
    known = broker.image.topics.by_name
    return [topic.name for topic in wanted if topic.name is not None and topic.name not in known]


def _uncreatable(broker: BrokerServices, context: RequestContext, names: list[str]) -> frozenset[str]:
    if not names or may_in_cluster(broker, context, CREATE, quietly=True):
        return frozenset()
    return denied_names(broker, context, CREATE, TOPIC, names)


def _response(
    broker: BrokerServices,
    context: RequestContext,
    request: MetadataRequest,
    wanted: list[MetadataRequestTopic] | None,
) -> MetadataResponse:
    image = broker.image
    if wanted is None:
        hidden = denied_names(broker, context, DESCRIBE, TOPIC, image.topics.by_name, quietly=True)
        topics = [_topic(image, topic) for topic in image.topics.by_name.values() if topic.name not in hidden]
    else:
        hidden = denied_names(broker, context, DESCRIBE, TOPIC, filter(None, (_name(image, one) for one in wanted)))
        uncreatable = frozenset[str]()
        if broker.authorizer is not None:
            missing = [name for name in _topics_to_create(broker, request, wanted) if name not in hidden]
            uncreatable = _uncreatable(broker, context, missing)
        topics = [_find(image, one, hidden, uncreatable) for one in wanted]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = topic_operations(broker, context, topic.name)
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.listed_nodes(context.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(broker, context)
        if request.include_cluster_authorized_operations
        else MIN_INT32,
    )


def _is_by_id(wanted: MetadataRequestTopic) -> bool:
    return wanted.name is None or wanted.topic_id != ZERO_UUID


def _name(image: MetadataImage, wanted: MetadataRequestTopic) -> str | None:
    return image.topics.name_of(wanted.topic_id) if _is_by_id(wanted) else wanted.name


def _find(
    image: MetadataImage, wanted: MetadataRequestTopic, hidden: frozenset[str], uncreatable: frozenset[str]
) -> MetadataResponseTopic:
    if _name(image, wanted) in hidden:
        return _authorization_error(wanted)
    if _is_by_id(wanted):
        topic = image.topics.by_id.get(wanted.topic_id)
        if topic is None:
            return _topic_error(None, ErrorCode.UNKNOWN_TOPIC_ID, wanted)
    else:
        assert wanted.name is not None
        topic = image.topics.by_name.get(wanted.name)
        if topic is None:
            if wanted.name in uncreatable:
                return _topic_error(wanted.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, wanted)
            is_valid = is_valid_topic_name(wanted.name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
            return _topic_error(wanted.name, error, wanted)
    return _topic(image, topic)


def _authorization_error(wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    """Return TOPIC_AUTHORIZATION_FAILED for a topic, whether it exists or not, and without its name if the client gave
    only the id."""
    return MetadataResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=None if _is_by_id(wanted) else wanted.name,
        topic_id=wanted.topic_id,
        is_internal=False,
        partitions=[],
    )


def _topic_error(name: str | None, error: ErrorCode, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=wanted.topic_id, is_internal=is_internal(name or ""), partitions=[]
    )


def _topic(image: MetadataImage, topic: TopicImage) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(image, index, one) for index, one in topic.partitions.items()],
    )


def _partition(image: MetadataImage, index: int, partition: PartitionImage) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=partition_error(image, partition),
        partition_index=index,
        leader_id=live_leader(image, partition),
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=offline_replicas(image, partition),
    )


ROW = ApiRow(
    ApiKey.METADATA,
    "0-13",
    handle=handle,
    sliced=Sliced("topics", "topics", lambda topic: (topic.name, topic.topic_id)),
)
