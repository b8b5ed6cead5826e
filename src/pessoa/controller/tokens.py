"""Delegation tokens (KIP-48) are not issued: Kafka answers the same where it has no secret key for them.

Whoever has not said who they are is told something else: tokens are not for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.controller.decision import Decision
from pessoa.wire.api.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from pessoa.wire.api.describe_delegation_token import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse
from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from pessoa.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.controller.decision import Situation

ANONYMOUS = "User:ANONYMOUS"
# From this version on a token may be asked for on behalf of somebody else.
_FIRST_VERSION_WITH_REQUESTER = 3


def create_delegation_token(situation: Situation, _request: CreateDelegationTokenRequest) -> Decision:
    kind, _, name = situation.caller.principal.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=_refusal(situation.caller.principal),
        principal_type=kind,
        principal_name=name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )
    if situation.caller.version >= _FIRST_VERSION_WITH_REQUESTER:
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    return Decision([], response)


def renew_delegation_token(situation: Situation, _request: RenewDelegationTokenRequest) -> Decision:
    code = _refusal(situation.caller.principal)
    return Decision([], RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1, throttle_time_ms=0))


def expire_delegation_token(situation: Situation, _request: ExpireDelegationTokenRequest) -> Decision:
    code = _refusal(situation.caller.principal)
    return Decision([], ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=-1, throttle_time_ms=0))


def describe_delegation_token(
    principal: str, _request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=_refusal(principal), tokens=[], throttle_time_ms=0)


def _refusal(principal: str) -> ErrorCode:
    if principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
