"""A LoggedProcess with an input that a test types into, in exactly the environment that is given, so that Python
buffers its output as for a user.

Its input is a pipe and its outputs are files; a program that needs a terminal is run with terminal.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.logged_process import LoggedProcess


class TypedProcess(LoggedProcess):
    _stdin = subprocess.PIPE

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        errors: Path | None = None,
        name: str = "the process",
        environment: Mapping[str, str] = os.environ,
        cwd: Path | None = None,
        own_session: bool = False,
    ) -> None:
        super().__init__(command, log, errors=errors, name=name, cwd=cwd, own_session=own_session)
        self._environment = dict(environment)

    def type(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def end_input(self) -> None:
        """Close the input, as Ctrl-D does. Input that the process did not read before it ended is dropped."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        super().close()
        self.end_input()
