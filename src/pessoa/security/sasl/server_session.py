"""The server's side of SASL on one connection, from its first request to the end of the exchange (KIP-43, KIP-152).

    BEGIN ──ApiVersions──▶ VERSIONS_KNOWN ──SaslHandshake──▶ EXCHANGE ──tokens──▶ DONE
      └─────────────────────────SaslHandshake───────────────────┘                  │ SaslHandshake, if the session
                                                                 EXCHANGE ◀────────┘ has an end (KIP-368)

A handshake in version 1 is followed by SaslAuthenticate requests; in version 0 by tokens without any header, in frames
of their own. Every other request is a `ProtocolViolation`, before anything of it but its API is read. What the client
could have meant, but failed at, is a `Failure`: it carries what is to be answered before the connection is closed, and
the caller lets a moment pass before both.
No mechanism sees a token of more bytes than it says.

Texts for clients are Kafka's. None of them tells whether a user exists.

To authenticate again, a client sends a handshake on the connection that it has. It must choose the same mechanism and
prove to be the same principal, and not more often than once a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from struct import pack
from typing import NamedTuple

from pessoa.security.sasl.exchange import MAX_TOKEN_BYTES, AuthenticationFailed, Identity, ServerExchange
from pessoa.wire.api.api_versions import ApiVersionsRequest
from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pessoa.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode, ProtocolViolation
from pessoa.wire.frames import Buffer, response_frame
from pessoa.wire.message_headers import RequestHeader, peek_api, request_header_version
from pessoa.wire.schema import Message

_MIN_BETWEEN_LOGINS_MS = 1000
_WITH_REQUESTS = 1
# Of the name of a mechanism, in the log: Kafka allows 20.
_LOGGED_CHARACTERS = 40


class State(Enum):
    BEGIN = "ApiVersions or SaslHandshake"
    VERSIONS_KNOWN = "SaslHandshake"
    EXCHANGE = "SaslAuthenticate"
    RAW_EXCHANGE = "a token"
    DONE = "any request"


class Answer(NamedTuple):
    """Frames to send, after which the connection stays open. `refusal` says, for the log, why a login has failed
    where the client gets the failure in a second step."""

    frames: list[Buffer]
    refusal: str | None = None


class Pass(NamedTuple):
    """The request must be served like any request of a connection without SASL."""


class Failure(NamedTuple):
    """The login failed, and the connection must be closed. `frames` is None if the client gets no response. `why` is
    for the log."""

    frames: list[Buffer] | None
    why: str


Outcome = Answer | Pass | Failure


class Mechanism(NamedTuple):
    """A SASL mechanism that a listener offers."""

    name: str
    make_exchange: Callable[[], ServerExchange]
    # connections.max.reauth.ms; 0: a session has no end.
    max_session_ms: int
    max_token_bytes: int = MAX_TOKEN_BYTES


class ServerSession:
    def __init__(self, mechanisms: Callable[[], Sequence[Mechanism]]) -> None:
        """`mechanisms` is called at each handshake: settings may change while a connection is open."""
        self._mechanisms = mechanisms
        self._exchange: ServerExchange | None = None
        self._mechanism: Mechanism | None = None
        # That of the first login, which the others must keep to.
        self._first_mechanism: str | None = None
        self._began_at_ms: int | None = None
        self.state = State.BEGIN
        self._has_asked_unknown_version = False
        # Who has logged in, and until when by the monotonic clock.
        self.identity: Identity | None = None
        self.expires_at_ms: int | None = None

    def __repr__(self) -> str:
        return f"<ServerSession of {self.identity}: expects {self.state.value}>"

    @property
    def mechanism(self) -> str:
        """The name of the mechanism of the handshake; empty before it."""
        return "" if self._mechanism is None else self._mechanism.name

    @property
    def takes_raw_tokens(self) -> bool:
        return self.state is State.RAW_EXCHANGE

    def may_begin_again(self, monotonic_ms: int) -> bool:
        """Return whether a SaslHandshake begins a re-authentication; otherwise it is served like any request."""
        if self.state is not State.DONE or self.expires_at_ms is None:
            return False
        return self._began_at_ms is None or monotonic_ms - self._began_at_ms >= _MIN_BETWEEN_LOGINS_MS

    def begin_again(self, monotonic_ms: int) -> None:
        self._began_at_ms = monotonic_ms
        self.state = State.VERSIONS_KNOWN

    def receive(self, data: bytearray, start: int, end: int, now_ms: int, monotonic_ms: int) -> Outcome:
        """Handle one frame; return the frames to send, and whether the login has succeeded or failed. Raises a
        `ProtocolViolation`."""
        assert self.state is not State.DONE
        if self.state is State.RAW_EXCHANGE:
            return self._take_raw_token(bytes(data[start:end]), now_ms, monotonic_ms)
        key, version, correlation_id = peek_api(data, start, end)
        if self.state is State.EXCHANGE and key == ApiKey.SASL_AUTHENTICATE:
            request = _decode_request(SaslAuthenticateRequest, version, data, start, end)
            assert isinstance(request, SaslAuthenticateRequest)
            return self._authenticate(request, version, correlation_id, now_ms, monotonic_ms)
        if self.state is State.EXCHANGE and key == ApiKey.SASL_HANDSHAKE:
            _decode_request(SaslHandshakeRequest, version, data, start, end)
            refused = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])
            return Failure(response_frame(refused, version, correlation_id), "a second handshake in place of a token")
        if self.state in (State.BEGIN, State.VERSIONS_KNOWN) and key == ApiKey.SASL_HANDSHAKE:
            request = _decode_request(SaslHandshakeRequest, version, data, start, end)
            assert isinstance(request, SaslHandshakeRequest)
            return self._handshake(request.mechanism, version, correlation_id)
        if self.state is State.BEGIN and key == ApiKey.API_VERSIONS:
            return self._allow_api_versions(is_known=version in ApiVersionsRequest.versions)
        raise ProtocolViolation(f"API {key} was asked for where {self.state.value} was expected")

    def _allow_api_versions(self, *, is_known: bool) -> Outcome:
        """Let an ApiVersions request be served. A request of an unsupported version is answered with the supported
        ones, once, and the client asks again."""
        if is_known:
            self.state = State.VERSIONS_KNOWN
        elif self._has_asked_unknown_version:
            raise ProtocolViolation("ApiVersions was asked for twice in versions that are not known")
        else:
            self._has_asked_unknown_version = True
        return Pass()

    def _handshake(self, name: str, version: int, correlation_id: int) -> Outcome:
        offered = {one.name: one for one in self._mechanisms()}
        code = ErrorCode.NONE if name in offered else ErrorCode.UNSUPPORTED_SASL_MECHANISM
        response = SaslHandshakeResponse(error_code=code, mechanisms=list(offered))
        frames = response_frame(response, version, correlation_id)
        if name not in offered:
            return Failure(frames, f"the mechanism {name[:_LOGGED_CHARACTERS]!r} is not enabled")
        self._mechanism = offered[name]
        self._exchange = self._mechanism.make_exchange()
        self.state = State.EXCHANGE if version >= _WITH_REQUESTS else State.RAW_EXCHANGE
        return Answer(frames)

    def _authenticate(
        self, request: SaslAuthenticateRequest, version: int, correlation_id: int, now_ms: int, monotonic_ms: int
    ) -> Outcome:
        try:
            token = self._step(request.auth_bytes, now_ms)
        except AuthenticationFailed as failed:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                error_message=failed.text or self._general_text(),
                auth_bytes=b"",
            )
            return Failure(response_frame(response, version, correlation_id), failed.why)
        refusal = self._refusal()
        lifetime_ms = self._finish(now_ms, monotonic_ms)
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message="", auth_bytes=token, session_lifetime_ms=lifetime_ms
        )
        return Answer(response_frame(response, version, correlation_id), refusal)

    def _take_raw_token(self, token: bytes, now_ms: int, monotonic_ms: int) -> Outcome:
        try:
            answer = self._step(token, now_ms)
        except AuthenticationFailed as failed:
            return Failure(None, failed.why)
        refusal = self._refusal()
        self._finish(now_ms, monotonic_ms)
        return Answer([pack(">i", len(answer)) + answer], refusal)

    def _step(self, token: Buffer, now_ms: int) -> bytes:
        assert self._exchange is not None
        assert self._mechanism is not None
        # The limit of frames does not do: a session that is renewed has that of ordinary requests.
        limit = self._mechanism.max_token_bytes
        if len(token) > limit:
            raise AuthenticationFailed(f"a token of {len(token)} bytes; {limit} are allowed")
        if self._first_mechanism not in (None, self._mechanism.name):
            text = (
                f"SASL mechanism '{self._mechanism.name}' requested by client is not supported for re-authentication "
                f"of mechanism '{self._first_mechanism}'"
            )
            raise AuthenticationFailed(text, text)
        answer = self._exchange.step(bytes(token), now_ms)
        found = self._exchange.identity
        if found is not None and self.identity is not None and found.principal != self.identity.principal:
            before, after = _principal_with_dot(self.identity), _principal_with_dot(found)
            text = f"Cannot change principals during re-authentication from {before}: {after}"
            raise AuthenticationFailed(text, text)
        return answer

    def _refusal(self) -> str | None:
        assert self._exchange is not None
        return self._exchange.refusal

    def _finish(self, now_ms: int, monotonic_ms: int) -> int:
        """Begin the session if the exchange has succeeded; return its lifetime in milliseconds, 0 if it has no end or
        has not begun."""
        assert self._exchange is not None
        assert self._mechanism is not None
        identity = self._exchange.identity
        if identity is None:
            return 0
        self.identity, self._first_mechanism = identity, self._mechanism.name
        self._exchange = None
        self.state = State.DONE
        ends = [self._mechanism.max_session_ms] if self._mechanism.max_session_ms > 0 else []
        if identity.expires_at_ms is not None:
            ends.append(max(0, identity.expires_at_ms - now_ms))
        self.expires_at_ms = monotonic_ms + min(ends) if ends else None
        return min(ends, default=0)

    def _general_text(self) -> str:
        assert self._mechanism is not None
        act = "authentication" if self._first_mechanism is None else "re-authentication"
        return (
            f"Authentication failed during {act} due to invalid credentials with SASL mechanism {self._mechanism.name}"
        )


def _decode_request(kind: type[Message], version: int, data: bytearray, start: int, end: int) -> Message:
    if version not in kind.versions:
        raise ProtocolViolation(f"{kind.__name__} is served in versions {kind.versions}, not {version}")
    _, pos = RequestHeader.decoder(request_header_version(kind, version))(data, start, end)
    message: Message = kind.decoder(version)(data, pos, end)[0]
    return message


def _principal_with_dot(identity: Identity) -> str:
    """Return a principal with "." for ":", as Kafka writes it in this message alone."""
    return identity.principal.replace(":", ".", 1)
