"""OffsetCommit: commit offsets of a group.

    v5  the retention time is gone (KIP-211)      v6  the leader epoch of the offset (KIP-320)
    v7  static members (KIP-345)                  v8  flexible
    v10 topics by id

The group's coordinator decides: `coordinator/offset_requests.py` resolves topics, the shard of the group writes. Very
many partitions are committed in slices, unlike in Apache Kafka.

Authorised: READ on the group, or everything is refused; then READ on each topic.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Counted
from pessoa.broker.authorization import denied_names, may
from pessoa.broker.slices import Sliced
from pessoa.security.acl import GROUP, READ, TOPIC
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic, OffsetCommitResponse
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: OffsetCommitRequest) -> Reply:
    if broker.authorizer is None:
        return broker.groups.offsets.commit(request, context)
    if not may(broker, context, READ, GROUP, request.group_id):
        return _error_response(request.topics, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    allowed, denied = _split(broker, context, request)
    if not denied:
        return broker.groups.offsets.commit(request, context)
    refused = _error_response(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not allowed:
        return refused
    from pessoa.coordinator.shard_answers import then

    rest = copy(request)
    rest.topics = allowed
    return then(broker.groups.offsets.commit(rest, context), lambda answer: _append_topics(refused, answer))


def _split(
    broker: BrokerServices, context: RequestContext, request: OffsetCommitRequest
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitRequestTopic]]:
    """Return the topics that the client may read, with those whose id is unknown, and the topics that it may not
    read."""
    from pessoa.wire.api.offset_commit import FIRST_OFFSET_COMMIT_WITH_TOPIC_IDS

    name_of = broker.image.topics.name_of
    by_id = context.version >= FIRST_OFFSET_COMMIT_WITH_TOPIC_IDS
    names = [name_of(topic.topic_id) if by_id else topic.name for topic in request.topics]
    denied = denied_names(broker, context, READ, TOPIC, (name for name in names if name is not None))
    named = list(zip(request.topics, names, strict=True))
    return [topic for topic, name in named if name not in denied], [topic for topic, name in named if name in denied]


def _error_response(topics: list[OffsetCommitRequestTopic], code: ErrorCode) -> OffsetCommitResponse:
    from pessoa.wire.api.offset_commit import (
        OffsetCommitResponse,
        OffsetCommitResponsePartition,
        OffsetCommitResponseTopic,
    )

    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in topics
        ]
    )


def _append_topics(refused: OffsetCommitResponse, answer: OffsetCommitResponse) -> OffsetCommitResponse:
    refused.topics += answer.topics
    return refused


ROW = ApiRow(
    ApiKey.OFFSET_COMMIT,
    "2-10",
    handle=handle,
    sliced=Sliced("topics", "topics", within=("partitions", "partitions")),
    counted=Counted.COMMITTED,
)
