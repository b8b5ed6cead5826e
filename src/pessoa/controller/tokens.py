"""Delegation tokens (KIP-48) are not issued: without a secret key Kafka answers the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.controller.decision import Decision
from pessoa.wire.api.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from pessoa.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.controller.decision import Situation

_DISABLED = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def create_delegation_token(situation: Situation, _request: CreateDelegationTokenRequest) -> Decision:
    kind, _, name = situation.caller.principal.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=_DISABLED,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )
    return Decision([], response)


def renew_delegation_token(_situation: Situation, _request: RenewDelegationTokenRequest) -> Decision:
    return Decision([], RenewDelegationTokenResponse(error_code=_DISABLED, expiry_timestamp_ms=-1, throttle_time_ms=0))


def expire_delegation_token(_situation: Situation, _request: ExpireDelegationTokenRequest) -> Decision:
    response = ExpireDelegationTokenResponse(error_code=_DISABLED, expiry_timestamp_ms=-1, throttle_time_ms=0)
    return Decision([], response)
