"""A listening socket, and the connections that it accepts.

A connection turns what arrives into frames and hands each to the listener's `serve`. As in Kafka, a connection has one
request in progress at a time, so answers leave in the order of the requests without further thought:

    bytes ──▶ frame ──▶ serve ──▶ answer at once ──▶ the next frame
                          ├─────▶ an awaitable, or `Later`: nothing more is taken until it is done
                          └─────▶ `Acknowledging`: its work is done, so requests of the same API are served meanwhile

The last is for producers. What a producer has sent ahead is appended while the replicas fetch what came before, so one
round of replication carries all of it; a request at a time would make a round for each. Answers wait for their turn.

What one read brought is served before anything is written, and then written with one call: up to a number of requests,
so that whoever sends very many at once does not keep everybody else waiting.

`Later` is for consumers. Most fetches wait for records, and a produce that brings them is what ends the wait: so the
answer is made as soon as everything that came with the produce is served, and not in the next turn of the loop.

A peer that breaks the protocol gets one log line and a closed connection; nobody else notices. A peer that does not
read its answers is not read from either: above the transport's high-water mark nothing is taken or read until it has
drained, so a slow reader costs a bounded amount of memory. So does a slow writer of large requests: all of them share
the room that `receive_room.py` keeps. A connection that is silent for `connections.max.idle.ms` is closed, half a frame
or not.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from pessoa.net.connection_quota import ConnectionRefused
from pessoa.net.freed_memory import return_freed_memory
from pessoa.net.network import SystemNetwork
from pessoa.net.receive_buffer import API_BYTES, INITIAL_BYTES, ReceiveBuffer
from pessoa.net.receive_room import ReceiveRoom
from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.frames import DEFAULT_MAX_FRAME_BYTES, Buffer

if TYPE_CHECKING:
    from pessoa.net.connection_quota import ConnectionQuota
    from pessoa.net.network import ListeningSocket, Network
    from pessoa.net.receive_buffer import Frame

log = logging.getLogger("pessoa.net")

# How often idle connections are looked for.
_SWEEP_SECONDS = 5.0
_connection_ids = count(1)
# What a connection may send ahead while a request of it is in progress.
_PIPELINED_BYTES = 1024 * 1024
# So many answers may be outstanding to a producer that sends ahead.
_MAX_OWED = 32
# So many requests of one connection are served before others have their turn.
_MAX_AT_ONCE = 32
# So much is collected before it is written; more would only wait.
_WRITE_BYTES = 256 * 1024
# From this on, memory of requests goes back to the kernel when they are served: that takes a while.
_WORTH_RETURNING_BYTES = 64 * 1024 * 1024
# Up to this, copying answers into one buffer is quicker than handing many to the transport.
_JOINED_BYTES = 16 * 1024


# An awaitable by its method alone: whether something is of a kind that inherits from Awaitable is slow to find out.
class Acknowledging:
    """The answer to a request that is done with its frame and has had its effect; it only waits for others."""

    __slots__ = ("_answer",)

    def __init__(self, answer: Awaitable[list[Buffer] | None]) -> None:
        self._answer = answer

    def __await__(self) -> Generator[Any, None, list[Buffer] | None]:
        return self._answer.__await__()


class Later:
    """An answer that somebody's call makes ready. It takes no task, and is sent in the same turn of the loop."""

    __slots__ = ()

    def when_ready(self, call: Callable[[], None]) -> None:
        """Call this once, as soon as there can be an answer; at once if there can be one already."""
        raise NotImplementedError

    def answer(self) -> list[Buffer] | None:
        """Asked for once, after that call."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        raise NotImplementedError


Served = list[Buffer] | Awaitable[list[Buffer] | None] | Later | None


class Serve(Protocol):
    """What a connection asks about every frame. The range is good until the answer is there."""

    def __call__(self, connection: Connection, data: bytearray, start: int, end: int) -> Served: ...


class _Owed:
    """An answer whose turn has not come. While the last one is of API `api`, requests of that API are served."""

    __slots__ = ("answer", "api", "task")

    def __init__(self, api: int) -> None:
        self.api = api
        self.answer: list[Buffer] | None = None
        # None once the answer is there; there may be none, though.
        self.task: asyncio.Task[None] | Later | None = None


# The API of an answer after which nothing is taken.
_NO_API = -1


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Names and defaults are Kafka's."""

    socket_request_max_bytes: int = DEFAULT_MAX_FRAME_BYTES
    connections_max_idle_ms: int = 10 * 60 * 1000


