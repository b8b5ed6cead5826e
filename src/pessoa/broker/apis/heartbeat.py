"""Heartbeat: a member of a classic group says that it lives, and hears whether the group rebalances.

v3  static members (KIP-345)        v4  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import GROUP, READ
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.heartbeat import HeartbeatRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: HeartbeatRequest) -> Reply:
    return broker.groups.heartbeat(request, context)


def refuse(request: HeartbeatRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.heartbeat import HeartbeatResponse

    return HeartbeatResponse(error_code=refusal.code)


ROW = ApiRow(
    ApiKey.HEARTBEAT,
    "0-4",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(READ, GROUP, lambda request: request.group_id),
)
