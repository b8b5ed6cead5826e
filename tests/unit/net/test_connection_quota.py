"""Limits of connections: the computation, and listeners that apply it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import uvloop

from pessoa.base.clock import ManualClock
from pessoa.net.connection import Connection
from pessoa.net.connection_quota import LONGEST_TURN_S, ConnectionLimits, ConnectionQuota, ConnectionRefused
from pessoa.net.listener import Listener
from pessoa.net.pending import Pending
from pessoa.wire.frames import Buffer

TIMEOUT_S = 60.0


def test_an_address_with_an_override_has_no_other_limit() -> None:
    quota = ConnectionQuota(ConnectionLimits(max_connections_per_ip=2, overrides={"10.0.0.1": 3, "10.0.0.2": 0}))
    for _ in range(2):
        quota.enter("10.0.0.9", 0.0)
    for _ in range(3):
        quota.enter("10.0.0.1", 0.0)
    for host, key in (
        ("10.0.0.9", r"max\.connections\.per\.ip is 2"),
        ("10.0.0.1", r"max\.connections\.per\.ip\.overrides is 3"),
        ("10.0.0.2", r"max\.connections\.per\.ip\.overrides is 0"),
    ):
        with pytest.raises(ConnectionRefused, match=key):
            quota.enter(host, 0.0)
        quota.leave(host)
    quota.leave("10.0.0.9")
    quota.enter("10.0.0.9", 0.0)


def test_an_address_without_an_override_is_refused_where_the_limit_is_zero() -> None:
    quota = ConnectionQuota(ConnectionLimits(max_connections_per_ip=0, overrides={"::1": 1}))
    assert quota.enter("::1", 0.0) == 0.0
    with pytest.raises(ConnectionRefused):
        quota.enter("127.0.0.1", 0.0)


def test_an_unused_rate_window_allows_a_burst_of_connections_and_then_each_waits_for_its_turn() -> None:
    quota = ConnectionQuota(ConnectionLimits(max_creation_rate=5, window_s=2.0))
    assert [quota.enter("a", 100.0) for _ in range(10)] == pytest.approx([0.0] * 10, abs=1e-9)
    assert [quota.enter("a", 100.0) for _ in range(3)] == pytest.approx([0.2, 0.4, 0.6])
    assert quota.enter("a", 100.5) == pytest.approx(0.3)
    assert quota.enter("a", 105.0) == 0.0


def test_a_connection_that_would_wait_longer_than_a_client_does_is_refused_and_delays_no_other() -> None:
    quota = ConnectionQuota(ConnectionLimits(max_creation_rate=1, window_s=1.0))
    waits = [quota.enter("a", 0.0) for _ in range(1 + int(LONGEST_TURN_S))]
    assert waits[-1] == LONGEST_TURN_S
    for _ in range(100):
        with pytest.raises(ConnectionRefused):
            quota.enter("a", 0.0)
    assert quota.enter("a", 1.0) == LONGEST_TURN_S


def echo(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
    return [(end - start).to_bytes(4, "big") + bytes(data[start:end])]


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Crowd:
    """Clients that connect, and close their connections at the end."""

    def __init__(self, listeners: list[Listener]) -> None:
        self.listeners = listeners
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, listener: Listener) -> Streams:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        self._writers.append(writer)
        return reader, writer

    async def disperse(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


async def is_served(streams: Streams) -> bool:
    reader, writer = streams
    try:
        writer.write(b"\x00\x00\x00\x02hi")
        return await reader.readexactly(6) == b"\x00\x00\x00\x02hi"
    except (ConnectionError, asyncio.IncompleteReadError):
        return False


def run(scenario: Callable[[Crowd], Awaitable[None]], quotas: Callable[[], list[list[ConnectionQuota]]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), AsyncExitStack() as stack:
            listeners = [
                await stack.enter_async_context(Listener("127.0.0.1", 0, echo, drain_seconds=0.1, quotas=mine))
                for mine in quotas()
            ]
            crowd = Crowd(listeners)
            stack.push_async_callback(crowd.disperse)
            await scenario(crowd)

    for runner in (asyncio.run, uvloop.run):
        runner(main())


def test_two_listeners_share_a_limit_and_one_has_another_of_its_own() -> None:
    async def scenario(crowd: Crowd) -> None:
        one, other = crowd.listeners
        kept = [await crowd.connect(one)]
        assert await is_served(kept[0])
        assert not await is_served(await crowd.connect(one))
        for _ in range(2):
            kept.append(await crowd.connect(other))
            assert await is_served(kept[-1])
        assert not await is_served(await crowd.connect(other))
        kept.pop()[1].close()
        while other.quotas[0].count > 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert await is_served(await crowd.connect(other))
        assert await is_served(kept[0])

    def quotas() -> list[list[ConnectionQuota]]:
        shared = ConnectionQuota(ConnectionLimits(max_connections=3))
        return [[shared, ConnectionQuota(ConnectionLimits(max_connections=1))], [shared]]

    run(scenario, quotas)


class Turns(ConnectionQuota):
    """A quota by which every connection except the first has to wait for a fixed time."""

    def __init__(self, early_s: float) -> None:
        super().__init__()
        self._early_s = early_s

    def enter(self, host: str, now_s: float) -> float:
        super().enter(host, now_s)
        return self._early_s if self.count > 1 else 0.0


def test_a_connection_over_the_creation_rate_is_not_read_before_its_turn() -> None:
    async def scenario(crowd: Crowd) -> None:
        (listener,) = crowd.listeners
        first, second = await crowd.connect(listener), await crowd.connect(listener)
        second[1].write(b"\x00\x00\x00\x02hi")
        for _ in range(3):
            assert await is_served(first)
        assert [one._is_reading for one in listener._in_order()] == [True, False]

    run(scenario, lambda: [[Turns(3600.0)]])


def test_a_connection_over_the_creation_rate_stays_paused_before_its_turn_and_while_its_peer_does_not_read() -> None:
    async def scenario(crowd: Crowd) -> None:
        (listener,) = crowd.listeners
        await crowd.connect(listener)
        await crowd.connect(listener)
        while len(listener.connections) < 2 or all(one._is_reading for one in listener.connections):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        early = listener._in_order()[1]
        # As if something had been read and answered.
        early.take_turn()
        assert not early._is_reading
        early.pause_writing()
        early._turn_came()
        assert not early._is_reading
        early.resume_writing()
        assert early._is_reading

    run(scenario, lambda: [[Turns(3600.0)]])


def test_a_connection_over_the_creation_rate_is_served_when_its_turn_comes() -> None:
    async def scenario(crowd: Crowd) -> None:
        (listener,) = crowd.listeners
        early = [await crowd.connect(listener) for _ in range(5)]
        assert all(await asyncio.gather(*map(is_served, early)))

    run(scenario, lambda: [[Turns(0.01)]])


@pytest.mark.parametrize("is_uvloop", [False, True])
def test_a_connection_that_is_held_is_not_served_and_is_closed_when_its_time_is_over(is_uvloop: bool) -> None:
    clock = ManualClock()
    asked: list[tuple[str, int]] = []

    def hold_ms(host: str, now_ms: int) -> int:
        asked.append((host, now_ms))
        return 700 if len(asked) == 2 else 0

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer]:
        return [b"\0\0\0\4" + bytes(data[start:end])]

    async def main() -> None:
        quota = ConnectionQuota()
        quota.hold_ms = hold_ms
        async with (
            asyncio.timeout(TIMEOUT_S),
            Listener("127.0.0.1", 0, serve, quotas=[quota], clock=clock) as listener,
        ):
            first_reader, first = await asyncio.open_connection("127.0.0.1", listener.port)
            first.write(b"\0\0\0\4ping")
            assert await first_reader.readexactly(8) == b"\0\0\0\4ping"
            reader, held = await asyncio.open_connection("127.0.0.1", listener.port)
            held.write(b"\0\0\0\4ping")
            for _ in range(10):
                first.write(b"\0\0\0\4ping")
                assert await first_reader.readexactly(8) == b"\0\0\0\4ping"
            assert quota.count == 2
            clock.advance_ms(699)
            first.write(b"\0\0\0\4ping")
            await first_reader.readexactly(8)
            assert quota.count == 2
            clock.advance_ms(1)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readexactly(1)
            first.close()
            held.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if is_uvloop else None) as runner:
        runner.run(main())
    assert asked == [("127.0.0.1", 0)] * 2
