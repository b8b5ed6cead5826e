"""Terminals as a reader of the notes has them: commands of the virtual environment typed into bash, some left running.

Typed text goes through a pipe, and standard output and standard error into a file each, so that they can be told
apart; tests/support/terminal.py has a pseudo-terminal, for programs that draw on a screen.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.typed_process import TypedProcess

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


class Running(TypedProcess):
    """A command that keeps running in a terminal of its own: its output so far, typing into it, and Ctrl-C."""

    def ctrl_c(self) -> Shown:
        self.send_signal(signal.SIGINT)
        return self.ended()

    def ctrl_d(self) -> Shown:
        self.end_input()
        return self.ended()

    def ended(self) -> Shown:
        code = self.wait_for_end(TIMEOUT_S)
        return Shown(self.said, self.errors.read_text(), code)


class Desk:
    """The environment of all terminals: one home, one PATH."""

    def __init__(self, folder: Path) -> None:
        commands = Path(sys.executable).parent
        self.environment = os.environ | {
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PESSOA_HOME": str(folder / "home"),
        }
        # If set, it names services other than those of `pessoa up`.
        self.environment.pop("CONFLUENT_CURRENT", None)
        self._folder = folder
        self._running: list[Running] = []

    def __call__(self, typed: str) -> Shown:
        done = subprocess.run(
            ["bash", "-c", typed], capture_output=True, text=True, env=self.environment, timeout=TIMEOUT_S
        )
        return Shown(done.stdout, done.stderr, done.returncode)

    def another_terminal(self, typed: str) -> Running:
        log = self._folder / f"terminal-{len(self._running)}.out"
        # exec, so that Ctrl-C goes to the command and not to a shell around it.
        command = ["bash", "-c", f"exec {typed}"]
        self._running.append(Running(command, log, errors=log.with_suffix(".err"), environment=self.environment))
        self._running[-1].start()
        return self._running[-1]

    def close(self) -> None:
        for one in self._running:
            one.close()
