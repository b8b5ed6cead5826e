"""A seed that never ends is reported, and the other seeds go on."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from contextlib import suppress
from itertools import repeat

import pytest

from tests.simulation.cpu_limit import OutOfTime, cpu_limit
from tests.simulation.loop import new_loop
from tests.simulation.seeds import Result, run_seeds

LIMIT_S = 0.3


async def spin_for_ever() -> None:
    while True:
        # As a request that is retried without waiting.
        with suppress(Exception):
            raise OSError


def spin_in_a_task(seed: int) -> Result:
    if seed == 2:
        loop = new_loop()
        loop.run_until_complete(loop.spawn(loop.new_process("node"), spin_for_ever()))
    return Result(seed, 1, 0.0, 0, None)


def spin_outside_of_python(seed: int) -> Result:
    """Loop in C for seed 2, so that no Python signal handler runs."""
    if seed == 2:
        deque(repeat(0), maxlen=0)
    return Result(seed, 1, 0.0, 0, None)


def end_the_process(seed: int) -> Result:
    if seed == 2:
        os._exit(3)
    return Result(seed, 1, 0.0, 0, None)


def sleep(seed: int) -> Result:
    time.sleep(3 * LIMIT_S)
    return Result(seed, 1, 0.0, 0, None)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_seed_in_an_endless_loop_is_reported_with_its_stack_and_the_others_continue(workers: int) -> None:
    results = {one.seed: one for one in run_seeds(range(1, 6), workers, LIMIT_S, spin_in_a_task)}
    assert sorted(results) == [1, 2, 3, 4, 5]
    assert [seed for seed, result in sorted(results.items()) if result.failure is not None] == [2]
    failure = results[2].failure
    assert failure is not None
    assert "not done after 0.3 s of CPU time" in failure
    assert "in spin_for_ever" in failure


def test_a_seed_in_an_endless_loop_outside_of_python_is_ended_with_its_process() -> None:
    results = {one.seed: one for one in run_seeds(range(1, 6), 1, LIMIT_S, spin_outside_of_python)}
    assert [seed for seed, result in sorted(results.items()) if result.failure is not None] == [2]
    failure = results[2].failure
    assert failure is not None
    assert "its process ended with -24" in failure
    assert "in spin_outside_of_python" in failure


def test_a_seed_that_ends_its_process_counts_as_failed() -> None:
    results = {one.seed: one for one in run_seeds(range(1, 4), 2, LIMIT_S, end_the_process)}
    assert [seed for seed, result in sorted(results.items()) if result.failure is not None] == [2]
    failure = results[2].failure
    assert failure is not None
    assert failure.startswith("its process ended with 3")


def test_a_seed_that_only_waits_for_the_cpu_passes() -> None:
    assert [one.failure for one in run_seeds(range(1, 3), 2, LIMIT_S, sleep)] == [None, None]


def test_the_cpu_limit_interrupts_a_task_that_catches_exceptions() -> None:
    loop = new_loop()
    with pytest.raises(OutOfTime, match="spin_for_ever"), cpu_limit(LIMIT_S):
        loop.run_until_complete(asyncio.Task(spin_for_ever(), loop=loop))
