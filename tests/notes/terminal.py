"""Terminals as a student has them: commands of the virtual environment typed into bash, some of them left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

TIMEOUT_S = 120.0
_POLL_S = 0.02


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(_POLL_S)


class Shown(NamedTuple):
    out: str
    err: str
    code: int


class Running:
    """A command that goes on in a terminal of its own: what it printed so far, typing into it, and Ctrl-C."""

    def __init__(self, typed: str, environment: dict[str, str], folder: Path, name: str) -> None:
        self._paths = folder / f"{name}.out", folder / f"{name}.err"
        out, err = (path.open("wb") for path in self._paths)
        # exec, so that Ctrl-C goes to the command and not to a shell around it.
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {typed}"], stdin=subprocess.PIPE, stdout=out, stderr=err, env=environment
        )
        out.close()
        err.close()

    @property
    def lines(self) -> list[str]:
        return self._paths[0].read_text().splitlines()

    def type(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def ctrl_c(self) -> Shown:
        self._process.send_signal(signal.SIGINT)
        return self.ended()

    def ctrl_d(self) -> Shown:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.ended()

    def ended(self) -> Shown:
        code = self._process.wait(TIMEOUT_S)
        return Shown(self._paths[0].read_text(), self._paths[1].read_text(), code)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


class Desk:
    """Where the terminals stand: one home, one PATH."""

    def __init__(self, folder: Path) -> None:
        commands = Path(sys.executable).parent
        self.environment = os.environ | {
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PESSOA_HOME": str(folder / "home"),
        }
        # Where it is set, it names services beside those of `pessoa up`.
        self.environment.pop("CONFLUENT_CURRENT", None)
        self._folder = folder
        self._running: list[Running] = []

    def __call__(self, typed: str) -> Shown:
        done = subprocess.run(
            ["bash", "-c", typed], capture_output=True, text=True, env=self.environment, timeout=TIMEOUT_S
        )
        return Shown(done.stdout, done.stderr, done.returncode)

    def another_terminal(self, typed: str) -> Running:
        self._running.append(Running(typed, self.environment, self._folder, f"terminal-{len(self._running)}"))
        return self._running[-1]

    def close(self) -> None:
        for one in self._running:
            one.kill()
