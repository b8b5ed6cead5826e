"""Delegation tokens (KIP-48): a user lets others act as itself for a while, without giving its password away.

    create   a token of a user, with users who may renew it; it ends at `max_timestamp`, or earlier unless renewed
    renew    by its owner or a renewer, up to its end
    expire   likewise; a negative period removes it at once

What is stored are ids, names and times. The secret that goes with an id follows from `delegation.token.secret.key`
(`security.sasl.token_keys`); without that key there are no tokens. A broker has checked before whether the connection
may ask for tokens at all, and whether its user may ask for those of another (`broker.token_requests`).

One user has `pessoa.delegation.token.max.per.owner` tokens at most, with their renewers.

Times are those of the wall clock. Tokens that have ended are removed every `delegation.token.expiry.check.interval.ms`.
"""

from __future__ import annotations

import hmac
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pessoa.controller.decision import Decision
from pessoa.security.sasl.token_keys import token_hmac
from pessoa.wire.api.create_delegation_token import (
    FIRST_CREATE_TOKEN_WITH_REQUESTER,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from pessoa.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.metadata_records import DelegationTokenRecord, RemoveDelegationTokenRecord

if TYPE_CHECKING:
    from pessoa.controller.decision import Situation
    from pessoa.metadata.table_images import DelegationToken
    from pessoa.wire.schema import Message

_USER = "User"
_NO_TIME_MS = -1
_SECRET = "delegation.token.secret.key"  # noqa: S105


class _Settings(NamedTuple):
    secret: str
    max_lifetime_ms: int
    expiry_time_ms: int
    max_per_owner: int


def create_delegation_token(situation: Situation, request: CreateDelegationTokenRequest) -> Decision:
    requester = situation.caller.principal
    owner = (
        f"{request.owner_principal_type}:{request.owner_principal_name}" if request.owner_principal_name else requester
    )
    response = _empty_creation_response(owner, requester, situation.caller.version)
    settings = _settings(situation)
    if settings is None:
        response.error_code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        return Decision([], response)
    # A login with a token makes a `User` of its owner's name, so an owner of another type would become that user.
    if not owner.startswith(f"{_USER}:") or any(renewer.principal_type != _USER for renewer in request.renewers):
        response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
        return Decision([], response)
    held = sum(1 + len(one.renewers) for one in situation.image.delegation_tokens.by_id.values() if one.owner == owner)
    if held + 1 + len(request.renewers) > settings.max_per_owner:
        # Every user may make tokens of its own, and all nodes remember them for a week.
        response.error_code = ErrorCode.POLICY_VIOLATION
        return Decision([], response)
    now_ms = situation.wall_ms
    lifetime_ms = min(settings.max_lifetime_ms, request.max_lifetime_ms if request.max_lifetime_ms > 0 else 1 << 62)
    record = DelegationTokenRecord(
        owner=owner,
        requester=requester,
        renewers=[f"{_USER}:{renewer.principal_name}" for renewer in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=now_ms + lifetime_ms,
        expiration_timestamp=min(now_ms + lifetime_ms, now_ms + settings.expiry_time_ms),
        token_id=str(situation.new_uuid()),
    )
    response.issue_timestamp_ms = now_ms
    response.max_timestamp_ms, response.expiry_timestamp_ms = record.max_timestamp, record.expiration_timestamp
    response.token_id, response.hmac = record.token_id, token_hmac(settings.secret, record.token_id)
    return Decision([record], response)


def _empty_creation_response(owner: str, requester: str, version: int) -> CreateDelegationTokenResponse:
    kind, _, name = owner.partition(":")
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.NONE,
        principal_type=kind,
        principal_name=name,
        issue_timestamp_ms=_NO_TIME_MS,
        expiry_timestamp_ms=_NO_TIME_MS,
        max_timestamp_ms=_NO_TIME_MS,
        token_id="",
        hmac=b"",
        throttle_time_ms=0,
    )
    if version >= FIRST_CREATE_TOKEN_WITH_REQUESTER:
        kind, _, name = requester.partition(":")
        response.token_requester_principal_type, response.token_requester_principal_name = kind, name
    return response


def renew_delegation_token(situation: Situation, request: RenewDelegationTokenRequest) -> Decision:
    settings, token = _find(situation, request.hmac)
    period_ms = min(settings.expiry_time_ms, request.renew_period_ms if request.renew_period_ms > 0 else 1 << 62)
    expires_ms = min(token.max_timestamp_ms, situation.wall_ms + period_ms)
    response = RenewDelegationTokenResponse(error_code=0, expiry_timestamp_ms=expires_ms, throttle_time_ms=0)
    return Decision([_record(token, expires_ms)], response)


def expire_delegation_token(situation: Situation, request: ExpireDelegationTokenRequest) -> Decision:
    _, token = _find(situation, request.hmac)
    if request.expiry_time_period_ms < 0:
        expires_ms = situation.wall_ms
        record: Message = RemoveDelegationTokenRecord(token_id=token.token_id)
    else:
        expires_ms = min(token.max_timestamp_ms, situation.wall_ms + request.expiry_time_period_ms)
        record = _record(token, expires_ms)
    response = ExpireDelegationTokenResponse(error_code=0, expiry_timestamp_ms=expires_ms, throttle_time_ms=0)
    return Decision([record], response)


def remove_ended_tokens(situation: Situation, limit: int) -> list[Message]:
    """Return the records that remove tokens which have expired, at most `limit`."""
    now_ms = situation.wall_ms
    tokens = situation.image.delegation_tokens.by_id.values()
    ended = [one.token_id for one in tokens if _has_ended(one, now_ms)]
    return [RemoveDelegationTokenRecord(token_id=token_id) for token_id in ended[:limit]]


def _settings(situation: Situation) -> _Settings | None:
    """Return the settings of delegation tokens; None if they are switched off."""
    value = situation.config.broker_value
    secret = value(_SECRET)
    if not secret:
        return None
    return _Settings(
        secret,
        int(value("delegation.token.max.lifetime.ms")),
        int(value("delegation.token.expiry.time.ms")),
        int(value("pessoa.delegation.token.max.per.owner")),
    )


def _find(situation: Situation, mac: bytes) -> tuple[_Settings, DelegationToken]:
    """Return the token with this HMAC, if the caller may change it. Raises a `Refusal`."""
    settings = _settings(situation)
    if settings is None:
        raise Refusal(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    tokens = situation.image.delegation_tokens.by_id.values()
    found = [one for one in tokens if hmac.compare_digest(_remembered_hmac(settings.secret, one.token_id), mac)]
    if not found:
        raise Refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    if _has_ended(found[0], situation.wall_ms):
        raise Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if situation.caller.principal not in (found[0].owner, *found[0].renewers):
        raise Refusal(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
    return settings, found[0]


# An hmac takes 3 us, and a request that names a token tries those of all: a forged one would take 30 ms of the
# controller where there are 10,000.
_remembered_hmac = lru_cache(maxsize=20_000)(token_hmac)


def _has_ended(token: DelegationToken, now_ms: int) -> bool:
    return min(token.max_timestamp_ms, token.expiration_timestamp_ms) < now_ms


def _record(token: DelegationToken, expires_ms: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        expiration_timestamp=expires_ms,
        token_id=token.token_id,
    )
