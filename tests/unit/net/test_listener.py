"""A listener with real sockets and a `serve` that each test chooses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

import pytest

from pessoa.net.listener import Connection, Listener, ListenerLimits, Serve
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import Buffer

TIMEOUT_S = 10
Served = list[Buffer] | Awaitable[list[Buffer] | None] | None


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def echo(connection: Connection, data: bytearray, start: int, end: int) -> Served:
    return [framed(bytes(data[start:end]))]


def run(
    serve: Serve,
    scenario: Callable[[Listener], Awaitable[None]],
    limits: ListenerLimits | None = None,
) -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), Listener("127.0.0.1", 0, serve, limits, drain_seconds=1.0) as listener:
            await scenario(listener)

    asyncio.run(main())


async def connect(listener: Listener) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", listener.port)


async def answer(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def test_pipelined_frames_are_answered_in_order() -> None:
    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(b"".join(framed(b"%d" % number) for number in range(100)))
        assert [await answer(reader) for _ in range(100)] == [b"%d" % number for number in range(100)]
        writer.close()

    run(echo, scenario)


def test_nothing_more_is_taken_while_an_answer_is_awaited() -> None:
    gate: list[asyncio.Future[list[Buffer] | None]] = []
    seen: list[bytes] = []

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> Served:
        body = bytes(data[start:end])
        seen.append(body)
        if body == b"slow":
            gate.append(asyncio.get_running_loop().create_future())
            return gate[0]
        return [framed(body)]

    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(framed(b"quick") + framed(b"slow") + framed(b"after"))
        assert await answer(reader) == b"quick"
        assert seen == [b"quick", b"slow"]
        gate[0].set_result([framed(b"slow")])
        assert [await answer(reader), await answer(reader)] == [b"slow", b"after"]
        writer.close()

    run(serve, scenario)


def test_the_bytes_of_a_frame_stay_good_until_its_answer_is_there() -> None:
    gate: list[tuple[asyncio.Future[None], memoryview]] = []
    asked = asyncio.Event()

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> Served:
        gate.append((asyncio.get_running_loop().create_future(), memoryview(data)[start:end]))
        asked.set()

        async def later() -> list[Buffer]:
            future, view = gate[-1]
            await future
            return [framed(bytes(view))]

        return later()

    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        body = bytes(range(256)) * 100
        writer.write(framed(body) + framed(bytes(200_000)))
        await writer.drain()
        await asked.wait()
        gate[0][0].set_result(None)
        assert await answer(reader) == body
        writer.close()

    run(serve, scenario)


def test_a_violation_closes_its_connection_with_one_line_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def serve(connection: Connection, data: bytearray, start: int, end: int) -> Served:
        if bytes(data[start:end]) == b"bad":
            raise ProtocolViolation("this is bad")
        return echo(connection, data, start, end)

    async def scenario(listener: Listener) -> None:
        (bad_reader, bad_writer), (reader, writer) = await connect(listener), await connect(listener)
        bad_writer.write(framed(b"bad"))
        assert await bad_reader.read() == b""
        writer.write(framed(b"good"))
        assert await answer(reader) == b"good"
        for one in (bad_writer, writer):
            one.close()

    with caplog.at_level(logging.WARNING):
        run(serve, scenario)
    (record,) = caplog.records
    assert record.getMessage().endswith("this is bad; the connection is closed")


def test_what_came_before_a_violation_is_answered_before_the_connection_closes() -> None:
    def serve(connection: Connection, data: bytearray, start: int, end: int) -> Served:
        if bytes(data[start:end]) == b"bad":
            raise ProtocolViolation("this is bad")
        return echo(connection, data, start, end)

    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(framed(b"first") + framed(b"second") + framed(b"bad") + framed(b"never served"))
        assert await reader.read() == framed(b"first") + framed(b"second")
        writer.close()

    run(serve, scenario)


class SlowTransport(asyncio.Transport):
    """Has not sent anything when it is closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1024)})
        self.is_closed = False

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def test_nothing_behind_a_violation_is_served_while_the_last_answers_leave() -> None:
    seen: list[bytes] = []

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> Served:
        seen.append(bytes(data[start:end]))
        if seen[-1] == b"bad":
            raise ProtocolViolation("this is bad")
        return [b"answer"]

    async def scenario(listener: Listener) -> None:
        connection = Connection(listener)
        connection.connection_made(SlowTransport())
        stream = framed(b"good") + framed(b"bad") + framed(b"never served")
        connection.get_buffer(-1)[: len(stream)] = stream
        connection.buffer_updated(len(stream))
        connection.pause_writing()
        connection.resume_writing()
        connection.connection_lost(None)

    run(serve, scenario)
    assert seen == [b"good", b"bad"]


