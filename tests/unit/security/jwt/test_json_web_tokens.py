"""Validation of tokens with key sets: every algorithm, every claim, and tokens of attackers."""

from __future__ import annotations

import base64
import json
import time

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from pessoa.security.jwt.json_web_keys import MAX_KEY_SET_BYTES, BadKeySet, KeySet, parse_key_set
from pessoa.security.jwt.json_web_tokens import (
    MAX_TOKEN_CHARACTERS,
    BadToken,
    TokenRules,
    UnknownKey,
    ValidToken,
    validate,
)
from tests.support.tokens import (
    AUDIENCE,
    ISSUER,
    Issuer,
    encoded,
    json_part,
    public_jwk,
    rsa_key,
    sealed_with_secret,
    sign,
    unsigned,
)

RULES = TokenRules(frozenset({AUDIENCE}), ISSUER)
ALGORITHMS = [*(f"{kind}{size}" for kind in ("RS", "PS", "ES") for size in (256, 384, 512)), "EdDSA", "Ed25519"]


def now_ms() -> int:
    return int(time.time() * 1000)


def check(token: str, issuer: Issuer, rules: TokenRules = RULES, at_ms: int | None = None) -> ValidToken:
    return validate(token, parse_key_set(issuer.key_set()), rules, now_ms() if at_ms is None else at_ms)


def why_refused(token: str, issuer: Issuer, rules: TokenRules = RULES) -> str:
    with pytest.raises(BadToken) as refused:
        check(token, issuer, rules)
    return str(refused.value)


ANA = Issuer()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_each_algorithm_is_accepted_and_refused_when_a_byte_has_changed(algorithm: str) -> None:
    issuer = Issuer(algorithm)
    token = issuer.token()
    found = check(token, issuer)
    assert (found.subject, found.scopes) == ("ana", frozenset({"all"}))
    head, claims, signature = token.split(".")
    other = json_part({**json.loads(base64.urlsafe_b64decode(claims + "==")), "sub": "root"})
    assert why_refused(f"{head}.{other}.{signature}", issuer) == "its signature is wrong"
    raw = bytearray(base64.urlsafe_b64decode(signature + "=="))
    raw[len(raw) // 2] ^= 1
    for wrong in (bytes(raw), bytes(raw[:-1]), b"", bytes(len(raw)), bytes(raw) + b"\0"):
        assert why_refused(f"{head}.{claims}.{encoded(wrong)}", issuer) == "its signature is wrong"


def test_a_key_of_another_issuer_with_the_same_id_verifies_no_token() -> None:
    other = Issuer(key=rsa_key("other"))
    assert why_refused(other.token(), ANA) == "its signature is wrong"


# Attack 16.


def test_unsigned_token_is_refused() -> None:
    assert "algorithm" in why_refused(unsigned(ANA.claims()), ANA)
    for name in ("none", "None", "NONE", "", "HS256", "HS512", "RS1", "A256GCM"):
        token = ANA.sealed({**ANA.header(), "alg": name}, ANA.claims())
        assert "algorithm" in why_refused(token, ANA)


def test_a_public_key_is_not_accepted_as_an_hmac_secret() -> None:
    assert isinstance(ANA.key, rsa.RSAPrivateKey)
    public = ANA.key.public_key()
    for form in (PublicFormat.SubjectPublicKeyInfo, PublicFormat.PKCS1):
        for encoding in (Encoding.PEM, Encoding.DER):
            secret = public.public_bytes(encoding, form)
            assert "algorithm" in why_refused(sealed_with_secret(ANA.claims(), secret, {"kid": "first"}), ANA)


def test_keys_embedded_or_linked_in_the_token_header_are_ignored() -> None:
    mallory = Issuer(key=rsa_key("mallory"))
    for header in (
        {"jwk": mallory.jwk()},
        {"jku": "http://127.0.0.1:1/jwks"},
        {"x5u": "file:///etc/passwd"},
        {"x5c": ["MIIB"]},
        {"jwk": mallory.jwk(), "jku": "http://127.0.0.1:1/"},
    ):
        assert why_refused(mallory.token(header), ANA) == "its signature is wrong"
        # Beside a right signature they say nothing either.
        assert check(ANA.token(header), ANA).subject == "ana"


def test_a_token_header_with_critical_extensions_is_refused() -> None:
    assert "crit" in why_refused(ANA.token({"crit": ["b64"], "b64": False}), ANA)
    assert "crit" in why_refused(ANA.token({"crit": []}), ANA)
    assert "crit" in why_refused(ANA.token({"crit": None}), ANA)


def test_algorithm_of_another_type_than_the_key_is_refused() -> None:
    elliptic = Issuer("ES256")
    forged = elliptic.sealed({"alg": "ES256", "kid": "first"}, elliptic.claims())
    assert "no single key" in why_refused(forged, ANA)
    # The key says that it is for RS256 alone.
    assert "no single key" in why_refused(Issuer("PS256", key=ANA.key).token(), ANA)


def test_curve_must_be_that_of_the_algorithm() -> None:
    key = ec.generate_private_key(ec.SECP384R1())
    keys = parse_key_set(json.dumps({"keys": [public_jwk(key, kid="first")]}).encode())
    issuer = Issuer("ES384", key=key)
    assert validate(issuer.token(), keys, RULES, now_ms()).subject == "ana"
    with pytest.raises(BadToken, match="no single key"):
        validate(issuer.token({"alg": "ES256"}), keys, RULES, now_ms())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": None}, "exp and iat"),
        ({"iat": None}, "exp and iat"),
        ({"exp": 1, "iat": 1}, "expired"),
        ({"exp": int(time.time()) - 31, "iat": 1}, "expired"),
        ({"iat": int(time.time()) + 7200}, "ends before it begins"),
        ({"nbf": int(time.time()) + 7200}, "ends before it begins"),
        ({"exp": "soon"}, "exp is not of the right type"),
        ({"exp": True}, "exp is not of the right type"),
        ({"exp": -1}, "exp is no date"),
        ({"exp": 1e300}, "exp is no date"),
        ({"exp": [1]}, "exp is not of the right type"),
        ({"nbf": int(time.time()) + 3000}, "not valid before"),
        ({"aud": None}, "audience"),
        ({"aud": "other"}, "audience"),
        ({"aud": ["other", "kafka2"]}, "audience"),
        ({"aud": 7}, "aud is not of the right type"),
        ({"iss": None}, "issuer"),
        ({"iss": ISSUER.rstrip("/")}, "issuer"),
        ({"iss": [ISSUER]}, "iss is not of the right type"),
        ({"sub": None}, "who it is for"),
        ({"sub": ""}, "who it is for"),
        ({"sub": "  "}, "who it is for"),
        ({"sub": "a" * 1001}, "who it is for"),
        ({"sub": 7}, "sub is not of the right type"),
        ({"scope": {"a": 1}}, "scope is not of the right type"),
    ],
)
def test_claims_that_break_a_rule_are_refused(changes: dict[str, object], why: str) -> None:
    assert why in why_refused(ANA.sealed(ANA.header(), ANA.claims(**changes)), ANA)


