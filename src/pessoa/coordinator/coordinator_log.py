"""The door to the log of an internal topic.

The broker implements it on the partitions that it leads, tests in memory (`tests/support/memory_coordinator_log.py`).
Errors of the log are `Refusal`s with the code that a producer would see: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS,
MESSAGE_TOO_LARGE, KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from pessoa.records.batch import RecordBatch


class CoordinatorLog(Protocol):
    def partition_count(self) -> int: ...

    def append(self, partition: int, batch: bytearray, guard: object = None) -> int:
        """Write one batch and return the log end offset after it. Raises `Refusal`, and then nothing was written.

        `guard` is what the transaction's verification returned, for the batch of a transaction.
        """

    def append_barrier(self, partition: int) -> int:
        """Write a batch without records, which only the real leader can get committed, and return the log end offset
        after it. If no other replica can lead, nothing is written, and the present log end offset is returned. Raises
        `Refusal`."""

    def high_watermark(self, partition: int) -> int:
        """Return the high watermark of the partition."""

    async def wait_until_committed(self, partition: int, offset: int) -> None:
        """Return when the high watermark is at `offset` or beyond. Raises `Refusal` if that cannot happen any more."""

    def read(self, partition: int) -> Iterator[RecordBatch]:
        """Yield the batches from log start to log end."""
