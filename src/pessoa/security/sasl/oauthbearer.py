"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a bearer token, which was signed by an issuer that we know.

    client  n,[a=authorization id],^A auth=Bearer TOKEN ^A [name=value ^A …] ^A      (^A is the octet 01)
    server  nothing: it is who the token says
            {"status":"invalid_token"}: it is not; the client owes ^A, and gets the failure with the same text

The words of the message are Kafka's `OAuthBearerClientInitialResponse`'s; what does not fit fails with the general
sentence. Pairs beside `auth` are SASL extensions (KIP-342): their form is checked, and nothing is made of them. After a
refused token Kafka takes another one on the same connection. Here the connection has had its try.

The authorization id is empty or the subject of the token, as with the other mechanisms. A session lasts as long as the
token at most. No text here repeats a token.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pessoa.security.jwt.json_web_tokens import MAX_SUBJECT_CHARACTERS, MAX_TOKEN_CHARACTERS, BadToken, ValidToken
from pessoa.security.sasl.exchange import AuthenticationFailed, Identity

# A token, and as much again as names and extensions need.
MAX_MESSAGE_BYTES = MAX_TOKEN_CHARACTERS + 8 * 1024
_MAX_EXTENSIONS = 64
_SEPARATOR = "\x01"
ACKNOWLEDGED = b"\x01"
_REFUSED = '{"status":"invalid_token"}'
_HEAD = re.compile(r"n,(?:a=((?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,")
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_AUTH = re.compile(r"(\w+) +([-_~+/.A-Za-z0-9]+=*)", re.ASCII)

Verify = Callable[[str, int], ValidToken]


class OAuthBearerExchange:
    """The server's side of OAUTHBEARER. `verify` is called with a token and the time, and raises `BadToken`."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self.identity: Identity | None = None
        self.refusal: str | None = None

    def __repr__(self) -> str:
        return f"<OAuthBearerExchange: {self.identity}>"

    def step(self, token: bytes, now_ms: int) -> bytes:
        if self.refusal is not None:
            raise AuthenticationFailed(self.refusal, _REFUSED if token == ACKNOWLEDGED else None)
        authorization_id, bearer = _read(token)
        try:
            valid = self._verify(bearer, now_ms)
        except BadToken as bad:
            self.refusal = f"the token is refused: {bad}"
            return _REFUSED.encode()
        if authorization_id not in ("", valid.subject):
            text = (
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({valid.subject})"
            )
            raise AuthenticationFailed("the authorization id is not the subject of the token", text)
        self.identity = Identity(valid.subject, valid.expires_at_ms)
        return b""


def _read(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token of a client's first message."""
    text = message.decode("ascii", "replace")
    head, _, rest = text.partition(_SEPARATOR)
    names = _HEAD.fullmatch(head)
    pairs = rest.split(_SEPARATOR)
    if names is None or pairs[-2:] != ["", ""]:
        raise AuthenticationFailed("the message is not one of OAUTHBEARER")
    found: dict[str, str] = {}
    for pair in pairs[:-2]:
        match = _PAIR.fullmatch(pair)
        if match is None or match[1] in found or len(found) > _MAX_EXTENSIONS:
            raise AuthenticationFailed("a pair of the message is malformed, there twice, or one too many")
        found[match[1]] = match[2]
    auth = _AUTH.fullmatch(found.get("auth", ""))
    if auth is None or auth[1].lower() != "bearer":
        raise AuthenticationFailed("the message has no bearer token")
    authorization_id = (names[1] or "").replace("=2C", ",").replace("=3D", "=")
    if len(authorization_id) > MAX_SUBJECT_CHARACTERS:
        raise AuthenticationFailed("the authorization id is longer than any subject")
    return authorization_id, auth[2]


def first_message(token: str) -> bytes:
    """Return the first message of a client. Raises `AuthenticationFailed` for a text that cannot be a token."""
    if _AUTH.fullmatch(f"Bearer {token}") is None or len(token) > MAX_TOKEN_CHARACTERS:
        raise AuthenticationFailed("what should be the token has other characters than a token, or too many")
    return f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{_SEPARATOR}".encode()