def test_clock_skew_is_allowed_in_favour_of_the_token() -> None:
    now_s = int(time.time())
    token = ANA.token(exp=now_s, nbf=now_s, iat=now_s)
    assert check(token, ANA, at_ms=now_s * 1000 + 29_999).expires_at_ms == now_s * 1000
    assert check(token, ANA, at_ms=now_s * 1000 - 30_000).subject == "ana"
    for at_ms in (now_s * 1000 + 30_000, now_s * 1000 - 30_001):
        with pytest.raises(BadToken):
            check(token, ANA, at_ms=at_ms)


def test_audience_issuer_and_claim_names_are_checked_as_configured() -> None:
    assert check(ANA.token(aud=["other", AUDIENCE]), ANA).subject == "ana"
    assert check(ANA.token(aud=None, iss=None), ANA, TokenRules()).subject == "ana"
    rules = TokenRules(subject_claim="client_id", scope_claim="scp")
    found = check(ANA.token(client_id="svc", scp=["a", "b c"]), ANA, rules)
    assert found[:2] == ("svc", frozenset({"a", "b", "c"}))
    assert check(ANA.token(exp=time.time() + 60.5), ANA).expires_at_ms % 1000 != 0


# Attack 18.


@pytest.mark.parametrize("key_id", ["../../etc/passwd", "http://127.0.0.1:1/", "first\0", "", "FIRST", "a" * 1000])
def test_a_key_is_looked_up_by_its_exact_id(key_id: str) -> None:
    with pytest.raises(UnknownKey) as unknown:
        check(ANA.token({"kid": key_id}), ANA)
    assert unknown.value.key_id == key_id
    assert key_id == "" or key_id not in str(unknown.value)


def test_a_key_id_that_is_too_long_or_no_text_is_refused_without_a_lookup() -> None:
    assert "more than 1000" in why_refused(ANA.token({"kid": "a" * 1001}), ANA)
    assert "more than 8192" in why_refused(ANA.token({"kid": "a" * 8000}), ANA)
    assert "more than 32768" in why_refused(ANA.token({"kid": "a" * 1_000_000}), ANA)
    for strange in (7, ["first"], {"a": 1}, True):
        assert "header" in why_refused(ANA.token({"kid": strange}), ANA)


