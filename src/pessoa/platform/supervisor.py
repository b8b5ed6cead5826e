"""The supervisor behind `pessoa up`: start the services of the table, watch them, stop them in reverse.

    ports free? ──no──► one sentence, exit code 1, nothing was started
        │ yes
    start every tier, top to bottom, and wait until it is ready ──one fails──► its last log lines, stop the rest, 1
        │
    print what is where
        │
    watch: a service that ends by itself is started again, after a pause that doubles from failure to failure
        │ Ctrl-C or SIGTERM
    stop every tier, bottom to top, with one deadline for all; kill what is left; exit code 0

The rows of a tier are started at once: three brokers become ready only together, because they need each other for a
quorum. The next tier waits for them. A registry that came up beside the first of three brokers would make its topic
there and then, with one replica.

A first start that fails is final, whereas a later failure is repaired: at the first start the user is watching and the
cause is usually theirs to mend (a port, a setting), and a loop of restarts would bury it.

The rows of a tier also stop together. An upper tier may use only a part of the time that is left, so that a service
which hangs cannot take the brokers' time to close their logs.

A second Ctrl-C while stopping moves the deadline to now.

A service that the user has stopped by itself (`held_services.py`) stays down until it is released.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pessoa.platform import held_services
from pessoa.platform.child import Child
from pessoa.platform.ports import PortTaken, Reservation
from pessoa.platform.report import rows_of, seconds, table_for_here
from pessoa.platform.run_file import Run, RunningService, write_run
from pessoa.platform.service_rows import Service

# What a user wants to see of a log when a start fails: a traceback's end, not its whole.
LOG_LINES_SHOWN = 8
# Of the time that is left, what a tier may use that is not the last.
SHARE_OF_AN_UPPER_TIER = 0.3


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the supervisor waits, in seconds."""

    ready_s: float = 60.0
    # Services flush acknowledged data to disk before they end, also on a busy machine. A user who does not want to
    # wait presses Ctrl-C again.
    stop_s: float = 20.0
    first_restart_s: float = 0.5
    longest_restart_s: float = 30.0
    # A service that ran this long before it ended starts again with the shortest pause.
    stable_s: float = 60.0

    def restart_pause_s(self, failure_count: int) -> float:
        assert failure_count >= 1, failure_count
        # The exponent is bounded so that a service which fails for days does not overflow a float.
        return min(self.first_restart_s * 2.0 ** min(failure_count - 1, 32), self.longest_restart_s)


class StartFailure(Exception):
    """The platform cannot start; the text is shown to the user."""


def _tiers(children: Iterable[Child]) -> list[list[Child]]:
    """Return the services grouped by tier, in the order in which they start."""
    return [list(tier) for _, tier in groupby(children, key=lambda child: child.service.tier or child)]