class Connection(asyncio.BufferedProtocol):
    """One accepted connection. It is in its listener's `connections` from first to last byte."""

    __slots__ = (
        "_buffer",
        "_can_write",
        "_goes_on",
        "_is_asyncio",
        "_is_early",
        "_is_reading",
        "_listener",
        "_owed",
        "_transport",
        "_violation",
        "active_at_s",
        "finished_at_s",
        "host",
        "id",
        "peer",
    )

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._buffer = ReceiveBuffer(listener.limits.socket_request_max_bytes, self)
        self._transport: asyncio.Transport | None = None
        self._owed: deque[_Owed] = deque()
        # What the peer did wrong, while answers to what it did before are owed.
        self._violation: ProtocolViolation | None = None
        self._can_write = True
        # Whether the rest of what has come is to be served in the next turn of the loop.
        self._goes_on = False
        self._is_asyncio = False
        # Whether nothing is read because its turn has not come.
        self._is_early = False
        self._is_reading = True
        # When the last bytes came, and the last that ended a request, or its answer left.
        self.active_at_s = self.finished_at_s = 0.0
        self.id = next(_connection_ids)
        self.host = self.peer = "?"

    def __repr__(self) -> str:
        state = f"owes {len(self._owed)}" if self._owed else "idle" if self._can_write else "waits for its reader"
        return f"<Connection {self.id} from {self.peer}: {state}, {self._buffer!r}>"

    # What the transport tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        # In some versions of Python its `writelines` does not say when the peer is slow (CVE-2024-12254).
        self._is_asyncio = isinstance(transport, asyncio.Transport)
        peername = transport.get_extra_info("peername")
        if peername:
            self.host, self.peer = peername[0], f"{peername[0]}:{peername[1]}"
        loop = self._listener.loop
        self.active_at_s = loop.time()
        early_s = self._listener.admit(self)
        if early_s is None:
            self._transport.abort()
        elif early_s > 0:
            # uvloop begins to read behind this call, whatever is said in it; some of it may be served.
            loop.call_soon(self._wait_for_turn, early_s)

    def _wait_for_turn(self, early_s: float) -> None:
        # One behind the other: a loop that was held up runs what is due by the clock before what is due now.
        self._is_early = True
        self._pause()
        self._listener.loop.call_later(early_s, self._turn_came)

    def _turn_came(self) -> None:
        self._is_early = False
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for owed in self._owed:
            if owed.task is not None:
                # Behind its first step: what a task that never began would have awaited is complained about.
                self._listener.loop.call_soon(owed.task.cancel)
        self._buffer.disown()
        self._listener.room.forget(self)
        self._listener.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer.space()

    def buffer_updated(self, nbytes: int) -> None:
        listener = self._listener
        self._buffer.received(nbytes)
        self.active_at_s = listener.loop.time()
        self._serve_in_turn(listener)

    def _serve_in_turn(self, listener: Listener) -> None:
        listener.is_serving = True
        try:
            self._serve_waiting()
        finally:
            listener.is_serving = False
        if listener.settled:
            listener.pay_settled()

    def pause_writing(self) -> None:
        self._can_write = False
        self._listener.slow_readers.add(self)
        self._pause()

    def resume_writing(self) -> None:
        self._can_write = True
        self._listener.slow_readers.discard(self)
        # A connection that is being closed only sends its last answers.
        if self._transport is not None and not self._transport.is_closing():
            self._serve_waiting()

    # Serving.

    def _serve_waiting(self) -> None:
        """Serve every whole frame, up to the first whose answer takes time."""
        answers: list[Buffer] = []
        answer_bytes = 0
        left = _MAX_AT_ONCE
        buffer, owed = self._buffer, self._owed
        try:
            while left and self._can_write and self._may_take() and (frame := buffer.take_frame()) is not None:
                left -= 1
                answer = self._listener.serve(self, *frame)
                if answer is None:
                    continue
                if not isinstance(answer, list) or owed:
                    self._owe(answer, frame)
                    continue
                answers += answer
                answer_bytes += sum(map(len, answer))
                if answer_bytes > _WRITE_BYTES:
                    # Where the peer does not read, this is what stops the loop.
                    self._write(answers, answer_bytes)
                    answers, answer_bytes = [], 0
        except ProtocolViolation as violation:
            if answers:
                # What came before it was done, and its sender should know.
                self._write(answers, answer_bytes)
            if owed:
                self._violation = violation
            else:
                self._close_for(violation)
            return
        except Exception as bug:  # noqa: BLE001 (whatever it is, it must not reach the other connections)
            self._abort_for(bug)
            return
        if not owed or owed[-1].api != _NO_API:
            buffer.release()
            if self._listener.room.is_short:
                buffer.shrink()
        if answers:
            self._write(answers, answer_bytes)
        if left < _MAX_AT_ONCE:
            self.finished_at_s = self.active_at_s
            if not left and not self._goes_on:
                self._goes_on = True
                self._listener.loop.call_soon(self._go_on)
        if not self._can_write or ((owed or not left) and buffer.waiting_bytes > _PIPELINED_BYTES):
            self._pause()
        elif buffer.has_space():
            self._resume()
        else:
            self._pause()
            self._listener.room.wait(self, buffer.frame_bytes(), self._listener.loop.time())

    def _go_on(self) -> None:
        self._goes_on = False
        if self._transport is not None and not self._transport.is_closing():
            self._serve_in_turn(self._listener)

    def _may_take(self) -> bool:
        owed = self._owed
        if not owed:
            return True
        api = owed[-1].api
        if api == _NO_API or self._violation is not None:
            return False
        return len(owed) < _MAX_OWED and self._buffer.next_api() == api

    def _owe(self, answer: list[Buffer] | Awaitable[list[Buffer] | None] | Later, frame: Frame) -> None:
        if isinstance(answer, list):
            # Served behind another of its API, and answered at once.
            owed = _Owed(self._owed[-1].api)
            owed.answer = answer
        elif isinstance(answer, Later):
            owed = _Owed(_NO_API)
            owed.task = answer
            answer.when_ready(partial(self._listener.settle, self, owed))
        else:
            data, start, _ = frame
            is_done = isinstance(answer, Acknowledging)
            owed = _Owed(int.from_bytes(data[start : start + API_BYTES], "big") if is_done else _NO_API)
            owed.task = self._listener.loop.create_task(self._finish(owed, answer))
        self._owed.append(owed)

    def _write(self, answers: list[Buffer], size: int) -> None:
        if self._transport is None:
            return
        if self._is_asyncio or (len(answers) > 1 and size <= _JOINED_BYTES):
            self._transport.write(b"".join(answers))
        else:
            self._transport.writelines(answers)

    async def _finish(self, owed: _Owed, awaitable: Awaitable[list[Buffer] | None]) -> None:
        try:
            owed.answer = await awaitable
        except Exception as problem:  # noqa: BLE001
            self._cannot_pay(owed, problem)
            return
        owed.task = None
        if self._owed[0] is owed:
            self._pay()

    def finish_later(self, owed: _Owed) -> None:
        """The same for an answer that is ready."""
        if self._transport is None:
            return
        assert isinstance(owed.task, Later)
        try:
            owed.answer = owed.task.answer()
        except Exception as problem:  # noqa: BLE001
            self._cannot_pay(owed, problem)
            return
        owed.task = None
        if self._owed[0] is owed:
            self._pay()

    def _cannot_pay(self, owed: _Owed, problem: Exception) -> None:
        self._owed.remove(owed)
        if isinstance(problem, ProtocolViolation):
            self._close_for(problem)
        else:
            self._abort_for(problem)

    def _pay(self) -> None:
        """Send the answers whose turn it is, and go on."""
        owed = self._owed
        answers: list[Buffer] = []
        while owed and owed[0].task is None:
            answers += owed.popleft().answer or ()
        if self._transport is None:
            return
        self.active_at_s = self.finished_at_s = self._listener.loop.time()
        if answers:
            self._write(answers, sum(map(len, answers)))
        if owed:
            self._serve_waiting()
        elif self._violation is not None:
            self._close_for(self._violation)
        elif self._listener.is_draining:
            self.close()
        else:
            self._buffer.release()
            self._serve_waiting()

    def _pause(self) -> None:
        if self._is_reading and self._transport is not None:
            self._is_reading = False
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._is_reading or self._is_early:
            return
        if self._transport is not None and not self._transport.is_closing():
            self._is_reading = True
            self._listener.room.leave(self)
            self._transport.resume_reading()

    # Memory.

    def may_grow(self, more_bytes: int, frame_bytes: int, *, must: bool) -> bool:
        room = self._listener.room
        if not room.has(self):
            self.finished_at_s = self._listener.loop.time()
        return room.admits(self, more_bytes, frame_bytes, must=must)

    def has_grown(self, memory_bytes: int) -> None:
        self._listener.room.count(self, memory_bytes if memory_bytes > INITIAL_BYTES else 0)

    def give_back(self) -> None:
        self._buffer.shrink()

    def room_came(self) -> bool:
        # Whoever is paused for another reason asks when that is over.
        if self._can_write and not self._owed:
            if not self._buffer.has_space():
                return False
            self._resume()
        return True

    @property
    def unread_bytes(self) -> int:
        """Of answers that the peer has not taken."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # Ending.

    @property
    def is_in_progress(self) -> bool:
        return bool(self._owed)

    def close(self) -> None:
        """After what was written has been sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _abort_for(self, bug: Exception) -> None:
        """A mistake of ours: this request cannot be answered, everybody else's can."""
        log.error("a request of %s could not be served", self.peer, exc_info=bug)
        self._listener.on_bug(bug)
        self.abort()

    def _close_for(self, violation: ProtocolViolation) -> None:
        log.warning("%s on %s: %s; the connection is closed", self.peer, self._listener.address, violation)
        self.close()


