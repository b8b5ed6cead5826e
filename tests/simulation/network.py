"""The simulated network, in memory: every host has its network door, and one fabric connects all of them.

A connection is two pipes, one for each direction. As TCP does, a pipe keeps its order and loses nothing while the
connection lives; how long a piece takes is drawn from the seed, so that connections overtake each other. What can
happen to it:

    delay      every piece takes some time, and sometimes a long time
    cut        a direction between two hosts carries nothing. Bytes wait, as for a retransmission, and arrive after the
               cut is healed, unless the connection is reset then. New connections time out meanwhile
    reset      both ends get a connection reset; bytes that were on their way may or may not have arrived
    hold       a request is kept for long, while its connection is reset and its sender tries again elsewhere; then it
               arrives after all, on a connection of its own. So an old Produce can arrive in a new transaction. Or it
               arrives in time, and later once more

When a process is killed, the kernel resets its connections. A machine that loses power sends nothing; its peers notice
by a timeout, or by a reset when it is back.

`is_cut` has directions, so a network partition may be one-way: bytes from B reach A, and bytes from A do not reach B.
"""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections import deque
from contextvars import Context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.simulation.loop import Process, SimulatedLoop

P = TypeVar("P", bound=asyncio.BaseProtocol)

_FIRST_FREE_PORT = 30_000
# Unsent bytes at which a protocol is told to pause and to resume writing: asyncio's limits.
_HIGH_WATER_BYTES = 64 * 1024
_LOW_WATER_BYTES = 16 * 1024
# A connection attempt fails after this time, as in a real system after some retries.
_CONNECT_TIMEOUT_S = 5.0
# A frame that can be held has at least its size and the beginning of a request header.
_PREFIX_BYTES = 12


@dataclass(slots=True)
class Weather:
    """The faults of the simulated network. Probabilities are per piece of bytes."""

    latency_s: float = 0.0005
    # A piece is late with this probability, by up to so many seconds.
    late: float = 0.0
    late_s: float = 0.0
    reset: float = 0.0
    split: float = 0.0
    # Probability that a request with one of these API keys, from a host that is no broker, is held.
    hold: float = 0.0
    hold_s: float = 0.0
    held_apis: frozenset[int] = frozenset()


class Fabric:
    def __init__(self, loop: SimulatedLoop, rng: Random) -> None:
        self.loop = loop
        self.rng = rng
        self.weather = Weather()
        self.listening: dict[tuple[str, int], _Socket] = {}
        self.is_cut: set[tuple[str, str]] = set()
        # Hosts without power: connection attempts time out, and are not even refused.
        self.dark: set[str] = set()
        self.delivered_bytes = 0
        self._connections: dict[int, tuple[WireTransport, WireTransport]] = {}
        self._made = 0
        self._next_port = _FIRST_FREE_PORT

    def __repr__(self) -> str:
        return f"<Fabric: {len(self._connections)} connections, cut {sorted(self.is_cut)}, dark {sorted(self.dark)}>"

    def latency_s(self) -> float:
        weather, rng = self.weather, self.rng
        delay = weather.latency_s * (0.2 + rng.random())
        if weather.late and rng.random() < weather.late:
            delay += rng.random() * weather.late_s
        return delay

    # Faults.

    def cut(self, source: str, target: str) -> None:
        self.is_cut.add((source, target))

    def mend(self, source: str, target: str) -> None:
        """Heal the cut of this direction."""
        if (source, target) in self.is_cut:
            self.is_cut.discard((source, target))
            self._deliver({(source, target)})

    def heal(self) -> None:
        """Heal the cuts of all directions."""
        cut, self.is_cut = self.is_cut, set()
        self._deliver(cut)

    def _deliver(self, cut: set[tuple[str, str]]) -> None:
        """Deliver the bytes that waited for these cuts to heal, or drop them if their connection is reset."""
        for ends in list(self._connections.values()):
            if any((one.host, one.peer_host) in cut and one.is_stuck for one in ends):
                if self.rng.random() < 0.5:
                    self.reset(*ends)
                else:
                    for one in ends:
                        one.send_stuck()

    def kill(self, process: Process, host: str, *, is_power_loss: bool) -> None:
        """Close all sockets of a process that has died."""
        for address, socket in list(self.listening.items()):
            if socket.process is process:
                del self.listening[address]
        if is_power_loss:
            self.dark.add(host)
        for ends in list(self._connections.values()):
            for one in ends:
                if one.process is process:
                    one.die(is_silent=is_power_loss)

    def power_on(self, host: str) -> None:
        """Restore the power of a host, which resets its old connections."""
        self.dark.discard(host)
        for ends in list(self._connections.values()):
            if any(one.host == host and one.process.is_dead for one in ends):
                self.reset(*ends)

    def reset(self, *ends: WireTransport) -> None:
        for one in ends:
            one.receive_reset(self.latency_s())

    # Connecting.

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def carries(self, source: str, target: str) -> bool:
        return (source, target) not in self.is_cut and target not in self.dark

    def join(self, caller: _Caller, socket: _Socket) -> WireTransport:
        """Return the connecting end of a new connection; the listening side is called in its own process."""
        self._made += 1
        number = self._made
        near = WireTransport(self, number, caller.process, caller.host, socket.host, caller.free_port, socket.port)
        far = WireTransport(self, number, socket.process, socket.host, caller.host, socket.port, near.port)
        near.peer, far.peer = far, near
        self._connections[number] = (near, far)
        self.loop.call_soon(far.begin, socket.make_protocol, context=socket.process.context)
        return near

    def forget(self, number: int) -> None:
        ends = self._connections.get(number)
        if ends is not None and all(one.is_over for one in ends):
            del self._connections[number]


