"""Who may ask for delegation tokens, and which of them each user sees (KIP-48).

Tokens are for users that have proved who they are with something else than a token: not on a listener in plain text
without SASL, not without a certificate on one with TLS alone. The checks are made where the client is connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.authorization import may
from pessoa.broker.config_listeners import SecurityProtocol
from pessoa.security.acl import CREATE_TOKENS, DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER
from pessoa.security.sasl.token_keys import token_hmac
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Collection

    from pessoa.broker.api_row import AnyServices
    from pessoa.metadata.table_images import DelegationToken
    from pessoa.wire.api.create_delegation_token import CreateDelegationTokenRequest
    from pessoa.wire.request_context import RequestContext

_USER = "User"


def may_request_tokens(node: AnyServices, context: RequestContext) -> bool:
    """Return whether delegation tokens may be requested over the connection of this request."""
    protocol = node.config.protocols.get(context.listener, SecurityProtocol.PLAINTEXT)
    if protocol is SecurityProtocol.PLAINTEXT or context.is_token_authenticated:
        return False
    return protocol is not SecurityProtocol.SSL or context.principal != ANONYMOUS


def creation_refusal(node: AnyServices, context: RequestContext, request: CreateDelegationTokenRequest) -> ErrorCode:
    """Return why a token is not created; NONE if the controller decides."""
    if not may_request_tokens(node, context):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    is_own = not request.owner_principal_name or owner == context.principal
    if not is_own and not may(node, context, CREATE_TOKENS, USER, owner):
        return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if any(renewer.principal_type != _USER for renewer in request.renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return ErrorCode.NONE


def secret_key(node: AnyServices) -> str | None:
    """Return the secret key of delegation tokens; None if they are switched off."""
    value = node.config.value("delegation.token.secret.key")
    return str(value) if value else None


def visible_tokens(
    node: AnyServices, context: RequestContext, secret: str, owners: Collection[str] | None
) -> list[tuple[DelegationToken, bytes]]:
    """Return the tokens of these owners, or of all, that the user may see, each with its HMAC."""
    return [
        (token, token_hmac(secret, token.token_id))
        for token in node.image.delegation_tokens.by_id.values()
        if (owners is None or token.owner in owners) and _is_visible(node, context, token)
    ]


def _is_visible(node: AnyServices, context: RequestContext, token: DelegationToken) -> bool:
    if context.principal in (token.owner, token.requester, *token.renewers):
        return True
    return may(node, context, DESCRIBE, DELEGATION_TOKEN, token.token_id, quietly=True) or may(
        node, context, DESCRIBE_TOKENS, USER, token.owner, quietly=True
    )
