r"""A process that a test starts, waits for, signals and ends. Its output goes to a file, so that no pipe runs full.

    broker = LoggedProcess(pessoa("broker", "--config", path), tmp_path / "broker.log")
    broker.start()
    broker.wait_for(r"listening on PLAINTEXT://127\.0\.0\.1:(\d+)")     returns the match
    broker.kill()
    broker.start()                                                      appends to the same file

Only output since the last start is looked at. `with LoggedProcess(…) as process` starts the process, and kills it if
it still runs at the end. Standard error goes to the same file as standard output, unless `errors` names another one.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

TIMEOUT_S = 120.0
_POLL_S = 0.02


def pessoa(*words: object) -> list[str]:
    """Return the command `pessoa …` for the Python that runs the tests."""
    return [sys.executable, "-m", "pessoa", *map(str, words)]


class LoggedProcess:
    _stdin = subprocess.DEVNULL

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        errors: Path | None = None,
        name: str = "the process",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        own_session: bool = False,
    ) -> None:
        """Prepare the process without starting it. With `own_session` neither Ctrl-C in the terminal nor a signal to
        the tests' process group reaches it."""
        self.command = list(command)
        self.log = log
        self.errors = errors or log
        self._name = name
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self._directory = cwd
        self._own_session = own_session
        self._process: subprocess.Popen[bytes] | None = None
        # The size of the log file at the last start.
        self._position = 0

    def __repr__(self) -> str:
        return f"<LoggedProcess {self._name}, {'running' if self.is_running else 'not running'}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, *wrapper: str) -> None:
        """Start the process, with a wrapper command such as `prlimit` before it if one is given."""
        assert not self.is_running, f"{self._name} is running"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output, self.errors.open("ab") as errors:
            self._position = output.tell()
            self._process = subprocess.Popen(
                [*wrapper, *self.command],
                stdin=self._stdin,
                stdout=output,
                stderr=errors,
                env=self._environment,
                cwd=self._directory,
                start_new_session=self._own_session,
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self._name} was not started"
        return self._process.pid

    @property
    def said(self) -> str:
        """Return the output of the process since its last start."""
        return self.log.read_bytes()[self._position :].decode(errors="replace") if self.log.exists() else ""

    @property
    def lines(self) -> list[str]:
        """Return the complete lines of its output since its last start."""
        return self.said.split("\n")[:-1]

    def wait_for(self, pattern: str, timeout_s: float = TIMEOUT_S) -> re.Match[str]:
        """Wait until its output matches the pattern and return the match; AssertionError if it ends before."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            has_ended = not self.is_running
            match = re.search(pattern, self.said)
            if match is not None:
                return match
            assert not has_ended, f"{self._name} ended before it said {pattern!r}:\n{self._tail()}"
            assert time.monotonic() < deadline_s, f"{self._name} did not say {pattern!r}:\n{self._tail()}"
            time.sleep(_POLL_S)

    def _tail(self) -> str:
        errors = "" if self.errors == self.log else self.errors.read_text(errors="replace")
        return self.said[-5000:] + errors[-5000:]

    def send_signal(self, what: signal.Signals) -> None:
        assert self._process is not None, f"{self._name} was not started"
        self._process.send_signal(what)

    def wait_for_end(self, timeout_s: float = TIMEOUT_S) -> int:
        """Wait until the process has ended by itself; return its exit code."""
        assert self._process is not None, f"{self._name} was not started"
        return self._process.wait(timeout_s)

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout_s: float = TIMEOUT_S) -> int:
        """Send a signal and return the exit code. A process that does not stop in time is killed, and TimeoutExpired
        raised."""
        self.send_signal(how)
        try:
            return self.wait_for_end(timeout_s)
        except subprocess.TimeoutExpired:
            self.close()
            raise

    def kill(self) -> None:
        """End the process with SIGKILL, so that it closes and flushes nothing."""
        assert self.is_running, f"{self._name} has ended by itself:\n{self._tail()}"
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        """Kill the process if it runs, also if it was paused with SIGSTOP."""
        if self.is_running:
            self.stop(signal.SIGKILL)