def test_a_token_without_a_key_id_is_accepted_if_exactly_one_key_fits() -> None:
    nameless = Issuer("ES256", key_id=None)
    other = Issuer(key_id="r")
    both = json.dumps({"keys": [nameless.jwk(), other.jwk()]}).encode()
    assert validate(nameless.token(), parse_key_set(both), RULES, now_ms()).subject == "ana"
    twice = json.dumps({"keys": [nameless.jwk(), Issuer("ES256", key_id="x").jwk()]}).encode()
    with pytest.raises(BadToken, match="no single key"):
        validate(nameless.token(), parse_key_set(twice), RULES, now_ms())


# Sizes and shapes.


def test_deeply_nested_json_is_refused_or_skipped() -> None:
    for depth in (10, 900, 5_000):
        nested = "[" * depth + "]" * depth
        for claims in (nested, f'{{"sub":{nested}}}', f'{{"a":{nested}}}'):
            data = f"{json_part(ANA.header())}.{encoded(claims.encode())}"
            assert why_refused(f"{data}.{encoded(sign(ANA.key, 'RS256', data.encode()))}", ANA)
        header = encoded(f'{{"alg":"RS256","kid":{nested}}}'.encode())
        assert why_refused(f"{header}.e30.AA", ANA)


@pytest.mark.parametrize("token", ["", ".", "..", "...", "a.b", "a.b.c.d", "é.é.é", "e30.e30.", " a.b.c", "a" * 40_000])
def test_malformed_tokens_are_refused(token: str) -> None:
    assert why_refused(token, ANA)


def test_a_token_of_the_max_size_is_accepted_and_a_larger_one_is_not() -> None:
    usual = len(ANA.token())
    for extra, is_taken in ((20_000, True), (MAX_TOKEN_CHARACTERS, False)):
        token = ANA.token(groups="g" * extra)
        assert (len(token) <= MAX_TOKEN_CHARACTERS) is is_taken, usual
        if is_taken:
            assert check(token, ANA).subject == "ana"
        else:
            assert "more than" in why_refused(token, ANA)


@given(st.data())
def test_fuzzed_token_is_refused_with_a_bad_token_and_never_another_exception(data: st.DataObject) -> None:
    keys = parse_key_set(ANA.key_set())
    token = ANA.token()
    place = data.draw(st.integers(0, len(token) - 1))
    change = data.draw(st.text(max_size=4))
    changed = token[:place] + change + token[place + data.draw(st.integers(0, 40)) :]
    if changed == token:
        return
    problem = ""
    try:
        validate(changed, keys, RULES, now_ms())
    except BadToken as bad:
        problem = str(bad)
    assert token.split(".")[2][:12] not in problem
    if not problem:
        # The last character of base64 has bits that say nothing.
        head, _, tail = changed.rpartition(".")
        assert head == token.rpartition(".")[0]
        assert tail[:-1] == token.rpartition(".")[2][:-1]


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_as_header_and_claims_are_refused(header: bytes, claims: bytes) -> None:
    keys = parse_key_set(ANA.key_set())
    with pytest.raises(BadToken):
        validate(f"{encoded(header)}.{encoded(claims)}.AA", keys, RULES, now_ms())
    signed = f"{json_part(ANA.header())}.{encoded(claims)}"
    with pytest.raises(BadToken):
        validate(f"{signed}.{encoded(sign(ANA.key, 'RS256', signed.encode()))}", keys, RULES, now_ms())


# Key sets.


def test_keys_that_are_not_for_signatures_are_skipped() -> None:
    small = rsa.generate_private_key(65537, 1024)
    strange: list[object] = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "first"},
        ANA.jwk(use="enc", kid="enc"),
        ANA.jwk(key_ops=["sign"], kid="ops"),
        ANA.jwk(alg="HS256", kid="hs"),
        ANA.jwk(kid="k" * 1001),
        public_jwk(small, kid="small"),
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "beside the curve"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "curve"},
        {"kty": "RSA", "kid": "empty"},
        {"kty": "RSA", "n": "?", "e": "AQAB", "kid": "no base64"},
        {"kty": 7},
        7,
        None,
    ]
    keys = parse_key_set(json.dumps({"keys": [*strange, ANA.jwk(kid="good")]}).encode())
    assert repr(keys) == "<KeySet of 1 keys: good>"
    with pytest.raises(BadKeySet, match="no key that verifies"):
        parse_key_set(json.dumps({"keys": strange}).encode())


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"keys": 7}', "<html>", '{"keys": ' + "[" * 5000, "\xff"])
def test_json_that_is_no_key_set_is_refused(text: str) -> None:
    with pytest.raises(BadKeySet):
        parse_key_set(text.encode("latin-1"))


def test_key_set_that_is_too_large_is_refused() -> None:
    with pytest.raises(BadKeySet, match="bytes"):
        parse_key_set(b" " * (MAX_KEY_SET_BYTES + 1))
    with pytest.raises(BadKeySet, match="256 keys"):
        parse_key_set(json.dumps({"keys": [{}] * 257}).encode())
    assert len(KeySet()) == 0
