"""Attacks on logins with bearer tokens: forged ones, wrong signatures, key ids that are paths, URLs, long or many.

`conformance/test_oauthbearer_attacks.py` has more of them, with a librdkafka client at the same time.
"""

from __future__ import annotations

import time

import pytest

from pessoa.wire.errors import ErrorCode
from tests.attacks.attack_stage import BEARER, AttackStage
from tests.support.crash_wire import Closed, Wire
from tests.support.sasl import authenticate, shake_hands
from tests.support.tokens import Issuer, rsa_key, sealed_with_secret, unsigned

MALLORY = Issuer(key=rsa_key("mallory"))
REFUSED = b'{"status":"invalid_token"}'
# A refused login takes 100 ms.
TRIES = 3
FLOOD = 60


def offer(stage: AttackStage, token: str) -> bytes:
    """Return the broker's response to a token: empty if the token is accepted."""
    with Wire(stage.ports[BEARER]) as wire:
        assert shake_hands(wire, "OAUTHBEARER").error_code == ErrorCode.NONE
        answer = authenticate(wire, f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        assert answer.error_code == ErrorCode.NONE
        if answer.auth_bytes:
            assert authenticate(wire, b"\x01").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert wire.is_closed()
        return answer.auth_bytes


def test_attack_16_tokens_that_name_their_own_algorithm_or_keys_are_refused(
    stage: AttackStage, request: pytest.FixtureRequest
) -> None:
    ana = stage.issuer
    evil = stage.provider.url("/evil")
    assert offer(stage, ana.token()) == b""
    forged = [
        unsigned(ana.claims()),
        ana.sealed({**ana.header(), "alg": "none"}, ana.claims()),
        sealed_with_secret(ana.claims(), ana.key_set(), {"kid": "first"}),
        ana.token(exp=None),
        ana.token(exp=int(time.time()) - 60),
        ana.token(aud="other"),
        ana.token(iss="https://evil.test/"),
        MALLORY.token({"jku": evil}),
        MALLORY.token({"x5u": evil}),
        MALLORY.token({"jwk": MALLORY.jwk()}),
    ]
    with stage.attack(16, request, max_mib=16):
        for _ in range(TRIES):
            assert {offer(stage, token) for token in forged} == {REFUSED}
        assert set(stage.provider.asked) == {"/jwks"}


def test_attack_17_a_wrong_signature_is_refused(stage: AttackStage, request: pytest.FixtureRequest) -> None:
    ana = stage.issuer
    swapped = ".".join([*ana.token(sub="admin").split(".")[:2], ana.token().split(".")[2]])
    with stage.attack(17, request, max_mib=16):
        for _ in range(5 * TRIES):
            assert offer(stage, MALLORY.token()) == REFUSED
            assert offer(stage, swapped) == REFUSED
    assert offer(stage, ana.token()) == b""


def test_attack_18_key_ids_are_used_for_lookup_only(stage: AttackStage, request: pytest.FixtureRequest) -> None:
    asked = len(stage.provider.asked)
    with stage.attack(18, request, max_mib=16):
        for key_id in ("../../../../etc/passwd", stage.provider.url("/evil"), "k" * 1001):
            assert offer(stage, MALLORY.token({"kid": key_id})) == REFUSED
        for number in range(FLOOD):
            assert offer(stage, MALLORY.token({"kid": f"flood-{number}-{'k' * 900}"})) == REFUSED
        with Wire(stage.ports[BEARER]) as wire:
            shake_hands(wire, "OAUTHBEARER")
            with pytest.raises((Closed, ConnectionError)):
                authenticate(wire, f"n,,\x01auth=Bearer {MALLORY.token({'kid': 'k' * 1024 * 1024})}\x01\x01".encode())
        stage.serves(0)
    fetched = stage.provider.asked[asked:]
    assert set(fetched) <= {"/jwks"}
    # Keys are fetched for 16 unknown key ids a minute, and the attack may take several minutes on a busy machine.
    assert len(fetched) <= 5 * 16
    assert offer(stage, stage.issuer.token()) == b""
