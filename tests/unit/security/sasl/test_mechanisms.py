"""The server's side of PLAIN and SCRAM: valid and wrong credentials, attacks, malformed messages."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.security.sasl.exchange import AuthenticationFailed, Identity
from pessoa.security.sasl.plain import PlainExchange
from pessoa.security.sasl.scram import (
    CredentialShape,
    ScramClientExchange,
    ScramServerExchange,
    ScramUsers,
    TokenCredential,
    most_common_credential_shape,
)
from pessoa.security.sasl.scram_keys import ScramKeys, keys_of_password, text_salt
from pessoa.security.sasl.scram_messages import escaped, read_client_first

NOW_MS = 1_700_000_000_000
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {"ana": "secret", "bo": "other"}
OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"
INVALID = "Authentication failed: Invalid username or password"


def refused(step: Callable[[], object]) -> AuthenticationFailed:
    with pytest.raises(AuthenticationFailed) as raised:
        step()
    return raised.value


# PLAIN.


@pytest.mark.parametrize("token", [b"\0ana\0secret", b"ana\0ana\0secret"])
def test_plain_accepts_a_right_password(token: bytes) -> None:
    exchange = PlainExchange(USERS)
    assert exchange.step(token, NOW_MS) == b""
    assert exchange.identity == Identity("ana")


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0ana\0wrong", INVALID),
        (b"\0ana\0secre", INVALID),
        (b"\0nobody\0secret", INVALID),
        (b"\0nobody\0\xff", INVALID),
        (b"bo\0ana\0secret", OTHER_ID),
        (b"bo\0ana\0wrong", INVALID),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0ana\0", "Authentication failed: password not specified"),
        (b"ana\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0ana\0secret\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_plain_refuses_with_the_error_messages_of_kafka(token: bytes, text: str | None) -> None:
    exchange = PlainExchange(USERS)
    assert refused(lambda: exchange.step(token, NOW_MS)).text == text
    assert exchange.identity is None


@given(st.binary() | st.text("ana\0secret").map(str.encode))
def test_plain_lets_in_nothing_but_a_known_user_with_its_password(token: bytes) -> None:
    exchange = PlainExchange(USERS)
    try:
        exchange.step(token, NOW_MS)
    except AuthenticationFailed:
        assert exchange.identity is None
    else:
        name, _, password = token.partition(b"\0")[2].decode().partition("\0")
        assert USERS[name] == password


# SCRAM.


def server(
    mechanism: str = "SCRAM-SHA-256", passwords: dict[str, str] | None = None, token: TokenCredential | None = None
) -> ScramServerExchange:
    keys = {
        name: keys_of_password(mechanism, password, b"salt", 4096)
        for name, password in (USERS if passwords is None else passwords).items()
    }
    users = ScramUsers(keys.get, lambda _, __: token, b"a secret of the cluster")
    return ScramServerExchange(mechanism, users, lambda count: b"\x07" * count)


def log_in(exchange: ScramServerExchange, client: ScramClientExchange) -> None:
    client.check(exchange.step(client.final(exchange.step(client.first(), NOW_MS)), NOW_MS))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_scram_accepts_a_right_password_and_sends_the_server_signature(mechanism: str) -> None:
    exchange = server(mechanism)
    log_in(exchange, ScramClientExchange(mechanism, "ana", "secret", "fyko"))
    assert exchange.identity == Identity("ana")


def test_scram_agrees_with_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    keys = keys_of_password("SCRAM-SHA-256", "pencil", salt, 4096)
    nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    users = ScramUsers(lambda _: keys, lambda _, __: None, b"")
    exchange = ScramServerExchange("SCRAM-SHA-256", users, lambda _: b"")
    # The server's part of the nonce is not the base64 of anything, so it is put in place.
    exchange.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", NOW_MS)
    exchange._nonce = f"rOprNGfwEbeRWgbNEkqO{nonce}"
    exchange._server_first = f"r=rOprNGfwEbeRWgbNEkqO{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert exchange.step(final.encode(), NOW_MS) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("ana", "Secret"), ("ana", ""), ("nobody", "secret")])
def test_scram_refuses_in_the_final_message_whether_the_user_exists_or_not(
    mechanism: str, user: str, password: str
) -> None:
    exchange = server(mechanism)
    client = ScramClientExchange(mechanism, user, password, "fyko")
    final = client.final(exchange.step(client.first(), NOW_MS))
    assert refused(lambda: exchange.step(final, NOW_MS)).text is None
    assert exchange.identity is None


def test_the_salt_of_an_unknown_user_is_deterministic_and_has_the_form_of_kafkas_salts() -> None:
    def salt_of(mechanism: str, user: str) -> str:
        first = server(mechanism).step(f"n,,n={user},r=x".encode(), NOW_MS).decode()
        assert first.endswith(",i=4096")
        return first.split(",")[1]

    assert salt_of("SCRAM-SHA-256", "eve") == salt_of("SCRAM-SHA-256", "eve")
    assert len({salt_of(mechanism, user) for mechanism in MECHANISMS for user in ("eve", "mallory")}) == 4
    salt = base64.b64decode(salt_of("SCRAM-SHA-256", "eve")[2:])
    assert salt.isalnum()
    assert len(salt) in range(22, 27)


def test_an_unknown_user_gets_the_iterations_of_most_users_of_the_mechanism() -> None:
    def first_of(name: str, shape: CredentialShape, extension: str = "") -> str:
        users = ScramUsers(lambda _: None, lambda _, __: None, b"a secret of the cluster", shape)
        exchange = ScramServerExchange("SCRAM-SHA-256", users, bytes)
        return exchange.step(f"n,,n={name},r=x{extension}".encode(), NOW_MS).decode()

    text = keys_of_password("SCRAM-SHA-256", "p", b"1ag8zoa5t83e", 8192)
    raw = keys_of_password("SCRAM-SHA-256", "p", bytes(range(64)), 5000)
    weak = ScramKeys(b"s", b"k", b"k", 1)
    assert most_common_credential_shape([]) == most_common_credential_shape([weak, weak]) == CredentialShape(4096, 0)
    assert most_common_credential_shape([raw, text, text, weak, weak, weak]) == CredentialShape(8192, 0)
    assert most_common_credential_shape([raw, raw, text]) == CredentialShape(5000, 64)
    assert first_of("eve", CredentialShape(8192, 0)).endswith(",i=8192")
    salt = first_of("eve", CredentialShape(5000, 64)).split(",")[1]
    assert len(base64.b64decode(salt[2:])) == 64
    # Tokens have keys that are derived, all with the same number of iterations.
    assert first_of("eve", CredentialShape(8192, 64), ",tokenauth=true").endswith(",i=4096")


def test_the_keys_of_an_unknown_user_are_also_derived_for_known_users(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    own = ScramServerExchange._keys_of_unknown_user

    def noting(exchange: ScramServerExchange, name: str, shape: CredentialShape) -> ScramKeys:
        made.append(name)
        return own(exchange, name, shape)

    monkeypatch.setattr(ScramServerExchange, "_keys_of_unknown_user", noting)
    for name in ("ana", "eve"):
        server().step(f"n,,n={name},r=x".encode(), NOW_MS)
    assert made == ["ana", "eve"]


def test_an_unknown_user_cannot_log_in_with_the_keys_derived_for_its_salt() -> None:
    exchange = server(passwords={})
    made = hmac.digest(b"a secret of the cluster", b"SCRAM-SHA-256 eve", "sha256")
    first = exchange.step(b"n,,n=eve,r=x", NOW_MS).decode()
    nonce = first.partition(",")[0][2:]
    messages = f"n=eve,r=x,{first},c=biws,r={nonce}".encode()
    proof = base64.b64encode(hmac.digest(made, messages, "sha256")).decode()
    refused(lambda: exchange.step(f"c=biws,r={nonce},p={proof}".encode(), NOW_MS))


@pytest.mark.parametrize(
    "change",
    [lambda nonce: nonce[:-1], lambda nonce: nonce + "x", lambda nonce: "fyko", lambda nonce: nonce.swapcase()],
)
def test_scram_refuses_a_final_message_with_another_nonce(change: Callable[[str], str]) -> None:
    """CVE-2024-56128: the proof is right for the messages as they are, and the nonce is not the server's."""
    exchange = server()
    first = exchange.step(b"n,,n=ana,r=fyko", NOW_MS).decode()
    nonce = change(first.partition(",")[0][2:])
    without_proof = f"c=biws,r={nonce}"
    messages = f"n=ana,r=fyko,{first},{without_proof}".encode()
    client_key = hmac.digest(hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096), b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), messages, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    failed = refused(lambda: exchange.step(f"{without_proof},p={proof}".encode(), NOW_MS))
    assert "nonce" in failed.why


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"y,,n=ana,r=x",
        b"p=tls-unique,,n=ana,r=x",
        b"n,,m=must,n=ana,r=x",
        b"n,,n=ana",
        b"n,,n=,r=x",
        b"n,,n=a=41na,r=x",
        b"n,,n=\xc3\xa9,r=x",
        b"n,,n=ana,r=",
        b"n,,n=ana,r=x,",
        b"n,,n=ana,r=x,=v",
    ],
)
def test_scram_refuses_a_malformed_first_message(first: bytes) -> None:
    assert refused(lambda: server().step(first, NOW_MS)).text is None


