"""The appends of a leader that a majority does not have: each has a future, which gets the offset of its last record.

They are in the order of the log, and leave it from the front: committed, or failed together when the node stops
leading, stops, or its disk fails. A failed append may still be committed by the next leader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pessoa.quorum.batches import MetadataBatch


class QuorumFailed(Exception):
    """The metadata log cannot be written any more; the cause says why."""


class NotLeader(Exception):
    """This node does not lead the quorum, or stopped leading while an append waited."""


class UncommittedAppend(NamedTuple):
    base_offset: int
    batch: MetadataBatch
    committed: asyncio.Future[int]


class UncommittedAppends:
    def __init__(self) -> None:
        self._appends: deque[UncommittedAppend] = deque()

    def __repr__(self) -> str:
        return f"<UncommittedAppends: {len(self._appends)}>"

    def __len__(self) -> int:
        return len(self._appends)

    def add(self, base_offset: int, batch: MetadataBatch) -> asyncio.Future[int]:
        append = UncommittedAppend(base_offset, batch, asyncio.get_running_loop().create_future())
        self._appends.append(append)
        return append.committed

    def take_committed(self, applied_offset: int, end: int) -> Iterator[UncommittedAppend]:
        """Remove and yield the appends that follow one another from the applied offset, below `end`."""
        while self._appends and self._appends[0].base_offset == applied_offset < end:
            append = self._appends.popleft()
            applied_offset = append.batch.last_offset + 1
            yield append

    def next_base_offset(self, default: int) -> int:
        return self._appends[0].base_offset if self._appends else default

    def are_of_epoch(self, epoch: int) -> bool:
        """Return whether the first append, and so all of them, was made in that epoch."""
        return self._appends[0].batch.epoch == epoch

    def fail(self, error: Exception) -> None:
        while self._appends:
            committed = self._appends.popleft().committed
            if not committed.done():
                committed.set_exception(error)
                # If no request waits for it, asyncio would log the exception as never retrieved.
                committed.exception()
