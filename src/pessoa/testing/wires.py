"""The wires between the brokers of a test cluster, which can be cut and mended.

Every broker has a network of its own (the network door of `pessoa.net.network`), on real sockets. A cut pair of brokers
behaves as if a switch between them had lost its power: nothing arrives, neither is notified, and a new connection
hangs. What was sent meanwhile arrives when the wires are mended, as TCP would have it.

A connection is held at the end of the node that made it: nothing is read from it, and what is written to it waits. A
connection that is closed while the wires are cut stays open towards the other side, which does not learn of it.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, cast

from pessoa.net.network import SocketSettings, SystemNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pessoa.net.network import ListeningSocket, P
    from pessoa.wire.frames import Buffer


class Wires:
    """The pairs of brokers between which the network is partitioned; the network of every broker looks them up here.
    Used from many threads."""

    def __init__(self) -> None:
        self.owners: dict[int, int] = {}  # port → broker
        self._cut_pairs: set[frozenset[int]] = set()
        self._networks: dict[int, WiredNetwork] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Wires: cut between {sorted(map(sorted, self._cut_pairs))}>"

    def network_of(self, broker_id: int) -> WiredNetwork:
        """Return a new network for a broker that starts: its connections from before are lost."""
        network = self._networks[broker_id] = WiredNetwork(self, broker_id)
        return network

    def is_cut(self, one: int, other: int) -> bool:
        with self._lock:
            return frozenset((one, other)) in self._cut_pairs

    def cut(self, one: int, other: int) -> None:
        with self._lock:
            self._cut_pairs.add(frozenset((one, other)))
        self._notify((one, other))

    def mend(self) -> None:
        with self._lock:
            self._cut_pairs.clear()
        self._notify(self._networks)

    def _notify(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            network = self._networks.get(broker)
            if network is not None:
                network.wires_changed()


class WiredNetwork:
    """The network of one broker: the system's, with connections that are held while their peer is partitioned off."""

    def __init__(self, wires: Wires, broker_id: int) -> None:
        self._wires = wires
        self._broker_id = broker_id
        self._system = SystemNetwork()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._transports: list[HeldTransport] = []

    async def listen(
        self,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        settings: SocketSettings = SocketSettings(),  # noqa: B008  # it cannot change
    ) -> ListeningSocket:
        self._loop = asyncio.get_running_loop()
        return await self._system.listen(make_protocol, host, port, settings)

    async def connect(self, make_protocol: Callable[[], P], host: str, port: int) -> P:
        self._loop = asyncio.get_running_loop()
        peer = self._wires.owners.get(port, -1)
        while self._wires.is_cut(self._broker_id, peer):
            self._changed.clear()
            await self._changed.wait()
        protocol = make_protocol()
        await self._system.connect(lambda: _HoldableProtocol(self, peer, protocol), host, port)
        return protocol

    def add(self, transport: HeldTransport) -> None:
        self._transports = [one for one in self._transports if not one.is_inner_closed]
        self._transports.append(transport)
        transport.hold(self._wires.is_cut(self._broker_id, transport.peer))

    def abort_all(self) -> None:
        """Close all sockets, in the broker's own thread, as if its process was killed."""
        for transport in self._transports:
            transport.kill()

    def wires_changed(self) -> None:
        """Have the broker's thread hold or release its connections. May be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._apply_cuts)

    def _apply_cuts(self) -> None:
        self._changed.set()
        for transport in self._transports:
            transport.hold(self._wires.is_cut(self._broker_id, transport.peer))


class _HoldableProtocol(asyncio.BufferedProtocol):
    """A protocol that passes every call to the real protocol, with a transport that can be held."""

    def __init__(self, network: WiredNetwork, peer: int, protocol: asyncio.BaseProtocol) -> None:
        self._network = network
        self._peer = peer
        self._protocol = cast("asyncio.BufferedProtocol", protocol)
        self._transport: HeldTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = HeldTransport(cast("asyncio.Transport", transport), self._protocol, self._peer)
        self._protocol.connection_made(cast("asyncio.BaseTransport", self._transport))
        self._network.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._transport is not None
        self._transport.lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        return cast("memoryview", self._protocol.get_buffer(sizehint))

    def buffer_updated(self, nbytes: int) -> None:
        self._protocol.buffer_updated(nbytes)

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


class HeldTransport:
    """An asyncio transport that can be held: it neither sends nor receives then. It has the methods that our
    connections use."""

    def __init__(self, inner: asyncio.Transport, protocol: asyncio.BaseProtocol, peer: int) -> None:
        self.peer = peer
        self._inner = inner
        self._protocol = protocol
        self._is_held = False
        self._is_ended = False
        self._unsent: list[Buffer] = []

    @property
    def is_inner_closed(self) -> bool:
        return self._inner.is_closing()

    def hold(self, is_held: bool) -> None:
        if is_held == self._is_held:
            return
        self._is_held = is_held
        if is_held:
            if not self._inner.is_closing():
                self._inner.pause_reading()
        elif self._is_ended:
            self._inner.abort()
        elif not self._inner.is_closing():
            self._inner.resume_reading()
            unsent, self._unsent = self._unsent, []
            self._inner.writelines(unsent)

    def write(self, data: Buffer) -> None:
        self.writelines([data])

    def writelines(self, buffers: list[Buffer]) -> None:
        if self._is_held:
            self._unsent += [bytes(one) for one in buffers]
        else:
            self._inner.writelines(buffers)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_held:
            self._inner.abort()
        elif not self._is_ended:
            self._is_ended = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def kill(self) -> None:
        """Close the transport in both directions, held or not."""
        self._is_held = False
        self._inner.abort()

    def lost(self, exc: Exception | None) -> None:
        """Report the loss of the real transport to the protocol."""
        if not self._is_ended:
            self._is_ended = True
            self._protocol.connection_lost(exc)

    def is_closing(self) -> bool:
        return self._is_ended or self._inner.is_closing()

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        if not self._is_held:
            self._inner.resume_reading()

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._inner.get_extra_info(name, default)
