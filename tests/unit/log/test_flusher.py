"""Group commit: however many requests wait, there are at most two flushes. Threads are real; a gate blocks their
syncs."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from pessoa.log.files import DiskError
from pessoa.log.flusher import Flusher
from tests.support.batches import NOW_MS
from tests.support.partition_logs import fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.simulated_disk import SimulatedDisk
    from tests.support.partition_logs import Home

DEADLINE_S = 60


class Gate(ThreadPoolExecutor):
    """A thread pool that blocks flushes, so that a test decides what happens during one."""

    def __init__(self) -> None:
        super().__init__(max_workers=2)
        self.started = 0
        self.open = Event()

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        self.started += 1
        return super().submit(self._wait, call, *args, **named)

    def _wait(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        assert self.open.wait(DEADLINE_S), "the gate was not opened"
        return call(*args, **named)


async def turns(count: int = 5) -> None:
    """Run the event loop for `count` turns, so that all callbacks and tasks run that wait for no thread."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_many_writers_share_one_flush_and_later_writers_the_next(shaky: Home) -> None:
    log = shaky.open()

    async def scenario() -> Flusher:
        gate = Gate()
        flusher = Flusher(gate)
        waiting = []
        for _ in range(100):
            fill(log, 1)
            waiting.append(asyncio.ensure_future(flusher.wait_until_durable(log, log.log_end_offset)))
        await turns()
        assert gate.started == 1
        for _ in range(100):
            fill(log, 1)
            waiting.append(asyncio.ensure_future(flusher.wait_until_durable(log, log.log_end_offset)))
        await turns()
        assert (gate.started, [one for one in waiting if one.done()]) == (1, [])
        gate.open.set()
        assert await asyncio.wait_for(asyncio.gather(*waiting), DEADLINE_S) == [True] * 200
        assert gate.started == 2
        return flusher

    flusher = asyncio.run(scenario())
    assert flusher.flush_count == 2
    assert log.recovery_point == 200
    assert repr(flusher) == "<Flusher: 0 flushes running, 2 done>"


class OnTheSpot(Executor):
    """An executor that runs calls at once: the simulated disk is for one thread at a time."""

    def submit(self, call: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(call(*arguments, **named))
        return done


def test_two_hundred_writers_cost_two_syncs_of_the_log(shaky: Home, simulated: SimulatedDisk) -> None:
    log = shaky.open()
    fill(log, 1)
    log.flush()
    simulated.record()

    async def writer(flusher: Flusher) -> bool:
        fill(log, 1)
        return await flusher.wait_until_durable(log, log.log_end_offset)

    async def scenario() -> None:
        flusher = Flusher(OnTheSpot())
        assert all(await asyncio.gather(*(writer(flusher) for _ in range(200))))

    asyncio.run(scenario())
    assert 1 <= len(simulated.calls("sync")) <= 2


def test_wait_until_durable_returns_at_once_below_the_recovery_point(shaky: Home) -> None:
    log = shaky.open()
    fill(log, 3)
    log.flush()

    async def scenario() -> int:
        flusher = Flusher()
        assert await flusher.wait_until_durable(log, 3)
        assert await flusher.wait_until_durable(log, 0)
        return flusher.flush_count

    assert asyncio.run(scenario()) == 0


def test_wait_until_durable_returns_false_when_the_records_were_truncated(shaky: Home) -> None:
    log = shaky.open()
    fill(log, 5)

    async def scenario() -> tuple[bool, bool]:
        gate = Gate()
        flusher = Flusher(gate)
        low, high = (asyncio.ensure_future(flusher.wait_until_durable(log, offset)) for offset in (2, 5))
        await turns()
        log.truncate_to(3, NOW_MS)
        gate.open.set()
        return await asyncio.wait_for(low, DEADLINE_S), await asyncio.wait_for(high, DEADLINE_S)

    assert asyncio.run(scenario()) == (True, False)
    assert log.recovery_point == 3


def test_wait_until_durable_returns_false_when_the_partition_was_deleted(shaky: Home) -> None:
    log = shaky.open()
    fill(log, 5)

    async def scenario() -> bool:
        flusher = Flusher()
        log.release()
        return await flusher.wait_until_durable(log, 5)

    assert asyncio.run(scenario()) is False


def test_a_failed_sync_fails_all_waiting_writers_and_does_not_move_the_recovery_point(
    shaky: Home, simulated: SimulatedDisk
) -> None:
    log = shaky.open()
    fill(log, 5)
    simulated.fail("sync", "*.log")

    async def scenario() -> list[object]:
        flusher = Flusher()
        waiting = (flusher.wait_until_durable(log, 5) for _ in range(3))
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    answers = asyncio.run(scenario())
    assert [type(answer) for answer in answers] == [DiskError] * 3
    assert log.recovery_point == 0


def test_a_flush_goes_on_when_a_writer_that_waits_for_it_is_cancelled(shaky: Home) -> None:
    log = shaky.open()
    fill(log, 5)

    async def scenario() -> bool:
        gate = Gate()
        flusher = Flusher(gate)
        impatient, patient = (asyncio.ensure_future(flusher.wait_until_durable(log, 5)) for _ in range(2))
        await turns()
        impatient.cancel()
        await turns()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        return await asyncio.wait_for(patient, DEADLINE_S)

    assert asyncio.run(scenario()) is True
