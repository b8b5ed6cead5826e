"""DescribeTopicPartitions: topics and their partitions in pages, with eligible leader replicas (KIP-966).

Topics come in the order of their names. An answer holds at most `response_partition_limit` partitions and at least one;
where it stops, a cursor says so, and the next request goes on from there. A cursor that no answer to these topics has
given, of a topic that is not among them or of a negative partition, is refused whole with INVALID_REQUEST.

Authorised: DESCRIBE on each topic. A hidden one is left out of all topics, and denied where it is named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID
from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names, topic_operations
from pessoa.broker.topic_listing import (
    is_valid_topic_name,
    live_leader,
    offline_replicas,
    partition_error,
)
from pessoa.security.acl import DESCRIBE, TOPIC
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.internal_topics import is_internal

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.topics_image import PartitionImage
    from pessoa.wire.api.describe_topic_partitions import (
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )
    from pessoa.wire.request_context import RequestContext


def handle(
    broker: BrokerServices, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    from pessoa.wire.api.describe_topic_partitions import DescribeTopicPartitionsResponseTopic

    image = broker.image
    named = {topic.name for topic in request.topics}
    names = sorted(named or image.topics.by_name)
    first_name, first_index = ("", 0)
    if request.cursor is not None:
        first_name, first_index = request.cursor.topic_name, request.cursor.partition_index
        if first_index < 0 or (named and first_name not in named):
            return _refused_whole(request)
    room = max(1, min(request.response_partition_limit, broker.config.max_request_partition_size_limit))
    names = [name for name in names if name >= first_name]
    hidden = denied_names(broker, context, DESCRIBE, TOPIC, names, quietly=not named)
    # Behind all others, and in the first answer already.
    denied = [_authorization_error(name) for name in names if name in hidden] if named else []
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if name in hidden:
            continue
        if room <= 0:
            return _response(topics + denied, name)
        topic = image.topics.by_name.get(name)
        if topic is None:
            topics.append(_topic_error(name, topic_operations(broker, context, name)))
            continue
        start = first_index if name == first_name else 0
        indexes = [index for index in topic.partitions if index >= start]
        topics.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.NONE,
                name=name,
                topic_id=topic.id,
                is_internal=is_internal(name),
                partitions=[_partition(image, index, topic.partitions[index]) for index in indexes[:room]],
                topic_authorized_operations=topic_operations(broker, context, name),
            )
        )
        if len(indexes) > room:
            return _response(topics + denied, name, indexes[room])
        room -= len(indexes)
    return _response(topics + denied)


def _response(
    topics: list[DescribeTopicPartitionsResponseTopic], next_name: str | None = None, next_index: int = 0
) -> DescribeTopicPartitionsResponse:
    from pessoa.wire.api.describe_topic_partitions import (
        DescribeTopicPartitionsResponse,
        DescribeTopicPartitionsResponseCursor,
    )

    cursor = None
    if next_name is not None:
        cursor = DescribeTopicPartitionsResponseCursor(topic_name=next_name, partition_index=next_index)
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=cursor)


def _refused_whole(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    from pessoa.wire.api.describe_topic_partitions import DescribeTopicPartitionsResponseTopic

    return _response(
        [
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST,
                name=topic.name,
                topic_id=ZERO_UUID,
                is_internal=False,
                partitions=[],
            )
            for topic in request.topics
        ]
    )


def _authorization_error(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Return TOPIC_AUTHORIZATION_FAILED for a topic, whether it exists or not."""
    from pessoa.wire.api.describe_topic_partitions import DescribeTopicPartitionsResponseTopic

    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=False,
        partitions=[],
    )


def _topic_error(name: str, operations: int) -> DescribeTopicPartitionsResponseTopic:
    from pessoa.wire.api.describe_topic_partitions import DescribeTopicPartitionsResponseTopic

    is_valid = is_valid_topic_name(name)
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=is_internal(name),
        partitions=[],
        topic_authorized_operations=operations,
    )


def _partition(image: MetadataImage, index: int, partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    from pessoa.wire.api.describe_topic_partitions import DescribeTopicPartitionsResponsePartition

    return DescribeTopicPartitionsResponsePartition(
        error_code=partition_error(image, partition),
        partition_index=index,
        leader_id=live_leader(image, partition),
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=offline_replicas(image, partition),
    )


ROW = ApiRow(
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    "0",
    handle=handle,
)
