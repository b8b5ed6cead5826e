"""An issuer of bearer tokens for tests: its keys, the JWKS that it publishes, and valid and invalid tokens.

Tokens are put together here from the parts that RFC 7515 names, so that any part can be wrong.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

USER = "ana"
ISSUER = "https://issuer.test/"
AUDIENCE = "kafka"
Claims = Mapping[str, object]
PrivateKey = (
    rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
)  # fmt: skip
_HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES = {"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1(), "ES512": ec.SECP521R1()}
_NAMES = {"secp256r1": "P-256", "secp384r1": "P-384", "secp521r1": "P-521"}


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def json_part(value: object) -> str:
    return encoded(json.dumps(value, separators=(",", ":")).encode())


def number(value: int, size: int | None = None) -> str:
    return encoded(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


@cache
def rsa_key(name: str = "") -> rsa.RSAPrivateKey:
    """Return the RSA key of this name. Generating a key takes a while, so each is generated once."""
    assert name is not None
    return rsa.generate_private_key(65537, 2048)


def new_key(algorithm: str) -> PrivateKey:
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm])
    if algorithm in ("EdDSA", "Ed25519"):
        return ed25519.Ed25519PrivateKey.generate()
    if algorithm == "Ed448":
        return ed448.Ed448PrivateKey.generate()
    return rsa_key()


def public_jwk(key: PrivateKey, **facts: object) -> dict[str, object]:
    public = key.public_key()
    if isinstance(public, rsa.RSAPublicKey):
        numbers = public.public_numbers()
        return {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e), **facts}
    if isinstance(public, ec.EllipticCurvePublicKey):
        point, size = public.public_numbers(), (public.curve.key_size + 7) // 8
        where = {"x": number(point.x, size), "y": number(point.y, size)}
        return {"kty": "EC", "crv": _NAMES[public.curve.name], **where, **facts}
    curve = "Ed25519" if isinstance(public, ed25519.Ed25519PublicKey) else "Ed448"
    return {"kty": "OKP", "crv": curve, "x": encoded(public.public_bytes(Encoding.Raw, PublicFormat.Raw)), **facts}


def sign(key: PrivateKey, algorithm: str, data: bytes) -> bytes:
    if isinstance(key, rsa.RSAPrivateKey):
        digest = _HASHES[algorithm[2:]]
        pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
        return key.sign(data, pss if algorithm.startswith("PS") else padding.PKCS1v15(), digest)
    if isinstance(key, ec.EllipticCurvePrivateKey):
        size = (key.curve.key_size + 7) // 8
        pair = decode_dss_signature(key.sign(data, ec.ECDSA(_HASHES[algorithm[2:]])))
        return b"".join(one.to_bytes(size, "big") for one in pair)
    return key.sign(data)


class Issuer:
    """An issuer of tokens with one key; with `key_id` None its tokens have no key id."""

    def __init__(self, algorithm: str = "RS256", key_id: str | None = "first", key: PrivateKey | None = None) -> None:
        self.algorithm = algorithm
        self.key_id = key_id
        self.key = key if key is not None else new_key(algorithm)

    def jwk(self, **facts: object) -> dict[str, object]:
        return public_jwk(self.key, **{"kid": self.key_id, "use": "sig", "alg": self.algorithm, **facts})

    def key_set(self) -> bytes:
        return json.dumps({"keys": [self.jwk()]}).encode()

    def write(self, path: Path) -> Path:
        path.write_bytes(self.key_set())
        return path

    def claims(self, **changes: object) -> dict[str, object]:
        """Return the usual claims with these changes; a claim that is None is left out."""
        now_s = int(time.time())
        usual = {"sub": USER, "iss": ISSUER, "aud": AUDIENCE, "iat": now_s - 600, "exp": now_s + 3600, "scope": "all"}
        return {name: value for name, value in {**usual, **changes}.items() if value is not None}

    def token(self, header: Claims | None = None, **changes: object) -> str:
        return self.sealed({**self.header(), **(header or {})}, self.claims(**changes))

    def header(self) -> dict[str, object]:
        named = {} if self.key_id is None else {"kid": self.key_id}
        return {"alg": self.algorithm, "typ": "JWT", **named}

    def sealed(self, header: object, claims: object) -> str:
        data = f"{json_part(header)}.{json_part(claims)}"
        return f"{data}.{encoded(sign(self.key, self.algorithm, data.encode()))}"


def unsigned(claims: Claims) -> str:
    return f"{json_part({'alg': 'none'})}.{json_part(claims)}."


def sealed_with_secret(claims: Claims, secret: bytes, header: Claims | None = None) -> str:
    """Return a token that is signed with HS256."""
    data = f"{json_part({'alg': 'HS256', **(header or {})})}.{json_part(claims)}"
    return f"{data}.{encoded(hmac.new(secret, data.encode(), hashlib.sha256).digest())}"


class IdentityProvider:
    """An HTTP server on loopback: `/jwks` returns the keys, `/token` issues tokens for client credentials.

    `asked` has the requested paths in their order, `forms` the forms that were sent to `/token`."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.asked: list[str] = []
        self.forms: list[dict[str, list[str]]] = []
        self.authorizations: list[str | None] = []
        self.key_set = issuer.key_set()
        # The token that /token returns.
        self.make_token: Callable[[], str] = issuer.token
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))

    def __repr__(self) -> str:
        return f"<IdentityProvider at {self.url('/')}, asked {len(self.asked)} times>"

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}{path}"

    @contextmanager
    def serving(self) -> Iterator[IdentityProvider]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _handler(provider: IdentityProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.asked.append(self.path)
            if self.path == "/redirect":
                self._answer(302, b"", Location="/jwks")
            else:
                self._answer(200 if self.path == "/jwks" else 404, provider.key_set)

        def do_POST(self) -> None:
            provider.asked.append(self.path)
            sent = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            provider.forms.append(parse_qs(sent.decode()))
            provider.authorizations.append(self.headers.get("Authorization"))
            answer = {"access_token": provider.make_token(), "token_type": "Bearer", "expires_in": 3600}
            self._answer(200 if self.path == "/token" else 404, json.dumps(answer).encode())

        def _answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Log nothing: the base class would write to standard error."""

    return Handler
