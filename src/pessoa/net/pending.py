"""`Pending`: the response to a request that comes later.

    handler ──▶ Pending ──▶ dispatcher (version and correlation id) ──▶ connection (its place in the order of answers)
                   │
               `ready`, by an append, a timer or the end of a task ──▶ the connection asks for `frames` and sends them

- A response that another request makes possible, as that of a fetch which waits for records or of a produce which waits
  for replicas, is a subclass that overrides `response`. It takes no task, and is answered in the turn of the loop in
  which `ready` was called.
- A response that a coroutine makes is a `PendingTask`. The task begins when a connection waits for it; code that awaits
  it runs the coroutine in its own task.
- A request that cannot be served yet, as one before the start of its broker, is a `ServedLater`.
- `lets_next_in` is set by a request that has had its effect, is done with its frame and waits for replicas or disks
  alone: requests of the same API are served meanwhile.

`response` is asked for once, after `ready`; then nothing is left to cancel.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, Protocol

from pessoa.wire.frames import response_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from pessoa.wire.frames import Buffer
    from pessoa.wire.request_context import Charge
    from pessoa.wire.schema import Message


class Observation(Protocol):
    """One request as seen by the watchers of requests (`broker.observers`): it ends with `end` or with `lose`."""

    def wait(self) -> None:
        """Note that the handler has returned and the response comes later."""

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None:
        """Note the response; None for a client that wants none."""

    def lose(self) -> None:
        """Note that there will be no response: the connection has ended, or the request has failed."""


class Pending:
    """A response that comes later. It is awaitable by its method alone: a class that inherits from Awaitable makes
    every isinstance check slow."""

    __slots__ = ("_on_ready", "charge", "correlation_id", "is_ready", "lets_next_in", "observation", "version")

    # Whether the caller of `ready` has nothing else to do. Otherwise the answer is made when the caller is done.
    is_last_step: ClassVar[bool] = False

    def __init__(self, *, lets_next_in: bool = False) -> None:
        self.is_ready = False
        self.lets_next_in = lets_next_in
        self._on_ready: Callable[[], object] | None = None
        # Of the request.
        self.version = self.correlation_id = 0
        # None if no watcher looks at the request, or if it has ended.
        self.observation: Observation | None = None
        # None if no quota holds for the client.
        self.charge: Charge | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of request {self.correlation_id}{', ready' if self.is_ready else ''}>"

    def ready(self) -> None:
        """Note that the response can be made. It may be called more than once."""
        if not self.is_ready:
            self.is_ready = True
            # It refers to this object: whatever is kept here would have to be found by the garbage collector.
            call, self._on_ready = self._on_ready, None
            if call is not None:
                call()

    def when_ready(self, call: Callable[[], object]) -> None:
        """Call `call` once, as soon as the response can be made; at once if it can be made already."""
        if self.is_ready:
            call()
        else:
            self._on_ready = call

    def response(self) -> Message | None:
        """Make the response; None if the client wants none."""
        raise NotImplementedError

    def frames(self) -> list[Buffer] | None:
        """Return the response as the buffers to send; None if the client wants none."""
        try:
            response = self.response() if self.charge is None else self.charge.make(self.response)
        except Exception:
            self._lose()
            raise
        frames = None if response is None else response_frame(response, self.version, self.correlation_id)
        if self.observation is not None:
            observation, self.observation = self.observation, None
            observation.end(response, frames)
        return frames

    def cancel(self) -> None:
        """Drop the response: nothing waits for it any more."""
        self._on_ready = None
        self._lose()

    def _lose(self) -> None:
        if self.observation is not None:
            observation, self.observation = self.observation, None
            observation.lose()
        if self.charge is not None:
            charge, self.charge = self.charge, None
            charge.lose()

    def __await__(self) -> Generator[object, None, Message | None]:
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def call() -> None:
            if not called.done():
                called.set_result(None)

        self.when_ready(call)
        try:
            yield from called
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self.response()


class PendingTask(Pending):
    """The response that a coroutine makes."""

    __slots__ = ("_problem", "_response", "_task", "_work")

    is_last_step = True

    def __init__(self, work: Awaitable[Message | None], *, lets_next_in: bool = False) -> None:
        super().__init__(lets_next_in=lets_next_in)
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._response: Message | None = None
        self._problem: Exception | None = None

    def when_ready(self, call: Callable[[], object]) -> None:
        self._on_ready = call
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            self._response = await self._work
        except Exception as problem:  # noqa: BLE001 (`response` raises it)
            self._problem = problem
        self.ready()

    def response(self) -> Message | None:
        if self._problem is not None:
            raise self._problem
        return self._response

    def cancel(self) -> None:
        super().cancel()
        if self._task is not None:
            self._task.cancel()

    def __await__(self) -> Generator[object, None, Message | None]:
        return self._work.__await__()


class ServedLater(Pending):
    """The response to a request that is served when something else is done. Its answer may come later as well, and is a
    whole response then: version, quota and watchers are its own."""

    __slots__ = ("_answer", "_problem")

    def __init__(self) -> None:
        super().__init__()
        self._answer: list[Buffer] | Pending | None = None
        self._problem: Exception | None = None

    def serve_with(self, serve: Callable[[], list[Buffer] | Pending | None]) -> None:
        try:
            self._answer = serve()
        except Exception as problem:  # noqa: BLE001 (`frames` raises it)
            self._problem = problem
        if isinstance(self._answer, Pending):
            self._answer.when_ready(self.ready)
        else:
            self.ready()

    def fail_with(self, problem: Exception) -> None:
        self._problem = problem
        self.ready()

    def frames(self) -> list[Buffer] | None:
        if self._problem is not None:
            raise self._problem
        return self._answer.frames() if isinstance(self._answer, Pending) else self._answer

    def cancel(self) -> None:
        super().cancel()
        if isinstance(self._answer, Pending):
            self._answer.cancel()
