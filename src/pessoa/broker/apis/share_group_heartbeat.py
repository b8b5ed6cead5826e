"""ShareGroupHeartbeat: a member joins a share group, keeps its session, hears what to fetch from, leaves (KIP-932).

Authorised: READ on the group, and DESCRIBE on every topic that it subscribes to.
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
    from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: ShareGroupHeartbeatRequest) -> Reply:
    denied = _why_denied(broker, context, request)
    if denied is None:
        return broker.groups.share.heartbeat(request, context)
    from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatResponse

    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=denied, error_message=denied.text, member_epoch=0, heartbeat_interval_ms=0
    )


def _why_denied(
    broker: BrokerServices, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> ErrorCode | None:
    """Return the error if the member may not describe one of its topics: then the whole request is refused."""
    if broker.authorizer is None or not broker.groups.share.is_on:
        return None
    if not may(broker, context, READ, GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if denied_names(broker, context, DESCRIBE, TOPIC, request.subscribed_topic_names or ()):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return None


ROW = ApiRow(
    ApiKey.SHARE_GROUP_HEARTBEAT,
    "1",
    handle=handle,
)
