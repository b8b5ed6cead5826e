"""A listening socket, and the connections that it accepts: a shell.

What a connection does is decided in `connection.py`, which has no socket; `server_protocol.py` carries it out. The
listener has what concerns all of its connections:

    accept   the quotas say whether a connection is admitted, and how long it has to wait for its turn; where there is
             TLS, it stands in front of the connection (`tls.py`)
    settle   answers that became ready while a request was served are made behind it, in the same turn of the loop
    sweep    connections that were silent for `connections.max.idle.ms` are closed, half a frame or not; so are those
             that must authenticate and have not done so in time, and those that hold memory for which others have
             waited too long; and freed memory goes back to the kernel. A connection is closed when its last answers
             are sent, and cut where its peer does not read them: when its time has passed, or at the second sweep
             that sees it closing
    drain    when it closes, every connection is served up to the last whole request that has come, and then ended
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from pessoa.base.clock import SystemClock, wait_at_most
from pessoa.net.connection_quota import ConnectionHeld, ConnectionRefused
from pessoa.net.freed_memory import return_freed_memory
from pessoa.net.handshakes import Handshakes
from pessoa.net.network import SocketSettings, SystemNetwork
from pessoa.net.receive_room import ReceiveRoom
from pessoa.net.server_protocol import ServerProtocol
from pessoa.net.tls import TlsConnection, refuse_expired
from pessoa.wire.frames import DEFAULT_MAX_FRAME_BYTES

if TYPE_CHECKING:
    import ssl

    from pessoa.base.clock import Clock, Timer
    from pessoa.net.connection import Connection
    from pessoa.net.connection_quota import ConnectionQuota
    from pessoa.net.network import ListeningSocket, Network
    from pessoa.net.pending import Pending
    from pessoa.net.server_protocol import Serve
    from pessoa.net.tls import ServerTls

log = logging.getLogger("pessoa.net")

# How often idle connections are looked for.
_SWEEP_MS = 5_000
# From this on, memory of requests goes back to the kernel when they are served: that takes a while.
_WORTH_RETURNING_BYTES = 64 * 1024 * 1024


class ListenerLimits(NamedTuple):
    """Names and defaults are Kafka's."""

    socket_request_max_bytes: int = DEFAULT_MAX_FRAME_BYTES
    connections_max_idle_ms: int = 10 * 60 * 1000


