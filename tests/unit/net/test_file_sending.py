"""Responses from files, over real sockets: every byte in its order, however fast the peer reads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import uvloop

from pessoa.net.connection import Connection
from pessoa.net.file_sending import FilePlace, InFile, RangeLost
from pessoa.net.listener import Listener
from pessoa.net.pending import Pending
from pessoa.wire.frames import Buffer

TIMEOUT_S = 60
MIB = 1024 * 1024
# More than any socket takes at once.
LARGE_BYTES = 24 * MIB


class Range(InFile):
    """A range of a file, which some tests truncate while it is sent."""

    __slots__ = ("_descriptor", "_position", "_size")

    def __init__(self, descriptor: int, position: int, size: int) -> None:
        self._descriptor, self._position, self._size = descriptor, position, size

    def __len__(self) -> int:
        return self._size

    def place(self) -> FilePlace:
        return FilePlace(self._descriptor, self._position)

    def read(self, size: int = LARGE_BYTES) -> bytes:
        data = os.pread(self._descriptor, min(size, self._size), self._position)
        if len(data) < min(size, self._size):
            raise RangeLost("the file is shorter")
        return data

    def behind(self, count: int) -> Range:
        return Range(self._descriptor, self._position + count, self._size - count)


@pytest.fixture
def data() -> bytes:
    # Every place looks different from every other.
    return b"".join(number.to_bytes(8, "big") for number in range(LARGE_BYTES // 8))


@pytest.fixture
def descriptor(tmp_path: Path, data: bytes) -> Iterator[int]:
    (tmp_path / "file").write_bytes(data)
    found = os.open(tmp_path / "file", os.O_RDWR)
    yield found
    os.close(found)


def framed(*parts: object) -> list[Buffer]:
    size = sum(len(cast("bytes", one)) for one in parts)
    return [size.to_bytes(4, "big"), *(cast("Buffer", one) for one in parts)]


Serve = Callable[[Connection, bytearray, int, int], "list[Buffer] | Pending | None"]
Scenario = Callable[[Listener], Awaitable[None]]
Run = Callable[[Serve, Scenario], None]


NewLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> NewLoop:
    return uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop


@pytest.fixture
def run(new_loop: NewLoop) -> Run:
    def run(serve: Serve, scenario: Scenario) -> None:
        async def main() -> None:
            async with asyncio.timeout(TIMEOUT_S), Listener("127.0.0.1", 0, serve) as listener:
                await scenario(listener)

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())

    return run


async def answer(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def serve_ranges(descriptor: int) -> Serve:
    def serve(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer]:
        if data[start:end] == b"small":
            return [b"\0\0\0\5small"]
        half = LARGE_BYTES // 2
        return framed(b"before", Range(descriptor, half, half), b"", b"between", Range(descriptor, 0, half), b"behind")

    return serve


def expected(data: bytes) -> bytes:
    half = LARGE_BYTES // 2
    return b"before" + data[half:] + b"between" + data[:half] + b"behind"


def test_a_response_with_file_ranges_is_sent_in_order_and_before_the_next_responses(
    run: Run, descriptor: int, data: bytes
) -> None:
    async def scenario(listener: Listener) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        for _ in range(2):
            writer.write(b"\0\0\0\5large\0\0\0\5small")
        for _ in range(2):
            assert await answer(reader) == expected(data)
            assert await answer(reader) == b"small"
        writer.close()
        await writer.wait_closed()

    run(serve_ranges(descriptor), scenario)


def test_a_peer_that_does_not_read_keeps_one_piece_of_its_answer_in_memory(descriptor: int, data: bytes) -> None:
    async def scenario() -> None:
        async with asyncio.timeout(TIMEOUT_S), Listener("127.0.0.1", 0, serve_ranges(descriptor)) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"\0\0\0\5large")
            while not listener.slow_readers:  # noqa: ASYNC110 (it tells no test)
                await asyncio.sleep(0.01)
            assert 0 < listener.unread_bytes <= 64 * 1024
            assert await answer(reader) == expected(data)
            assert not listener.slow_readers
            writer.close()
            await writer.wait_closed()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def test_file_ranges_are_not_sent_before_the_buffered_bytes_of_the_transport(
    run: Run, descriptor: int, data: bytes
) -> None:
    async def scenario(listener: Listener) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"\0\0\0\5small")
        assert await answer(reader) == b"small"
        (served,) = listener.connections
        transport = served._transport
        assert transport is not None
        sent = 0
        # Until the socket is full, and the transport has less than what would stop it.
        while not transport.get_write_buffer_size():
            transport.write(bytes(10_000))
            sent += 10_000
        assert served.connection.can_write
        writer.write(b"\0\0\0\5large")
        while served._files is None and not listener.slow_readers:  # noqa: ASYNC110 (it tells no test)
            await asyncio.sleep(0.01)
        assert await reader.readexactly(sent) == bytes(sent)
        assert await answer(reader) == expected(data)
        writer.close()

    run(serve_ranges(descriptor), scenario)


def test_a_connection_whose_file_range_cannot_be_read_is_aborted_and_no_other(
    run: Run, descriptor: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(listener: Listener) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        other, to_other = await asyncio.open_connection("127.0.0.1", listener.port)
        os.ftruncate(descriptor, MIB)
        writer.write(b"\0\0\0\5large")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await answer(reader)
        to_other.write(b"\0\0\0\5small")
        assert await answer(other) == b"small"
        for one in (writer, to_other):
            one.close()

    run(serve_ranges(descriptor), scenario)
    assert [record.message for record in caplog.records if "its answer cannot be sent" in record.message]


def test_a_closing_listener_sends_the_rest_of_a_response(new_loop: NewLoop, descriptor: int, data: bytes) -> None:
    async def main() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            async with Listener("127.0.0.1", 0, serve_ranges(descriptor), drain_seconds=TIMEOUT_S) as listener:
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                writer.write(b"\0\0\0\5large")
                size = int.from_bytes(await reader.readexactly(4), "big")
                body = asyncio.create_task(reader.readexactly(size))
                body.add_done_callback(lambda _: writer.close())
            assert await body == expected(data)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
