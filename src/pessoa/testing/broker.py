"""A broker that lives in this process, with a thread and an event loop of its own.

It listens on a port that the system chooses. Its data lies in memory, or in a directory if one is given; memory is
quicker and leaves nothing behind. Leaving the `with` block stops it in order and gives everything back: thread,
sockets, files.

If the broker makes a mistake (an unexpected exception), leaving the block raises it, so that the test fails
with the broker's own traceback instead of a client's timeout.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from pathlib import Path

    from pessoa.broker.assembly import AnyBroker, AnyDisk

T = TypeVar("T")

# A test should not wait for a second member of a group.
_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}
# For failures alone: what works is done in a fraction of it, even on a busy machine.
_TIMEOUT_S = 60.0
_MEMORY = "/memory"


class Broker:
    """A broker in this process: `with Broker() as broker: broker.bootstrap_servers`. `settings` are Kafka's keys,
    with dots."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, directory: str | Path | None = None) -> None:
        self._settings = dict(settings or {})
        self._directory = str(directory) if directory is not None else None
        # The data of a broker in memory outlives a stop, as a directory would.
        self._disk: AnyDisk | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._broker: AnyBroker | None = None
        self._bugs: list[Exception] = []
        self._port = 0
        self._paused: threading.Event | None = None

    def __repr__(self) -> str:
        state = f"on {self.bootstrap_servers}" if self._broker is not None else "stopped"
        return f"<pessoa.testing.Broker {state}, data in {self._directory or 'memory'}>"

    @property
    def is_running(self) -> bool:
        """Whether the broker was started and not stopped or killed. A paused broker is running."""
        return self._broker is not None

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, `127.0.0.1:port`; the same after a restart."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        assert self._port, "the broker has not been started"
        return self._port

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self.begin_start()
        self.finish_start()

    def begin_start(self) -> None:
        """Start without waiting until the broker is ready: for that it may need other brokers."""
        assert self._thread is None, f"{self!r} is running"
        self._thread = threading.Thread(target=self._run_loop, name="pessoa-broker", daemon=True)
        ready: Future[asyncio.AbstractEventLoop] = Future()
        self._ready = ready
        self._thread.start()
        self._loop = ready.result(_TIMEOUT_S)
        self._starting = asyncio.run_coroutine_threadsafe(self._start(), self._loop)

    def finish_start(self) -> None:
        try:
            self._starting.result(_TIMEOUT_S)
        except BaseException:
            self._end_thread()
            raise

    def stop(self) -> None:
        """Shut the broker down cleanly. Raises the first error that was not handled inside, if there was one."""
        if self._thread is None:
            return
        self.resume()
        try:
            self._call(self._stop())
        finally:
            self._end_thread()
        if self._bugs:
            raise self._bugs.pop(0)

    def leave(self) -> None:
        """Move the broker's leaders to other brokers (controlled shutdown). It still runs, and should be stopped
        next."""
        assert self._broker is not None, f"{self!r} is not running"
        self._call(self._broker.leave())

    def restart(self) -> None:
        """Stop the broker and start it again on the same port with the same data."""
        self.stop()
        self.start()

    def kill(self, *, power_loss: bool = False) -> None:
        """End the broker as `kill -9` does: it sends and writes nothing more. What it wrote stays, synced or not;
        with `power_loss` only what was synced stays, which needs a broker in memory."""
        assert self._thread is not None, f"{self!r} is not running"
        assert not power_loss or self._directory is None, "the power of a real disk cannot be cut"
        self.resume()
        try:
            self._call(self._crash(power_loss))
        finally:
            self._end_thread()

    def pause(self) -> None:
        """Stop the broker's thread, as SIGSTOP does: its connections stay open, and no request is answered."""
        assert self._loop is not None, f"{self!r} is not running"
        assert self._paused is None, f"{self!r} is paused"
        self._paused, holds = threading.Event(), threading.Event()

        def hold(resumed: threading.Event) -> None:
            holds.set()
            resumed.wait()

        self._loop.call_soon_threadsafe(hold, self._paused)
        assert holds.wait(_TIMEOUT_S), f"{self!r} did not come to a halt"

    def resume(self) -> None:
        if self._paused is not None:
            self._paused.set()
            self._paused = None

    def inspect(self, look: Callable[[AnyBroker], T]) -> T:
        """Return what `look` returns for the running broker, called in its thread: for tests of the broker itself."""

        async def found() -> T:
            assert self._broker is not None, f"{self!r} is not running"
            return look(self._broker)

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(found(), self._loop).result(_TIMEOUT_S)

    # In the broker's own thread.

    def _run_loop(self) -> None:
        from pessoa.broker.assembly import loop_factory

        loop = loop_factory()()
        asyncio.set_event_loop(loop)
        loop.call_soon(self._ready.set_result, loop)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _make(self) -> AnyBroker:
        from pessoa.broker.assembly import make_broker

        return make_broker(self._all_settings(), self._disk)

    def _all_settings(self) -> dict[str, str]:
        return {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:0",
            "log.dirs": self._directory or _MEMORY,
            **self._settings,
        }

    async def _start(self) -> None:
        from pessoa.broker.assembly import memory_disk

        if self._disk is None and self._directory is None:
            self._disk = memory_disk(_MEMORY)
        broker = self._make()
        broker.on_bug = self._bugs.append
        try:
            await broker.start()
        except BaseException:
            await broker.stop()
            raise
        self._broker = broker
        self._port = int(broker.bootstrap_servers.rpartition(":")[2])

    async def _stop(self) -> None:
        if self._broker is not None:
            broker, self._broker = self._broker, None
            await broker.stop()
            if broker.failed.done():
                broker.failed.result()

    async def _crash(self, power_loss: bool) -> None:
        """End all tasks of the broker, as if its process was killed. A killed process stops between two
        instructions, whereas these tasks run on until they are cancelled; so sockets and disk are taken away first."""
        assert self._broker is not None
        broker, self._broker = self._broker, None
        # The complaints of a broker that was killed are dropped.
        asyncio.get_running_loop().set_exception_handler(lambda _, __: None)
        broker.abandon()
        if self._disk is not None:
            from pessoa.broker.assembly import crash_disk

            crash_disk(self._disk, power_loss=power_loss)
        # Tasks that were about to begin have begun then, and can be cancelled.
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=_TIMEOUT_S)
        # The loop closes sockets one round later.
        await asyncio.sleep(0)

    # Between the threads.

    def _call(self, work: Coroutine[None, None, None]) -> None:
        assert self._loop is not None
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_TIMEOUT_S)

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT_S)
        assert not self._thread.is_alive(), "the broker's thread did not end"
        self._loop = self._thread = None
