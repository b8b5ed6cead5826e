"""Many seeds, on several processes: each gives a `Result`, whether it passed or not.

A seed that exceeds its CPU time has failed, and so has one that ends its process. A new process replaces that one, and
the other seeds go on.
"""

from __future__ import annotations

import signal
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.cluster import run
from tests.simulation.cpu_limit import CPU_LIMIT_S, OutOfTime, cpu_limit, kill_at, write_stack_when_killed
from tests.simulation.history import Violation
from tests.simulation.plan import Plan

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

# A worker process is replaced after so many seeds, so that what runs leave in memory does not accumulate.
_SEEDS_PER_WORKER = 500
# A worker that does not use the CPU is ended when it has returned no result for so many times the limit.
_REAL_TIME_FACTOR = 20
# More time for its start, which on a busy machine takes seconds.
_START_S = 60.0


class Result(NamedTuple):
    seed: int
    steps: int
    seconds: float
    acknowledged: int
    failure: str | None


def run_seed(seed: int) -> Result:
    try:
        report = run(Plan.of(seed))
    except Violation as violation:
        return _failed(seed, str(violation))
    except Exception:  # noqa: BLE001 (told with its traceback, and the seed)
        return _failed(seed, traceback.format_exc())
    return Result(seed, report.steps, report.seconds, report.acknowledged, None)


def run_seeds(
    seeds: Iterable[int],
    workers: int,
    cpu_limit_s: float = CPU_LIMIT_S,
    run_one: Callable[[int], Result] = run_seed,
) -> Iterator[Result]:
    """Run the seeds, and yield results in the order in which they come."""
    remaining = deque(seeds)
    at_work: list[_Worker] = []
    idle: list[_Worker] = []
    try:
        while remaining or at_work:
            while remaining and len(at_work) < workers:
                worker = idle.pop() if idle else _Worker(cpu_limit_s, run_one)
                at_work.append(worker)
                worker.begin(remaining.popleft())
            wait([worker.connection for worker in at_work], timeout=cpu_limit_s)
            for worker in [*at_work]:
                result = worker.take_result()
                if result is None:
                    continue
                at_work.remove(worker)
                if worker.is_done:
                    worker.end()
                else:
                    idle.append(worker)
                yield result
    finally:
        for worker in (*at_work, *idle):
            worker.end()


class _Worker:
    """A process that runs one seed after the other."""

    def __init__(self, cpu_limit_s: float, run_one: Callable[[int], Result]) -> None:
        self.seed: int | None = None
        # Set when it gets no further seed.
        self.is_done = False
        self._patience_s = _START_S + _REAL_TIME_FACTOR * cpu_limit_s
        self._deadline_s = 0.0
        self._count = 0
        self._stack = tempfile.NamedTemporaryFile("r", prefix="simulation-stack-")  # noqa: SIM115 (closed by `end`)
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_work, args=(theirs, cpu_limit_s, run_one, Path(self._stack.name)), daemon=True
        )
        self._process.start()
        theirs.close()

    def begin(self, seed: int) -> None:
        self.seed = seed
        self._deadline_s = time.monotonic() + self._patience_s
        with suppress(OSError):
            # If the process has ended, `take_result` notices.
            self.connection.send(seed)

    def take_result(self) -> Result | None:
        """Return the result of its seed, or None if it is not known."""
        assert self.seed is not None
        if self.connection.poll():
            result = self._receive(self.seed)
        elif time.monotonic() > self._deadline_s:
            self.is_done = True
            result = _failed(self.seed, f"not done after {self._patience_s:g} s, and hardly used the CPU")
        else:
            return None
        self.seed = None
        return result

    def _receive(self, seed: int) -> Result:
        self._count += 1
        try:
            result, is_fit = self.connection.recv()
        except (EOFError, OSError):
            self.is_done = True
            self._process.join()
            return _failed(seed, f"its process ended with {self._process.exitcode}\n{self._stack.read()}")
        self.is_done = not is_fit or self._count >= _SEEDS_PER_WORKER
        assert isinstance(result, Result)
        return result

    def end(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.join()
        self._stack.close()


def _work(connection: Connection, cpu_limit_s: float, run_one: Callable[[int], Result], stack: Path) -> None:
    # The parent gets the signal too, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with closing(connection), stack.open("w") as file, suppress(EOFError):
        write_stack_when_killed(file)
        while True:
            seed = connection.recv()
            kill_at(2 * cpu_limit_s)
            is_fit = True
            try:
                with cpu_limit(cpu_limit_s):
                    result = run_one(seed)
            except OutOfTime as out_of_time:
                result, is_fit = _failed(seed, str(out_of_time)), False
            connection.send((result, is_fit))


def _failed(seed: int, failure: str) -> Result:
    return Result(seed, 0, 0.0, 0, failure)
