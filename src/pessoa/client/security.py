"""TLS and SASL for a client's connection, from the properties that Kafka's Java clients have.

    security.protocol   SSL, SASL_PLAINTEXT, SASL_SSL
    ssl.*               truststore and keystore in PEM (KIP-651); Java's own formats are refused with a sentence
    sasl.mechanism      PLAIN, SCRAM-SHA-256, SCRAM-SHA-512
    sasl.jaas.config    username="…" password="…" in the form of a login module

SCRAM is RFC 5802: the client proves that it knows the salted password without sending it, and the server's signature
is checked in return.
"""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING

from pessoa.client.errors import AuthenticationFailed, BadSettings, HandshakeFailed

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from pessoa.client.connection import Connection

_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s;]+))")
_SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


def secure(connection: Connection, plain: socket.socket, settings: Mapping[str, str], deadline: float) -> socket.socket:
    """The socket after TLS, and with SASL done."""
    protocol = settings["security.protocol"].upper()
    if protocol not in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise BadSettings(f"Invalid value {protocol} for configuration security.protocol: String must be one of "
                          "(case insensitive): PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL")  # fmt: skip
    secured = plain
    if protocol.endswith("SSL"):
        context, check_host = _tls_context(settings)
        try:
            secured = context.wrap_socket(plain, server_hostname=connection.host if check_host else None)
        except ssl.SSLError as error:
            # Asking again would not help, unlike after a connection that was lost.
            raise HandshakeFailed(f"SSL handshake failed: {error.reason or error}") from error
    if protocol.startswith("SASL"):
        # The exchange runs over the connection, which has to see the new socket for it.
        connection.use(secured)
        _authenticate(connection, settings, deadline)
    return secured


def _tls_context(settings: Mapping[str, str]) -> tuple[ssl.SSLContext, bool]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    check_host = settings.get("ssl.endpoint.identification.algorithm", "https") != ""
    context.check_hostname = check_host
    for store in ("truststore", "keystore"):
        kind = settings.get(f"ssl.{store}.type", "PEM" if f"ssl.{store}.location" not in settings else "JKS")
        if kind.upper() != "PEM":
            raise BadSettings(f"ssl.{store}.type={kind} is a format of Java's; convert it and set ssl.{store}.type=PEM")
    try:
        _load_stores(context, settings)
    except OSError as error:
        raise BadSettings(f"The certificates of ssl.truststore or ssl.keystore cannot be read: {error}") from error
    return context, check_host


def _load_stores(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    """Whom we trust: the given certificates and nobody else, or those of the system. And who we are, if we must say."""
    location, certificates = settings.get("ssl.truststore.location"), settings.get("ssl.truststore.certificates")
    if location:
        context.load_verify_locations(location)
    if certificates:
        context.load_verify_locations(cadata=certificates)
    if not location and not certificates:
        context.load_default_certs()
    password = settings.get("ssl.key.password")
    if location := settings.get("ssl.keystore.location"):
        context.load_cert_chain(location, password=password)
    elif key := settings.get("ssl.keystore.key"):
        import tempfile

        # The library reads keys from files alone.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{key}\n{settings.get('ssl.keystore.certificate.chain', '')}\n")
            file.flush()
            context.load_cert_chain(file.name, password=password)


def _authenticate(connection: Connection, settings: Mapping[str, str], deadline: float) -> None:
    from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from pessoa.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

    mechanism = settings.get("sasl.mechanism", "GSSAPI")
    user, password = _credentials(settings)
    hello = connection.send(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, deadline, version=1)
    if hello.error_code:
        offered = ", ".join(hello.mechanisms)
        raise AuthenticationFailed(
            f"Client SASL mechanism '{mechanism}' not enabled in the server, enabled mechanisms are [{offered}]"
        )

    def exchange(data: bytes) -> bytes:
        answer = connection.send(
            SaslAuthenticateRequest(auth_bytes=data), SaslAuthenticateResponse, deadline, version=2
        )
        if answer.error_code:
            raise AuthenticationFailed(answer.error_message or "Authentication failed")
        return bytes(answer.auth_bytes)

    if mechanism == "PLAIN":
        exchange(f"\0{user}\0{password}".encode())
    elif mechanism in _SCRAM:
        _scram(exchange, _SCRAM[mechanism], user, password)
    else:
        raise BadSettings(f"sasl.mechanism={mechanism} is not one of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512")


def _credentials(settings: Mapping[str, str]) -> tuple[str, str]:
    found = {
        match[1]: next(re.sub(r"\\(.)", r"\1", part) for part in match.groups()[1:] if part is not None)
        for match in _OPTION.finditer(settings.get("sasl.jaas.config", ""))
    }
    try:
        return found["username"], found["password"]
    except KeyError as missing:
        raise BadSettings(f"sasl.jaas.config has no {missing.args[0]}") from None


def _scram(exchange: Callable[[bytes], bytes], algorithm: str, user: str, password: str) -> None:
    import base64
    import hashlib
    import hmac
    import secrets

    nonce = secrets.token_urlsafe(24)
    name = user.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}"
    server_first = exchange(f"n,,{first}".encode()).decode()
    said = dict(part.split("=", 1) for part in server_first.split(","))
    if not said["r"].startswith(nonce):
        raise AuthenticationFailed("Invalid server nonce")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(said["s"]), int(said["i"]))

    def signed(key: bytes, text: str | bytes) -> bytes:
        return hmac.digest(key, text if isinstance(text, bytes) else text.encode(), algorithm)

    last = f"c=biws,r={said['r']}"
    whole = f"{first},{server_first},{last}"
    client_key = signed(salted, "Client Key")
    signature = signed(hashlib.new(algorithm, client_key).digest(), whole)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    final = dict(part.split("=", 1) for part in exchange(f"{last},p={proof}".encode()).decode().split(","))
    expected = signed(signed(salted, "Server Key"), whole)
    if not hmac.compare_digest(base64.b64decode(final.get("v", "")), expected):
        raise AuthenticationFailed("Invalid server signature in server final message")
