"""DeleteShareGroupOffsets: forget where a share group without members is in topics (KIP-932).

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
    from pessoa.wire.api.delete_share_group_offsets import (
        DeleteShareGroupOffsetsRequest,
        DeleteShareGroupOffsetsResponse,
        DeleteShareGroupOffsetsResponseTopic,
    )
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: DeleteShareGroupOffsetsRequest) -> Reply:
    return _delete(broker, context, request)


async def _delete(
    broker: BrokerServices, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    from pessoa.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsRequest

    denied = denied_names(broker, context, READ, TOPIC, (topic.topic_name for topic in request.topics))
    allowed = [topic for topic in request.topics if topic.topic_name not in denied]
    response = await broker.groups.share.delete_offsets(
        DeleteShareGroupOffsetsRequest(group_id=request.group_id, topics=allowed), context
    )
    if not response.error_code:
        response.responses += [
            _authorization_error(topic.topic_name) for topic in request.topics if topic.topic_name in denied
        ]
    return response


def _authorization_error(name: str) -> DeleteShareGroupOffsetsResponseTopic:
    from pessoa.base.ids import ZERO_UUID
    from pessoa.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsResponseTopic

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name, topic_id=ZERO_UUID, error_code=code, error_message=code.text
    )


def refuse(request: DeleteShareGroupOffsetsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.delete_share_group_offsets import DeleteShareGroupOffsetsResponse

    return DeleteShareGroupOffsetsResponse(
        throttle_time_ms=0, error_code=refusal.code, error_message=refusal.text, responses=[]
    )


ROW = ApiRow(
    ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    "0",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(DELETE, GROUP, lambda request: request.group_id),
    audited=Audited.YES,
)