class Listener:
    """`async with Listener(...)`: listens inside; outside, every connection is closed and every answer was sent."""

    def __init__(
        self,
        host: str,
        port: int,
        serve: Serve,
        limits: ListenerLimits | None = None,
        drain_seconds: float = 5.0,
        network: Network | None = None,
        room: ReceiveRoom | None = None,
        quotas: Sequence[ConnectionQuota] = (),
        sockets: SocketSettings | None = None,
        clock: Clock | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.serve = serve
        # How connections that come from now on are secured; None: not at all.
        self.tls = tls
        self.limits = limits or ListenerLimits()
        # What a connection must fit into, all of them.
        self.quotas = tuple(quotas)
        self.room = room if room is not None else ReceiveRoom()
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.now_ms = self.clock.monotonic_ms
        self.connections: set[ServerProtocol] = set()
        # Those of them that do not read as quickly as they are answered.
        self.slow_readers: set[ServerProtocol] = set()
        # Called with exceptions that no handler expects; they are in the log in any case.
        self.on_bug: Callable[[Exception], None] = lambda _: None
        # Called with every connection, before anything of it is served.
        self.on_accepted: Callable[[ServerProtocol], None] = lambda _: None
        # Called with every connection that has ended.
        self.on_closed: list[Callable[[Connection], None]] = []
        self.loop: asyncio.AbstractEventLoop
        # Whether a connection serves what it has read: answers that become ready meanwhile are made behind it.
        self._is_serving = False
        self._ready_responses: deque[tuple[ServerProtocol, Pending]] = deque()
        self._drain_seconds = drain_seconds
        self._sockets = sockets or SocketSettings()
        self._network: Network = network if network is not None else SystemNetwork()
        self._socket: ListeningSocket | None = None
        self._handshakes: Handshakes
        self._sweeper: Timer | None = None
        # Those that were being closed at the last sweep.
        self._closing: frozenset[ServerProtocol] = frozenset()
        self._all_closed: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<Listener {self.address}: {len(self.connections)} connections>"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        self._handshakes = Handshakes(self.clock, self.loop)
        self._socket = await self._network.listen(self._make_protocol, self.host, self.port, self._sockets)
        # Port 0 asks for any free one.
        self.port = self._socket.port
        self._sweep()
        return self

    def _make_protocol(self) -> asyncio.BufferedProtocol:
        protocol, tls = ServerProtocol(self), self.tls
        if tls is None:
            return protocol
        connection = protocol.connection

        def admit_peer(secured: ssl.SSLObject) -> None:
            refuse_expired(secured, self.clock.now_ms())
            connection.principal = tls.principal_of(secured.getpeercert(binary_form=True))

        def refuse_peer(why: str) -> None:
            log.info("%s on %s: the TLS handshake failed: %s", connection.peer, self.address, why)

        return TlsConnection(
            protocol,
            lambda incoming, outgoing: tls.context.wrap_bio(incoming, outgoing, server_side=True),
            self._handshakes,
            admit_peer,
            refuse_peer,
        )

    async def __aexit__(self, *_: object) -> None:
        assert self._socket is not None
        assert self._sweeper is not None
        self._sweeper.cancel()
        self._socket.close()
        self._all_closed = asyncio.Event()
        self.end_connections()
        drain_ms = int(self._drain_seconds * 1000)
        if self.connections and not await wait_at_most(self.clock, self._all_closed.wait(), drain_ms):
            log.warning("%s: %s connections did not end in time and are cut", self.address, len(self.connections))
        for connection in self._in_order():
            connection.abort()
        await self._socket.wait_closed()

    def end_connections(self) -> None:
        """Serve every connection up to the last whole request that was received, and close it; new connections are
        accepted."""
        for connection in self._in_order():
            connection.drain()

    def abort(self) -> None:
        """Close everything at once, whatever is in progress."""
        if self._socket is not None:
            self._socket.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in self._in_order():
            connection.abort()

    def _in_order(self) -> list[ServerProtocol]:
        """Return the connections in the order of their ids, so that a simulated run does not depend on the addresses of
        objects."""
        return sorted(self.connections, key=lambda one: one.connection.id)

    def silences_ms(self) -> Iterator[tuple[int, int]]:
        """Yield for each connection when it last received bytes or sent a response, and for how long it has been idle:
        0 while a response is owed."""
        now_ms = self.now_ms()
        for one in self.connections:
            active_at_ms = one.connection.active_at_ms
            yield active_at_ms, 0 if one.is_in_progress else now_ms - active_at_ms

    def serve_turn(self, connection: ServerProtocol) -> None:
        """Let a connection serve the requests that were received, and then make the responses that these have made
        ready."""
        self._is_serving = True
        try:
            connection.take_turn()
        finally:
            self._is_serving = False
        if self._ready_responses:
            self._settle_all()

    def settle(self, connection: ServerProtocol, pending: Pending) -> None:
        """Queue a pending response that can be made now. It is made when the request that completed it has been
        served."""
        if not self._is_serving and not self._ready_responses:
            self.loop.call_soon(self._settle_all)
        self._ready_responses.append((connection, pending))

    def _settle_all(self) -> None:
        # Connections that are answered may go on and settle others, which then queue up here.
        settled, self._is_serving = self._ready_responses, True
        try:
            while settled:
                connection, pending = settled.popleft()
                connection.settle(pending)
        finally:
            self._is_serving = False
            if settled:
                self.loop.call_soon(self._settle_all)

    def admit(self, accepted: ServerProtocol) -> float | None:
        """Count a new connection; return how many seconds it has to wait under the connection rate quota, None if it is
        refused."""
        self.connections.add(accepted)
        if self._all_closed is not None:
            # It was accepted in the turn of the loop in which the listener began to close.
            self.loop.call_soon(accepted.drain)
        connection = accepted.connection
        self.on_accepted(accepted)
        early_s: float | None = 0.0
        for quota in self.quotas:
            try:
                wait_s = quota.enter(connection.host, connection.active_at_ms / 1000)
            except ConnectionHeld as held:
                accepted.hold(held.hold_ms)
            except ConnectionRefused as refused:
                log.warning("%s is refused: %s", connection.peer, refused)
                early_s = None
            else:
                early_s = None if early_s is None else max(early_s, wait_s)
        return early_s

    @property
    def unread_bytes(self) -> int:
        """The memory of responses that slow clients have not read."""
        return sum(one.unread_bytes for one in self.slow_readers) if self.slow_readers else 0

    def forget(self, lost: ServerProtocol) -> None:
        self.connections.discard(lost)
        self.slow_readers.discard(lost)
        for quota in self.quotas:
            quota.leave(lost.connection.host)
        if self._all_closed is not None and not self.connections:
            self._all_closed.set()
        self._note_closed(lost.connection)
        # Again behind the cancelling of its requests: a step that one takes until then may begin a share session.
        self.loop.call_soon(self._note_closed, lost.connection)

    def _note_closed(self, connection: Connection) -> None:
        for on_closed in self.on_closed:
            on_closed(connection)

    def _sweep(self) -> None:
        now_ms = self.now_ms()
        closing = []
        for one in self._in_order():
            if one.is_closing:
                if one in self._closing:
                    log.info("%s does not read its last answers and is cut", one.peer)
                    one.abort()
                closing.append(one)
            elif now_ms - one.connection.active_at_ms > self.limits.connections_max_idle_ms and not one.is_in_progress:
                log.info("%s was idle for too long and is closed", one.peer)
                one.close_overdue()
            elif (by_ms := one.connection.authenticate_by_ms) is not None and now_ms > by_ms:
                log.info("%s has not authenticated in time and is closed", one.peer)
                one.close_overdue()
        self._closing = frozenset(closing)
        self.room.close_slow_connections(now_ms)
        if self.room.take_freed_bytes() > _WORTH_RETURNING_BYTES:
            return_freed_memory()
        self._sweeper = self.clock.call_after_ms(_SWEEP_MS, self._sweep)
