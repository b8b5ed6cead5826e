"""Services that the user has stopped one by one, while the rest of the platform goes on.

The supervisor restarts every service that ends, so it has to know which ones are to stay down: the file `held` in the
home has the names, one a line, and SIGUSR1 is sent when it has changed. The effect is seen in `run.json`, where the
supervisor writes the state of every service. A new `pessoa up` begins with nothing held.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

CHANGED = signal.SIGUSR1
_FILE = "held"


def held(home: Path) -> frozenset[str]:
    try:
        return frozenset((home / _FILE).read_text(encoding="utf-8").split())
    except OSError:
        return frozenset()


def hold(home: Path, names: Iterable[str], supervisor_pid: int) -> None:
    _write(home, held(home) | frozenset(names), supervisor_pid)


def release(home: Path, names: Iterable[str], supervisor_pid: int) -> None:
    _write(home, held(home) - frozenset(names), supervisor_pid)


def forget(home: Path) -> None:
    (home / _FILE).unlink(missing_ok=True)


def _write(home: Path, names: frozenset[str], supervisor_pid: int) -> None:
    fresh = home / f"{_FILE}.new"
    fresh.write_text("".join(f"{name}\n" for name in sorted(names)), encoding="utf-8")
    fresh.replace(home / _FILE)
    os.kill(supervisor_pid, CHANGED)
