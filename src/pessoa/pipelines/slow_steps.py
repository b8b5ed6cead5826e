"""Messages about steps that may take long: what is being done and for how long, never silent for two seconds.

    with saying(say, "Starting Spark"):            Starting Spark: 2 s so far
        …                                          Starting Spark: 4 s so far (2 MB of log)

`how_far` is asked each time for what stands in brackets. A step that is quick says nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERVAL_S = 1.8


@contextmanager
def saying(
    say: Callable[[str], None], what: str, how_far: Callable[[], str] = str, interval_s: float | None = None
) -> Iterator[None]:
    done = threading.Event()
    began_s = time.monotonic()
    pause_s = INTERVAL_S if interval_s is None else interval_s

    def keep_saying() -> None:
        while not done.wait(pause_s):
            details = how_far()
            say(f"{what}: {time.monotonic() - began_s:.0f} s so far" + (f" ({details})" if details else ""))

    speaker = threading.Thread(target=keep_saying, name="pessoa-slow-step", daemon=True)
    speaker.start()
    try:
        yield
    finally:
        done.set()
        # No message is printed for a step that has ended.
        speaker.join()
