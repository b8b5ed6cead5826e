"""Allocation of producer ids in blocks."""

from __future__ import annotations

import asyncio

import pytest

from pessoa.base.clock import ManualClock
from pessoa.coordinator.transactions.producer_id_pool import ProducerIdPool
from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsResponse
from pessoa.wire.errors import ErrorCode, Refusal


class Controller:
    """A controller that allocates blocks of ten ids; with `waits` only when it is released."""

    def __init__(self) -> None:
        self.start = 100
        self.asked = 0
        self.error = ErrorCode.NONE
        self.released = asyncio.Event()
        self.released.set()

    async def allocate(self) -> AllocateProducerIdsResponse:
        self.asked += 1
        await self.released.wait()
        if self.error:
            return AllocateProducerIdsResponse(
                throttle_time_ms=0, error_code=self.error, producer_id_start=0, producer_id_len=0
            )
        self.start += 10
        return AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id_start=self.start - 10, producer_id_len=10
        )


async def turn() -> None:
    """Run the event loop until no task is ready."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_producer_ids_are_given_in_order_and_the_next_block_is_fetched_in_time() -> None:
    async def scenario() -> None:
        controller = Controller()
        ids = ProducerIdPool(controller.allocate, ManualClock())
        await ids.wait_for_id()
        taken = []
        for _ in range(35):
            taken.append(ids.take())
            await turn()
        assert taken == list(range(100, 135))

    asyncio.run(scenario())


def test_the_next_block_of_producer_ids_is_requested_once_when_a_tenth_is_left() -> None:
    async def scenario() -> None:
        controller = Controller()
        ids = ProducerIdPool(controller.allocate, ManualClock())
        await ids.wait_for_id()
        for _ in range(8):
            ids.take()
        await turn()
        assert controller.asked == 1
        for _ in range(2):
            ids.take()
            await turn()
        assert controller.asked == 2

    asyncio.run(scenario())


def test_taking_a_producer_id_before_a_block_has_arrived_gets_coordinator_load_in_progress() -> None:
    async def scenario() -> None:
        controller = Controller()
        controller.released.clear()
        ids = ProducerIdPool(controller.allocate, ManualClock())
        for _ in range(3):
            with pytest.raises(Refusal) as refusal:
                ids.take()
            assert refusal.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await turn()
        assert controller.asked == 1
        controller.released.set()
        await turn()
        assert ids.take() == 100

    asyncio.run(scenario())


def test_a_cancelled_request_for_a_producer_id_does_not_take_the_block_from_the_others() -> None:
    async def scenario() -> None:
        controller = Controller()
        controller.released.clear()
        ids = ProducerIdPool(controller.allocate, ManualClock())
        impatient, patient = (asyncio.ensure_future(ids.wait_for_id()) for _ in range(2))
        await turn()
        impatient.cancel()
        controller.released.set()
        await patient
        assert controller.asked == 1
        assert ids.take() == 100

    asyncio.run(scenario())


def test_a_failed_allocation_of_producer_ids_is_retried() -> None:
    async def scenario() -> None:
        clock, controller = ManualClock(), Controller()
        controller.error = ErrorCode.NOT_CONTROLLER
        ids = ProducerIdPool(controller.allocate, clock)
        waiting = asyncio.ensure_future(ids.wait_for_id())
        await turn()
        controller.error = ErrorCode.NONE
        assert not waiting.done()
        clock.advance_ms(50)
        await waiting
        assert ids.take() == 100

    asyncio.run(scenario())
