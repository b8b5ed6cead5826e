"""Locking log directories that another process has locked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from pessoa.base.clock import ManualClock
from pessoa.broker.directory_claim import LOCKED_WAIT_MS, claim_directories
from pessoa.log.directory import LogDirectory
from pessoa.log.files import DiskError
from pessoa.log.simulated_disk import SimulatedDisk


def disk_with(*paths: str) -> SimulatedDisk:
    disk = SimulatedDisk(now_ms=lambda: 0)
    for path in paths:
        disk.make_directory(path)
    return disk


async def advance_until(clock: ManualClock, is_done: Callable[[], bool]) -> int:
    """Advance the clock until the condition holds; return how many milliseconds that took."""
    for now_ms in range(0, 2 * LOCKED_WAIT_MS, 50):
        for _ in range(5):
            await asyncio.sleep(0)
        if is_done():
            return now_ms
        clock.advance_ms(50)
    raise AssertionError("it waits for ever")


def test_a_broker_waits_for_the_lock_of_its_log_directory_and_logs_that_it_waits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        disk, clock = disk_with("/a", "/b"), ManualClock()
        unlock = disk.lock("/b")
        claiming = asyncio.ensure_future(claim_directories([LogDirectory(disk, "/a"), LogDirectory(disk, "/b")], clock))
        await asyncio.sleep(0)
        assert not claiming.done()
        unlock()
        await advance_until(clock, claiming.done)
        await claiming
        for path in ("/a", "/b"):
            with pytest.raises(DiskError):
                disk.lock(path)

    asyncio.run(scenario())
    (told,) = caplog.messages
    assert told == "another broker is at work in /b; waiting up to 30 s for it to stop"


def test_a_directory_that_stays_locked_is_refused_after_thirty_seconds() -> None:
    async def scenario() -> None:
        disk, clock = disk_with("/a"), ManualClock()
        disk.lock("/a")
        claiming = asyncio.ensure_future(claim_directories([LogDirectory(disk, "/a")], clock))
        assert await advance_until(clock, claiming.done) == LOCKED_WAIT_MS
        with pytest.raises(DiskError, match=r"cannot lock /a/\.lock: another broker is at work there") as refused:
            await claiming
        assert refused.value.is_locked

    asyncio.run(scenario())
