"""The supervisor behind `pessoa up`: start what the table says, watch it, stop it in reverse.

    ports free? ──no──► one sentence, exit code 1, nothing was started
        │ yes
    start every row, top to bottom; wait until all are ready ──one fails──► its last log lines, stop the rest, 1
        │
    print what is where
        │
    watch: a service that ends by itself is started again, after a pause that doubles from failure to failure
        │ Ctrl-C or SIGTERM
    stop every row, bottom to top, with one deadline for all; kill what is left; exit code 0

The rows are started without waiting for one another: three brokers become ready only together, because they need each
other for a quorum. A service that needs the cluster retries until it is there, as it must anyway after a crash.

A first start that fails is final, whereas a later failure is repaired: at the first start the user is watching and the
cause is usually theirs to mend (a port, a setting), and a loop of restarts would bury it.

A second Ctrl-C while stopping moves the deadline to now.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pessoa.platform.child import Child
from pessoa.platform.report import drawn_table, plain_table
from pessoa.platform.services import Service

# What a user wants to see of a log when a start fails: a traceback's end, not its whole.
LOG_LINES_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the supervisor waits, in seconds."""

    ready_s: float = 60.0
    stop_s: float = 15.0
    first_restart_s: float = 0.5
    longest_restart_s: float = 30.0
    # A service that ran this long before it ended starts again with the shortest pause.
    settled_s: float = 60.0

    def restart_pause_s(self, failure_count: int) -> float:
        assert failure_count >= 1, failure_count
        # The exponent is bounded so that a service which fails for days does not overflow a float.
        return min(self.first_restart_s * 2.0 ** min(failure_count - 1, 32), self.longest_restart_s)


class StartFailure(Exception):
    """The platform cannot start; the text is what the user is told."""


def require_free_ports(services: Iterable[Service]) -> None:
    for service in services:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As servers do: a port in TIME_WAIT is free, one with a listener is not.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((service.host, service.port))
            except OSError as failure:
                if failure.errno == errno.EADDRINUSE:
                    why = f"port {service.port} is already taken by another program; stop that program first"
                else:
                    why = f"port {service.port} cannot be used ({failure.strerror})"
                raise StartFailure(f"Cannot start {service.name}: {why}.") from None


class Supervisor:
    def __init__(
        self,
        services: Iterable[Service],
        home: Path,
        tell: Callable[[str], object],
        patience: Patience | None = None,
    ) -> None:
        self.home = home
        self.children = [Child(service, home) for service in services]
        self._tell = tell
        self._patience = patience or Patience()
        self._stop = asyncio.Event()
        self._stop_at_once = asyncio.Event()

    def __repr__(self) -> str:
        state = "stopping" if self._stop.is_set() else "supervising"
        return f"<Supervisor {state} {self.children!r}>"

    def run_until_signalled(self) -> int:
        """The whole life of `pessoa up`; returns the exit code."""

        async def life() -> int:
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self.request_stop)
            return await self.run()

        return asyncio.run(life())

    def request_stop(self) -> None:
        if self._stop.is_set():
            self._stop_at_once.set()
        self._stop.set()

    async def run(self) -> int:
        try:
            require_free_ports(child.service for child in self.children)
            await self._start_all()
            if not self._stop.is_set():
                self._tell(self._what_is_where())
                await self._watch()
        except StartFailure as failure:
            self._tell(str(failure))
            return 1
        finally:
            await self._stop_all()
        return 0

    async def _start_all(self) -> None:
        for child in self.children:
            await self._start(child)
        all_ready = asyncio.gather(*(self._require_ready(child) for child in self.children))
        await self._unless_stopped(all_ready)

    async def _start(self, child: Child) -> None:
        try:
            await child.start()
        except OSError as failure:
            raise StartFailure(f"Cannot start {child.service.name}: {failure}.") from failure

    async def _require_ready(self, child: Child) -> None:
        if await child.wait_until_ready(self._patience.ready_s) or self._stop.is_set():
            return
        name = child.service.name
        if child.is_running:
            what = f"{name} did not become ready on {child.service.address} within {self._patience.ready_s:g} s"
        else:
            what = f"{name} stopped before it was ready ({child.how_it_ended()})"
        tail = "".join(f"\n  | {line}" for line in child.last_log_lines(LOG_LINES_SHOWN))
        raise StartFailure(f"{what}. Its log is {child.log_path}{':' if tail else ' and empty.'}{tail}")

    async def _watch(self) -> None:
        await self._unless_stopped(asyncio.gather(*(self._keep_running(child) for child in self.children)))

    async def _keep_running(self, child: Child) -> None:
        name = child.service.name
        failure_count = 0
        while True:
            await child.wait_until_exited()
            failure_count = 1 if child.uptime_s >= self._patience.settled_s else failure_count + 1
            pause_s = self._patience.restart_pause_s(failure_count)
            self._tell(
                f"{name} stopped by itself ({child.how_it_ended()}); starting it again in {pause_s:g} s. "
                f"Its log is {child.log_path}"
            )
            await asyncio.sleep(pause_s)
            await self._start(child)
            if await child.wait_until_ready(self._patience.ready_s):
                self._tell(f"{name} is back on {child.service.address} (pid {child.pid})")

    async def _unless_stopped(self, work: asyncio.Future[list[None]]) -> None:
        """Wait for `work`, or for the request to stop; an error in `work` is raised here."""
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((work, stopped), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            stopped.cancel()
            work.cancel()
            await asyncio.gather(work, stopped, return_exceptions=True)

    async def _stop_all(self) -> None:
        running = [child for child in reversed(self.children) if child.is_running]
        if running:
            self._tell(f"stopping {', '.join(child.service.name for child in running)}")
        deadline_s = asyncio.get_running_loop().time() + self._patience.stop_s
        for child in running:
            stopping = asyncio.ensure_future(child.stop(deadline_s))
            hurry = asyncio.ensure_future(self._stop_at_once.wait())
            await asyncio.wait((stopping, hurry), return_when=asyncio.FIRST_COMPLETED)
            if hurry.done() and not stopping.done():
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)
                stopping = asyncio.ensure_future(child.stop(asyncio.get_running_loop().time()))
            hurry.cancel()
            if not await stopping:
                self._tell(f"{child.service.name} did not stop when asked and was killed")

    def _what_is_where(self) -> str:
        rows = [
            (child.service.name, child.service.address, str(child.pid), str(child.log_path)) for child in self.children
        ]
        if sys.stdout.isatty():
            table = drawn_table(rows, shutil.get_terminal_size().columns)
        else:
            table = plain_table(rows)
        return f"{table}\nData and logs are in {self.home}. Ctrl-C stops everything."
