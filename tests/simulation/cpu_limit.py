"""A limit of CPU time for one run, since an endless loop in one seed would keep all later seeds from running.

    at the limit         SIGPROF raises OutOfTime in the code that runs, and again after every further second
    at twice the limit   no exception has ended it: SIGXCPU writes the stack to a file and ends the process

The second limit (`kill_at`) is only for processes that run nothing but seeds.
It is CPU time and not real time, because a busy machine makes a run late, not wrong.
"""

from __future__ import annotations

import faulthandler
import resource
import signal
import time
import traceback
from contextlib import contextmanager
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import IO

# A seed takes half a second; the longest of many thousands took less than ten.
CPU_LIMIT_S = 60.0
_AGAIN_AFTER_S = 1.0
_FRAMES = 25


class OutOfTime(SystemExit):
    """Raised in code that used too much CPU time. It is a SystemExit because tasks and loops catch other exceptions."""


@contextmanager
def cpu_limit(limit_s: float) -> Iterator[None]:
    """Raise OutOfTime, with the stack at that moment, in the code that runs when this process has used so much CPU
    time."""

    def spun(signal_number: int, frame: FrameType | None) -> None:
        stack = "".join(traceback.format_stack(frame, limit=_FRAMES))
        raise OutOfTime(f"not done after {limit_s:g} s of CPU time; it is at\n{stack}")

    before = signal.signal(signal.SIGPROF, spun)
    signal.setitimer(signal.ITIMER_PROF, limit_s, _AGAIN_AFTER_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def kill_at(more_s: float) -> None:
    """Make the kernel end this process when it has used `more_s` of CPU time from now on."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (ceil(time.process_time() + more_s), hard))


def write_stack_when_killed(file: IO[str]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.register(signal.SIGXCPU, file=file, all_threads=False, chain=True)
