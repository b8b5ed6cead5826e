"""One service as a running process: start it, ask whether it is ready, stop it.

    start ──► (running) ──probe answers──► ready ──► stop: SIGTERM, and SIGKILL at the deadline
                  └────────── exits by itself ──► the supervisor decides

The process leads a session of its own. Ctrl-C in a terminal goes to the whole foreground process group; without the
new session every child would get it at the same moment as the supervisor, and there would be no order of stopping.
The session also lets SIGKILL reach what the child has started.

Output goes straight into the log file (append), never through a pipe: a supervisor that is slow or gone cannot block
or kill the service.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from pessoa.platform.home import log_path
from pessoa.platform.service_rows import Service

# Between two probes. Start-up is promised in tenths of a second, so asking must be finer than that.
PROBE_INTERVAL_S = 0.02


class Child:
    def __init__(self, service: Service, home: Path) -> None:
        self.service = service
        self.log_path = log_path(home, service.name)
        # What the user is shown: waiting, starting, ready, down, stopping or stopped.
        self.state = "waiting"
        self.ready_after_s: float | None = None
        self.restart_count = 0
        self._home = home
        self._process: asyncio.subprocess.Process | None = None
        self._started_at_s = 0.0

    def __repr__(self) -> str:
        if self._process is None:
            state = "not started"
        elif self.is_running:
            state = f"running as {self._process.pid}"
        else:
            state = self.how_it_ended()
        return f"<Child {self.service.name} {self.service.address}: {state}>"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def shown_pid(self) -> str:
        return str(self._process.pid) if self._process is not None and self.is_running else "-"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.service.name} was never started"
        return self._process.pid

    @property
    def uptime_s(self) -> float:
        return asyncio.get_running_loop().time() - self._started_at_s

    async def start(self) -> None:
        assert not self.is_running, f"{self!r} is started twice"
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.service.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PESSOA_HOME": str(self._home)},
                start_new_session=True,
            )
        self._started_at_s = asyncio.get_running_loop().time()

    async def wait_until_ready(self, timeout_s: float) -> bool:
        """Return True as soon as the probe answers; False if the process has ended or the time is up."""
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        while self.is_running and asyncio.get_running_loop().time() < deadline_s:
            if await self.service.is_ready(self.service.host, self.service.port):
                # Another process may have taken the port while ours was failing to.
                return self.is_running
            await asyncio.sleep(PROBE_INTERVAL_S)
        return False

    async def wait_until_exited(self) -> None:
        assert self._process is not None, f"{self.service.name} was never started"
        await self._process.wait()

    async def stop(self, deadline_s: float) -> bool:
        """Send SIGTERM, and SIGKILL at the deadline (in loop time). Return True if SIGTERM was enough."""
        if not self.is_running:
            return True
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout_at(deadline_s):
                await self.wait_until_exited()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self.wait_until_exited()
            return False
        return True

    def how_it_ended(self) -> str:
        assert self._process is not None, f"{self.service.name} was never started"
        code = self._process.returncode
        assert code is not None, f"{self.service.name} is still running"
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def last_log_lines(self, count: int) -> list[str]:
        if not self.log_path.exists():
            return []
        with self.log_path.open("rb") as log:
            # The tail is enough for a few lines and keeps a log of gigabytes out of memory.
            log.seek(max(0, self.log_path.stat().st_size - 16_384))
            return log.read().decode(errors="replace").splitlines()[-count:]

    def _signal(self, number: signal.Signals) -> None:
        try:
            if number is signal.SIGKILL:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except ProcessLookupError:
            pass  # it ended between our look and our signal: what we wanted
