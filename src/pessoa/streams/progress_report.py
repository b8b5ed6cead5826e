"""The output of `app.run()`: each step when it begins, and again within every two seconds while it goes on.

    Starting Spark (local[256]); this takes some seconds
    … Starting Spark: 2 s so far
    … Starting Spark: 4 s so far

The engine reports its own slow steps (`pipelines.slow_steps`); when nothing was printed for nearly two seconds, a
thread here prints the present step again. On a terminal a line with dots replaces the one before it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Self, TextIO

# Longer than that of `slow_steps`, so that nothing is printed twice; with the time between two checks two seconds.
INTERVAL_S = 1.9
LOOK_S = 0.1
# The engine's sentences when a query needs Spark, and when the query goes on with it (`pipelines.spark_link`).
STARTING_SPARK, SPARK_IS_READY = ("Starting Spark", "Connecting to Spark"), "Spark is ready"


class ProgressReport:
    def __init__(self, out: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out or sys.stdout
        self._clock = clock
        self._is_terminal = self._out.isatty()
        self._mutex = threading.Lock()
        self._step = ""
        self._began_s = 0.0
        # The step within which Spark is started, and since when it goes on.
        self._outer_step = ("", 0.0)
        self._last_write_s = 0.0
        self._is_running = False
        # The length of a line that the next one overwrites.
        self._progress_width = 0
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
        """Print that a step begins; it is repeated while the step lasts. Once everything runs, sentences are printed
        without repetition, except when Spark or a query is started again."""
        with self._mutex:
            if sentence.endswith("so far") or " so far (" in sentence:
                self._write(f"… {sentence}", passes=True)
                return
            self._begin_step(sentence)
            self._write(sentence)

    def _begin_step(self, sentence: str) -> None:
        if sentence.startswith(SPARK_IS_READY):
            self._step, self._began_s = self._outer_step
            return
        if sentence.startswith(STARTING_SPARK):
            self._outer_step = (self._step, self._began_s)
        is_step = not self._is_running or sentence.startswith("Starting ")
        self._step, self._began_s = sentence if is_step else "", self._clock()

    def rest(self) -> None:
        """Note that everything runs: no step is repeated any more."""
        with self._mutex:
            self._step, self._is_running = "", True

    def _repeat(self) -> None:
        while not self._ended.wait(min(LOOK_S, INTERVAL_S / 4)):
            self.repeat_if_silent()

    def repeat_if_silent(self) -> None:
        """Print the present step again, with its duration, if nothing was printed for INTERVAL_S."""
        with self._mutex:
            now_s = self._clock()
            if self._step and now_s >= self._last_write_s + INTERVAL_S:
                step = self._step.splitlines()[-1]
                self._write(f"… {step}: {now_s - self._began_s:.0f} s so far", passes=True)

    def _write(self, line: str, *, passes: bool = False) -> None:
        self._last_write_s = self._clock()
        if self._is_terminal:
            self._out.write("\r" + " " * self._progress_width + "\r" + line + ("" if passes else "\n"))
            self._progress_width = len(line) if passes else 0
        elif line:
            self._out.write(line + "\n")
        # At once, also if a file or a pipe is listening.
        self._out.flush()
