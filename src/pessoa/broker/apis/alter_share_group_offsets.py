"""AlterShareGroupOffsets: set where a share group without members goes on (KIP-932).

Authorised: READ on the group, and on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.broker.authorization import denied_names
from pessoa.security.acl import GROUP, READ, TOPIC
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.alter_share_group_offsets import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestTopic,
        AlterShareGroupOffsetsResponse,
        AlterShareGroupOffsetsResponseTopic,
    )
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: AlterShareGroupOffsetsRequest) -> Reply:
    return _alter(broker, context, request)


async def _alter(
    broker: BrokerServices, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    from pessoa.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsRequest

    denied = denied_names(broker, context, READ, TOPIC, (topic.topic_name for topic in request.topics))
    allowed = [topic for topic in request.topics if topic.topic_name not in denied]
    response = await broker.groups.share.alter_offsets(
        AlterShareGroupOffsetsRequest(group_id=request.group_id, topics=allowed), context
    )
    if not response.error_code:
        response.responses += [_authorization_error(topic) for topic in request.topics if topic.topic_name in denied]
    return response


def _authorization_error(topic: AlterShareGroupOffsetsRequestTopic) -> AlterShareGroupOffsetsResponseTopic:
    from pessoa.base.ids import ZERO_UUID
    from pessoa.wire.api.alter_share_group_offsets import (
        AlterShareGroupOffsetsResponsePartition,
        AlterShareGroupOffsetsResponseTopic,
    )

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            AlterShareGroupOffsetsResponsePartition(
                partition_index=one.partition_index, error_code=code, error_message=code.text
            )
            for one in topic.partitions
        ],
    )


def refuse(request: AlterShareGroupOffsetsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.alter_share_group_offsets import AlterShareGroupOffsetsResponse

    return AlterShareGroupOffsetsResponse(
        throttle_time_ms=0, error_code=refusal.code, error_message=refusal.text, responses=[]
    )


ROW = ApiRow(
    ApiKey.ALTER_SHARE_GROUP_OFFSETS,
    "0",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(READ, GROUP, lambda request: request.group_id),
    audited=Audited.YES,
)
