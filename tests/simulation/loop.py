"""An event loop without real time, sockets or threads: time is a number, and what runs next follows from a seed.

    ready ──▶ run one handle ──▶ … nothing ready ──▶ the clock jumps to the earliest timer ──▶ ready

Every handle belongs to the `Process` whose code scheduled it. A process is a value in the context, and asyncio carries
contexts from handle to handle and from task to task, so no code has to pass it on. So a process can be killed or paused
at any await: the loop drops the handles of a dead process, and holds those of a paused one (SIGSTOP) until it is
continued. No `finally` runs in a dead process: its tasks are kept as they are until the simulation is over (`bury`).

Handles run in the order in which they became ready, as in a real loop; processes overtake each other because of the
delays of network and disk, which are drawn from the seed. Worker threads are calls at a later time.

`fingerprint` is a hash of which process ran when. Two runs of a seed with the same fingerprint were the same run.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from pessoa.log.simulated_disk import Crashed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Finished tasks are removed from a list that is longer than this.
_TASKS_TO_SWEEP = 256


class State(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


# Used at every step, where looking up an enumeration's attribute would be slow.
_RUNNING = State.RUNNING


class Process:
    """A simulated process. A node that is started again is a new process."""

    __slots__ = ("_swept_at", "context", "held", "name", "number", "state", "tasks")

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        # Tells processes apart in the fingerprint.
        self.number = number
        self.state = State.RUNNING
        self.held: list[_Handle] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self._swept_at = _TASKS_TO_SWEEP
        self.context: Context = copy_context()
        self.context.run(_process.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.name}: {self.state.value}>"

    @property
    def is_dead(self) -> bool:
        return self.state is State.DEAD

    def remember(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference: a suspended coroutine without one would be closed, and its `finally` would run."""
        self.tasks.append(task)
        if len(self.tasks) > self._swept_at:
            self.tasks = [one for one in self.tasks if not one.done()]
            self._swept_at = 2 * len(self.tasks) + _TASKS_TO_SWEEP


_process: ContextVar[Process] = ContextVar("process")


def current_process() -> Process | None:
    return _process.get(None)


class CountedTask(asyncio.Task[T]):
    """A task whose hash is its number: asyncio keeps tasks in sets, whose order must not depend on memory addresses."""

    _number: int

    def __new__(cls, *args: Any, **settings: Any) -> CountedTask[T]:
        task = super().__new__(cls)
        loop = settings["loop"]
        loop.task_count += 1
        task._number = loop.task_count
        return task

    def __hash__(self) -> int:
        return self._number


