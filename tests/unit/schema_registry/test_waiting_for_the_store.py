"""Waiting until a written record was read back, and until another leader is elected."""

from __future__ import annotations

import asyncio

import pytest

from pessoa.schema_registry.election import Identity
from pessoa.schema_registry.registry import Registry
from pessoa.schema_registry.registry_config import make_config
from pessoa.schema_registry.schemas_topic import Store


def test_a_wait_that_is_cancelled_at_the_time_of_its_result_raises_cancelled_error() -> None:
    async def scenario() -> bool:
        store = Store(make_config({"kafkastore.bootstrap.servers": "localhost:9092"}), {}, lambda record: None)
        waiting = asyncio.create_task(store.wait_until(0, 60.0))
        while not store._waiters:  # noqa: ASYNC110 - it is a matter of one turn of the loop
            await asyncio.sleep(0)
        store._apply([], 0, False)
        waiting.cancel()
        await asyncio.wait([waiting])
        return waiting.cancelled()

    assert asyncio.run(scenario())


@pytest.mark.parametrize("turns", range(4))
def test_a_wait_for_a_new_leader_that_is_cancelled_at_the_time_of_the_change_raises_cancelled_error(turns: int) -> None:
    async def scenario() -> bool:
        config = make_config({"kafkastore.bootstrap.servers": "localhost:9092"})
        registry = Registry(config, Identity("localhost", 8081), {})
        waiting = asyncio.create_task(registry.wait_for_change(60.0))
        # A few turns of the loop until it stands behind its event, and some of the way from there.
        for _ in range(5):
            await asyncio.sleep(0)
        registry._notify()
        for _ in range(turns):
            await asyncio.sleep(0)
        came_in_time = waiting.cancel()
        await asyncio.wait([waiting])
        return waiting.cancelled() == came_in_time

    assert asyncio.run(scenario())
