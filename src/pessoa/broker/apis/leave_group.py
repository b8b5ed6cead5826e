"""LeaveGroup: members leave a classic group.

v3  several members, by member or instance id (KIP-345)        v4  flexible        v5  why they leave (KIP-800)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import GROUP, READ
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.leave_group import LeaveGroupRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: LeaveGroupRequest) -> Reply:
    return broker.groups.leave(request, context)


def refuse(request: LeaveGroupRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.leave_group import LeaveGroupResponse

    return LeaveGroupResponse(error_code=refusal.code)


ROW = ApiRow(
    ApiKey.LEAVE_GROUP,
    "0-5",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(READ, GROUP, lambda request: request.group_id),
)
