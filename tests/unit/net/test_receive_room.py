"""Large requests of many connections, and the limit of memory that they share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pessoa.net import receive_room
from pessoa.net.connection import Connection
from pessoa.net.listener import Listener
from pessoa.net.pending import Pending
from pessoa.net.receive_room import ReceiveRoom
from pessoa.net.server_protocol import Serve
from pessoa.wire.frames import Buffer
from tests.support.pending_frames import PendingFrames

MIB = 1024 * 1024
LARGE_BYTES = 12 * MIB
# Its buffer has 2 MiB, and is kept.
USUAL_BYTES = 3 * MIB // 2
TIMEOUT_S = 60.0


def size_of(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
    return [(8).to_bytes(4, "big") + (end - start).to_bytes(8, "big")]


def run(room: ReceiveRoom, scenario: Callable[[Listener], Awaitable[None]], serve: Serve = size_of) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(TIMEOUT_S),
            Listener("127.0.0.1", 0, serve, drain_seconds=0.1, room=room) as listener,
        ):
            await scenario(listener)

    asyncio.run(main())


class Sender:
    """A client that sends a request in two parts, with `begin` and `end`; `answer` is then the response, its size."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._rest = b""

    @classmethod
    async def of(cls, listener: Listener) -> Sender:
        return cls(*await asyncio.open_connection("127.0.0.1", listener.port))

    def begin(self, size: int, part_bytes: int) -> None:
        self._writer.write(size.to_bytes(4, "big") + bytes(part_bytes))
        self._rest = bytes(size - part_bytes)

    def end(self, behind_it: bytes = b"") -> None:
        self._writer.write(self._rest + behind_it)

    async def answer(self) -> int:
        return int.from_bytes((await self._reader.readexactly(12))[4:], "big")

    async def is_closed(self) -> bool:
        try:
            return await self._reader.read(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._writer.transport.abort()


async def senders(listener: Listener, count: int) -> list[Sender]:
    return [await Sender.of(listener) for _ in range(count)]


async def halves(listener: Listener, count: int, size: int) -> list[Sender]:
    """Return senders that have sent all of their request but one byte, and for which there was memory."""
    crowd = []
    for _ in range(count):
        wanted_bytes = sum(one.connection.waiting_bytes for one in listener.connections) + size + 3
        crowd.append(await Sender.of(listener))
        crowd[-1].begin(size, size - 1)
        await until(lambda: sum(one.connection.waiting_bytes for one in listener.connections) == wanted_bytes)  # noqa: B023
    return crowd


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def connections_wait(room: ReceiveRoom, count: int) -> None:
    await until(lambda: room.waiting_count >= count)


def test_incomplete_requests_take_at_most_the_limit_and_one_request_of_memory() -> None:
    room = ReceiveRoom(16 * MIB)

    async def scenario(listener: Listener) -> None:
        crowd = await senders(listener, 10)
        for one in crowd:
            one.begin(LARGE_BYTES, LARGE_BYTES - 1)
        await connections_wait(room, 9)
        assert room.taken_bytes <= 16 * MIB + LARGE_BYTES + 64 * 1024
        assert sum(one.connection.waiting_bytes for one in listener.connections) <= room.taken_bytes + 10 * 64 * 1024
        for one in crowd:
            one.close()

    run(room, scenario)
    assert room.taken_bytes == 0


def test_incomplete_requests_that_wait_for_memory_are_all_served_in_the_end() -> None:
    room = ReceiveRoom(4 * MIB)

    async def scenario(listener: Listener) -> None:
        crowd = await senders(listener, 10)
        for one in crowd:
            one.begin(LARGE_BYTES, 5 * MIB)
        await connections_wait(room, 9)
        for one in crowd:
            one.end()
        assert await asyncio.gather(*(one.answer() for one in crowd)) == [LARGE_BYTES] * 10
        assert not room.is_short
        for one in crowd:
            one.close()

    run(room, scenario)
    assert room.taken_bytes == 0


def test_requests_of_usual_size_are_served_while_large_ones_wait_for_memory() -> None:
    room = ReceiveRoom(16 * MIB)

    async def scenario(listener: Listener) -> None:
        crowd = await senders(listener, 6)
        for one in crowd:
            one.begin(LARGE_BYTES, LARGE_BYTES - 1)
        await connections_wait(room, 5)
        quick = await Sender.of(listener)
        for _ in range(3):
            quick.begin(MIB, 0)
            quick.end()
            assert await quick.answer() == MIB
        for one in (*crowd, quick):
            one.close()

    run(room, scenario)


def test_memory_of_idle_connections_is_reclaimed_when_a_request_needs_it() -> None:
    room = ReceiveRoom(8 * MIB)

    async def scenario(listener: Listener) -> None:
        idle = await senders(listener, 6)
        for one in idle:
            one.begin(MIB, 0)
            one.end()
            assert await one.answer() == MIB
        kept_bytes = room.taken_bytes
        assert kept_bytes > 0
        large = await senders(listener, 2)
        for one in large:
            one.begin(3 * MIB, 0)
            one.end()
            assert await one.answer() == 3 * MIB
        assert room.taken_bytes < kept_bytes
        for one in (*idle, *large):
            one.close()

    run(room, scenario)
    assert room.taken_bytes == 0


def test_a_connection_releases_the_memory_of_a_large_request_after_it() -> None:
    room = ReceiveRoom()

    async def scenario(listener: Listener) -> None:
        sender = await Sender.of(listener)
        sender.begin(LARGE_BYTES, 0)
        sender.end()
        assert await sender.answer() == LARGE_BYTES
        assert room.taken_bytes == 0
        # Nor if the beginning of another came with it.
        sender.begin(LARGE_BYTES, LARGE_BYTES)
        sender.begin(LARGE_BYTES, 5)
        assert await sender.answer() == LARGE_BYTES
        await until(lambda: all(one.connection.waiting_bytes == 9 for one in listener.connections))
        assert room.taken_bytes == 0
        sender.close()

    run(room, scenario)


def test_a_connection_that_makes_others_wait_too_long_for_memory_is_closed_and_the_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = ReceiveRoom(4 * MIB)

    async def scenario(listener: Listener) -> None:
        slow = await senders(listener, 3)
        for one in slow:
            one.begin(LARGE_BYTES, 5 * MIB)
        await connections_wait(room, 2)
        room.close_slow_connections(listener.now_ms())
        assert len(listener.connections) == 3, "no connection has waited for long"
        monkeypatch.setattr(receive_room, "PATIENCE_MS", 0)
        for left in (2, 1):
            # One after the other: the next in line gets the room of the one that is closed, and is slow itself.
            await connections_wait(room, left)
            room.close_slow_connections(listener.now_ms())
            await until(lambda: len(listener.connections) == left)  # noqa: B023
        sender = await Sender.of(listener)
        sender.begin(LARGE_BYTES, 0)
        sender.end()
        await connections_wait(room, 1)
        room.close_slow_connections(listener.now_ms())
        assert await sender.answer() == LARGE_BYTES
        assert all([await one.is_closed() for one in slow])
        for one in (*slow, sender):
            one.close()

    run(room, scenario)


def test_a_connection_that_waits_for_memory_is_not_closed_with_the_slow_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It holds some memory, and has sent all of its request."""
    room = ReceiveRoom(4 * MIB)

    async def scenario(listener: Listener) -> None:
        slow, whole = await Sender.of(listener), await Sender.of(listener)
        slow.begin(LARGE_BYTES, LARGE_BYTES - 1)
        await until(lambda: room.taken_bytes >= LARGE_BYTES)
        whole.begin(LARGE_BYTES, 0)
        whole.end()
        await connections_wait(room, 1)
        assert len(room._held_bytes) == 2
        monkeypatch.setattr(receive_room, "PATIENCE_MS", 0)
        room.close_slow_connections(listener.now_ms())
        assert await slow.is_closed()
        assert await whole.answer() == LARGE_BYTES
        for one in (slow, whole):
            one.close()

    run(room, scenario)


@pytest.mark.parametrize("behind_it", [b"", USUAL_BYTES.to_bytes(4, "big") + b"next"], ids=["nothing", "the next one"])
def test_a_connection_that_waits_for_memory_is_read_again_when_requests_of_usual_size_have_ended(
    behind_it: bytes,
) -> None:
    room = ReceiveRoom(8 * MIB)

    async def scenario(listener: Listener) -> None:
        # It looks at waiting connections, too, but every few seconds only.
        assert listener._sweeper is not None
        listener._sweeper.cancel()
        crowd = await halves(listener, 5, USUAL_BYTES)
        last = await Sender.of(listener)
        last.begin(USUAL_BYTES, 0)
        last.end()
        await connections_wait(room, 1)
        for one in crowd:
            one.end(behind_it)
        assert await last.answer() == USUAL_BYTES
        for one in (*crowd, last):
            one.close()

    run(room, scenario)
    assert room.taken_bytes == 0


def test_a_connection_with_a_pending_response_is_not_closed_for_being_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    room = ReceiveRoom(4 * MIB)
    parked: list[asyncio.Future[list[Buffer] | None]] = []

    def park_the_first(connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        if parked:
            return size_of(connection, data, start, end)
        parked.append(asyncio.get_running_loop().create_future())
        return PendingFrames(parked[0])

    async def scenario(listener: Listener) -> None:
        patient, idle = await senders(listener, 2)
        patient.begin(USUAL_BYTES, USUAL_BYTES)
        await until(lambda: bool(parked))
        idle.begin(USUAL_BYTES, USUAL_BYTES)
        assert await idle.answer() == USUAL_BYTES
        slow = await halves(listener, 2, USUAL_BYTES)
        last = await Sender.of(listener)
        last.begin(USUAL_BYTES, 0)
        last.end()
        await connections_wait(room, 1)
        monkeypatch.setattr(receive_room, "PATIENCE_MS", 0)
        room.close_slow_connections(listener.now_ms())
        assert all([await one.is_closed() for one in slow])
        assert await last.answer() == USUAL_BYTES
        parked[0].set_result([bytes(12)])
        assert await patient.answer() == 0
        idle.begin(MIB, MIB)
        assert await idle.answer() == MIB
        for one in (patient, idle, last, *slow):
            one.close()

    run(room, scenario, park_the_first)


def test_a_connection_that_resumes_after_a_pause_does_not_wait_for_memory_any_more() -> None:
    room = ReceiveRoom(4 * MIB)

    async def scenario(listener: Listener) -> None:
        crowd = [*await halves(listener, 3, USUAL_BYTES), await Sender.of(listener)]
        crowd[-1].begin(USUAL_BYTES, USUAL_BYTES - 1)
        await connections_wait(room, 1)
        room.limit_bytes = 64 * MIB
        waiting = max(listener.connections, key=lambda one: one.connection.id)
        waiting.pause_writing()
        waiting.resume_writing()
        assert not room.is_short
        for one in crowd:
            one.close()

    run(room, scenario)


class Wanting:
    """A request for memory that takes it as soon as it is granted."""

    peer = "?"
    finished_at_ms = 0
    is_in_progress = False

    def __init__(self, room: ReceiveRoom, wanted_bytes: int) -> None:
        self._room, self._wanted_bytes = room, wanted_bytes
        self.has_it = False
        if not self.room_came():
            room.wait(self, wanted_bytes, 0)

    def room_came(self) -> bool:
        self.has_it = self._room.admits(self, self._wanted_bytes, self._wanted_bytes, must=True)
        if self.has_it:
            self._room.count(self, self._wanted_bytes)
        return self.has_it

    def give_back(self) -> None:
        pass

    def abort(self) -> None:
        self._room.forget(self)


def test_a_request_of_usual_size_does_not_wait_behind_a_large_one() -> None:
    room = ReceiveRoom(16 * MIB)
    first, *_ = [Wanting(room, 2 * MIB) for _ in range(9)]
    large, usual = Wanting(room, LARGE_BYTES), Wanting(room, 2 * MIB)
    assert [large.has_it, usual.has_it] == [False, False]
    first.abort()
    assert [large.has_it, usual.has_it] == [False, True]
    assert room.waiting_count == 1


def test_when_a_waiting_connection_closes_the_next_one_gets_the_memory() -> None:
    room = ReceiveRoom(16 * MIB)
    crowd = [Wanting(room, 2 * MIB) for _ in range(9)]
    first, second = Wanting(room, LARGE_BYTES), Wanting(room, 3 * MIB)
    for one in crowd[:4]:
        one.abort()
    assert [first.has_it, second.has_it] == [False, False]
    first.abort()
    assert second.has_it
    assert not room.is_short


def test_when_a_connection_stops_waiting_for_memory_the_next_one_gets_it_at_once() -> None:
    room = ReceiveRoom(16 * MIB)
    crowd = [Wanting(room, 2 * MIB) for _ in range(9)]
    first, second = Wanting(room, LARGE_BYTES), Wanting(room, 3 * MIB)
    for one in crowd[:4]:
        one.abort()
    assert [first.has_it, second.has_it] == [False, False]
    room.leave(first)
    assert second.has_it
    assert not room.is_short
