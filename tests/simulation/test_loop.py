"""The simulated loop: time, processes that are killed and paused, threads, endless loops and uncaught exceptions."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.loop import SimulatedLoop, TooManySteps, current_process, new_loop


@pytest.fixture
def loop() -> SimulatedLoop:
    return new_loop()


def test_simulated_time_passes_without_waiting(loop: SimulatedLoop) -> None:
    async def wait() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert loop.run_until_complete(wait()) == 3600


def test_a_simulated_process_is_known_to_every_task_that_it_starts(loop: SimulatedLoop) -> None:
    seen = []

    async def look() -> None:
        seen.append(current_process())
        await asyncio.sleep(1)
        await asyncio.gather(inner(), inner())

    async def inner() -> None:
        await loop.run_in_executor(None, lambda: seen.append(current_process()))

    process = loop.new_process("a")
    loop.run_until_complete(loop.spawn(process, look()))
    assert seen == [process] * 3


def test_a_killed_process_runs_no_more_code_not_even_finally(loop: SimulatedLoop) -> None:
    done = []

    async def work() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                done.append(loop.now_s)
        finally:
            done.append(-1)

    process = loop.new_process("a")
    loop.spawn(process, work())

    async def kill() -> None:
        await asyncio.sleep(2.5)
        loop.kill(process)
        await asyncio.sleep(10)

    loop.run_until_complete(kill())
    assert done == [1, 2]
    loop.bury()


def test_a_paused_process_does_its_work_in_order_when_it_is_continued(loop: SimulatedLoop) -> None:
    done = []

    async def work(name: str) -> None:
        while True:
            await asyncio.sleep(1)
            done.append((name, loop.now_s))

    process = loop.new_process("a")
    loop.spawn(process, work("first"))
    loop.spawn(process, work("second"))

    async def pause() -> None:
        await asyncio.sleep(1.5)
        loop.pause(process)
        await asyncio.sleep(5)
        assert len(done) == 2
        loop.resume(process)
        await asyncio.sleep(0.5)

    loop.run_until_complete(pause())
    assert done == [("first", 1), ("second", 1), ("first", 6.5), ("second", 6.5)]
    loop.bury()


def test_a_thread_completes_its_work_even_if_its_waiter_was_cancelled(loop: SimulatedLoop) -> None:
    done = []
    loop.worker_delay = lambda: 2.0

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.run_in_executor(None, lambda: done.append("work")), 1)
        assert done == []
        await asyncio.sleep(2)

    loop.run_until_complete(give_up())
    assert done == ["work"]


def test_an_endless_loop_without_time_passing_is_detected(loop: SimulatedLoop) -> None:
    async def circle() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(TooManySteps):
        loop.run_until_complete(circle(), max_steps=100)
    loop.bury()


def test_uncaught_exceptions_are_recorded(loop: SimulatedLoop) -> None:
    async def start() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    loop.run_until_complete(start())
    assert isinstance(loop.problems[0]["exception"], ZeroDivisionError)
