"""JoinGroup: join a classic group, or join it again for its next generation.

    v1  a rebalance timeout of its own (KIP-62)       v4  a member gets its id first, and joins with it (KIP-394)
    v5  static members (KIP-345)                      v6  flexible
    v7  the answer has the type of the protocol, and null for none (KIP-559)
    v8  why it joins (KIP-800)                        v9  a static leader may skip the assignment (KIP-814)

The answer waits until the members of the generation are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import GROUP, READ
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.join_group import JoinGroupRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: JoinGroupRequest) -> Reply:
    return broker.groups.join(request, context)


def refuse(request: JoinGroupRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.join_group import FIRST_JOIN_WITH_NULL_PROTOCOL, JoinGroupResponse

    no_protocol = None if version >= FIRST_JOIN_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(
        error_code=refusal.code, generation_id=-1, protocol_name=no_protocol, leader="", member_id="", members=[]
    )


ROW = ApiRow(
    ApiKey.JOIN_GROUP,
    "0-9",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(READ, GROUP, lambda request: request.group_id),
)
