"""What is running in a home: `run.json`, written by the supervisor at every change and read by the other commands.

A pid in a file proves nothing: the process may be gone and its number may belong to another process. So the supervisor
holds a lock on `run.lock` for as long as it lives, and the system drops it however the supervisor ends:

    the lock is held      the platform runs, and run.json is the truth
    the lock is free      it does not; a run.json that is still there was left by a supervisor that was killed

A killed supervisor leaves its children behind, each in a session of its own and on its port. The next start finds them
in the stale file, checks that these numbers still are processes of ours, and stops them.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

_POLL_S = 0.02
_ORPHAN_PATIENCE_S = 5.0
# A process that only looks whether the lock is held holds it for a moment too.
_GLANCE_S = 0.2


@dataclass(slots=True)
class RunningService:
    name: str
    address: str
    pid: int
    state: str
    log: str
    ready_after_s: float | None = None
    restarts: int = 0


@dataclass(slots=True)
class Run:
    pid: int
    phase: str
    started_at: float
    services: list[RunningService] = field(default_factory=list)


class AlreadyRunning(Exception):
    def __init__(self, home: Path, pid: int | None) -> None:
        process = f" (process {pid})" if pid else ""
        super().__init__(
            f"Pessoa is already running in {home}{process}. `pessoa status` shows it, `pessoa down` stops it."
        )


class RunLock:
    """The exclusive lock of a home: within `with RunLock(home):` this process is its supervisor."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._file = -1

    def __repr__(self) -> str:
        return f"<RunLock of {self._home}: {'held' if self._file >= 0 else 'not held'}>"

    def __enter__(self) -> Self:
        self._file = os.open(self._home / "run.lock", os.O_RDWR | os.O_CREAT, 0o644)
        deadline = time.monotonic() + _GLANCE_S
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as failure:
                if failure.errno in (errno.EAGAIN, errno.EACCES) and time.monotonic() < deadline:
                    time.sleep(_POLL_S)
                    continue
                os.close(self._file)
                self._file = -1
                if failure.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
                found = read_run(self._home)
                raise AlreadyRunning(self._home, found.pid if found else None) from None
            return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        (self._home / "run.json").unlink(missing_ok=True)
        os.close(self._file)
        self._file = -1


def is_running(home: Path) -> bool:
    try:
        file = os.open(home / "run.lock", os.O_RDWR)
    except OSError:
        return False
    try:
        # Shared, so that two processes that look at once do not take each other for the supervisor.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def read_run(home: Path) -> Run | None:
    try:
        found = json.loads((home / "run.json").read_text(encoding="utf-8"))
        services = [RunningService(**one) for one in found.pop("services")]
        return Run(**found, services=services)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_run(home: Path, run: Run) -> None:
    fresh = home / "run.json.new"
    fresh.write_text(json.dumps(asdict(run), indent=1), encoding="utf-8")
    fresh.replace(home / "run.json")


def stop_orphans(home: Path) -> list[str]:
    """Stop the services that a killed supervisor has left running, and return their names. Call it with the lock
    held."""
    last_run = read_run(home)
    if last_run is None:
        return []
    orphans = [service for service in last_run.services if is_ours(service.pid)]
    for service in orphans:
        with suppress(ProcessLookupError):
            os.kill(service.pid, signal.SIGTERM)
    deadline = time.monotonic() + _ORPHAN_PATIENCE_S
    for service in orphans:
        while is_ours(service.pid) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if is_ours(service.pid):
            with suppress(ProcessLookupError):
                os.kill(service.pid, signal.SIGKILL)
    return [service.name for service in orphans]


def is_ours(pid: int) -> bool:
    """Whether a process with this pid runs and was started as `python -m pessoa …`."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except FileNotFoundError:
        return not Path("/proc/self").exists() and _is_ours_by_ps(pid)
    except OSError:
        return False
    return b"pessoa" in words


def _is_ours_by_ps(pid: int) -> bool:
    import subprocess

    shown = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return "-m pessoa" in shown.stdout
