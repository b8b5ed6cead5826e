"""Attacks 6, 14, 15, 20 and 22: a login as another user, and a session that outlives its login."""

from __future__ import annotations

import base64
from functools import partial

import pytest

from pessoa.security.sasl.scram import ScramClientExchange
from pessoa.security.sasl.scram_keys import salted_password
from pessoa.wire.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from pessoa.wire.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from pessoa.wire.api.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from pessoa.wire.errors import ErrorCode
from tests.attacks.attack_stage import ADMIN, ANA, HIDDEN, LOGIN, MALLORY, SHORT, AttackStage
from tests.attacks.attack_wires import Login, log_in
from tests.support.batches import plain
from tests.support.clients import until
from tests.support.crash_wire import Closed, Wire, now_ms, produce
from tests.support.sasl import authenticate, shake_hands

SCRAM_256, SCRAM_256_NUMBER = "SCRAM-SHA-256", 1
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


def scram_user(admin: Wire, name: str, password: str, iterations: int = 4096) -> ErrorCode:
    salt = b"salt of a test"
    salted = salted_password("sha256", password, salt, 4096)
    wanted = ScramCredentialUpsertion(
        name=name, mechanism=SCRAM_256_NUMBER, iterations=iterations, salt=salt, salted_password=salted
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
    answer = admin.ask(request, AlterUserScramCredentialsResponse, 0)
    return ErrorCode.of(answer.results[0].error_code)


def scram_code(wire: Wire, name: str, password: str, extensions: str = "") -> ErrorCode:
    """Return the error code with which a SCRAM login ends."""
    shake_hands(wire, SCRAM_256)
    exchange = ScramClientExchange(SCRAM_256, name, password, "abc", extensions)
    first = authenticate(wire, exchange.first())
    if first.error_code:
        return ErrorCode.of(first.error_code)
    return ErrorCode.of(authenticate(wire, exchange.final(first.auth_bytes)).error_code)


def test_attack_6_an_authorization_id_of_another_user_is_refused(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    tokens = {
        "PLAIN": f"{ADMIN.name}\0{MALLORY.name}\0{MALLORY.password}",
        SCRAM_256: f"n,a={ADMIN.name},n={MALLORY.name},r=x",
    }
    with stage.attack(6, request, max_mib=16):
        for mechanism, token in tokens.items():
            with stage.plain(LOGIN) as wire:
                shake_hands(wire, mechanism)
                assert authenticate(wire, token.encode()).error_code == FAILED
                assert wire.is_closed()


def test_attack_14_the_messages_of_a_login_do_not_reveal_which_users_exist(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    with stage.as_user(ADMIN) as admin:
        assert scram_user(admin, "known", "right") == ErrorCode.NONE
    until(lambda: scram_login(stage, "known", "right"), lambda code: code is ErrorCode.NONE, "the user is known")
    with stage.attack(14, request, max_mib=16):
        seen = []
        for name in ("known", "unknown-to-all"):
            with stage.plain(LOGIN) as wire:
                shake_hands(wire, SCRAM_256)
                exchange = ScramClientExchange(SCRAM_256, name, "wrong", "abc")
                first = authenticate(wire, exchange.first())
                shape = [(part[:2], len(part)) for part in first.auth_bytes.split(b",")]
                last = authenticate(wire, exchange.final(first.auth_bytes))
                end = (last.error_code, last.error_message, last.auth_bytes, wire.is_closed())
                seen.append((first.error_code, shape, end))
        assert seen[0] == seen[1]
        assert seen[0][2][0] == FAILED


def scram_login(stage: AttackStage, name: str, password: str, extensions: str = "") -> ErrorCode:
    with stage.plain(LOGIN) as wire:
        return scram_code(wire, name, password, extensions)


def test_attack_15_another_nonce_and_impossible_iterations_are_refused(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    with stage.attack(15, request, max_mib=16), stage.as_user(ADMIN) as admin:
        assert scram_user(admin, "nonces", "right") == ErrorCode.NONE
        until(lambda: scram_login(stage, "nonces", "right"), lambda code: code is ErrorCode.NONE, "the user is known")
        for nonce in ("abc", "abcother", "other", ""):
            with stage.plain(LOGIN) as wire:
                shake_hands(wire, SCRAM_256)
                exchange = ScramClientExchange(SCRAM_256, "nonces", "right", "abc")
                final = exchange.final(authenticate(wire, exchange.first()).auth_bytes).decode()
                proof = final.rpartition(",p=")[2]
                assert authenticate(wire, f"c=biws,r={nonce},p={proof}".encode()).error_code == FAILED
        for iterations in (1, 4095, 16_385, 1_000_000_000, -1):
            assert scram_user(admin, "weak", "x", iterations) == ErrorCode.UNACCEPTABLE_CREDENTIAL


def test_attack_20_no_session_is_renewed_as_another_user_or_used_after_its_end_and_no_token_creates_a_token(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    with stage.attack(20, request, max_mib=16):
        with stage.as_user(MALLORY, SHORT) as wire:
            assert _renewed_as(wire, ADMIN) == FAILED
            assert wire.is_closed()
        with stage.as_user(MALLORY, SHORT) as wire:
            until(lambda: _is_served(wire), lambda served: not served, "the session has ended")
        make = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=60_000)
        with stage.as_user(ANA) as ana:
            made = ana.ask(make, CreateDelegationTokenResponse, 2)
            assert made.error_code == ErrorCode.NONE
        password = base64.b64encode(made.hmac).decode()
        by_token = (made.token_id, password, ",tokenauth=true")
        until(lambda: scram_login(stage, *by_token), lambda code: code is ErrorCode.NONE, "the token is known")
        with stage.plain(LOGIN) as wire:
            assert scram_code(wire, *by_token) == ErrorCode.NONE
            answer = wire.ask(make, CreateDelegationTokenResponse, 2)
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def _renewed_as(wire: Wire, login: Login) -> ErrorCode:
    """Log in again on a connection, after a second: an earlier handshake is refused."""
    until(
        lambda: shake_hands(wire, "PLAIN").error_code,
        lambda code: code != ErrorCode.ILLEGAL_SASL_STATE,
        "the session may be renewed",
    )
    return ErrorCode.of(authenticate(wire, login.plain_token).error_code)


def _is_served(wire: Wire) -> bool:
    try:
        wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    except (Closed, OSError):
        return False
    return True


def test_attack_22_names_that_look_alike_do_not_share_rights(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    """IPv4 hosts written as ::ffff: are tested in tests/unit/security/test_authorizer.py."""
    names = ("*", "ADMIN", "Admin", "admin;User:mallory", "User:admin", "admin:x", " admin", "ana ", "a\u0301na")
    with stage.attack(22, request, max_mib=16), stage.as_user(ADMIN) as admin:
        for name in names:
            if scram_user(admin, name, "p") != ErrorCode.NONE or not name.isascii():
                continue
            until(partial(scram_login, stage, name, "p"), lambda code: code is ErrorCode.NONE, f"{name!r}")
            with stage.plain(LOGIN) as wire:
                assert scram_code(wire, name, "p") == ErrorCode.NONE
                refused = produce(wire, HIDDEN, plain(timestamp=now_ms()))
                assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED, name
                assert stage.create_topic(wire, "made-by-another") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with stage.plain(LOGIN) as wire:
            log_in(wire, ANA)
            assert produce(wire, HIDDEN, plain(timestamp=now_ms())).error_code == ErrorCode.NONE
