"""Raw connections with TLS and SASL, complete or stopped in the middle of the handshake or login."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import NamedTuple

from pessoa.wire.errors import ErrorCode
from tests.support.crash_wire import TIMEOUT_S, Wire
from tests.support.sasl import authenticate, shake_hands

LOOPBACK = "127.0.0.1"


class Login(NamedTuple):
    name: str
    password: str

    @property
    def plain_token(self) -> bytes:
        return f"\0{self.name}\0{self.password}".encode()


class TlsWire(Wire):
    """A connection after its TLS handshake, with a client certificate if there is a key store."""

    def __init__(self, port: int, trust: Path, key_store: Path | None = None) -> None:
        super().__init__(port)
        context = ssl.create_default_context(cafile=str(trust))
        if key_store is not None:
            context.load_cert_chain(key_store)
        self._socket = context.wrap_socket(self._socket, server_hostname="localhost")


def log_in(wire: Wire, login: Login) -> None:
    shake_hands(wire, "PLAIN")
    answer = authenticate(wire, login.plain_token)
    assert answer.error_code == ErrorCode.NONE, answer


def secured_wire(port: int, trust: Path, login: Login) -> Wire:
    """Return a logged-in connection to a SASL_SSL listener."""
    wire = TlsWire(port, trust)
    log_in(wire, login)
    return wire


def sasl_wire(port: int, login: Login) -> Wire:
    """Return a logged-in connection to a SASL_PLAINTEXT listener."""
    wire = Wire(port)
    log_in(wire, login)
    return wire


def connect(port: int, source: str = LOOPBACK) -> socket.socket:
    """Return a connection that has sent nothing; other loopback addresses as `source` give more client ports."""
    return socket.create_connection((LOOPBACK, port), TIMEOUT_S, source_address=(source, 0))


def client_hello(trust: Path) -> bytes:
    """Return the bytes of a ClientHello, which a TLS client sends first."""
    context = ssl.create_default_context(cafile=str(trust))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("the server has still to speak")