@dataclass(slots=True)
class _Caller:
    process: Process
    host: str
    free_port: int


class _Socket:
    def __init__(
        self, fabric: Fabric, process: Process, host: str, port: int, make_protocol: Callable[[], Any]
    ) -> None:
        self.process = process
        self.host = host
        self.port = port
        self.make_protocol = make_protocol
        self._fabric = fabric

    def close(self) -> None:
        if self._fabric.listening.get((self.host, self.port)) is self:
            del self._fabric.listening[self.host, self.port]

    async def wait_closed(self) -> None:
        return


class HostNetwork:
    """The network door of one process on one host."""

    def __init__(self, fabric: Fabric, host: str, process: Process) -> None:
        self._fabric = fabric
        self._host = host
        self._process = process

    def __repr__(self) -> str:
        return f"<HostNetwork of {self._host}>"

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        fabric = self._fabric
        await asyncio.sleep(fabric.latency_s())
        if not (fabric.carries(self._host, host) and fabric.carries(host, self._host)):
            await asyncio.sleep(_CONNECT_TIMEOUT_S)
            raise TimeoutError(errno.ETIMEDOUT, f"{host}:{port} does not answer")
        socket = fabric.listening.get((host, port))
        if socket is None:
            await asyncio.sleep(fabric.latency_s())
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"no process listens on {host}:{port}")
        transport = fabric.join(_Caller(self._process, self._host, fabric.free_port()), socket)
        await asyncio.sleep(fabric.latency_s())
        if transport.is_closing():
            raise ConnectionResetError(errno.ECONNRESET, f"{host}:{port} went away")
        protocol = make_protocol()
        transport.begin(lambda: protocol)
        return protocol

    async def listen(
        self, make_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, settings: object = None
    ) -> _Socket:
        if port == 0:
            port = self._fabric.free_port()
        if (host, port) in self._fabric.listening:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        socket = _Socket(self._fabric, self._process, host, port, make_protocol)
        self._fabric.listening[host, port] = socket
        return socket


# Marks the end of the stream in a pipe.
_END = b""


