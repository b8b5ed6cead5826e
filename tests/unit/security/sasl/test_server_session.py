"""The SASL state of a server's connection: from its first request to the end of the exchange, and reauthentication."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.security.sasl.exchange import MAX_TOKEN_BYTES, AuthenticationFailed, Identity
from pessoa.security.sasl.plain import PlainExchange
from pessoa.security.sasl.server_session import Answer, Failure, Mechanism, Outcome, Pass, ServerSession, State
from pessoa.wire.api.api_versions import ApiVersionsRequest
from pessoa.wire.api.metadata import MetadataRequest
from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pessoa.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pessoa.wire.errors import ErrorCode, ProtocolViolation
from pessoa.wire.frames import request_frame
from pessoa.wire.message_headers import ResponseHeader, response_header_version
from pessoa.wire.schema import Message

NOW_MS = 1_700_000_000_000
ANA = b"\0ana\0secret"


class Lasting(PlainExchange):
    """PLAIN with a credential that expires."""

    def step(self, token: bytes, now_ms: int) -> bytes:
        answer = super().step(token, now_ms)
        assert self.identity is not None
        self.identity = self.identity._replace(expires_at_ms=NOW_MS + 30_000)
        return answer


class Broken:
    identity = None
    refusal = None

    def step(self, token: bytes, now_ms: int) -> bytes:
        raise AuthenticationFailed("a secret reason")


def plain() -> PlainExchange:
    return PlainExchange({"ana": "secret", "bo": "b"})


def session(max_session_ms: int = 0) -> ServerSession:
    return ServerSession(
        lambda: [
            Mechanism("PLAIN", plain, max_session_ms),
            Mechanism("OTHER", plain, 0),
            Mechanism("LASTING", lambda: Lasting({"ana": "secret"}), max_session_ms),
            Mechanism("BROKEN", Broken, 0),
        ]
    )


def send(one: ServerSession, message: Message, version: int, monotonic_ms: int = 0) -> Outcome:
    data = bytearray(b"".join(request_frame(message, version, 7, "client")))
    return one.receive(data, 4, len(data), NOW_MS, monotonic_ms)


def send_raw(one: ServerSession, token: bytes) -> Outcome:
    return one.receive(bytearray(token), 0, len(token), NOW_MS, 0)


def read(outcome: Outcome, kind: type[Message], version: int) -> Message:
    assert isinstance(outcome, Answer | Failure)
    assert outcome.frames is not None
    data = b"".join(outcome.frames)
    header, pos = ResponseHeader.decoder(response_header_version(kind, version))(data, 4, len(data))
    assert header.correlation_id == 7
    message: Message = kind.decoder(version)(data, pos, len(data))[0]
    return message


def authenticate(one: ServerSession, token: bytes, version: int = 2, monotonic_ms: int = 0) -> SaslAuthenticateResponse:
    outcome = send(one, SaslAuthenticateRequest(auth_bytes=token), version, monotonic_ms)
    response = read(outcome, SaslAuthenticateResponse, version)
    assert isinstance(response, SaslAuthenticateResponse)
    assert isinstance(outcome, Failure) is bool(response.error_code)
    return response


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("asks_versions", [True, False])
def test_a_client_that_follows_the_order_of_requests_is_authenticated(version: int, asks_versions: bool) -> None:
    one = session()
    if asks_versions:
        assert send(one, ApiVersionsRequest(), 3) == Pass()
    shaken = read(send(one, SaslHandshakeRequest(mechanism="PLAIN"), 1), SaslHandshakeResponse, 1)
    assert shaken == SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN", "OTHER", "LASTING", "BROKEN"])
    answer = authenticate(one, ANA, version)
    assert (answer.error_code, answer.error_message, answer.auth_bytes, answer.session_lifetime_ms) == (0, "", b"", 0)
    assert one.identity == Identity("ana")
    assert one.state is State.DONE
    assert one.expires_at_ms is None


def test_tokens_after_a_handshake_in_version_0_have_no_header() -> None:
    one = session()
    send(one, SaslHandshakeRequest(mechanism="PLAIN"), 0)
    assert one.takes_raw_tokens
    assert send_raw(one, ANA) == Answer([b"\0\0\0\0"])
    assert one.identity == Identity("ana")


def test_a_wrong_token_without_a_header_gets_no_response() -> None:
    one = session()
    send(one, SaslHandshakeRequest(mechanism="PLAIN"), 0)
    outcome = send_raw(one, b"\0ana\0wrong")
    assert isinstance(outcome, Failure)
    assert outcome.frames is None
    assert one.identity is None


def test_a_mechanism_that_is_not_enabled_is_answered_with_the_enabled_ones() -> None:
    one = session()
    outcome = send(one, SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert isinstance(outcome, Failure)
    shaken = read(outcome, SaslHandshakeResponse, 1)
    assert isinstance(shaken, SaslHandshakeResponse)
    assert shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert shaken.mechanisms == ["PLAIN", "OTHER", "LASTING", "BROKEN"]


def test_a_wrong_password_is_answered_with_the_text_of_its_mechanism() -> None:
    one = session()
    send(one, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = authenticate(one, b"\0ana\0wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"


def test_an_internal_error_of_a_mechanism_is_answered_with_the_general_error_message() -> None:
    one = session()
    send(one, SaslHandshakeRequest(mechanism="BROKEN"), 1)
    answer = authenticate(one, ANA)
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism BROKEN"
    )


@pytest.mark.parametrize(
    "before",
    [
        [],
        [(ApiVersionsRequest(), 3)],
        [(SaslHandshakeRequest(mechanism="PLAIN"), 1)],
        [(ApiVersionsRequest(), 0), (SaslHandshakeRequest(mechanism="PLAIN"), 1)],
    ],
)
def test_every_other_request_before_authentication_is_a_protocol_violation(before: list[tuple[Message, int]]) -> None:
    for wrong in (MetadataRequest(topics=None), SaslAuthenticateRequest(auth_bytes=ANA), ApiVersionsRequest(),
                  SaslHandshakeRequest(mechanism="PLAIN")):  # fmt: skip
        one = session()
        for message, version in before:
            send(one, message, version)
        allowed = {
            State.BEGIN: (ApiVersionsRequest, SaslHandshakeRequest),
            State.VERSIONS_KNOWN: (SaslHandshakeRequest,),
            State.EXCHANGE: (SaslAuthenticateRequest, SaslHandshakeRequest),
        }[one.state]
        if not isinstance(wrong, allowed):
            with pytest.raises(ProtocolViolation):
                send(one, wrong, 1)
            assert one.identity is None


class Unreached:
    identity = None
    refusal = None

    def step(self, token: bytes, now_ms: int) -> bytes:
        raise AssertionError("a token that is too long reached its mechanism")


def test_a_token_that_is_too_long_is_not_passed_to_a_mechanism() -> None:
    for version in (0, 1):
        one = ServerSession(lambda: [Mechanism("ANY", Unreached, 0)])
        send(one, SaslHandshakeRequest(mechanism="ANY"), version)
        token = bytes(MAX_TOKEN_BYTES + 1)
        outcome = send(one, SaslAuthenticateRequest(auth_bytes=token), 2) if version else send_raw(one, token)
        assert isinstance(outcome, Failure)
        assert "4097 bytes" in outcome.why


def test_a_token_that_is_too_long_is_refused_when_a_session_is_renewed() -> None:
    one = session(10_000)
    send(one, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    authenticate(one, ANA)
    one.begin_again(5000)
    send(one, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    long = b"\0ana\0" + b"x" * MAX_TOKEN_BYTES
    outcome = send(one, SaslAuthenticateRequest(auth_bytes=long), 2)
    assert isinstance(outcome, Failure)
    assert "bytes" in outcome.why


def test_a_token_of_the_max_length_is_passed_to_its_mechanism() -> None:
    one = session()
    send(one, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    token = b"\0ana\0" + b"x" * (MAX_TOKEN_BYTES - 5)
    assert authenticate(one, token).error_message == "Authentication failed: Invalid username or password"


def test_the_logged_names_of_mechanisms_and_users_are_truncated() -> None:
    outcome = send(session(), SaslHandshakeRequest(mechanism="\x01" * 30_000), 1)
    assert isinstance(outcome, Failure)
    assert len(outcome.why) < 600
    assert len(AuthenticationFailed("\x01" * 30_000).why) < 600


def test_a_second_handshake_in_place_of_a_token_is_answered_and_ends_the_login() -> None:
    one = session()
    send(one, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    outcome = send(one, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert isinstance(outcome, Failure)
    answer = read(outcome, SaslHandshakeResponse, 1)
    assert answer == SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def test_api_versions_may_be_sent_again_after_an_unsupported_version() -> None:
    one = session()
    data = bytearray(b"\0\x12\0\x63\0\0\0\7")
    assert one.receive(data, 0, len(data), NOW_MS, 0) == Pass()
    assert send(one, ApiVersionsRequest(), 4) == Pass()
    with pytest.raises(ProtocolViolation):
        send(one, ApiVersionsRequest(), 4)


def test_api_versions_with_an_unsupported_version_may_be_sent_once() -> None:
    one = session()
    data = bytearray(b"\0\x12\0\x63\0\0\0\7")
    assert one.receive(data, 0, len(data), NOW_MS, 0) == Pass()
    with pytest.raises(ProtocolViolation):
        one.receive(data, 0, len(data), NOW_MS, 0)


# Authenticating again.


def logged_in(mechanism: str = "PLAIN", max_session_ms: int = 60_000) -> tuple[ServerSession, int]:
    one = session(max_session_ms)
    send(one, SaslHandshakeRequest(mechanism=mechanism), 1)
    return one, authenticate(one, ANA, 2, monotonic_ms=1000).session_lifetime_ms


def test_a_sasl_session_lasts_as_long_as_the_setting_and_the_credential_allow() -> None:
    assert logged_in("PLAIN", 60_000)[1] == 60_000
    assert logged_in("PLAIN", 0)[1] == 0
    assert logged_in("LASTING", 60_000)[1] == 30_000
    assert logged_in("LASTING", 10_000)[1] == 10_000
    one, lifetime_ms = logged_in("LASTING", 0)
    assert lifetime_ms == 30_000
    assert one.expires_at_ms == 31_000


def test_a_session_with_an_end_can_be_renewed_by_the_same_principal() -> None:
    one, _ = logged_in()
    assert one.may_begin_again(5000)
    one.begin_again(5000)
    send(one, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert authenticate(one, ANA, 2, monotonic_ms=5000).session_lifetime_ms == 60_000
    assert one.expires_at_ms == 65_000
    assert not one.may_begin_again(5999)
    assert one.may_begin_again(6000)


def test_a_session_without_an_end_is_not_renewed() -> None:
    assert not logged_in("PLAIN", 0)[0].may_begin_again(5000)


@pytest.mark.parametrize(
    ("mechanism", "token", "text"),
    [
        ("PLAIN", b"\0bo\0b", "Cannot change principals during re-authentication from User.ana: User.bo"),
        (
            "OTHER",
            ANA,
            "SASL mechanism 'OTHER' requested by client is not supported for re-authentication of mechanism 'PLAIN'",
        ),
        ("PLAIN", b"\0ana\0wrong", "Authentication failed: Invalid username or password"),
        (
            "PLAIN",
            b"",
            "Invalid SASL/PLAIN response: expected 3 tokens, got 1",
        ),
    ],
)
def test_another_principal_or_mechanism_or_a_wrong_password_ends_the_session(
    mechanism: str, token: bytes, text: str
) -> None:
    one, _ = logged_in()
    one.begin_again(5000)
    send(one, SaslHandshakeRequest(mechanism=mechanism), 1)
    answer = authenticate(one, token)
    assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert one.state is not State.DONE


FRAMES = st.binary(max_size=64) | st.sampled_from(
    [
        b"".join(request_frame(message, version, 7, "c"))[4:]
        for message, versions in (
            (ApiVersionsRequest(), (0, 3, 4)),
            (SaslHandshakeRequest(mechanism="PLAIN"), (0, 1)),
            (SaslHandshakeRequest(mechanism="BROKEN"), (0, 1)),
            (SaslAuthenticateRequest(auth_bytes=b"\0ana\0wrong"), (0, 1, 2)),
            (SaslAuthenticateRequest(auth_bytes=b"\0\0\0"), (0, 1, 2)),
        )
        for version in versions
    ]
)


@given(st.lists(FRAMES, max_size=6))
def test_no_sequence_of_requests_authenticates_without_a_password(frames: list[bytes]) -> None:
    one = session()
    for frame in frames:
        try:
            outcome = one.receive(bytearray(frame), 0, len(frame), NOW_MS, 0)
        except ProtocolViolation:
            break
        if isinstance(outcome, Failure):
            break
    assert one.identity is None
    assert one.state is not State.DONE
