"""Producer ids, which the controller gives out in blocks so that no two brokers have the same.

An id is taken without waiting. When a tenth of the block is left the next block is asked for, so that one is nearly
always there. If it is not, `take` refuses with COORDINATOR_LOAD_IN_PROGRESS, as Kafka does, and every client tries
again; a caller that can wait calls `wait_for_id` first. What is left of a block is lost with the broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pessoa.base.clock import Clock
from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsResponse
from pessoa.wire.errors import ErrorCode, Refusal

logger = logging.getLogger(__name__)

# As in Kafka: the next block is asked for when this part of the present one is used.
_PREFETCH_AT = 0.9
_RETRY_MS = 50


class ProducerIdPool:
    """Producer ids in blocks; `allocate` gets a block from the controller."""

    def __init__(self, allocate: Callable[[], Awaitable[AllocateProducerIdsResponse]], clock: Clock) -> None:
        self._allocate = allocate
        self._clock = clock
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._next_block: range | None = None
        self._fetch: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<ProducerIdPool: {self._end - self._next} left, the next is {self._next}>"

    @property
    def has_id(self) -> bool:
        return self._next < self._end or self._next_block is not None

    def take(self) -> int:
        if self._next == self._end and self._next_block is not None:
            self._begin(self._next_block)
        if self._next == self._end:
            self._start_fetch()
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the controller has been asked for producer ids")
        taken = self._next
        self._next += 1
        if self._next >= self._prefetch_at and self._next_block is None:
            self._start_fetch()
        return taken

    async def wait_for_id(self) -> None:
        """Return when `take` can return an id."""
        while not self.has_id:
            # Shielded: a waiter that is cancelled must not cancel the allocation that others wait for.
            await asyncio.shield(self._start_fetch())

    def close(self) -> None:
        if self._fetch is not None:
            self._fetch.cancel()

    def _begin(self, block: range) -> None:
        self._next, self._end, self._next_block = block.start, block.stop, None
        self._prefetch_at = block.start + int(len(block) * _PREFETCH_AT)

    def _start_fetch(self) -> asyncio.Task[None]:
        if self._fetch is None or self._fetch.done():
            self._fetch = asyncio.get_running_loop().create_task(self._run_fetch())
        return self._fetch

    async def _run_fetch(self) -> None:
        while True:
            response = await self._allocate()
            if not response.error_code:
                break
            logger.warning("no producer ids: %s", ErrorCode.of(response.error_code).name)
            await self._clock.wait_ms(_RETRY_MS)
        assert response.producer_id_len > 0, f"an empty block of producer ids: {response}"
        block = range(response.producer_id_start, response.producer_id_start + response.producer_id_len)
        if self._next == self._end:
            self._begin(block)
        else:
            self._next_block = block