def test_who_does_not_read_is_not_served_beyond_a_bounded_amount() -> None:
    served = 0

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> Served:
        nonlocal served
        served += 1
        return [bytes(1 << 20)]

    async def scenario(listener: Listener) -> None:
        (_, slow), (reader, writer) = await connect(listener), await connect(listener)
        slow.write(framed(b"x") * 1000)
        await slow.drain()
        # The other connection's answer shows that the loop has had its turn with the first one.
        writer.write(framed(b"y"))
        await reader.readexactly(1 << 20)
        assert served < 50
        slow.transport.abort()
        writer.close()

    run(serve, scenario)


def test_connections_beyond_the_limit_are_refused_and_the_others_go_on() -> None:
    async def scenario(listener: Listener) -> None:
        kept = [await connect(listener) for _ in range(2)]
        for reader, writer in kept:
            writer.write(framed(b"in"))
            assert await answer(reader) == b"in"
        refused, refused_writer = await connect(listener)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await answer(refused)
        refused_writer.close()
        for reader, writer in kept:
            writer.write(framed(b"still in"))
            assert await answer(reader) == b"still in"
            writer.close()

    run(echo, scenario, ListenerLimits(max_connections=2))


def test_connections_from_one_address_are_limited() -> None:
    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(framed(b"one"))
        assert await answer(reader) == b"one"
        second, second_writer = await connect(listener)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await answer(second)
        for one in (writer, second_writer):
            one.close()

    run(echo, scenario, ListenerLimits(max_connections_per_ip=1))


def test_leaving_waits_for_the_answer_in_progress_and_then_closes() -> None:
    async def main() -> None:
        gate: asyncio.Future[list[Buffer] | None] = asyncio.get_running_loop().create_future()
        asked = asyncio.Event()

        def serve(connection: Connection, data: bytearray, start: int, end: int) -> Served:
            asked.set()
            return gate

        async with asyncio.timeout(TIMEOUT_S):
            listener = Listener("127.0.0.1", 0, serve)
            await listener.__aenter__()
            reader, writer = await connect(listener)
            writer.write(framed(b"x"))
            await asked.wait()
            leaving = asyncio.create_task(listener.__aexit__())
            await asyncio.sleep(0)
            gate.set_result([framed(b"done")])
            assert await answer(reader) == b"done"
            assert await reader.read() == b""
            await leaving
            writer.close()

    asyncio.run(main())


def test_a_mistake_of_ours_costs_one_connection_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    def serve(connection: Connection, data: bytearray, start: int, end: int) -> Served:
        body = bytes(data[start:end])
        if body == b"at once":
            raise KeyError("a mistake")
        if body == b"later":

            async def fail() -> list[Buffer]:
                raise KeyError("a late mistake")

            return fail()
        return [framed(body)]

    async def scenario(listener: Listener) -> None:
        told: list[Exception] = []
        listener.on_bug = told.append
        other_reader, other = await connect(listener)
        for body in (b"at once", b"later"):
            reader, writer = await connect(listener)
            writer.write(framed(body))
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await answer(reader)
            writer.close()
        assert [type(bug) for bug in told] == [KeyError, KeyError]
        other.write(framed(b"fine"))
        assert await answer(other_reader) == b"fine"
        other.close()

    run(serve, scenario)
    assert sum(record.levelno == logging.ERROR for record in caplog.records) == 2
