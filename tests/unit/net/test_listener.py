"""A listener with real sockets and a `serve` function of the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from pessoa.base.clock import ManualClock
from pessoa.net.connection import Connection
from pessoa.net.listener import Listener, ListenerLimits
from pessoa.net.pending import Pending
from pessoa.net.server_protocol import Serve, ServerProtocol
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import Buffer
from tests.support.pending_frames import PendingFrames

TIMEOUT_S = 60


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def echo(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
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


def test_the_listener_serves_no_further_request_while_a_response_is_pending() -> None:
    gate: list[asyncio.Future[list[Buffer] | None]] = []
    seen: list[bytes] = []

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        body = bytes(data[start:end])
        seen.append(body)
        if body == b"slow":
            gate.append(asyncio.get_running_loop().create_future())
            return PendingFrames(gate[0])
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


class Producers:
    """A handler that answers frames with "pp" at their beginning when the test releases them, or at once, and echoes
    others."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.gates: list[asyncio.Future[list[Buffer] | None]] = []
        self.came = asyncio.Event()

    def __call__(self, connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        body = bytes(data[start:end])
        self.seen.append(body)
        self.came.set()
        if body == b"pp bad":
            raise ProtocolViolation("this is bad")
        if not body.startswith(b"pp") or body.endswith(b"at once"):
            return [framed(body)]
        self.gates.append(asyncio.get_running_loop().create_future())
        return PendingFrames(self.gates[-1], lets_next_in=True)

    async def has_seen(self, count: int) -> None:
        while len(self.seen) < count:
            self.came.clear()
            await self.came.wait()


def test_pipelined_produces_are_served_while_one_is_pending_and_are_answered_in_order() -> None:
    serve = Producers()

    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(framed(b"pp1") + framed(b"pp2") + framed(b"pp at once") + framed(b"pp3"))
        await serve.has_seen(4)
        for number in (3, 2, 1):
            serve.gates[number - 1].set_result([framed(b"pp%d" % number)])
        assert [await answer(reader) for _ in range(4)] == [b"pp1", b"pp2", b"pp at once", b"pp3"]
        writer.close()

    run(serve, scenario)


def test_a_request_of_another_api_waits_for_every_pending_produce_before_it() -> None:
    serve = Producers()

    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(framed(b"pp1") + framed(b"pp2") + framed(b"other") + framed(b"pp3"))
        await serve.has_seen(2)
        serve.gates[0].set_result([framed(b"pp1")])
        assert await answer(reader) == b"pp1"
        assert serve.seen == [b"pp1", b"pp2"]
        serve.gates[1].set_result([framed(b"pp2")])
        assert [await answer(reader), await answer(reader)] == [b"pp2", b"other"]
        await serve.has_seen(4)
        serve.gates[2].set_result(None)
        writer.close()

    run(serve, scenario)


def test_a_listener_keeps_a_bounded_number_of_pending_produces_per_connection() -> None:
    serve = Producers()

    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(b"".join(framed(b"pp%d" % number) for number in range(100)))
        await serve.has_seen(32)
        serve.gates[0].set_result([framed(b"first")])
        assert await answer(reader) == b"first"
        await serve.has_seen(33)
        assert len(serve.seen) == 33
        writer.close()

    run(serve, scenario)


def test_a_pending_produce_is_answered_before_a_violation_closes_the_connection() -> None:
    serve = Producers()

    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(framed(b"pp1") + framed(b"pp bad") + framed(b"pp2"))
        await serve.has_seen(2)
        serve.gates[0].set_result([framed(b"pp1")])
        assert await reader.read() == framed(b"pp1")
        assert serve.seen == [b"pp1", b"pp bad"]
        writer.close()

    run(serve, scenario)


def test_the_bytes_of_a_frame_stay_valid_until_its_response_is_sent() -> None:
    gate: list[tuple[asyncio.Future[None], memoryview]] = []
    asked = asyncio.Event()

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        gate.append((asyncio.get_running_loop().create_future(), memoryview(data)[start:end]))
        asked.set()

        async def later() -> list[Buffer]:
            future, view = gate[-1]
            await future
            return [framed(bytes(view))]

        return PendingFrames(later())

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


def test_a_violation_logs_one_line_and_closes_only_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
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
    (record,) = [one for one in caplog.records if one.name == "pessoa.net"]
    assert record.getMessage().endswith("this is bad; the connection is closed")


def test_requests_before_a_violation_are_answered_before_the_connection_closes() -> None:
    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
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
    """A transport that has not sent any bytes when it is closed."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.1", 1024)})
        self.is_closed = False

    def write(self, data: Buffer) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def test_requests_behind_a_violation_are_not_served_while_the_last_responses_are_sent() -> None:
    seen: list[bytes] = []

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        seen.append(bytes(data[start:end]))
        if seen[-1] == b"bad":
            raise ProtocolViolation("this is bad")
        return [b"answer"]

    async def scenario(listener: Listener) -> None:
        connection = ServerProtocol(listener)
        connection.connection_made(SlowTransport())
        stream = framed(b"good") + framed(b"bad") + framed(b"never served")
        connection.get_buffer(-1)[: len(stream)] = stream
        connection.buffer_updated(len(stream))
        connection.pause_writing()
        connection.resume_writing()
        connection.connection_lost(None)

    run(serve, scenario)
    assert seen == [b"good", b"bad"]


def test_a_peer_that_does_not_read_is_not_served_beyond_a_bounded_amount() -> None:
    served = 0

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
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


def test_closing_a_listener_waits_for_the_pending_response() -> None:
    async def main() -> None:
        gate: asyncio.Future[list[Buffer] | None] = asyncio.get_running_loop().create_future()
        asked = asyncio.Event()

        def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
            asked.set()
            return PendingFrames(gate)

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


def test_an_unexpected_exception_closes_one_connection_and_is_passed_to_on_bug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        body = bytes(data[start:end])
        if body == b"at once":
            raise KeyError("a mistake")
        if body == b"later":

            async def fail() -> list[Buffer]:
                raise KeyError("a late mistake")

            return PendingFrames(fail())
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


def test_a_connection_with_very_many_requests_at_once_lets_others_have_their_turn() -> None:
    seen: list[bytes] = []

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        seen.append(bytes(data[start:end]))
        return [framed(seen[-1])]

    async def scenario(listener: Listener) -> None:
        (many_reader, many), (one_reader, one) = await connect(listener), await connect(listener)
        for reader, writer in ((many_reader, many), (one_reader, one)):
            writer.write(framed(b"hello"))
            assert await answer(reader) == b"hello"
        # Both are in the kernel before the listener looks again.
        many.write(b"".join(framed(b"%d" % number) for number in range(200)))
        one.write(framed(b"other"))
        assert await answer(one_reader) == b"other"
        assert [await answer(many_reader) for _ in range(200)] == [b"%d" % number for number in range(200)]
        assert seen.index(b"other") < seen.index(b"199")
        many.close()
        one.close()

    run(serve, scenario)


def test_a_muted_connection_is_answered_and_served_again_when_its_time_has_come() -> None:
    clock = ManualClock()

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer]:
        if bytes(data[start:end]) == b"mute":
            connection.mute(clock.monotonic_ms() + 60_000)
        return [framed(bytes(data[start:end]))]

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S), Listener("127.0.0.1", 0, serve, clock=clock) as listener:
            reader, writer = await connect(listener)
            other_reader, other_writer = await connect(listener)
            writer.write(framed(b"mute") + framed(b"behind"))
            assert await answer(reader) == b"mute"
            writer.write(framed(b"later"))
            # Another connection goes on, and by its answer all that the first has sent has come.
            for _ in range(20):
                other_writer.write(framed(b"other"))
                assert await answer(other_reader) == b"other"
            [muted] = [one for one in listener.connections if one.connection.muted_until_ms is not None]
            assert muted.connection.waiting_bytes > 0
            clock.advance_ms(59_999)
            assert muted.connection.muted_until_ms is not None
            clock.advance_ms(1)
            assert [await answer(reader), await answer(reader)] == [b"behind", b"later"]
            writer.close()
            other_writer.close()

    asyncio.run(main())


def test_a_muted_connection_leaves_no_timer_behind_and_a_listener_that_closes_serves_what_has_come() -> None:
    clock = ManualClock()

    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer]:
        connection.mute(clock.monotonic_ms() + 60_000)
        return [framed(bytes(data[start:end]))]

    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            async with Listener("127.0.0.1", 0, serve, clock=clock) as listener:
                reader, writer = await connect(listener)
                writer.write(framed(b"first") + framed(b"second"))
                assert await answer(reader) == b"first"

                async def read_to_the_end() -> None:
                    assert await answer(reader) == b"second"
                    assert await reader.read() == b""
                    writer.close()

                reading = asyncio.create_task(read_to_the_end())
            await reading
        assert not [timer for timer in clock._timers if timer.call.__name__ == "_unmute"]

    asyncio.run(main())