class Listener:
    """`async with Listener(...)`: listens inside; outside, every connection is closed and every answer was sent."""

    def __init__(
        self,
        host: str,
        port: int,
        serve: Serve,
        limits: ListenerLimits | None = None,
        drain_seconds: float = 5.0,
        network: Network | None = None,
        room: ReceiveRoom | None = None,
        quotas: Sequence[ConnectionQuota] = (),
    ) -> None:
        self.host = host
        self.port = port
        self.serve = serve
        self.limits = limits or ListenerLimits()
        # What a connection must fit into, all of them.
        self.quotas = tuple(quotas)
        self.room = room if room is not None else ReceiveRoom()
        self.connections: set[Connection] = set()
        # Those of them that do not read as quickly as they are answered.
        self.slow_readers: set[Connection] = set()
        # Told about exceptions that nobody expected; they are in the log in any case.
        self.on_bug: Callable[[Exception], None] = lambda _: None
        # Told about every connection that has ended.
        self.on_closed: Callable[[Connection], None] = lambda _: None
        self.loop: asyncio.AbstractEventLoop
        # Whether a connection serves what it has read: whoever is settled meanwhile is paid behind it.
        self.is_serving = False
        self.settled: deque[tuple[Connection, _Owed]] = deque()
        self._drain_seconds = drain_seconds
        self._network: Network = network if network is not None else SystemNetwork()
        self._socket: ListeningSocket | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<Listener {self.address}: {len(self.connections)} connections>"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_draining(self) -> bool:
        return self._emptied is not None

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        self._socket = await self._network.listen(lambda: Connection(self), self.host, self.port)
        # Port 0 asks for any free one.
        self.port = self._socket.port
        self._sweep()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._socket is not None
        assert self._sweeper is not None
        self._sweeper.cancel()
        self._socket.close()
        self._emptied = asyncio.Event()
        # A connection with a request in progress closes itself after its answer.
        for connection in self._in_order():
            if not connection.is_in_progress:
                connection.close()
        try:
            async with asyncio.timeout(self._drain_seconds):
                if self.connections:
                    await self._emptied.wait()
        except TimeoutError:
            log.warning("%s: %s connections did not end in time and are cut", self.address, len(self.connections))
        for connection in self._in_order():
            connection.abort()
        await self._socket.wait_closed()

    def abort(self) -> None:
        """Close everything at once, whatever is in progress."""
        if self._socket is not None:
            self._socket.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in self._in_order():
            connection.abort()

    def _in_order(self) -> list[Connection]:
        """The connections in the order of their ids: what a run does must not depend on where objects lie."""
        return sorted(self.connections, key=lambda one: one.id)

    def settle(self, connection: Connection, owed: _Owed) -> None:
        """This answer can be made."""
        if not self.is_serving and not self.settled:
            self.loop.call_soon(self.pay_settled)
        self.settled.append((connection, owed))

    def pay_settled(self) -> None:
        # Those who are paid may go on and settle others, who then queue up here.
        settled, self.is_serving = self.settled, True
        try:
            while settled:
                connection, owed = settled.popleft()
                connection.finish_later(owed)
        finally:
            self.is_serving = False
            if settled:
                self.loop.call_soon(self.pay_settled)

    def admit(self, connection: Connection) -> float | None:
        """How many seconds it has to wait for its turn; None if there is none. It is counted in any case."""
        self.connections.add(connection)
        early_s: float | None = 0.0
        for quota in self.quotas:
            try:
                wait_s = quota.enter(connection.host, connection.active_at_s)
            except ConnectionRefused as refused:
                log.warning("%s is refused: %s", connection.peer, refused)
                early_s = None
            else:
                early_s = None if early_s is None else max(early_s, wait_s)
        return early_s

    @property
    def unread_bytes(self) -> int:
        """What answers take in memory because their readers are slow."""
        return sum(one.unread_bytes for one in self.slow_readers) if self.slow_readers else 0

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.slow_readers.discard(connection)
        for quota in self.quotas:
            quota.leave(connection.host)
        if self._emptied is not None and not self.connections:
            self._emptied.set()
        self.on_closed(connection)

    def _sweep(self) -> None:
        """Close who was silent for too long and waits for nothing."""
        oldest_s = self.loop.time() - self.limits.connections_max_idle_ms / 1000
        for connection in self._in_order():
            if connection.active_at_s < oldest_s and not connection.is_in_progress:
                log.info("%s was idle for too long and is closed", connection.peer)
                connection.close()
        self.room.close_the_slow(self.loop.time())
        if self.room.take_freed_bytes() > _WORTH_RETURNING_BYTES:
            return_freed_memory()
        self._sweeper = self.loop.call_later(_SWEEP_SECONDS, self._sweep)
