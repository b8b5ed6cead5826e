"""TLS and SASL for a client's connection, from the properties that Kafka's Java clients have.

    security.protocol   SSL, SASL_PLAINTEXT, SASL_SSL
    ssl.*               truststore and keystore in PEM (KIP-651), PKCS12 or JKS (`tls_stores.py`)
    sasl.mechanism      PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (`bearer_tokens.py`)
    sasl.jaas.config    username="…" password="…" in the form of a login module; with tokenauth="true" of SCRAM, they
                        are the id and the HMAC of a delegation token (`login_options.py`)

The messages of SCRAM are those of `pessoa.security.sasl.scram`, which nodes of a cluster use as well.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, NamedTuple

from pessoa.client.bearer_tokens import OAUTHBEARER, get_token
from pessoa.client.client_errors import AuthenticationFailed, BadSettings, HandshakeFailed
from pessoa.client.login_options import login_options
from pessoa.client.tls_stores import tls_context

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from pessoa.client.blocking_connection import Connection

_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class _Login(NamedTuple):
    user: str
    password: str
    # Whether they are the id and the HMAC of a delegation token (KIP-48).
    is_token: bool


def secure(connection: Connection, plain: socket.socket, settings: Mapping[str, str], deadline: float) -> socket.socket:
    """Return the socket after the TLS handshake and SASL authentication."""
    protocol = settings["security.protocol"].upper()
    if protocol not in ("SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise BadSettings(f"Invalid value {protocol} for configuration security.protocol: String must be one of "
                          "(case insensitive): PLAINTEXT, SASL_PLAINTEXT, SSL, SASL_SSL")  # fmt: skip
    secured = plain
    if protocol.endswith("SSL"):
        context = tls_context(settings)
        try:
            secured = context.wrap_socket(plain, server_hostname=connection.host)
        except ssl.SSLError as error:
            # A retry would not help, unlike after a lost connection.
            raise HandshakeFailed(f"SSL handshake failed: {error.reason or error}") from error
    if protocol.startswith("SASL"):
        # The exchange runs over the connection, which has to see the new socket for it.
        connection.use(secured)
        _authenticate(connection, settings, deadline)
    return secured


def _authenticate(connection: Connection, settings: Mapping[str, str], deadline: float) -> None:
    from pessoa.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from pessoa.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

    mechanism = settings.get("sasl.mechanism", "GSSAPI")
    login = _login(settings) if mechanism != OAUTHBEARER else None
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

    if login is None:
        _bearer(exchange, get_token(settings))
    elif mechanism == "PLAIN":
        exchange(f"\0{login.user}\0{login.password}".encode())
    elif mechanism in _SCRAM:
        _scram(exchange, mechanism, login)
    else:
        raise BadSettings(
            f"sasl.mechanism={mechanism} is not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER"
        )


def _login(settings: Mapping[str, str]) -> _Login:
    found = login_options(settings)
    try:
        return _Login(found["username"], found["password"], found.get("tokenauth", "").lower() == "true")
    except KeyError as missing:
        raise BadSettings(f"sasl.jaas.config has no {missing.args[0]}") from None


def _bearer(exchange: Callable[[bytes], bytes], token: str) -> None:
    from pessoa.security.sasl.exchange import AuthenticationFailed as Refused
    from pessoa.security.sasl.oauthbearer import ACKNOWLEDGED, first_message

    try:
        refusal = exchange(first_message(token))
    except Refused as refused:
        raise AuthenticationFailed(str(refused)) from None
    if refusal:
        # The broker says so again, as an error, once this is acknowledged.
        exchange(ACKNOWLEDGED)
        raise AuthenticationFailed("Authentication failed")


def _scram(exchange: Callable[[bytes], bytes], mechanism: str, login: _Login) -> None:
    import secrets

    from pessoa.security.sasl.exchange import AuthenticationFailed as Refused
    from pessoa.security.sasl.scram import ScramClientExchange

    extensions = ",tokenauth=true" if login.is_token else ""
    scram = ScramClientExchange(mechanism, login.user, login.password, secrets.token_urlsafe(24), extensions)
    try:
        scram.check(exchange(scram.final(exchange(scram.first()))))
    except Refused as refused:
        raise AuthenticationFailed(str(refused)) from None
