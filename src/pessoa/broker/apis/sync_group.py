"""SyncGroup: the leader of a classic group hands in the assignment, and every member receives its own.

    v3  static members (KIP-345)        v4  flexible        v5  type and name of the protocol are checked (KIP-559)

The answer waits until the assignment has come and is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import GROUP, READ
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.sync_group import SyncGroupRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: SyncGroupRequest) -> Reply:
    return broker.groups.sync(request, context)


def refuse(request: SyncGroupRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.sync_group import SyncGroupResponse

    return SyncGroupResponse(error_code=refusal.code, assignment=b"")


ROW = ApiRow(
    ApiKey.SYNC_GROUP,
    "0-5",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(READ, GROUP, lambda request: request.group_id),
)
