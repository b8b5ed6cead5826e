"""Metadata: the brokers, the controller, and topics with their partitions and leaders.

    v0      an empty list of topics means all; from v1 null means all and an empty list none
    v4      the client says whether unknown topics may be created
    v5      offline replicas          v7  leader epochs        v8  authorised operations
    v10     topic ids                 v12 topics may be asked for by id        v13 an error for the whole

A topic that does not exist and may be created (`auto.create.topics.enable`) is created first, and the answer waits
for it: to the client it looks as if it had asked a moment later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.broker.topic_listing import (
    TOPIC_OPERATIONS,
    is_internal,
    is_valid_topic_name,
    live_leader,
    offline_replicas,
    partition_error,
)
from pessoa.wire.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.primitives import MIN_INT32

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.dispatch import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.topics import PartitionImage, TopicImage


# Two versions before it have the fields already, and may not use them.
_FIRST_VERSION_BY_ID = 12


def handle(broker: BrokerServices, context: RequestContext, request: MetadataRequest) -> Reply:
    wanted = _wanted(request, context.version)
    if wanted and context.version < _FIRST_VERSION_BY_ID and not all(map(_is_by_name, wanted)):
        return _malformed(wanted)
    missing = _creatable(broker, request, wanted)
    if missing:
        return _create_and_respond(broker, context, request, missing)
    return _response(broker, context, request, wanted)


async def _create_and_respond(
    broker: BrokerServices, context: RequestContext, request: MetadataRequest, missing: list[str]
) -> MetadataResponse:
    await broker.create_missing_topics(missing, context)
    return _response(broker, context, request, _wanted(request, context.version))


def _wanted(request: MetadataRequest, version: int) -> list[MetadataRequestTopic] | None:
    """None: all topics. Who is named twice is answered once: a topic may have ten thousand partitions."""
    if request.topics is None or (version == 0 and not request.topics):
        return None
    return list({(topic.name, topic.topic_id): topic for topic in request.topics}.values())


def _is_by_name(topic: MetadataRequestTopic) -> bool:
    return topic.name is not None and topic.topic_id == ZERO_UUID


def _malformed(wanted: list[MetadataRequestTopic]) -> MetadataResponse:
    """A request that breaks the rules of its version is refused for every topic that it names."""
    topics = [
        MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id, partitions=[]
        )
        for topic in wanted
    ]
    return MetadataResponse(throttle_time_ms=0, brokers=[], topics=topics)


def _creatable(
    broker: BrokerServices, request: MetadataRequest, wanted: list[MetadataRequestTopic] | None
) -> list[str]:
    if not wanted or not request.allow_auto_topic_creation or not broker.config.auto_create_topics_enable:
        return []
    known = broker.image.topics.by_name
    return [
        topic.name
        for topic in wanted
        if topic.name is not None and topic.name not in known and is_valid_topic_name(topic.name)
    ]


def _response(
    broker: BrokerServices,
    context: RequestContext,
    request: MetadataRequest,
    wanted: list[MetadataRequestTopic] | None,
) -> MetadataResponse:
    image = broker.image
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else MIN_INT32
    if wanted is None:
        topics = [_topic(image, topic, operations) for topic in image.topics.by_name.values()]
    else:
        topics = [_find(image, one, operations) for one in wanted]
    return MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            MetadataResponseBroker(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.listed_nodes(context.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
        cluster_authorized_operations=broker.cluster_operations
        if request.include_cluster_authorized_operations
        else MIN_INT32,
    )


def _find(image: MetadataImage, wanted: MetadataRequestTopic, operations: int) -> MetadataResponseTopic:
    if wanted.name is None or wanted.topic_id != ZERO_UUID:
        topic = image.topics.by_id.get(wanted.topic_id)
        if topic is None:
            return _refused(None, ErrorCode.UNKNOWN_TOPIC_ID, wanted)
    else:
        topic = image.topics.by_name.get(wanted.name)
        if topic is None:
            is_valid = is_valid_topic_name(wanted.name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
            return _refused(wanted.name, error, wanted)
    return _topic(image, topic, operations)


def _refused(name: str | None, error: ErrorCode, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=wanted.topic_id, is_internal=is_internal(name or ""), partitions=[]
    )


def _topic(image: MetadataImage, topic: TopicImage, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(image, index, one) for index, one in topic.partitions.items()],
        topic_authorized_operations=operations,
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
