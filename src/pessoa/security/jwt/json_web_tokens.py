"""A signed token (JWT in JWS compact form, RFC 7515, 7519) checked with a key set and a receiver's rules.

    base64url(header) . base64url(claims) . base64url(signature)

The header is read first, for `alg` and `kid` alone; with `crit` the token is refused, because it names parts that must
be understood. Then the signature is verified, and only then are claims read:

    exp, iat   must be there; past `exp` the token is refused, and so is one that ends before `iat` or `nbf`
    nbf        before it the token is refused
    aud        one of the expected audiences, where some are expected
    iss        the expected issuer, where one is expected
    sub        who it is; also under another name
    scope      what it may, as text or list; also under another name

`exp` and `nbf` have the clock skew added in favour of the token. Claims are Kafka's `BrokerJwtValidator`'s.

Of the header and of the claims only the members that are needed are decoded; deeper values are stepped over.
No error repeats a token or any of its claims.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from pessoa.security.jwt.json_web_keys import MAX_KEY_ID_CHARACTERS, KeySet, decode_base64url
from pessoa.security.jwt.signature_algorithms import ALGORITHMS, has_signed

# Tokens with some hundred groups of their user have 16 KiB.
MAX_TOKEN_CHARACTERS = 32 * 1024
_MAX_HEADER_CHARACTERS = 8 * 1024
MAX_SUBJECT_CHARACTERS = 1000
# The seconds of a date that a float still has exactly.
_LAST_SECOND = 1 << 53
_PARTS = 3

V = TypeVar("V")


class BadToken(Exception):
    """A token is refused; the message says why, and contains no part of the token."""


class UnknownKey(BadToken):
    """The token names a key that is not in the set: the issuer may have a new key."""

    def __init__(self, key_id: str) -> None:
        super().__init__("it names a key that is not in the key set")
        self.key_id = key_id


class TokenRules(NamedTuple):
    """The claims that a token must have. Without audiences or issuer, any value of that claim is accepted."""

    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class ValidToken(NamedTuple):
    """The claims of a verified token that the broker uses."""

    subject: str
    scopes: frozenset[str]
    expires_at_ms: int


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def validate(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> ValidToken:
    """Return the claims of the token, if a key of the set has signed it and the rules hold. Raises `BadToken`."""
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise BadToken(f"it has more than {MAX_TOKEN_CHARACTERS} characters")
    parts = token.split(".", _PARTS)
    if len(parts) != _PARTS:
        raise BadToken("it is not made of three parts")
    header = _read_header(parts[0])
    _verify(header, f"{parts[0]}.{parts[1]}".encode(), _decode_part(parts[2]), keys)
    try:
        claims = msgspec.json.decode(_decode_part(parts[1]), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        raise BadToken("its claims are not a JSON object") from None
    return _check_claims(claims, rules, now_ms)


def _read_header(part: str) -> _Header:
    if len(part) > _MAX_HEADER_CHARACTERS:
        raise BadToken(f"its header has more than {_MAX_HEADER_CHARACTERS} characters")
    try:
        header = msgspec.json.decode(_decode_part(part), type=_Header)
    except (msgspec.DecodeError, RecursionError):
        raise BadToken("its header is not that of a signed token") from None
    if header.alg not in ALGORITHMS:
        raise BadToken(f"its algorithm is none of {', '.join(ALGORITHMS)}")
    if header.crit is not msgspec.UNSET:
        raise BadToken("its header has crit")
    if header.kid is not None and len(header.kid) > MAX_KEY_ID_CHARACTERS:
        raise BadToken(f"the id of its key has more than {MAX_KEY_ID_CHARACTERS} characters")
    return header


def _verify(header: _Header, data: bytes, signature: bytes, keys: KeySet) -> None:
    key = keys.find(header.kid, header.alg)
    if key is None:
        if header.kid is not None and not keys.has_id(header.kid):
            raise UnknownKey(header.kid)
        raise BadToken("no single key of the key set fits its header")
    if not has_signed(ALGORITHMS[header.alg], key.public_key, signature, data):
        raise BadToken("its signature is wrong")


def _check_claims(claims: dict[str, msgspec.Raw], rules: TokenRules, now_ms: int) -> ValidToken:
    expires_at_s = _seconds(claims, "exp")
    issued_at_s = _seconds(claims, "iat")
    not_before_s = _seconds(claims, "nbf")
    if expires_at_s is None or issued_at_s is None:
        raise BadToken("it must have exp and iat")
    if expires_at_s < max(issued_at_s, not_before_s or 0):
        raise BadToken("it ends before it begins")
    skew_ms = rules.skew_s * 1000
    if now_ms - skew_ms >= expires_at_s * 1000:
        raise BadToken("it has expired")
    if not_before_s is not None and now_ms + skew_ms < not_before_s * 1000:
        raise BadToken("it is not valid before a time that has still to come")
    if rules.audiences and not rules.audiences & _texts(claims, "aud"):
        raise BadToken("it is for another audience")
    if rules.issuer is not None and _claim(claims, "iss", str) != rules.issuer:
        raise BadToken("it is of another issuer")
    subject = _claim(claims, rules.subject_claim, str)
    if subject is None or not subject.strip() or len(subject) > MAX_SUBJECT_CHARACTERS:
        raise BadToken(f"it must say who it is for ({rules.subject_claim})")
    scopes = {word for text in _texts(claims, rules.scope_claim) for word in text.split()}
    return ValidToken(subject, frozenset(scopes), int(expires_at_s * 1000))


def _seconds(claims: dict[str, msgspec.Raw], name: str) -> float | None:
    # An integer is a float too, and a bool is neither.
    found = _claim(claims, name, float)
    if found is not None and not 0 <= found < _LAST_SECOND:
        raise BadToken(f"its {name} is no date")
    return found


def _texts(claims: dict[str, msgspec.Raw], name: str) -> frozenset[str]:
    is_text = claims.get(name, b"") and bytes(claims[name]).startswith(b'"')
    found = [_claim(claims, name, str) or ""] if is_text else _claim(claims, name, list[str])
    return frozenset(found or ())


def _claim(claims: dict[str, msgspec.Raw], name: str, kind: type[V]) -> V | None:
    if name not in claims:
        return None
    try:
        return msgspec.json.decode(claims[name], type=kind)
    except (msgspec.DecodeError, RecursionError):
        raise BadToken(f"its {name} is not of the right type") from None


def _decode_part(part: str) -> bytes:
    try:
        return decode_base64url(part)
    except ValueError:
        raise BadToken("a part of it is not base64url") from None
