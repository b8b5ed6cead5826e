"""What `app.run()` says: each step when it begins, and every two seconds that it goes on.

    Starting Spark (local[256]); this takes some seconds
    … Starting Spark (local[256]); this takes some seconds: 2 s
    … Starting Spark (local[256]); this takes some seconds: 4 s

On a terminal the lines with dots take each other's place. A thread says them, since the steps themselves wait.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Self, TextIO

INTERVAL_S = 2.0


class ProgressReport:
    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._is_terminal = self._out.isatty()
        self._mutex = threading.Lock()
        self._step = ""
        self._began_s = 0.0
        self._runs = False
        # The length of a line that the next one overwrites.
        self._passing = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="pessoa-progress", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        with self._mutex:
            self._write("", passes=True)

    def say(self, sentence: str) -> None:
        """A step begins: it is said now, and again while it lasts. Once everything runs, what is said is news, except
        that Spark or a query is started again."""
        with self._mutex:
            is_step = not self._runs or sentence.startswith("Starting ")
            self._step, self._began_s = sentence if is_step else "", time.monotonic()
            self._write(sentence)

    def rest(self) -> None:
        """Everything runs, and nothing is under way any more."""
        with self._mutex:
            self._step, self._runs = "", True

    def _repeat(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            with self._mutex:
                seconds = time.monotonic() - self._began_s
                if self._step and seconds >= INTERVAL_S * 0.9:
                    self._write(f"… {self._step.splitlines()[-1]}: {seconds:.0f} s", passes=True)

    def _write(self, line: str, *, passes: bool = False) -> None:
        if self._is_terminal:
            self._out.write("\r" + " " * self._passing + "\r" + line + ("" if passes else "\n"))
            self._passing = len(line) if passes else 0
        elif line:
            self._out.write(line + "\n")
        # At once, also if a file or a pipe is listening.
        self._out.flush()
