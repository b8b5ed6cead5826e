"""The messages of SCRAM (RFC 5802, section 7), read and written.

    client first   n,[a=authorization id],n=user,r=nonce[,name=value…]
    server first   r=nonce of both,s=salt,i=iterations
    client final   c=the first two fields again,r=nonce of both[,name=value…],p=proof
    server final   v=signature

Channel binding (`p=` or `y` in the first place) is not offered, and a mandatory extension (`m=`) is not known: both are
refused. As in Kafka, names are ASCII. `=2C` and `=3D` stand for a comma and an equals sign in a name. Kafka's one
extension is `tokenauth=true`: the name is the id of a delegation token (KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import NamedTuple

from pessoa.security.sasl.exchange import MAX_TOKEN_BYTES

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"

_client_first = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authorization>{_NAME}))?,)(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
).fullmatch
_client_final = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
).fullmatch
_server_first = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,9}}){_EXTENSIONS}"
).fullmatch
_server_final = re.compile(rf"v=(?P<signature>{_BASE64}){_EXTENSIONS}").fullmatch


class BadScramMessage(Exception):
    """The bytes are not a valid SCRAM message; the text says why."""


class ClientFirst(NamedTuple):
    gs2: str
    bare: str
    authorization_id: str
    name: str
    nonce: str
    extensions: Mapping[str, str]


class ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    without_proof: str
    binding: bytes
    nonce: str
    proof: bytes


def read_client_first(token: bytes) -> ClientFirst:
    match = _client_first(_decode_ascii(token))
    if match is None:
        raise BadScramMessage("the first message of the client is malformed")
    return ClientFirst(
        match["gs2"],
        match["bare"],
        unescaped(match["authorization"] or ""),
        unescaped(match["name"]),
        match["nonce"],
        _extensions(match["extensions"]),
    )


def read_client_final(token: bytes) -> ClientFinal:
    match = _client_final(_decode_ascii(token))
    if match is None:
        raise BadScramMessage("the final message of the client is malformed")
    return ClientFinal(
        match["without_proof"], _decode_base64(match["binding"]), match["nonce"], _decode_base64(match["proof"])
    )


def read_server_first(token: bytes) -> ServerFirst:
    match = _server_first(_decode_ascii(token))
    if match is None:
        raise BadScramMessage("the first message of the server is malformed")
    return ServerFirst(match["nonce"], _decode_base64(match["salt"]), int(match["iterations"]))


def read_server_final(token: bytes) -> bytes:
    """Return the server's signature in its final message."""
    match = _server_final(_decode_ascii(token))
    if match is None:
        raise BadScramMessage("the final message of the server is malformed")
    return _decode_base64(match["signature"])


def write_server_first(nonce: str, salt: bytes, iterations: int) -> str:
    return f"r={nonce},s={encoded(salt)},i={iterations}"


def escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _decode_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadScramMessage("a value is no base64") from None


def _decode_ascii(token: bytes) -> str:
    # The regular expressions above keep a state for each character that they have matched.
    if len(token) > MAX_TOKEN_BYTES:
        raise BadScramMessage(f"a message of {len(token)} bytes; {MAX_TOKEN_BYTES} are allowed")
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise BadScramMessage("a message is no ASCII") from None


def _extensions(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: value for name, _, value in pairs}
