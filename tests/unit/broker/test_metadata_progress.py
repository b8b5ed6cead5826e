"""Waiting until the metadata image fulfils a condition."""

from __future__ import annotations

import asyncio

from pessoa.base.clock import SystemClock
from pessoa.broker.metadata_progress import MetadataProgress


def test_a_waiter_is_woken_when_its_condition_holds_and_not_before() -> None:
    async def main() -> None:
        progress = MetadataProgress(SystemClock())
        waiting = asyncio.create_task(progress.wait_until(lambda: progress.offset >= 5))
        await asyncio.sleep(0)
        progress.advance(4)
        await asyncio.sleep(0)
        assert not waiting.done()
        progress.advance(5)
        assert await waiting

    asyncio.run(main())


def test_wait_until_returns_false_at_its_timeout_and_removes_the_waiter() -> None:
    async def main() -> None:
        progress = MetadataProgress(SystemClock())
        assert not await progress.wait_until(lambda: False, timeout_ms=1)
        progress.look()
        assert "0 waiting" in repr(progress)

    asyncio.run(main())


def test_wait_until_returns_at_once_if_its_condition_holds() -> None:
    async def main() -> None:
        assert await MetadataProgress(SystemClock()).wait_until(lambda: True, timeout_ms=0)

    asyncio.run(main())
