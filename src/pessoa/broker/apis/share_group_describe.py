"""ShareGroupDescribe: the state and members of share groups (KIP-932).

The answer waits until what it shows is committed, and a group that is named several times is described once.

Authorised: DESCRIBE on each group, and on all topics that its members have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names
from pessoa.broker.group_visibility import refuse_hidden_topics, show_operations
from pessoa.broker.slices import Sliced
from pessoa.security.acl import DESCRIBE, GROUP
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.share_group_describe import (
        DescribedGroup,
        ShareGroupDescribeRequest,
        ShareGroupDescribeResponse,
    )
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: ShareGroupDescribeRequest) -> Reply:
    from pessoa.coordinator.groups.share.share_descriptions import share_group_error
    from pessoa.coordinator.shard_answers import then

    group_ids = list(dict.fromkeys(request.group_ids))
    denied = denied_names(broker, context, DESCRIBE, GROUP, group_ids) if broker.groups.share.is_on else frozenset()
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    refused = [share_group_error(name, error, error.text) for name in group_ids if name in denied]

    def complete_response(response: ShareGroupDescribeResponse) -> ShareGroupDescribeResponse:
        if request.include_authorized_operations:
            show_operations(broker, context, response.groups)
        response.groups = refused + refuse_hidden_topics(broker, context, response.groups, _topics, share_group_error)
        return response

    return then(
        broker.groups.share.describe([name for name in group_ids if name not in denied], context), complete_response
    )


def _topics(group: DescribedGroup) -> list[str]:
    return [topic.topic_name for member in group.members for topic in member.assignment.topic_partitions]


ROW = ApiRow(
    ApiKey.SHARE_GROUP_DESCRIBE,
    "1",
    handle=handle,
    sliced=Sliced("group_ids", "groups", lambda group: group),
)
