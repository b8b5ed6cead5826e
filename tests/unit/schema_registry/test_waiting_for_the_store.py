"""Waiting until what was written has come back."""

from __future__ import annotations

import asyncio

from pessoa.schema_registry.config import make_config
from pessoa.schema_registry.store import Store


def test_a_wait_that_is_cancelled_in_the_moment_of_its_result_is_cancelled() -> None:
    async def scenario() -> bool:
        store = Store(make_config({"kafkastore.bootstrap.servers": "localhost:9092"}), {}, lambda record: None)
        waiting = asyncio.create_task(store.wait_until(0, 60.0))
        while not store._waiting:  # noqa: ASYNC110 - it is a matter of one turn of the loop
            await asyncio.sleep(0)
        store._apply([], 0, False)
        waiting.cancel()
        await asyncio.wait([waiting])
        return waiting.cancelled()

    assert asyncio.run(scenario())
