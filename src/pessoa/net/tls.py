"""TLS between a transport and a protocol: each takes this object for the other.

    socket ──▶ transport ──▶ TlsConnection ──▶ ServerProtocol, or the connection of a channel
           ◀──           ◀──               ◀──

The transport calls it as its protocol, and the protocol inside writes to it as to its transport; neither knows of TLS.
What comes is put into one buffer that all connections share, goes through OpenSSL in memory, and is decrypted straight
into the space of the protocol inside. docs/decisions/0012 says why this is not left to the event loop.

    connection_made ──▶ SHAKING ──handshake done──▶ OPEN ──close, write_eof──▶ ENDING ──▶ connection_lost
                           └──────── failed: its alert is sent ─────────────────┘

- On the side of a server the protocol inside is there from the beginning, so that quotas count the connection and its
  listener can close it; on the side of a client only when the handshake is done.
- Nothing reaches the protocol inside before the handshake is done and `on_secured` has agreed to the peer.
- Until then a peer may send `_MAX_HANDSHAKE_BYTES`, and a server makes its steps when `Handshakes` says so; meanwhile
  nothing is read.
- What is encrypted leaves in parts of `_PART_BYTES`, so OpenSSL never holds more than that. A transport that is full
  stops the protocol inside, as without TLS.
- What comes after our end is dropped, so that a peer that sends on still gets to read an alert or a last answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pessoa.net.handshakes import Handshakes
    from pessoa.wire.frames import Buffer

log = logging.getLogger("pessoa.net")

# Everything that sockets bring passes through here, from one call of the loop to the next.
_SHARED = memoryview(bytearray(64 * 1024))
_PART_BYTES = 64 * 1024
# What one record of TLS can carry.
_RECORD_BYTES = 16 * 1024
# Behind more than this there is likely more.
_SMALL_BYTES = 4 * 1024
# OpenSSL takes chains of certificates of up to 100 KiB; the rest is for what a client sends ahead of the server's end.
_MAX_HANDSHAKE_BYTES = 256 * 1024
# What a peer has to close its side after ours.
_ENDING_S = 0.5


class PeerRefused(Exception):
    """The handshake succeeded, but this peer is not allowed to connect."""


def refuse_expired(secured: ssl.SSLObject, now_ms: int) -> None:
    """Raise PeerRefused if a session was resumed whose peer showed a certificate that has expired since.

    OpenSSL checks certificates when they are shown, and with a session of TLS 1.2 that is resumed none is.
    """
    certificate = secured.getpeercert() if secured.session_reused else None
    if certificate and ssl.cert_time_to_seconds(cast("str", certificate["notAfter"])) * 1000 < now_ms:
        raise PeerRefused("the certificate of the session has expired")


class ServerTls(NamedTuple):
    """The TLS settings of a listener for new connections."""

    context: ssl.SSLContext
    # The principal of a peer by its certificate in DER, or None without one. Raises PeerRefused.
    principal_of: Callable[[bytes | None], str]


class _State(Enum):
    SHAKING = "in its handshake"
    OPEN = "open"
    ENDING = "ended by us"


_SHAKING, _OPEN, _ENDING = _State


class TlsConnection(asyncio.BufferedProtocol):
    """TLS over a transport. `on_secured` is called when the handshake is done, `on_failed` with the reason if it fails
    or the connection ends before."""

    __slots__ = (
        "_handshake_bytes",
        "_handshakes",
        "_has_inner",
        "_incoming",
        "_inner",
        "_is_paused",
        "_is_stepping",
        "_make_ssl",
        "_outgoing",
        "_ssl",
        "_state",
        "_transport",
        "on_failed",
        "on_secured",
    )

    def __init__(
        self,
        inner: asyncio.BufferedProtocol,
        make_ssl: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject],
        handshakes: Handshakes | None,
        on_secured: Callable[[ssl.SSLObject], None],
        on_failed: Callable[[str], None],
    ) -> None:
        """With `handshakes` this is the server's side."""
        self._inner = inner
        self._make_ssl = make_ssl
        self._handshakes = handshakes
        self.on_secured = on_secured
        self.on_failed = on_failed
        self._state = _SHAKING
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        # Made when the peer has sent something: one that only connects costs little.
        self._ssl: ssl.SSLObject | None = None
        self._transport: asyncio.Transport
        self._handshake_bytes = 0
        # Whether `connection_made` of the inner protocol has been called.
        self._has_inner = False
        # Whether the protocol inside wants to read nothing, and whether a step of the handshake has to be made first.
        self._is_paused = self._is_stepping = False

    def __repr__(self) -> str:
        return f"<TlsConnection {self._state.value} around {self._inner!r}>"

    # What the transport tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        if self._handshakes is None:
            self.step()
        else:
            self._handshakes.begin(self)
            self._connect_inner()

    def _connect_inner(self) -> None:
        self._has_inner = True
        self._inner.connection_made(cast("asyncio.BaseTransport", self))

    def connection_lost(self, exc: Exception | None) -> None:
        was_shaking, self._state = self._state is _SHAKING, _ENDING
        if self._handshakes is not None:
            self._handshakes.end(self)
        # A peer that only knocks, as many monitors do, has begun no handshake.
        if was_shaking and (self._handshake_bytes or self._handshakes is None):
            self.on_failed(str(exc) if exc is not None else "the peer closed the connection in the handshake")
        if self._has_inner:
            self._inner.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _SHARED

    def buffer_updated(self, nbytes: int) -> None:
        if self._state is _ENDING:
            return
        self._incoming.write(_SHARED[:nbytes])
        if self._state is _OPEN:
            self._decrypt()
            return
        self._handshake_bytes += nbytes
        if self._handshake_bytes > _MAX_HANDSHAKE_BYTES:
            self.give_up(f"{self._handshake_bytes} bytes came, and the handshake is not done")
        elif self._handshakes is None:
            self.step()
        else:
            self._is_stepping = True
            self._transport.pause_reading()
            self._handshakes.step_soon(self)

    def pause_writing(self) -> None:
        if self._state is _OPEN:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._state is _OPEN:
            self._inner.resume_writing()

    # The handshake.

    def step(self) -> None:
        """Continue the handshake as far as the bytes that were received allow."""
        try:
            if self._ssl is None:
                self._ssl = self._make_ssl(self._incoming, self._outgoing)
            self._ssl.do_handshake()
            self.on_secured(self._ssl)
        except ssl.SSLWantReadError:
            self._flush()
            self._read_on()
            return
        except (ssl.SSLError, ssl.CertificateError, PeerRefused) as error:
            self.give_up(_reason(error))
            return
        self._become_open()

    def _become_open(self) -> None:
        self._state = _OPEN
        self._flush()
        if self._handshakes is None:
            self._connect_inner()
        else:
            self._handshakes.end(self)
            self._acknowledge()
        self._decrypt()
        self._read_on()

    def _acknowledge(self) -> None:
        """Let the kernel acknowledge the peer's last message of the handshake at once. We send nothing behind it, and
        a client with Nagle's algorithm holds its first request back until then: 40 ms."""
        quickack = getattr(socket, "TCP_QUICKACK", None)
        plain = self._transport.get_extra_info("socket")
        if quickack is not None and plain is not None:
            plain.setsockopt(socket.IPPROTO_TCP, quickack, 1)

    def _read_on(self) -> None:
        if self._is_stepping:
            self._is_stepping = False
            if not self._is_paused and not self._transport.is_closing():
                self._transport.resume_reading()

    def give_up(self, why: str) -> None:
        """Send a TLS alert and close: the handshake has failed."""
        if self._state is not _SHAKING:
            return
        self._state = _ENDING
        if self._handshakes is not None:
            self._handshakes.end(self)
        self.on_failed(why)
        self._flush()
        self._end_slowly()

    def _end_slowly(self) -> None:
        """Close our side alone. If a socket is closed with unread bytes in it, the kernel resets the connection and
        discards what was sent."""
        transport = self._transport
        if transport.is_closing():
            return
        try:
            transport.write_eof()
        except (OSError, RuntimeError, NotImplementedError):
            transport.abort()
            return
        self._is_paused = False
        self._read_on()
        asyncio.get_running_loop().call_later(_ENDING_S, transport.abort)

    # What the protocol inside gets.

    def _decrypt(self) -> None:
        assert self._ssl is not None
        # Called for every record of TLS, and those of librdkafka are often small.
        read, inner, incoming = cast("Callable[[int, memoryview], int]", self._ssl.read), self._inner, self._incoming
        has_more, is_ended = True, False
        while has_more and self._state is _OPEN:
            space = cast("memoryview", inner.get_buffer(-1))
            room, count = len(space), 0
            try:
                while count < room:
                    got = read(room - count, space[count:])
                    if not got:
                        has_more, is_ended = False, True
                        break
                    count += got
                    # A small request often came alone: asking for more takes an exception, which costs two records.
                    if count < _SMALL_BYTES and count < room and not incoming.pending:
                        has_more = False
                        break
            except ssl.SSLWantReadError:
                has_more = False
            except ssl.SSLError as error:
                self._break(error)
                return
            if count:
                inner.buffer_updated(count)
        if is_ended:
            # The peer has sent close_notify, and may wait for ours before it closes.
            self.close()
        elif self._outgoing.pending:
            self._flush()

    def _break(self, error: ssl.SSLError) -> None:
        """Log a TLS error of the peer, and close the connection."""
        log.warning("%s: %s; the connection is closed", self._peer, _reason(error))
        self._flush()
        self._state = _ENDING
        self._transport.close()

    @property
    def _peer(self) -> str:
        address = self._transport.get_extra_info("peername")
        return f"{address[0]}:{address[1]}" if address else "?"

    # What the protocol inside does: the part of a transport that it uses.

    def write(self, data: Buffer) -> None:
        if self._state is _OPEN:
            self._encrypt(data)
            self._flush()

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        """Write the buffers; small ones share a TLS record."""
        if self._state is not _OPEN:
            return
        small: list[Buffer] = []
        small_bytes = 0
        for one in buffers:
            if small_bytes + len(one) > _RECORD_BYTES:
                if small:
                    self._encrypt(b"".join(small))
                    small, small_bytes = [], 0
                if len(one) >= _RECORD_BYTES:
                    self._encrypt(one)
                    continue
            small.append(one)
            small_bytes += len(one)
        if small:
            self._encrypt(b"".join(small))
        self._flush()

    def _encrypt(self, data: Buffer) -> None:
        assert self._ssl is not None
        write, outgoing = self._ssl.write, self._outgoing
        view, at = memoryview(data), 0
        while at < len(view):
            at += write(view[at : at + _PART_BYTES])
            if outgoing.pending >= _PART_BYTES:
                self._transport.write(outgoing.read())

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def pause_reading(self) -> None:
        self._is_paused = True
        if not self._is_stepping:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if not self._is_stepping:
            self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._send_close_notify()
        self._transport.close()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        self._send_close_notify()
        self._transport.write_eof()

    def abort(self) -> None:
        self._state = _ENDING if self._state is _OPEN else self._state
        self._transport.abort()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def _send_close_notify(self) -> None:
        was_open, self._state = self._state is _OPEN, _ENDING
        if was_open:
            assert self._ssl is not None
            # The first call sends our close_notify, and raises because the peer's has not come.
            with suppress(ssl.SSLError):
                self._ssl.unwrap()
            self._flush()
        elif self._handshakes is not None:
            self._handshakes.end(self)


def _reason(error: Exception) -> str:
    """Return the error in words, such as `certificate verify failed: certificate has expired`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        words = error.reason.replace("_", " ").lower()
        return f"{words} (does the peer speak TLS?)" if error.reason in _NOT_TLS else words
    return str(error)


_NOT_TLS = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"))
