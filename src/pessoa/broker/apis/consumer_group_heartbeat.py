"""ConsumerGroupHeartbeat: the one request of the consumer protocol (KIP-848). A member joins with it, tells what it
has, receives what it is to have, and leaves.

    v1  a subscription by regular expression, and members choose their ids themselves (KIP-1082)

Authorised: READ on the group, and DESCRIBE on every topic that it subscribes to by name.

Expressions are matched in linear time, and very large ones are refused (`coordinator/bounded_regex.py`).
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
    from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: ConsumerGroupHeartbeatRequest) -> Reply:
    denied = _why_denied(broker, context, request)
    if denied is None:
        return broker.groups.consumer_heartbeat(request, context)
    from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0, error_code=denied, error_message=denied.text, member_epoch=0, heartbeat_interval_ms=0
    )


def _why_denied(
    broker: BrokerServices, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ErrorCode | None:
    """Return the error if the member may not describe one of the topics that it names: then the whole request is
    refused. A regular expression just does not match such a topic."""
    if broker.authorizer is None or not broker.groups.serves_consumer_groups:
        return None
    if not may(broker, context, READ, GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if denied_names(broker, context, DESCRIBE, TOPIC, request.subscribed_topic_names or ()):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return None


ROW = ApiRow(
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    "0-1",
    handle=handle,
)
