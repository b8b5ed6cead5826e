"""ConsumerGroupDescribe: the state and members of groups that use the consumer protocol (KIP-848).

    v1  whether a member speaks the classic protocol

The answer waits until what it shows is committed, and a group that is named several times is described once; Apache
Kafka shows the last committed state, as often as it is asked.

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
    from pessoa.wire.api.consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
        DescribedGroup,
    )
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: ConsumerGroupDescribeRequest) -> Reply:
    if broker.authorizer is None or not broker.groups.serves_consumer_groups:
        return broker.groups.describe_consumer(request, context)
    from pessoa.coordinator.groups.group_descriptions import consumer_group_error
    from pessoa.coordinator.shard_answers import then
    from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest

    denied = denied_names(broker, context, DESCRIBE, GROUP, request.group_ids)
    rest = ConsumerGroupDescribeRequest(
        group_ids=[name for name in request.group_ids if name not in denied], include_authorized_operations=False
    )
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    refused = [consumer_group_error(name, error) for name in dict.fromkeys(request.group_ids) if name in denied]

    def complete_response(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        if request.include_authorized_operations:
            show_operations(broker, context, response.groups)
        response.groups = refused + refuse_hidden_topics(
            broker, context, response.groups, _topics, consumer_group_error
        )
        return response

    return then(broker.groups.describe_consumer(rest, context), complete_response)


def _topics(group: DescribedGroup) -> list[str]:
    return [
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    ]


ROW = ApiRow(
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    "0-1",
    handle=handle,
    sliced=Sliced("group_ids", "groups", lambda group: group),
)
