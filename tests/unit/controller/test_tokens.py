"""Delegation tokens: created, renewed, expired, and removed after their expiry."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

import pytest

from pessoa.wire.api.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from pessoa.wire.api.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from pessoa.wire.api.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import OwnRequest
from pessoa.wire.schema import Message
from tests.unit.controller.conftest import Cluster

DAY_MS = 86_400_000
SECRET = "a key of the cluster"


@pytest.fixture
def tokens(cluster: Cluster) -> Cluster:
    cluster.config.values["delegation.token.secret.key"] = SECRET
    return cluster


def ask(cluster: Cluster, request: Message, principal: str = "User:ana") -> Message:
    async def asking() -> Message:
        return await cluster.controller.decide(request, OwnRequest(3, principal=principal))

    return asyncio.run(asking())


def create(cluster: Cluster, max_lifetime_ms: int = -1, **others: str) -> CreateDelegationTokenResponse:
    renewers = [CreatableRenewers(principal_type="User", principal_name="bo")]
    request = CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=max_lifetime_ms, **others)
    response = ask(cluster, request)
    assert isinstance(response, CreateDelegationTokenResponse)
    return response


def renew(cluster: Cluster, mac: bytes, period_ms: int = -1, principal: str = "User:ana") -> tuple[int, int]:
    response = ask(cluster, RenewDelegationTokenRequest(hmac=mac, renew_period_ms=period_ms), principal)
    assert isinstance(response, RenewDelegationTokenResponse)
    return response.error_code, response.expiry_timestamp_ms


def expire(cluster: Cluster, mac: bytes, period_ms: int, principal: str = "User:ana") -> tuple[int, int]:
    response = ask(cluster, ExpireDelegationTokenRequest(hmac=mac, expiry_time_period_ms=period_ms), principal)
    assert isinstance(response, ExpireDelegationTokenResponse)
    return response.error_code, response.expiry_timestamp_ms


def test_without_a_secret_key_delegation_tokens_are_refused(cluster: Cluster) -> None:
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert create(cluster).error_code == disabled
    assert renew(cluster, b"x")[0] == expire(cluster, b"x", 1)[0] == disabled


def test_a_delegation_token_is_issued_to_the_requesting_user(tokens: Cluster) -> None:
    now_ms = tokens.clock.now_ms()
    made = create(tokens)
    assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", "ana")
    assert (made.token_requester_principal_type, made.token_requester_principal_name) == ("User", "ana")
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms) == (now_ms, now_ms + DAY_MS)
    assert made.max_timestamp_ms == now_ms + 7 * DAY_MS
    assert made.hmac == hmac.new(SECRET.encode(), made.token_id.encode(), hashlib.sha512).digest()
    stored = tokens.image.delegation_tokens.by_id[made.token_id]
    assert (stored.owner, stored.requester, stored.renewers) == ("User:ana", "User:ana", ("User:bo",))


def test_one_user_has_a_bounded_number_of_delegation_tokens_and_renewers(tokens: Cluster) -> None:
    tokens.config.values["pessoa.delegation.token.max.per.owner"] = "6"
    made = [create(tokens) for _ in range(4)]
    # Each has one renewer.
    assert [one.error_code for one in made] == [0, 0, 0, ErrorCode.POLICY_VIOLATION]
    assert made[3].hmac == b""
    assert create(tokens, owner_principal_type="User", owner_principal_name="zoe").error_code == 0
    assert expire(tokens, made[0].hmac, -1)[0] == 0
    assert create(tokens).error_code == 0
    assert create(tokens).error_code == ErrorCode.POLICY_VIOLATION


def test_a_token_for_another_owner_has_that_owner_and_expires_at_the_requested_time(tokens: Cluster) -> None:
    made = create(tokens, 1000, owner_principal_type="User", owner_principal_name="zoe")
    assert made.principal_name == "zoe"
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == made.issue_timestamp_ms + 1000
    stored = tokens.image.delegation_tokens.by_id[made.token_id]
    assert (stored.owner, stored.requester) == ("User:zoe", "User:ana")


def test_a_token_renewer_must_be_a_user_principal(tokens: Cluster) -> None:
    renewers = [CreatableRenewers(principal_type="Group", principal_name="all")]
    response = ask(tokens, CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1))
    assert isinstance(response, CreateDelegationTokenResponse)
    assert response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not tokens.image.delegation_tokens.by_id


def test_a_token_owner_must_be_a_user_principal(tokens: Cluster) -> None:
    made = create(tokens, owner_principal_type="Group", owner_principal_name="admin")
    assert made.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    by_another = ask(tokens, CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), "Group:admin")
    assert isinstance(by_another, CreateDelegationTokenResponse)
    assert by_another.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert not tokens.image.delegation_tokens.by_id


@pytest.mark.parametrize("principal", ["User:ana", "User:bo"])
def test_owner_and_renewer_can_renew_a_token_up_to_its_max_timestamp(tokens: Cluster, principal: str) -> None:
    made = create(tokens, 2 * DAY_MS)
    tokens.clock.advance_ms(DAY_MS // 2)
    now_ms = tokens.clock.now_ms()
    assert renew(tokens, made.hmac, 1000, principal) == (0, now_ms + 1000)
    assert renew(tokens, made.hmac, -1, principal) == (0, now_ms + DAY_MS)
    assert renew(tokens, made.hmac, 9 * DAY_MS, principal) == (0, now_ms + DAY_MS)
    assert expire(tokens, made.hmac, 9 * DAY_MS, principal) == (0, made.max_timestamp_ms)
    assert expire(tokens, made.hmac, -1, principal) == (0, now_ms)
    assert not tokens.image.delegation_tokens.by_id


def test_another_user_or_a_wrong_hmac_cannot_change_a_token(tokens: Cluster) -> None:
    made = create(tokens)
    assert renew(tokens, made.hmac, -1, "User:eve")[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert expire(tokens, made.hmac, -1, "User:eve")[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(tokens, b"wrong")[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert expire(tokens, b"", -1)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert tokens.image.delegation_tokens.by_id[made.token_id].expiration_timestamp_ms == made.expiry_timestamp_ms


def test_an_expired_token_can_neither_be_renewed_nor_expired(tokens: Cluster) -> None:
    made = create(tokens, 1000)
    tokens.clock.advance_ms(1001)
    assert renew(tokens, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert expire(tokens, made.hmac, -1)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_expired_tokens_are_removed_periodically() -> None:
    from pessoa.controller.tokens import remove_ended_tokens

    cluster = Cluster()
    cluster.config.values["delegation.token.secret.key"] = SECRET
    made = [create(cluster, lifetime_ms) for lifetime_ms in (1000, 2000, 9000)]
    cluster.clock.advance_ms(5000)
    situation = cluster.controller._situation(OwnRequest(0), cluster.clock.monotonic_ms())
    records = remove_ended_tokens(situation, 10)
    assert [one.token_id for one in records] == [one.token_id for one in made[:2]]  # type: ignore[attr-defined]
    assert len(remove_ended_tokens(situation, 1)) == 1
