"""How a broker that shuts down closes its connections: its port is closed last, for clients that reconnect at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from pessoa.base.clock import ManualClock
from pessoa.broker.draining import end_connections
from pessoa.broker.held_listener import HeldListener
from pessoa.broker.services import BrokerServices
from pessoa.net.connection import Connection
from pessoa.net.listener import Listener
from pessoa.wire.frames import Buffer

TIMEOUT_S = 60


def echo(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer]:
    body = bytes(data[start:end])
    return [len(body).to_bytes(4, "big") + body]


def broker_with(*others: int) -> BrokerServices:
    """Return the services of broker 1, whose metadata has only these other brokers."""
    brokers = {
        number: SimpleNamespace(id=number, fenced=False, in_controlled_shutdown=False) for number in (1, *others)
    }
    cluster = SimpleNamespace(brokers=brokers)
    return cast("BrokerServices", SimpleNamespace(node_id=1, image=SimpleNamespace(cluster=cluster)))


class Stage:
    """A broker that closes its connections, with a clock that does not advance."""

    def __init__(self, broker: BrokerServices, listener: Listener, clock: ManualClock) -> None:
        self._listener = listener
        self._clock = clock
        held = [cast("HeldListener", SimpleNamespace(listener=listener))]
        self._begin = partial(end_connections, broker, held, clock)
        self._ending: asyncio.Task[None] | None = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._listener.port)
        # So that the listener has seen it.
        assert await self.ask(reader, writer) == b"\0\0\0\4\0\0hi"
        return reader, writer

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"\0\0\0\4\0\0hi")
        return await reader.readexactly(8)

    async def begin(self) -> None:
        self._ending = asyncio.create_task(self._begin())
        await self.settle()

    async def pass_ms(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 20):
            self._clock.advance_ms(20)
            await self.settle()

    async def settle(self) -> None:
        """Run the event loop until sockets have delivered what was sent."""
        for _ in range(5):
            await asyncio.sleep(0.001)

    def is_done(self) -> bool:
        assert self._ending is not None
        return self._ending.done()


def run(others: tuple[int, ...], scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        clock = ManualClock(1_000_000)
        async with Listener("127.0.0.1", 0, echo, drain_seconds=0.1, clock=clock) as listener:
            await scenario(Stage(broker_with(*others), listener, clock))

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


def test_a_client_that_was_disconnected_and_reconnects_at_once_is_served() -> None:
    async def scenario(stage: Stage) -> None:
        reader, writer = await stage.connect()
        await stage.begin()
        assert await reader.read() == b"", "it was ended"
        again = await stage.connect()
        writer.close()
        await stage.pass_ms(200)
        assert await stage.ask(*again) == b"\0\0\0\4\0\0hi"
        await stage.pass_ms(200)
        assert not stage.is_done(), "it was asked a moment ago"
        await stage.pass_ms(600)
        assert stage.is_done()
        again[1].close()

    run((2, 3), scenario)


def test_clients_that_never_leave_do_not_keep_a_broker_from_stopping() -> None:
    async def scenario(stage: Stage) -> None:
        _, writer = await stage.connect()
        await stage.begin()
        again = await stage.connect()
        for _ in range(10):
            await stage.ask(*again)
            await stage.pass_ms(100)
        assert stage.is_done()
        for one in (writer, again[1]):
            one.close()

    run((2, 3), scenario)


@pytest.mark.parametrize("others", [(), (1,)])
def test_the_last_broker_keeps_serving_connections_until_its_port_is_closed(others: tuple[int, ...]) -> None:
    async def scenario(stage: Stage) -> None:
        reader, writer = await stage.connect()
        await stage.begin()
        assert stage.is_done()
        assert await stage.ask(reader, writer) == b"\0\0\0\4\0\0hi"
        writer.close()

    run(others, scenario)
