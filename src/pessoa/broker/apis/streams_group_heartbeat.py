"""StreamsGroupHeartbeat: a member of a Kafka Streams application joins its group, keeps its session, hears which tasks
to run, leaves (KIP-1071).

Authorised: READ on the group, DESCRIBE on every topic of the topology that it brings, and CREATE for the internal
topics that are missing, which the controller checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names, may
from pessoa.security.acl import DESCRIBE, GROUP, READ, TOPIC
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: StreamsGroupHeartbeatRequest) -> Reply:
    denied = _why_denied(broker, context, request)
    if denied is None:
        return broker.groups.streams.heartbeat(request, context)
    from pessoa.coordinator.groups.streams.streams_answers import failed_response

    return failed_response(denied, denied.text)


def _why_denied(
    broker: BrokerServices, context: RequestContext, request: StreamsGroupHeartbeatRequest
) -> ErrorCode | None:
    """Return the error if the member may not describe one of its topics: then the whole request is refused."""
    if broker.authorizer is None or not broker.groups.streams.is_on:
        return None
    if not may(broker, context, READ, GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if request.topology is not None and denied_names(broker, context, DESCRIBE, TOPIC, _topics(request.topology)):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return None


def _topics(topology: Topology) -> list[str]:
    return [
        name
        for one in topology.subtopologies
        for name in (
            *one.source_topics,
            *(info.name for info in one.repartition_source_topics),
            *(info.name for info in one.state_changelog_topics),
        )
    ]


ROW = ApiRow(
    ApiKey.STREAMS_GROUP_HEARTBEAT,
    "0",
    handle=handle,
)
