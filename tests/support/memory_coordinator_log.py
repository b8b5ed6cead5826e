"""A `CoordinatorLog` in memory, whose high watermark a test may hold back and whose appends it may refuse."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator

from pessoa.coordinator.record_batches import empty_batch
from pessoa.records.batch import RecordBatch
from pessoa.records.stamping import stamp
from pessoa.wire.errors import ErrorCode, Refusal


class MemoryLog:
    """A log whose high watermark follows every append at once or, with `holds_back`, only `commit()`."""

    def __init__(self, partitions: int = 1, holds_back: bool = False) -> None:
        self._partitions = partitions
        self.holds_back = holds_back
        # Whether another broker could lead the partition, so that `append_barrier` appends a batch.
        self.has_followers = False
        # The error code with which the next appends are refused.
        self.refuses_with: ErrorCode | None = None
        self.batches: defaultdict[int, list[bytearray]] = defaultdict(list)
        self.guards: list[object] = []
        self._ends: defaultdict[int, int] = defaultdict(int)
        self._committed: defaultdict[int, int] = defaultdict(int)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def __repr__(self) -> str:
        return f"<MemoryLog: {sum(map(len, self.batches.values()))} batches in {len(self.batches)} partitions>"

    def partition_count(self) -> int:
        return self._partitions

    def append(self, partition: int, batch: bytearray, guard: object = None) -> int:
        if self.refuses_with is not None:
            raise Refusal(self.refuses_with)
        header = RecordBatch(batch)
        stamp(header, self._ends[partition], 0)
        self.batches[partition].append(batch)
        self.guards.append(guard)
        self._ends[partition] += header.last_offset_delta + 1
        if not self.holds_back:
            self._committed[partition] = self._ends[partition]
        return self._ends[partition]

    def append_barrier(self, partition: int) -> int:
        return self.append(partition, empty_batch()) if self.has_followers else self._ends[partition]

    def high_watermark(self, partition: int) -> int:
        return self._committed[partition]

    def commit(self, partition: int = 0, offset: int | None = None) -> None:
        """Move the high watermark to `offset`, or to the log end."""
        self._committed[partition] = self._ends[partition] if offset is None else offset
        for waiting_partition, end, future in self._waiting:
            if waiting_partition == partition and end <= self._committed[partition] and not future.done():
                future.set_result(None)

    async def wait_until_committed(self, partition: int, offset: int) -> None:
        if self._committed[partition] < offset:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((partition, offset, future))
            await future

    def read(self, partition: int) -> Iterator[RecordBatch]:
        for batch in list(self.batches[partition]):
            yield RecordBatch(batch)
