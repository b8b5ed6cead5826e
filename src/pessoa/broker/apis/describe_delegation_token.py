"""DescribeDelegationToken: the delegation tokens of owners (KIP-48). v2: flexible; v3: the user who asked for each.

A user sees the tokens that it owns, asked for or may renew, and those that it may describe. No list is every owner; an
empty one is none. Without a secret key for tokens they are switched off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices
    from pessoa.metadata.table_images import DelegationToken
    from pessoa.wire.api.describe_delegation_token import (
        DescribedDelegationToken,
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
    )
    from pessoa.wire.request_context import RequestContext

_FIRST_VERSION_WITH_REQUESTER = 3


def handle(
    node: AnyServices, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    from pessoa.broker.token_requests import may_request_tokens, secret_key, visible_tokens
    from pessoa.wire.api.describe_delegation_token import DescribeDelegationTokenResponse

    response = DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=[], throttle_time_ms=0)
    secret = secret_key(node)
    if not may_request_tokens(node, context):
        response.error_code = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    elif secret is None:
        response.error_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    else:
        owners = None
        if request.owners is not None:
            owners = {f"{one.principal_type}:{one.principal_name}" for one in request.owners}
        found = visible_tokens(node, context, secret, owners)
        response.tokens = [_describe_token(token, mac, context.version) for token, mac in found]
    return response


def _describe_token(token: DelegationToken, mac: bytes, version: int) -> DescribedDelegationToken:
    from pessoa.wire.api.describe_delegation_token import DescribedDelegationToken, DescribedDelegationTokenRenewer

    kind, _, name = token.owner.partition(":")
    described = DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiration_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=mac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
        ],
    )
    if version >= _FIRST_VERSION_WITH_REQUESTER:
        kind, _, name = token.requester.partition(":")
        described.token_requester_principal_type, described.token_requester_principal_name = kind, name
    return described


ROW = ApiRow(
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    "1-3",
    handle=handle,
    handle_on_controller=handle,
)
