"""Slow links: a delaying proxy before the ports of every broker and its controller.

    with Links() as links:
        homes = {number: Home(…, seen_at=links.ports(number)) for number in BROKERS}
        brokers = BrokerProcesses(directory, homes=homes)
        links.lead_to(brokers)
        links.delay_s = 0.1

All requests to a broker, of clients and of other brokers, and all its responses arrive `delay_s` later, give or take a
half of it; each connection keeps its order. The kernels that we test on have no netem, which would do the same to
packets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random
from threading import Thread
from typing import Self

from tests.chaos.processes import BROKERS, TIMEOUT_S, BrokerProcesses

HOST = "127.0.0.1"
_CHUNK = 1 << 16


class Links:
    def __init__(self, numbers: Iterable[int] = BROKERS, seed: int = 1) -> None:
        self.delay_s = 0.0
        self._numbers = tuple(numbers)
        self._rng = Random(seed)
        self._ports: dict[int, tuple[int, int]] = {}
        # The port of a proxy → the port behind it.
        self._behind: dict[int, int] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True, name="links")

    def __repr__(self) -> str:
        return f"<Links {self._ports}: {len(self._connections)} connections, {self.delay_s:.2f} s late>"

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(TIMEOUT_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()

    def ports(self, number: int) -> tuple[int, int]:
        """Return the proxy's ports for the broker and its controller, which others connect to."""
        return self._ports[number]

    def lead_to(self, brokers: BrokerProcesses) -> None:
        for number, seen_at in self._ports.items():
            self._behind.update(zip(seen_at, brokers.listens_at(number), strict=True))

    async def _open(self) -> None:
        self._servers = [await asyncio.start_server(self._accept, HOST, 0) for _ in range(2 * len(self._numbers))]
        found = [server.sockets[0].getsockname()[1] for server in self._servers]
        self._ports = {number: (found[2 * at], found[2 * at + 1]) for at, number in enumerate(self._numbers)}

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for one in list(self._connections):
            one.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._connect(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            port = self._behind[writer.get_extra_info("sockname")[1]]
            answers, requests = await asyncio.open_connection(HOST, port)
            writers.append(requests)
            ways = [asyncio.create_task(self._pass(reader, requests)), asyncio.create_task(self._pass(answers, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            # The broker is down: close the client's connection too.
            pass
        finally:
            for one in writers:
                one.transport.abort()

    async def _pass(self, source: asyncio.StreamReader, destination: asyncio.StreamWriter) -> None:
        """Forward the data with its delay, and continue reading meanwhile."""
        on_its_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivery = asyncio.create_task(self._deliver(on_its_way, destination))
        try:
            while data := await source.read(_CHUNK):
                late_s = self.delay_s * self._rng.uniform(0.5, 1.5)
                on_its_way.put_nowait((self._loop.time() + late_s, data))
                if delivery.done():
                    return
        finally:
            delivery.cancel()
            await asyncio.gather(delivery, return_exceptions=True)

    async def _deliver(self, on_its_way: asyncio.Queue[tuple[float, bytes]], destination: asyncio.StreamWriter) -> None:
        while True:
            due_s, data = await on_its_way.get()
            await asyncio.sleep(max(0.0, due_s - self._loop.time()))
            destination.write(data)
            await destination.drain()
