"""StreamsGroupDescribe: the state, topology and members of streams groups (KIP-1071).

The answer waits until what it shows is committed. A group that is named several times is described as often.

Authorised: DESCRIBE on each group, and on all topics of its topology.
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
    from pessoa.wire.api.streams_group_describe import (
        DescribedGroup,
        StreamsGroupDescribeRequest,
        StreamsGroupDescribeResponse,
    )
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: StreamsGroupDescribeRequest) -> Reply:
    from pessoa.coordinator.groups.streams.streams_descriptions import streams_group_error
    from pessoa.coordinator.shard_answers import then

    group_ids = request.group_ids
    denied = denied_names(broker, context, DESCRIBE, GROUP, group_ids) if broker.groups.streams.is_on else frozenset()
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    refused = [streams_group_error(name, error, error.text) for name in group_ids if name in denied]

    def complete_response(response: StreamsGroupDescribeResponse) -> StreamsGroupDescribeResponse:
        if request.include_authorized_operations:
            show_operations(broker, context, response.groups)
        response.groups = refused + refuse_hidden_topics(broker, context, response.groups, _topics, streams_group_error)
        return response

    return then(
        broker.groups.streams.describe([name for name in group_ids if name not in denied], context), complete_response
    )


def _topics(group: DescribedGroup) -> list[str]:
    subtopologies = [] if group.topology is None else group.topology.subtopologies or []
    return [
        name
        for one in subtopologies
        for name in (
            *one.source_topics,
            *one.repartition_sink_topics,
            *(info.name for info in one.state_changelog_topics),
            *(info.name for info in one.repartition_source_topics),
        )
    ]


ROW = ApiRow(
    ApiKey.STREAMS_GROUP_DESCRIBE,
    "0",
    handle=handle,
    sliced=Sliced("group_ids", "groups", lambda group: group),
)
