"""What all mechanisms have in common on the server's side: tokens of the client in, tokens for the client out.

    step(token) ──▶ token … step(token) ──▶ token, and `identity` is set: the client is who it says
         └──▶ AuthenticationFailed: it is not

An exchange is used for one login. After it has failed, or has set `identity`, no step follows.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

PRINCIPAL_TYPE = "User"
OAUTHBEARER = "OAUTHBEARER"
# Far more than PLAIN and SCRAM need; OAUTHBEARER has a limit of its own. A token is read before its sender is known, so
# reading one must cost little.
MAX_TOKEN_BYTES = 4096
_MAX_REASON_CHARACTERS = 500


class Identity(NamedTuple):
    """The user that has logged in."""

    name: str
    # When the credential ends, by the wall clock; None if it does not.
    expires_at_ms: int | None = None
    # Whether a delegation token stood for its owner.
    is_token: bool = False

    @property
    def principal(self) -> str:
        return f"{PRINCIPAL_TYPE}:{self.name}"


class AuthenticationFailed(Exception):
    """A login failed. `text` may be sent to the client, and None stands for the general sentence, so that no client
    learns which users exist. `why` is for the log of the broker, contains no secret, and is shortened where a client
    made it long."""

    def __init__(self, why: str, text: str | None = None) -> None:
        self.why = why if len(why) <= _MAX_REASON_CHARACTERS else f"{why[:_MAX_REASON_CHARACTERS]}…"
        super().__init__(self.why)
        self.text = text


class ServerExchange(Protocol):
    # None until the exchange has succeeded.
    @property
    def identity(self) -> Identity | None: ...

    # Why the login is refused, for a mechanism that sends this to the client before the login fails (OAUTHBEARER).
    @property
    def refusal(self) -> str | None: ...

    def step(self, token: bytes, now_ms: int) -> bytes:
        """Return the response to a token of the client. Raises `AuthenticationFailed`."""
