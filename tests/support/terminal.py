"""A program on a pseudo-terminal of its own: type text, wait for output.

Output arrives in pieces of any length: an escape code or a character may be split. Escape codes are removed from the
output, and each request for the position of the cursor is answered, as a terminal does. For a program that needs no
terminal use TypedProcess (typed_process.py), which keeps standard error apart.
"""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import subprocess
import sys
import termios
import time

TIMEOUT_S = 90.0
_ROWS_AND_COLUMNS = (40, 100)
_CODE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|[^\[])|\r")
# The program's session gets the terminal for its own, so that Ctrl-C is a signal to it.
_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
_WHERE_IS_THE_CURSOR = "\x1b[6n"


class Terminal:
    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._master, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, _ROWS_AND_COLUMNS)
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _TAKE_TERMINAL, *command],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        # The beginning of an escape code whose end has not arrived.
        self._half = ""
        # The output since the last match of `wait_for`.
        self.shown = ""

    def __repr__(self) -> str:
        return f"<Terminal of {self._process.args!r} that shows {self.shown[-80:]!r}>"

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, pattern: str) -> str:
        """Return what was shown since the last wait, up to the pattern."""
        deadline = time.monotonic() + TIMEOUT_S
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < deadline, f"{pattern!r} is not in {self.shown[-2000:]!r}"
            if select.select([self._master], [], [], 0.2)[0]:
                self._read()
        before, self.shown = self.shown[: found.start()], self.shown[found.end() :]
        return before

    def _read(self) -> None:
        try:
            data = os.read(self._master, 65536)
        except OSError:
            # EIO: no process has the terminal open.
            raise AssertionError(f"the program ended ({self._process.wait()}): {self.shown[-2000:]!r}") from None
        text = self._half + self._decode(data)
        self._half = ""
        if (begun := re.search(r"\x1b(?:\[[0-9;?]*)?\Z", text)) is not None:
            text, self._half = text[: begun.start()], begun[0]
        for _ in range(text.count(_WHERE_IS_THE_CURSOR)):
            os.write(self._master, b"\x1b[1;1R")
        self.shown += _CODE.sub("", text)

    def exit_code(self) -> int:
        return self._process.wait(TIMEOUT_S)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)
