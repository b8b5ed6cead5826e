"""DescribeShareGroupOffsets: where share groups are in partitions (KIP-932). v1: the lag (KIP-1226).

The start offsets come from the share coordinators, and the lag counts up to the high watermarks that the leaders of the
partitions tell. What cannot be told is -1.

Authorised: DESCRIBE on each group and on each topic; where all topics are asked for, the others are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names
from pessoa.broker.slices import Sliced
from pessoa.security.acl import DESCRIBE, GROUP, TOPIC
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.describe_share_group_offsets import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
        DescribeShareGroupOffsetsRequestTopic,
        DescribeShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponseGroup,
        DescribeShareGroupOffsetsResponseTopic,
    )
    from pessoa.wire.request_context import RequestContext

_UNKNOWN = -1


def handle(broker: BrokerServices, context: RequestContext, request: DescribeShareGroupOffsetsRequest) -> Reply:
    return _describe(broker, context, request)


async def _describe(
    broker: BrokerServices, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    from pessoa.wire.api.describe_share_group_offsets import DescribeShareGroupOffsetsResponse

    denied = denied_names(broker, context, DESCRIBE, GROUP, (group.group_id for group in request.groups))
    groups = [
        _refused_group(group.group_id) if group.group_id in denied else await _describe_group(broker, context, group)
        for group in request.groups
    ]
    return DescribeShareGroupOffsetsResponse(throttle_time_ms=0, groups=groups)


async def _describe_group(
    broker: BrokerServices, context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    from pessoa.wire.api.describe_share_group_offsets import DescribeShareGroupOffsetsRequestGroup

    if group.topics is None:
        response = await broker.groups.share.describe_offsets(group)
        hidden = denied_names(broker, context, DESCRIBE, TOPIC, (topic.topic_name for topic in response.topics))
        response.topics = [topic for topic in response.topics if topic.topic_name not in hidden]
        return response
    hidden = denied_names(broker, context, DESCRIBE, TOPIC, (topic.topic_name for topic in group.topics))
    shown = [topic for topic in group.topics if topic.topic_name not in hidden]
    response = await broker.groups.share.describe_offsets(
        DescribeShareGroupOffsetsRequestGroup(group_id=group.group_id, topics=shown)
    )
    response.topics += [_refused_topic(topic) for topic in group.topics if topic.topic_name in hidden]
    return response


def _refused_group(group_id: str) -> DescribeShareGroupOffsetsResponseGroup:
    from pessoa.wire.api.describe_share_group_offsets import DescribeShareGroupOffsetsResponseGroup

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, topics=[], error_code=code, error_message=code.text
    )


def _refused_topic(topic: DescribeShareGroupOffsetsRequestTopic) -> DescribeShareGroupOffsetsResponseTopic:
    from pessoa.base.ids import ZERO_UUID
    from pessoa.wire.api.describe_share_group_offsets import (
        DescribeShareGroupOffsetsResponsePartition,
        DescribeShareGroupOffsetsResponseTopic,
    )

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=_UNKNOWN,
                leader_epoch=0,
                lag=_UNKNOWN,
                error_code=code,
                error_message=code.text,
            )
            for index in topic.partitions
        ],
    )


ROW = ApiRow(
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
    "0-1",
    handle=handle,
    sliced=Sliced("groups", "groups"),
)
