"""A node that logs in to another: SaslHandshake, then SaslAuthenticate until the exchange is over.

It runs on a connection on which nothing else is asked meanwhile. `ask` sends a request and gives its response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import NamedTuple

from pessoa.security.sasl.exchange import OAUTHBEARER, AuthenticationFailed
from pessoa.security.sasl.oauthbearer import ACKNOWLEDGED, first_message
from pessoa.security.sasl.scram import ScramClientExchange
from pessoa.security.sasl.scram_keys import ALGORITHMS, salted_password
from pessoa.security.sasl.scram_messages import encoded
from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from pessoa.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from pessoa.wire.schema import Message

_NONCE_BYTES = 18
_HANDSHAKE_VERSION = 1
_AUTHENTICATE_VERSION = 2

Ask = Callable[[Message, int], Awaitable[Message]]

# A node makes many connections with one password, and its salt is the same on all of them.
_salted_password = lru_cache(maxsize=16)(salted_password)


class Credentials(NamedTuple):
    """The user and the password for one SASL mechanism. `repr` shows no password. For OAUTHBEARER the password is
    the token, which contains the user's name."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"<Credentials of {self.username} for {self.mechanism}>"


async def log_in(credentials: Credentials, ask: Ask, octets: Callable[[int], bytes]) -> int:
    """Log in, and return the session lifetime in milliseconds; 0 if the session has no end. Raises
    `AuthenticationFailed`."""
    mechanism = credentials.mechanism
    handshake = await ask(SaslHandshakeRequest(mechanism=mechanism), _HANDSHAKE_VERSION)
    assert isinstance(handshake, SaslHandshakeResponse)
    if handshake.error_code:
        raise AuthenticationFailed(
            f"{mechanism} is not offered, but {', '.join(handshake.mechanisms) or 'no mechanism'}"
        )
    if mechanism in ALGORITHMS:
        return await _log_in_with_scram(credentials, ask, encoded(octets(_NONCE_BYTES)))
    if mechanism == OAUTHBEARER:
        return await _log_in_with_token(credentials.password, ask)
    answer = await _authenticate(ask, f"\0{credentials.username}\0{credentials.password}".encode())
    return answer.session_lifetime_ms


async def _log_in_with_scram(credentials: Credentials, ask: Ask, nonce: str) -> int:
    mechanism, username, password = credentials
    exchange = ScramClientExchange(mechanism, username, password, nonce, salt_password=_salted_password)
    first = await _authenticate(ask, exchange.first())
    last = await _authenticate(ask, exchange.final(first.auth_bytes))
    exchange.check(last.auth_bytes)
    return last.session_lifetime_ms


async def _log_in_with_token(token: str, ask: Ask) -> int:
    answer = await _authenticate(ask, first_message(token))
    if answer.auth_bytes:
        # The token is refused; the server fails the login once this message is acknowledged.
        await _authenticate(ask, ACKNOWLEDGED)
        raise AuthenticationFailed("the token is refused")
    return answer.session_lifetime_ms


async def _authenticate(ask: Ask, token: bytes) -> SaslAuthenticateResponse:
    answer = await ask(SaslAuthenticateRequest(auth_bytes=token), _AUTHENTICATE_VERSION)
    assert isinstance(answer, SaslAuthenticateResponse)
    if answer.error_code:
        raise AuthenticationFailed(answer.error_message or f"error {answer.error_code}")
    return answer
