"""PLAIN (RFC 4616): the client sends its name and its password.

    authorization id NUL user NUL password, in UTF-8

Kafka gives the authorization id no meaning: it is empty or the user, and anything else is refused (CVE-2017-12610).
That is checked after the password, so that only a client that knows it learns of it. Texts for clients are Kafka's.

Passwords are compared by their digests, in a time that does not depend on where they differ or on how long they are
(CVE-2021-38153). One whose user is not known is compared as well, with nothing that it could be equal to, so that the
time does not tell which users there are.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from pessoa.security.sasl.exchange import AuthenticationFailed, Identity

_PARTS = 3


class PlainExchange:
    """The server's side of PLAIN. `users` is name → password."""

    refusal = None

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.identity: Identity | None = None

    def __repr__(self) -> str:
        return f"<PlainExchange: {self.identity}>"

    def step(self, token: bytes, now_ms: int) -> bytes:
        parts = token.decode("utf-8", "replace").split("\0")
        if len(parts) != _PARTS:
            # Kafka counts no further than one too many.
            text = f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), _PARTS + 1)}"
            raise AuthenticationFailed(text, text)
        authorization_id, user, password = parts
        if not user:
            raise _failure("username not specified")
        if not password:
            raise _failure("password not specified")
        if not self._is_right(user, password):
            raise _failure("Invalid username or password")
        if authorization_id not in ("", user):
            raise _failure("Client requested an authorization id that is different from username")
        self.identity = Identity(user)
        return b""

    def _is_right(self, user: str, password: str) -> bool:
        expected = self._users.get(user)
        is_equal = hmac.compare_digest(_digest(password), _digest(expected if expected is not None else ""))
        return is_equal and expected is not None


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


def _failure(text: str) -> AuthenticationFailed:
    return AuthenticationFailed(text, f"Authentication failed: {text}")
