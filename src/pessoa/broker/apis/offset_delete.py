"""OffsetDelete: delete committed offsets of a group (KIP-496).

Authorised: DELETE on the group, and READ on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.broker.authorization import denied_names
from pessoa.security.acl import DELETE, GROUP, READ, TOPIC
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
        OffsetDeleteResponseTopic,
    )
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: OffsetDeleteRequest) -> Reply:
    denied = denied_names(broker, context, READ, TOPIC, (topic.name for topic in request.topics))
    if not denied:
        return broker.groups.offsets.delete(request, context)
    from pessoa.coordinator.shard_answers import then
    from pessoa.wire.api.offset_delete import OffsetDeleteRequest

    allowed = [topic for topic in request.topics if topic.name not in denied]
    refused = [_authorization_error(topic) for topic in request.topics if topic.name in denied]
    rest = OffsetDeleteRequest(group_id=request.group_id, topics=allowed)
    return then(broker.groups.offsets.delete(rest, context), lambda answer: _append_topics(refused, answer))


def _authorization_error(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    from pessoa.wire.api.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [
        OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=code) for one in topic.partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=partitions)


def _append_topics(refused: list[OffsetDeleteResponseTopic], answer: OffsetDeleteResponse) -> OffsetDeleteResponse:
    if answer.error_code == ErrorCode.NONE:
        answer.topics += refused
    return answer


def refuse(request: OffsetDeleteRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.offset_delete import OffsetDeleteResponse

    return OffsetDeleteResponse(error_code=refusal.code, throttle_time_ms=0, topics=[])


ROW = ApiRow(
    ApiKey.OFFSET_DELETE,
    "0",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(DELETE, GROUP, lambda request: request.group_id),
    audited=Audited.YES,
)
