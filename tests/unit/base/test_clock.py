"""The time door: the manual clock of tests, and the real one."""

from __future__ import annotations

import asyncio
import time

import pytest

from pessoa.base.clock import Clock, ManualClock, SystemClock, wait_at_most


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(1000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1000, 1000)
    clock.advance_ms(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1005, 1005)


def test_sleepers_are_woken_when_the_time_has_come_in_the_order_of_deadlines() -> None:
    async def scenario() -> list[str]:
        clock, woken = ManualClock(), list[str]()

        async def sleeper(name: str, duration_ms: int) -> None:
            await clock.wait_ms(duration_ms)
            woken.append(f"{name} at {clock.now_ms()}")

        async with asyncio.TaskGroup() as tasks:
            for name, duration_ms in (("late", 30), ("early", 10), ("middle", 20), ("at once", 0)):
                tasks.create_task(sleeper(name, duration_ms))
            await asyncio.sleep(0)
            assert woken == ["at once at 0"]
            clock.advance_ms(9)
            await asyncio.sleep(0)
            assert len(woken) == 1
            clock.advance_ms(11)
            await asyncio.sleep(0)
            assert woken[1:] == ["early at 20", "middle at 20"]
            clock.advance_ms(10)
        return woken

    assert asyncio.run(scenario())[-1] == "late at 30"


def test_a_timer_calls_once_when_its_time_has_come_unless_it_is_cancelled() -> None:
    clock, called = ManualClock(), list[str]()
    clock.call_after_ms(10, lambda: called.append("due"))
    clock.call_after_ms(10, lambda: called.append("cancelled")).cancel()
    clock.advance_ms(9)
    assert called == []
    clock.advance_ms(1)
    clock.advance_ms(100)
    assert called == ["due"]


def test_a_timer_of_the_real_clock_calls_after_its_time() -> None:
    async def scenario() -> int:
        clock, called = SystemClock(), asyncio.Event()
        began_ms = clock.monotonic_ms()
        clock.call_after_ms(1, lambda: 1 / 0).cancel()
        clock.call_after_ms(20, called.set)
        await called.wait()
        return clock.monotonic_ms() - began_ms

    assert asyncio.run(scenario()) >= 19


def test_a_cancelled_waiter_of_a_clock_does_not_affect_the_others() -> None:
    async def scenario() -> str:
        clock = ManualClock()
        gone, patient = (asyncio.ensure_future(clock.wait_ms(10)) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        clock.advance_ms(10)
        await patient
        return repr(clock)

    assert asyncio.run(scenario()) == "<ManualClock at 10 ms, 0 waiting>"


def test_the_system_clock_has_a_wall_clock_and_a_monotonic_clock() -> None:
    clock: Clock = SystemClock()
    before, after = time.time() * 1000 - 1, clock.now_ms()
    assert before <= after <= time.time() * 1000
    first = clock.monotonic_ms()
    asyncio.run(clock.wait_ms(2))
    assert clock.monotonic_ms() - first >= 1


def test_what_is_done_in_time_is_waited_for_and_its_timer_is_cancelled() -> None:
    async def scenario() -> None:
        clock, done = ManualClock(), asyncio.Event()
        waiting = asyncio.create_task(wait_at_most(clock, done.wait(), 10))
        await asyncio.sleep(0)
        clock.advance_ms(9)
        done.set()
        assert await waiting
        assert "0 waiting" in repr(clock)

    asyncio.run(scenario())


def test_what_is_not_done_in_time_is_cancelled() -> None:
    async def scenario() -> None:
        clock, future = ManualClock(), asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(wait_at_most(clock, future, 10))
        await asyncio.sleep(0)
        clock.advance_ms(10)
        assert not await waiting
        assert future.cancelled()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_late_too", [False, True])
def test_a_caller_that_is_cancelled_while_it_waits_is_cancelled(is_late_too: bool) -> None:
    async def scenario() -> None:
        clock, future = ManualClock(), asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(wait_at_most(clock, future, 10))
        await asyncio.sleep(0)
        if is_late_too:
            clock.advance_ms(10)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert future.cancelled()
        assert "0 waiting" in repr(clock)

    asyncio.run(scenario())


def test_what_fails_in_time_raises_to_the_caller() -> None:
    async def scenario() -> None:
        future = asyncio.get_running_loop().create_future()
        future.set_exception(OSError("unreachable"))
        with pytest.raises(OSError, match="unreachable"):
            await wait_at_most(ManualClock(), future, 10)

    asyncio.run(scenario())
