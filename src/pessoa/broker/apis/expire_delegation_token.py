"""ExpireDelegationToken: change when a delegation token expires (KIP-48). v2: flexible.

The controller decides (`controller/tokens.py`). A client that has logged in with a token, or not at all, may not ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: ExpireDelegationTokenRequest) -> Reply:
    from pessoa.broker.token_requests import may_request_tokens
    from pessoa.wire.errors import ErrorCode, Refusal

    if not may_request_tokens(node, context):
        return refuse(request, Refusal(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED), context.version)
    return node.controller.submit(request, context)


def decide(situation: Situation, request: ExpireDelegationTokenRequest) -> Decision:
    from pessoa.controller.tokens import expire_delegation_token

    return expire_delegation_token(situation, request)


def refuse(request: ExpireDelegationTokenRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenResponse

    return ExpireDelegationTokenResponse(error_code=refusal.code, expiry_timestamp_ms=-1, throttle_time_ms=0)


ROW = ApiRow(
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    "1-2",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
)
