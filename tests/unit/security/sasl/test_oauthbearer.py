"""The server's side of OAUTHBEARER: the message, the refusal in two steps, the principal, and malformed messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.security.jwt.json_web_tokens import BadToken, ValidToken
from pessoa.security.sasl.exchange import AuthenticationFailed, Identity
from pessoa.security.sasl.oauthbearer import OAuthBearerExchange, first_message

NOW_MS = 1_700_000_000_000
GOOD = "aaa.bbb.ccc"
REFUSED = b'{"status":"invalid_token"}'


def verify(token: str, now_ms: int) -> ValidToken:
    assert now_ms == NOW_MS
    if token != GOOD:
        raise BadToken("its signature is wrong")
    return ValidToken("ana,=x", frozenset(), NOW_MS + 5000)


def message(auth: str = f"auth=Bearer {GOOD}", head: str = "n,,", rest: str = "") -> bytes:
    return f"{head}\x01{auth}\x01{rest}\x01".encode()


@pytest.mark.parametrize(
    "sent",
    [
        first_message(GOOD),
        message(),
        message(f"auth=bearer   {GOOD}"),
        message(head="n,a=ana=2C=3Dx,"),
        message(rest="logicalCluster=lkc-1\x01identityPoolId=pool 7\x01"),
        message(rest="".join(f"{chr(97 + number % 26)}{'z' * number}=v\x01" for number in range(60))),
    ],
)
def test_a_valid_token_logs_in_as_its_subject_until_it_expires(sent: bytes) -> None:
    exchange = OAuthBearerExchange(verify)
    assert exchange.step(sent, NOW_MS) == b""
    assert exchange.identity == Identity("ana,=x", NOW_MS + 5000)
    assert exchange.refusal is None


def test_an_invalid_token_is_refused_in_two_steps() -> None:
    exchange = OAuthBearerExchange(verify)
    assert exchange.step(first_message("wrong.to.ken"), NOW_MS) == REFUSED
    assert exchange.refusal == "the token is refused: its signature is wrong"
    assert exchange.identity is None
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.step(b"\x01", NOW_MS)
    assert failed.value.text == REFUSED.decode()


@pytest.mark.parametrize("second", [b"", first_message(GOOD), b"\x01\x01", b"n,,"])
def test_connection_whose_token_was_refused_gets_no_second_try(second: bytes) -> None:
    exchange = OAuthBearerExchange(verify)
    exchange.step(first_message("wrong.to.ken"), NOW_MS)
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.step(second, NOW_MS)
    assert failed.value.text is None
    assert exchange.identity is None


def test_an_authorization_id_that_differs_from_the_subject_is_refused() -> None:
    with pytest.raises(AuthenticationFailed) as failed:
        OAuthBearerExchange(verify).step(message(head="n,a=root,"), NOW_MS)
    assert failed.value.text == (
        "Authentication failed: Client requested an authorization id (root) that is different from the token's "
        "principal name (ana,=x)"
    )


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer aaa.bbb.ccc\x01",
        b"n,,\x01auth=Bearer aaa.bbb.ccc",
        b"n,,auth=Bearer aaa.bbb.ccc\x01\x01",
        message(head="y,,"),
        message(head="p=tls-unique,,"),
        message(head="n,a=,"),
        message(head="n,a=x=y,"),
        message(head=f"n,a={'a' * 1001},"),
        message("auth=Basic aaa.bbb.ccc"),
        message("auth=Bearer"),
        message("auth=Bearer a b"),
        message("auth=Bearer é"),
        message("Auth=Bearer aaa.bbb.ccc"),
        message("auth="),
        message(rest="auth=Bearer other\x01"),
        message(rest="a1=v\x01"),
        message(rest="novalue\x01"),
        message(rest="k=\x01"),
        message(rest="k=\x00\x01"),
        message(rest="".join(f"{'z' * number}=v\x01" for number in range(1, 70))),
        message() + b"x",
    ],
)  # fmt: skip
def test_a_malformed_oauthbearer_message_fails_with_the_general_error_message(sent: bytes) -> None:
    exchange = OAuthBearerExchange(verify)
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.step(sent, NOW_MS)
    assert failed.value.text is None
    assert exchange.identity is None


@given(st.lists(st.sampled_from([b"n,,", b"\x01", b"auth=", b"Bearer ", b"k=v", b"a=", b",", GOOD.encode(), b"\xff"])))
def test_a_fuzzed_oauthbearer_message_is_accepted_refused_or_failed(parts: list[bytes]) -> None:
    exchange = OAuthBearerExchange(verify)
    sent, problem = b"".join(parts), ""
    try:
        answer = exchange.step(sent, NOW_MS)
    except AuthenticationFailed as failed:
        problem = str(failed)
    assert GOOD not in problem
    if not problem:
        assert answer in (b"", REFUSED)
        assert (exchange.identity is not None) is (f"Bearer {GOOD}\x01".encode() in sent)
    assert GOOD not in repr(exchange)


@pytest.mark.parametrize("token", ["", "a b", "a\x01auth=Bearer b", "a\n", "é", "a" * 40_000])
def test_text_that_cannot_be_a_token_is_not_sent(token: str) -> None:
    with pytest.raises(AuthenticationFailed):
        first_message(token)