class _Handle(asyncio.TimerHandle):
    """asyncio's TimerHandle without its support for debugging: a run creates more handles than any other objects."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> None:
        self._when = when
        self._callback: Any = callback
        self._args: Any = args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<_Handle of {self._callback!r}>"

    def cancel(self) -> None:
        """Cancel the handle: the loop skips it at its time; its callback and arguments are released at once."""
        self._cancelled = True
        self._callback = self._args = None


class TooManySteps(Exception):
    """The run has taken more steps than allowed: probably an endless loop in which no time passes."""


class SimulatedLoop(asyncio.AbstractEventLoop):
    """The simulated event loop, used with `run_until_complete`. `worker_delay` returns how long a call in a worker
    thread takes."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.steps = 0
        self.fingerprint = 0
        self.task_count = 0
        # Uncaught exceptions, as the contexts that asyncio gives to exception handlers.
        self.problems: list[dict[str, Any]] = []
        self.worker_delay: Callable[[], float] = lambda: 0.0
        # Called with the process after every step of one.
        self.after_step: Callable[[Process], None] | None = None
        self.trace: Callable[[str], None] | None = None
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._sequence = 0
        self._process_count = 0
        self._is_running = False
        self._is_closed = False
        self._processes: list[Process] = []

    def __repr__(self) -> str:
        return f"<SimulatedLoop at {self.now_s:.6f} s after {self.steps} steps>"

    # Processes.

    def new_process(self, name: str) -> Process:
        self._process_count += 1
        process = Process(name, self._process_count)
        self._processes.append(process)
        return process

    def spawn(self, process: Process, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine as a task of the process."""
        return process.context.run(self.create_task, work, name=name)

    def kill(self, process: Process) -> None:
        process.state = State.DEAD
        process.held.clear()

    def pause(self, process: Process) -> None:
        if process.state is State.RUNNING:
            process.state = State.PAUSED

    def resume(self, process: Process) -> None:
        if process.state is State.PAUSED:
            process.state = State.RUNNING
            self._ready.extend(process.held)
            process.held.clear()

    def bury(self) -> None:
        """Close the coroutines of all processes, dead or alive, when the simulation is over and nothing runs any
        more."""
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()
        asyncio._set_running_loop(self)
        try:
            for process in self._processes:
                for task in process.tasks:
                    if task.done():
                        if not task.cancelled():
                            task.exception()
                        continue
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    coroutine: Any = task.get_coro()
                    try:
                        coroutine.close()
                    except BaseException:  # noqa: BLE001 (the code of a dead process may say what it likes)
                        continue
                process.tasks.clear()
                process.held.clear()
        finally:
            asyncio._set_running_loop(None)
        self._processes.clear()

    # Running.

    def run_forever(self) -> None:
        raise NotImplementedError("a simulation ends")

    def run_until_complete(self, future: Any, *, max_steps: int = 1 << 62) -> Any:
        awaited: asyncio.Future[Any] = asyncio.ensure_future(future, loop=self)
        self._is_running = True
        asyncio._set_running_loop(self)
        last = self.steps + max_steps
        try:
            while not awaited.done():
                if self._ready or self._advance():
                    self._step()
                if self.steps > last:
                    raise TooManySteps(f"more than {max_steps} steps; it is {self.now_s:.3f} s")
        finally:
            asyncio._set_running_loop(None)
            self._is_running = False
        return awaited.result()

    def _step(self) -> None:
        handle = self._ready.popleft()
        if handle._cancelled:
            return
        self.steps += 1
        process = handle._context.get(_process)
        if process is not None:
            if process.state is not _RUNNING:
                if process.state is State.PAUSED:
                    process.held.append(handle)
                return
            self.fingerprint = hash((self.fingerprint, self.now_s, process.number))
        try:
            handle._context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 (as every loop does)
            self.call_exception_handler({"message": f"in {handle!r}", "exception": error})
        # A process that was killed during the step is not checked.
        if process is not None and self.after_step is not None and process.state is not State.DEAD:
            self.after_step(process)

    def _advance(self) -> bool:
        """Advance the time to the next timer, as no handle is ready, and return True; raise if there is no timer."""
        timers = self._timers
        while True:
            if not timers:
                raise RuntimeError("every process waits for another: no timer is set")
            when, _, handle = heappop(timers)
            if not handle._cancelled:
                break
        if when > self.now_s:
            self.now_s = when
        self._ready.append(handle)
        while timers and timers[0][0] <= self.now_s:
            self._ready.append(heappop(timers)[2])
        return True

    def mix(self, number: int) -> None:
        """Include a number in the fingerprint."""
        self.fingerprint = hash((self.fingerprint, number))

    # The interface of asyncio's loops.

    def time(self) -> float:
        return self.now_s

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(self.now_s, callback, args, context)
        if not self._is_closed:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = _Handle(when, callback, args, context)
        if not self._is_closed:
            self._sequence += 1
            heappush(self._timers, (when, self._sequence, handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> Any:
        task: CountedTask[Any] = CountedTask(coro, loop=self, name=name, context=context)
        process = context.get(_process) if context is not None else _process.get(None)
        if process is not None:
            process.remember(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run the call after `worker_delay`, also if its waiter was cancelled by then, as a thread would."""
        future: asyncio.Future[T] = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Crashed:
                return
            except Exception as error:  # noqa: BLE001 (it is handed on)
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.call_later(self.worker_delay(), work)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._is_closed and not isinstance(context.get("exception"), Crashed):
            self.problems.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_exception_handler(self) -> None:
        return None

    def get_debug(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def is_running(self) -> bool:
        return self._is_running

    def is_closed(self) -> bool:
        return self._is_closed

    def stop(self) -> None:
        raise NotImplementedError("a simulation runs until its end")

    def close(self) -> None:
        self.bury()


def new_loop() -> SimulatedLoop:
    """Return a new loop. It has no files, sockets, signals and child processes, and lacks the methods for them."""
    return SimulatedLoop()  # type: ignore[abstract]
