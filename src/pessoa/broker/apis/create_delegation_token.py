"""CreateDelegationToken: issue a delegation token (KIP-48). v2: flexible; v3: for another owner than who asks.

The controller decides (`controller/tokens.py`). A client that has logged in with a token, or not at all, may not ask.
For another owner it needs CREATE_TOKENS on that user.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.create_delegation_token import CreateDelegationTokenRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: CreateDelegationTokenRequest) -> Reply:
    from pessoa.broker.token_requests import creation_refusal
    from pessoa.wire.errors import Refusal

    code = creation_refusal(node, context, request)
    if code:
        response = refuse(request, Refusal(code), context.version)
        return _with_principals(response, request, context)
    return node.controller.submit(request, context)


def _with_principals(response: Message, request: CreateDelegationTokenRequest, context: RequestContext) -> Message:
    """Add the owner and the requester to an error response of the broker, as Kafka does."""
    from pessoa.wire.api.create_delegation_token import FIRST_CREATE_TOKEN_WITH_REQUESTER, CreateDelegationTokenResponse

    assert isinstance(response, CreateDelegationTokenResponse)
    kind, _, name = context.principal.partition(":")
    is_other = bool(request.owner_principal_name)
    response.principal_type = (request.owner_principal_type if is_other else kind) or ""
    response.principal_name = (request.owner_principal_name if is_other else name) or ""
    if context.version >= FIRST_CREATE_TOKEN_WITH_REQUESTER:
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    return response


def decide(situation: Situation, request: CreateDelegationTokenRequest) -> Decision:
    from pessoa.controller.tokens import create_delegation_token

    return create_delegation_token(situation, request)


def refuse(request: CreateDelegationTokenRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.create_delegation_token import CreateDelegationTokenResponse

    return CreateDelegationTokenResponse(
        error_code=refusal.code,
        principal_type="",
        principal_name="",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )


ROW = ApiRow(
    ApiKey.CREATE_DELEGATION_TOKEN,
    "1-3",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
)