def test_scram_refuses_messages_that_are_too_long() -> None:
    failed = refused(lambda: server().step(b"n,,n=" + b"a" * 5000 + b",r=x", NOW_MS))
    assert "5009 bytes" in failed.why
    client = ScramClientExchange("SCRAM-SHA-256", "ana", "secret", "fyko")
    assert "bytes" in refused(lambda: client.final(b"r=fyko" + b"x" * 5000 + b",s=c2FsdA==,i=4096")).why


def test_scram_refuses_another_authorization_id() -> None:
    assert refused(lambda: server().step(b"n,a=bo,n=ana,r=x", NOW_MS)).text == OTHER_ID
    assert server().step(b"n,a=ana,n=ana,r=x", NOW_MS)


def test_scram_refuses_a_stored_credential_with_too_few_iterations() -> None:
    weak = ScramKeys(b"salt", b"k" * 32, b"k" * 32, 1)
    exchange = ScramServerExchange("SCRAM-SHA-256", ScramUsers(lambda _: weak, lambda _, __: None, b"s"), bytes)
    assert exchange.step(b"n,,n=ana,r=x", NOW_MS).endswith(b",i=4096")


@pytest.mark.parametrize("iterations", [1, 4095, 16385, 10**9])
def test_a_node_that_logs_in_refuses_iteration_counts_that_kafka_does_not_allow(iterations: int) -> None:
    client = ScramClientExchange("SCRAM-SHA-256", "ana", "secret", "fyko")
    failed = refused(lambda: client.final(f"r=fykoX,s=c2FsdA==,i={iterations}".encode()))
    assert str(iterations) in failed.why