class WireTransport(asyncio.Transport):
    """One end of a connection, and the pipe that leads away from it."""

    peer: WireTransport

    def __init__(
        self, fabric: Fabric, number: int, process: Process, host: str, peer_host: str, port: int, peer_port: int
    ) -> None:
        super().__init__({"peername": (peer_host, peer_port), "sockname": (host, port)})
        self.process = process
        self.host = host
        self.peer_host = peer_host
        self.port = port
        # Nothing is received or sent any more.
        self.is_over = False
        self._fabric = fabric
        self._number = number
        self._protocol: Any = None
        self._is_buffered = False
        self._is_closing = False
        # Reset, and the protocols have not been told yet.
        self._is_broken = False
        self._is_reading = True
        # Arrived, and not yet read by the process.
        self._arrived: deque[bytes] = deque()
        # Waiting for a cut to heal.
        self._stuck: deque[bytes] = deque()
        self._in_flight_bytes = 0
        self._is_writer_paused = False
        self._last_due_s = 0.0

    def can_write_eof(self) -> bool:
        # Unlike a kernel, this resets no connection because of unread bytes.
        return False

    def __repr__(self) -> str:
        return f"<WireTransport {self.host}:{self.port} → {self.peer_host}{', over' if self.is_over else ''}>"

    def begin(self, make_protocol: Callable[[], Any]) -> None:
        if not self.is_over:
            self.set_protocol(make_protocol())
            self._protocol.connection_made(self)
            self._read_arrived()

    # What the protocol does.

    def write(self, data: Any) -> None:
        if self._is_closing or self._is_broken or self.process.is_dead or not data:
            return
        piece = bytes(data)
        fabric = self._fabric
        fabric.loop.mix(zlib.crc32(piece))
        self._in_flight_bytes += len(piece)
        if self._in_flight_bytes > _HIGH_WATER_BYTES and not self._is_writer_paused:
            self._is_writer_paused = True
            self._protocol.pause_writing()
        weather, rng = fabric.weather, fabric.rng
        if weather.hold and self._may_be_held(piece) and rng.random() < weather.hold:
            self._hold(piece)
        elif weather.reset and rng.random() < weather.reset:
            self._send(piece[: rng.randrange(len(piece) + 1)])
            self._break()
        elif weather.split and len(piece) > 1 and rng.random() < weather.split:
            middle = rng.randrange(1, len(piece))
            self._send(piece[:middle])
            self._send(piece[middle:])
        else:
            self._send(piece)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self.process.is_dead:
                self._send(_END)
            self._fabric.loop.call_soon(self._lose, None, context=self.process.context)

    def abort(self) -> None:
        if not self.is_over:
            self._is_closing = True
            if not self.process.is_dead and self._fabric.carries(self.host, self.peer_host):
                self.peer.receive_reset(self._fabric.latency_s())
            self._fabric.loop.call_soon(self._lose, None, context=self.process.context)

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        if self._arrived:
            self._fabric.loop.call_soon(self._read_arrived, context=self.process.context)

    def is_reading(self) -> bool:
        return self._is_reading

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_write_buffer_size(self) -> int:
        return self._in_flight_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the limits are always asyncio's defaults."""

    # The pipe to the other end.

    @property
    def is_stuck(self) -> bool:
        return bool(self._stuck)

    def _send(self, piece: bytes) -> None:
        fabric = self._fabric
        if self._stuck or not fabric.carries(self.host, self.peer_host):
            self._stuck.append(piece)
            return
        due_s = fabric.loop.now_s + fabric.latency_s()
        if due_s < self._last_due_s:
            due_s = self._last_due_s
        self._last_due_s = due_s
        fabric.loop.call_at(due_s, self.peer.receive, piece, context=self.peer.process.context)

    def send_stuck(self) -> None:
        stuck, self._stuck = self._stuck, deque()
        for piece in stuck:
            self._send(piece)

    def receive(self, piece: bytes) -> None:
        if self.is_over:
            return
        self._arrived.append(piece)
        if self._protocol is not None:
            self._read_arrived()

    def receive_reset(self, delay_s: float) -> None:
        if not self.is_over and not self.process.is_dead:
            error = ConnectionResetError(errno.ECONNRESET, "the connection was reset")
            self._fabric.loop.call_later(delay_s, self._lose, error, context=self.process.context)

    def _read_arrived(self) -> None:
        while self._arrived and self._is_reading and not self._is_closing:
            piece = self._arrived.popleft()
            if piece == _END:
                self._protocol.eof_received()
                self.close()
                return
            self.peer.was_read(len(piece))
            self._fabric.delivered_bytes += len(piece)
            self._feed(piece)

    def _feed(self, piece: bytes) -> None:
        protocol = self._protocol
        if not self._is_buffered:
            protocol.data_received(piece)
            return
        view = memoryview(piece)
        while view and not self._is_closing:
            space: Any = protocol.get_buffer(len(view))
            count = min(len(space), len(view))
            space[:count] = view[:count]
            protocol.buffer_updated(count)
            view = view[count:]

    def was_read(self, size: int) -> None:
        self._in_flight_bytes -= size
        if self._is_writer_paused and self._in_flight_bytes <= _LOW_WATER_BYTES:
            self._is_writer_paused = False
            self._fabric.loop.call_soon(self._resume_writer, context=self.process.context)

    def _resume_writer(self) -> None:
        if not self.is_over:
            self._protocol.resume_writing()

    # The end.

    def die(self, *, is_silent: bool) -> None:
        """End the connection of a dead process. The kernel resets it at the peer, unless the machine has lost its
        power."""
        self.is_over = self._is_closing = True
        if not is_silent and self._fabric.carries(self.host, self.peer_host):
            self.peer.receive_reset(self._fabric.latency_s())
        self._fabric.forget(self._number)

    def _lose(self, error: Exception | None) -> None:
        if self.is_over:
            return
        self.is_over = self._is_closing = True
        self._fabric.forget(self._number)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _break(self) -> None:
        """Reset the connection at both ends; bytes that are written until they notice are lost."""
        self._is_broken = self.peer._is_broken = True
        self._fabric.reset(self, self.peer)

    # Holding requests.

    def _may_be_held(self, piece: bytes) -> bool:
        return len(piece) > _PREFIX_BYTES and int.from_bytes(piece[4:6], "big") in self._fabric.weather.held_apis

    def _hold(self, piece: bytes) -> None:
        fabric = self._fabric
        if fabric.rng.random() < 0.5:
            self._break()
        else:
            # The request also arrives now: a router on the way has kept a copy.
            self._send(piece)
        delay_s = fabric.rng.random() * fabric.weather.hold_s
        fabric.loop.call_later(delay_s, self._deliver_late, piece, context=Context())

    def _deliver_late(self, piece: bytes) -> None:
        fabric = self._fabric
        socket = fabric.listening.get((self.peer_host, self.get_extra_info("peername")[1]))
        if socket is not None:
            near = fabric.join(_Caller(self.process, self.host, fabric.free_port()), socket)
            near.begin(_Deaf)
            near._send(piece)


class _Deaf(asyncio.Protocol):
    """The protocol of a connection on which a held request arrives; it ignores the response."""