class Supervisor:
    def __init__(
        self,
        services: Iterable[Service],
        home: Path,
        tell: Callable[[str], object],
        patience: Patience | None = None,
        on_change: Callable[[Sequence[Child], Child], object] = lambda *_: None,
        hint: str = "",
        after_tier: Mapping[str, Callable[[], object]] | None = None,
    ) -> None:
        """`after_tier` has functions by tier: each is called in a thread when its tier is ready and before the next
        tier is started; it raises `StartFailure` if that must not happen."""
        self.home = home
        self.children = [Child(service, home) for service in services]
        self._tell = tell
        self._on_change = on_change
        self._hint = hint
        self._after_tier = after_tier or {}
        self._phase = "starting"
        self._began_s = time.time()
        self._patience = patience or Patience()
        self._stop = asyncio.Event()
        self._stop_at_once = asyncio.Event()
        self._held: frozenset[str] = frozenset()
        self._held_changed = asyncio.Event()
        self._hold_tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        state = "stopping" if self._stop.is_set() else "supervising"
        return f"<Supervisor {state} {self.children!r}>"

    def run_until_signalled(self) -> int:
        """Start the services, watch and stop them; return the exit code of `pessoa up`."""

        async def run() -> int:
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, self.request_stop)
            asyncio.get_running_loop().add_signal_handler(held_services.CHANGED, self.apply_held_services)
            return await self.run()

        return asyncio.run(run())

    def request_stop(self) -> None:
        if self._stop.is_set():
            self._stop_at_once.set()
        self._stop.set()

    def apply_held_services(self) -> None:
        self._held = held_services.held(self.home)
        for child in self.children:
            if child.service.name in self._held and child.state == "ready":
                deadline_s = asyncio.get_running_loop().time() + self._patience.stop_s
                task = asyncio.ensure_future(self._stop_one(child, deadline_s))
                self._hold_tasks.add(task)
                task.add_done_callback(self._hold_tasks.discard)
        # Waiters for the next change get a new event.
        self._held_changed.set()
        self._held_changed = asyncio.Event()

    async def run(self) -> int:
        try:
            ports = Reservation.of(child.service for child in self.children)
        except PortTaken as taken:
            self._tell(str(taken))
            return 1
        held_services.forget(self.home)
        with ports:
            return await self._run_services()

    async def _run_services(self) -> int:
        try:
            await self._start_all()
            if not self._stop.is_set():
                self._phase = "ready"
                # Printed first: `pessoa up --detach` shows the output as soon as `run.json` has the phase ready.
                self._tell(self._summary())
                self._write()
                await self._watch()
        except StartFailure as failure:
            self._tell(str(failure))
            return 1
        finally:
            await self._stop_all()
        return 0

    async def _start_all(self) -> None:
        for tier in _tiers(self.children):
            for child in tier:
                await self._start(child)
            await self._wait_unless_stopped(asyncio.gather(*(self._require_ready(child) for child in tier)))
            if self._stop.is_set():
                return
            if (act := self._after_tier.get(tier[0].service.tier)) is not None:
                await asyncio.to_thread(act)

    async def _start(self, child: Child) -> None:
        try:
            await child.start()
        except OSError as failure:
            raise StartFailure(f"Cannot start {child.service.name}: {failure}.") from failure
        self._set_state(child, "starting")

    async def _require_ready(self, child: Child) -> None:
        if await child.wait_until_ready(self._patience.ready_s):
            child.ready_after_s = time.time() - self._began_s
            self._set_state(child, "ready")
            return
        if self._stop.is_set():
            return
        name = child.service.name
        if child.is_running:
            what = f"{name} did not become ready on {child.service.address} within {self._patience.ready_s:g} s"
        else:
            what = f"{name} stopped before it was ready ({child.how_it_ended()})"
        tail = "".join(f"\n  | {line}" for line in child.last_log_lines(LOG_LINES_SHOWN))
        raise StartFailure(f"{what}. Its log is {child.log_path}{':' if tail else ' and empty.'}{tail}")

    async def _watch(self) -> None:
        await self._wait_unless_stopped(asyncio.gather(*(self._keep_running(child) for child in self.children)))

    async def _keep_running(self, child: Child) -> None:
        name = child.service.name
        failure_count = 0
        while True:
            await child.wait_until_exited()
            if name in self._held:
                await self._wait_until_released(child)
                failure_count = 0
                continue
            failure_count = 1 if child.uptime_s >= self._patience.stable_s else failure_count + 1
            pause_s = self._patience.restart_pause_s(failure_count)
            self._tell(
                f"{name} stopped by itself ({child.how_it_ended()}); starting it again in {pause_s:g} s. "
                f"Its log is {child.log_path}"
            )
            self._set_state(child, "down")
            await asyncio.sleep(pause_s)
            child.restart_count += 1
            await self._start_again(child)

    async def _wait_until_released(self, child: Child) -> None:
        name = child.service.name
        self._set_state(child, "stopped")
        self._tell(f"{name} was stopped and stays so until it is started again")
        while name in self._held:
            await self._held_changed.wait()
        await self._start_again(child)

    async def _start_again(self, child: Child) -> None:
        await self._start(child)
        if await child.wait_until_ready(self._patience.ready_s):
            child.ready_after_s = child.uptime_s
            self._set_state(child, "ready")
            self._tell(f"{child.service.name} is back on {child.service.address} (pid {child.pid})")

    async def _wait_unless_stopped(self, work: asyncio.Future[list[None]]) -> None:
        """Wait for `work`, or until the supervisor is asked to stop; an error in `work` is raised here."""
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
        self._phase = "stopping"
        running = [child for child in reversed(self.children) if child.is_running]
        if running:
            self._tell(f"stopping {', '.join(child.service.name for child in running)}")
        deadline_s = asyncio.get_running_loop().time() + self._patience.stop_s
        tiers = _tiers(running)
        for tier in tiers:
            now_s = asyncio.get_running_loop().time()
            share = 1.0 if tier is tiers[-1] else SHARE_OF_AN_UPPER_TIER
            await asyncio.gather(*(self._stop_one(child, now_s + share * (deadline_s - now_s)) for child in tier))

    async def _stop_one(self, child: Child, deadline_s: float) -> None:
        self._set_state(child, "stopping")
        stopping = asyncio.ensure_future(child.stop(deadline_s))
        stop_at_once = asyncio.ensure_future(self._stop_at_once.wait())
        await asyncio.wait((stopping, stop_at_once), return_when=asyncio.FIRST_COMPLETED)
        if stop_at_once.done() and not stopping.done():
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            stopping = asyncio.ensure_future(child.stop(asyncio.get_running_loop().time()))
        stop_at_once.cancel()
        if not await stopping:
            self._tell(f"{child.service.name} did not stop when asked and was killed")
        self._set_state(child, "stopped")

    def _set_state(self, child: Child, state: str) -> None:
        child.state = state
        self._write()
        self._on_change(self.children, child)

    def _write(self) -> None:
        services = [
            RunningService(
                child.service.name,
                child.service.address,
                child.pid,
                child.state,
                str(child.log_path),
                child.ready_after_s,
                child.restart_count,
            )
            for child in self.children
            if child.state != "waiting"
        ]
        try:
            write_run(self.home, Run(os.getpid(), self._phase, self._began_s, services))
        except OSError as failure:
            # A disk that is full must not take down services that could still serve reads.
            self._tell(f"cannot write {self.home / 'run.json'}: {failure.strerror}")

    def _summary(self) -> str:
        times_s = dict.fromkeys(("brokers", ""), 0.0)
        for child in self.children:
            for tier in (child.service.tier, ""):
                if tier in times_s and child.ready_after_s is not None:
                    times_s[tier] = max(times_s[tier], child.ready_after_s)
        brokers = (
            f"The brokers were ready after {seconds(times_s['brokers'])}, everything" if times_s["brokers"] else "All"
        )
        return (
            f"{table_for_here(rows_of(self.children))}\n"
            f"{brokers} after {seconds(times_s[''])}. Data and logs are in {self.home}. Ctrl-C stops everything."
            + (f"\n{self._hint}" if self._hint else "")
        )
