"""A key set (JWKS, RFC 7517): the public keys of an issuer, each with an id, as an immutable image.

    {"keys": [{"kty": "RSA", "kid": "2026-11", "use": "sig", "alg": "RS256", "n": "…", "e": "AQAB"}, …]}

Issuers publish keys for encryption and of kinds that no algorithm here takes beside those for signatures. Such keys are
passed over, and so are RSA keys below 2048 bits, which RFC 7518 forbids. A set without any key that could verify a
token is an error: it is more likely the wrong document than an issuer without keys.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pessoa.security.jwt.signature_algorithms import ALGORITHMS, EC, EC_CURVES, OKP, OKP_CURVES, RSA, SignatureAlgorithm

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

# Issuers have some ten keys of 2 KiB each, with their certificates.
MAX_KEY_SET_BYTES = 1024 * 1024
_MAX_KEYS = 256
# Kafka caches no longer key ids (`RefreshingHttpsJwks`).
MAX_KEY_ID_CHARACTERS = 1000
_RSA_BITS = range(2048, 16384 + 1)
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")


class BadKeySet(Exception):
    """A document is not a valid JSON Web Key Set; the message says why."""


class _Key(msgspec.Struct):
    kty: str
    kid: str | None = None
    use: str | None = None
    key_ops: list[str] | None = None
    alg: str | None = None
    crv: str | None = None
    n: str | None = None
    e: str | None = None
    x: str | None = None
    y: str | None = None


class _Document(msgspec.Struct):
    keys: list[msgspec.Raw]


class VerificationKey(NamedTuple):
    key_id: str | None
    key_type: str
    # Of EC and OKP.
    curve: str
    # The one `alg` that the key is for; None: any of its type.
    algorithm: str | None
    public_key: PublicKeyTypes

    def fits(self, name: str, algorithm: SignatureAlgorithm) -> bool:
        is_of_type = self.key_type == algorithm.key_type and (not algorithm.curves or self.curve in algorithm.curves)
        return is_of_type and self.algorithm in (None, name)


class KeySet:
    """The verification keys of an issuer, by their ids, and all of them for tokens that name no key. Immutable."""

    def __init__(self, keys: Iterable[VerificationKey] = ()) -> None:
        self._all = tuple(keys)
        self._by_id: dict[str, tuple[VerificationKey, ...]] = {}
        for key in self._all:
            if key.key_id is not None:
                self._by_id[key.key_id] = (*self._by_id.get(key.key_id, ()), key)

    def __repr__(self) -> str:
        return f"<KeySet of {len(self._all)} keys: {', '.join(sorted(self._by_id))}>"

    def __len__(self) -> int:
        return len(self._all)

    def has_id(self, key_id: str) -> bool:
        return key_id in self._by_id

    def find(self, key_id: str | None, name: str) -> VerificationKey | None:
        """Return the key for a token with this `kid` and `alg`; None if no key fits, or several do: then each would
        have to be tried. A token without `kid` gets the only key of the set that fits."""
        found = self._all if key_id is None else self._by_id.get(key_id, ())
        fitting = [key for key in found if key.fits(name, ALGORITHMS[name])]
        return fitting[0] if len(fitting) == 1 else None


def parse_key_set(data: bytes) -> KeySet:
    """Return the keys of a JSON Web Key Set that verify signatures. Raises `BadKeySet`."""
    if len(data) > MAX_KEY_SET_BYTES:
        raise BadKeySet(f"it has more than {MAX_KEY_SET_BYTES} bytes")
    try:
        document = msgspec.json.decode(data, type=_Document)
    except (msgspec.DecodeError, RecursionError):
        raise BadKeySet('it is not a JSON object with a list of "keys"') from None
    if len(document.keys) > _MAX_KEYS:
        raise BadKeySet(f"it has more than {_MAX_KEYS} keys")
    found = [key for key in map(_read_key, document.keys) if key is not None]
    if not found:
        raise BadKeySet("it has no key that verifies signatures")
    return KeySet(found)


def decode_base64url(text: str) -> bytes:
    """Return the decoded bytes. Raises `ValueError`, also for padding (RFC 7515 section 2)."""
    if _BASE64URL.fullmatch(text) is None:
        raise ValueError("not base64url")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _read_key(raw: msgspec.Raw) -> VerificationKey | None:
    """Return the key; None if it is not for signatures, malformed, or of an unsupported type."""
    try:
        key = msgspec.json.decode(raw, type=_Key)
        if not _is_for_signatures(key):
            return None
        public = _public_key(key)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if public is None:
        return None
    return VerificationKey(key.kid, key.kty, key.crv or "", key.alg, public)


def _is_for_signatures(key: _Key) -> bool:
    if key.kid is not None and len(key.kid) > MAX_KEY_ID_CHARACTERS:
        return False
    is_allowed = key.key_ops is None or "verify" in key.key_ops
    return key.use in (None, "sig") and is_allowed and (key.alg is None or key.alg in ALGORITHMS)


def _public_key(key: _Key) -> PublicKeyTypes | None:
    """Return the public key; None for an unsupported type. Raises `ValueError` for numbers that are no key: a point
    that is not on its curve, an even modulus."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa

    if key.kty == RSA and key.n is not None and key.e is not None:
        modulus, exponent = (int.from_bytes(decode_base64url(text), "big") for text in (key.n, key.e))
        # Exponents beyond 32 bits are of no use, and make every verification slow.
        if modulus.bit_length() not in _RSA_BITS or exponent >= 1 << 32:
            return None
        return rsa.RSAPublicNumbers(exponent, modulus).public_key()
    if key.kty == EC and key.crv in EC_CURVES and key.x is not None and key.y is not None:
        x, y = (int.from_bytes(decode_base64url(text), "big") for text in (key.x, key.y))
        curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
        return ec.EllipticCurvePublicNumbers(x, y, curves[key.crv]).public_key()
    if key.kty == OKP and key.crv in OKP_CURVES and key.x is not None:
        octets = decode_base64url(key.x)
        if key.crv == "Ed448":
            return ed448.Ed448PublicKey.from_public_bytes(octets)
        return ed25519.Ed25519PublicKey.from_public_bytes(octets)
    return None
