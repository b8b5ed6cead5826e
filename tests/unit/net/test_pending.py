"""Responses that another connection's request completes (`Pending`): when they are sent, their order, and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pessoa.net.connection import Connection
from pessoa.net.listener import Listener
from pessoa.net.pending import Pending, ServedLater
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import Buffer
from tests.unit.net.test_listener import answer, connect, framed, run


class Waiting(Pending):
    def __init__(self, make: Callable[[], bytes | None]) -> None:
        super().__init__()
        self.make = make
        self.is_cancelled = asyncio.Event()

    def frames(self) -> list[Buffer] | None:
        body = self.make()
        return None if body is None else [framed(body)]

    def cancel(self) -> None:
        super().cancel()
        self.is_cancelled.set()


class Room:
    """A handler that answers `wait…` requests when a request `call` arrives, and echoes other requests."""

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.has_waiting = asyncio.Event()
        self.said: list[bytes] = []
        self.make: Callable[[], bytes | None] = lambda: b"|".join(self.said)

    def __call__(self, connection: Connection, data: bytearray, start: int, end: int) -> list[Buffer] | Pending | None:
        body = bytes(data[start:end])
        self.said.append(body)
        if body.startswith(b"wait"):
            self.waiting.append(Waiting(self.tell))
            self.has_waiting.set()
            return self.waiting[-1]
        if body == b"call":
            self.call()
        return [framed(body)]

    def tell(self) -> bytes | None:
        return self.make()

    def call(self) -> None:
        while self.waiting:
            self.waiting.pop().ready()


def test_a_pending_response_is_built_after_all_requests_that_arrived_with_the_one_that_completed_it() -> None:
    room = Room()

    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(framed(b"wait"))
        await room.has_waiting.wait()
        other_reader, other = await connect(listener)
        other.write(framed(b"call") + framed(b"and this"))
        assert await answer(reader) == b"wait|call|and this"
        assert [await answer(other_reader), await answer(other_reader)] == [b"call", b"and this"]
        for one in (writer, other):
            one.close()

    run(room, scenario)


def test_a_pending_response_is_sent_in_the_turn_of_the_event_loop_that_completed_it() -> None:
    room, turns = Room(), []

    async def scenario(listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        reader, writer = await connect(listener)
        writer.write(framed(b"wait"))
        await room.has_waiting.wait()

        def tell() -> bytes:
            turns.append("answered")
            return b"told"

        room.make = tell
        call = room.call

        def call_and_note() -> None:
            call()
            loop.call_soon(turns.append, "next turn")

        room.call = call_and_note  # type: ignore[method-assign]
        _, other = await connect(listener)
        other.write(framed(b"call"))
        assert await answer(reader) == b"told"
        for one in (writer, other):
            one.close()

    run(room, scenario)
    assert turns == ["answered", "next turn"]


def test_requests_behind_a_pending_one_are_served_after_its_response() -> None:
    room = Room()

    async def scenario(listener: Listener) -> None:
        reader, writer = await connect(listener)
        writer.write(framed(b"wait 1") + framed(b"behind") + framed(b"wait 2"))
        await room.has_waiting.wait()
        # No request completes them: a timer would do so.
        asyncio.get_running_loop().call_soon(room.call)
        assert [await answer(reader), await answer(reader)] == [b"wait 1", b"behind"]
        # It was taken in the turn that answered the two before it.
        assert room.waiting
        room.call()
        assert await answer(reader) == b"wait 1|behind|wait 2"
        writer.close()

    run(room, scenario)


def test_a_pending_response_whose_connection_has_ended_is_cancelled() -> None:
    room = Room()

    async def scenario(listener: Listener) -> None:
        _, writer = await connect(listener)
        writer.write(framed(b"wait"))
        await room.has_waiting.wait()
        waiting = room.waiting[0]
        writer.close()
        await waiting.is_cancelled.wait()
        room.call()
        reader, writer = await connect(listener)
        writer.write(framed(b"fine"))
        assert await answer(reader) == b"fine"
        writer.close()

    run(room, scenario)


@pytest.mark.parametrize("problem", [ProtocolViolation("nonsense"), KeyError("a mistake of ours")])
def test_an_exception_while_a_pending_response_is_built_closes_its_own_connection_only(problem: Exception) -> None:
    room = Room()

    def fail() -> bytes:
        raise problem

    async def scenario(listener: Listener) -> None:
        told: list[Exception] = []
        listener.on_bug = told.append
        reader, writer = await connect(listener)
        writer.write(framed(b"wait"))
        await room.has_waiting.wait()
        room.make = fail
        other_reader, other = await connect(listener)
        other.write(framed(b"call"))
        assert await answer(other_reader) == b"call"
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await answer(reader)
        other.write(framed(b"again"))
        assert await answer(other_reader) == b"again"
        assert told == ([problem] if isinstance(problem, KeyError) else [])
        for one in (writer, other):
            one.close()

    run(room, scenario)


def test_request_that_is_served_later_has_the_frames_of_its_answer_at_once_or_when_that_is_ready() -> None:
    at_once, after = ServedLater(), ServedLater()
    at_once.serve_with(lambda: [b"frame"])
    assert (at_once.is_ready, at_once.frames()) == (True, [b"frame"])
    inner = ServedLater()
    after.serve_with(lambda: inner)
    assert not after.is_ready
    inner.serve_with(lambda: None)
    assert (after.is_ready, after.frames()) == (True, None)


def test_request_that_is_served_later_fails_with_what_the_serving_raised() -> None:
    def refuse() -> None:
        raise ValueError("no such version")

    raised, failed = ServedLater(), ServedLater()
    raised.serve_with(refuse)
    failed.fail_with(ValueError("no keys"))
    for pending, told in ((raised, "no such version"), (failed, "no keys")):
        assert pending.is_ready
        with pytest.raises(ValueError, match=told):
            pending.frames()


def test_request_that_is_served_later_cancels_the_answer_that_it_waits_for() -> None:
    inner, outer = ServedLater(), ServedLater()
    calls: list[str] = []
    outer.when_ready(lambda: calls.append("ready"))
    outer.serve_with(lambda: inner)
    outer.cancel()
    inner.serve_with(lambda: [b"frame"])
    assert calls == []