@pytest.mark.parametrize("first", [b"r=other,s=c2FsdA==,i=4096", b"r=fyko,s=c2FsdA==,i=4096", b"nonsense", b"\xff"])
def test_a_node_that_logs_in_accepts_only_a_nonce_that_begins_with_its_own(first: bytes) -> None:
    client = ScramClientExchange("SCRAM-SHA-256", "ana", "secret", "fyko")
    refused(lambda: client.final(first))


@pytest.mark.parametrize("final", [b"v=AAAA", b"e=other-error", b"v=", b"\xff"])
def test_a_node_that_logs_in_refuses_a_server_without_the_right_signature(final: bytes) -> None:
    client = ScramClientExchange("SCRAM-SHA-256", "ana", "secret", "fyko")
    client.final(server().step(client.first(), NOW_MS))
    refused(lambda: client.check(final))


def test_scram_accepts_a_delegation_token_as_its_owner() -> None:
    token = TokenCredential(keys_of_password("SCRAM-SHA-512", "aG1hYw==", b"salt", 4096), "ana", NOW_MS + 5000)
    exchange = server("SCRAM-SHA-512", {}, token)
    log_in(exchange, ScramClientExchange("SCRAM-SHA-512", "token-id", "aG1hYw==", "fyko", ",tokenauth=true"))
    assert exchange.identity == Identity("ana", NOW_MS + 5000, is_token=True)


def test_a_token_id_is_not_accepted_as_a_user_name_nor_a_user_name_as_a_token_id() -> None:
    exchange = server()
    client = ScramClientExchange("SCRAM-SHA-256", "ana", "secret", "fyko", ",tokenauth=true")
    final = client.final(exchange.step(client.first(), NOW_MS))
    refused(lambda: exchange.step(final, NOW_MS))


@given(st.text("ab=,2CD3", min_size=1))
def test_scram_names_with_commas_and_equals_signs_are_decoded(name: str) -> None:
    assert read_client_first(f"n,,n={escaped(name)},r=x".encode()).name == name


@given(st.lists(st.binary() | st.text("n,a=bcrpi0123456789+/").map(str.encode), min_size=2, max_size=2))
def test_scram_refuses_malformed_messages(tokens: list[bytes]) -> None:
    exchange = server()
    try:
        for token in tokens:
            exchange.step(token, NOW_MS)
    except AuthenticationFailed:
        pass
    assert exchange.identity is None


@given(st.binary())
def test_scram_refuses_an_invented_final_message(final: bytes) -> None:
    exchange = server()
    exchange.step(b"n,,n=ana,r=fyko", NOW_MS)
    refused(lambda: exchange.step(final, NOW_MS))


@given(st.binary(min_size=17, max_size=64))
def test_salts_are_letters_and_digits(octets: bytes) -> None:
    assert set(text_salt(octets)) <= set(b"0123456789abcdefghijklmnopqrstuvwxyz")
