"""The response of a query to one client: a header, rows, and an end; from a blocking thread to an event loop.

    thread: put(rows) ── at most _MOST_WAITING batches wait, then the thread does ──▶ loop: async for batch in feed

`close` ends the thread when the client has disconnected; `end` ends the response when the thread is done.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from pessoa.ksql.types.sql_types import SqlType, Value

_MOST_WAITING = 16
_PUT_S = 0.5


class ResultColumn(NamedTuple):
    name: str
    type: SqlType
    is_key: bool = False


class ResultRow(NamedTuple):
    values: Sequence[Value]
    # A row of a table that is there no more; only its key is known.
    is_tombstone: bool = False


class RowFeed:
    """A bounded queue of rows from a query's thread to an event loop; it must be created in that loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[list[ResultRow] | None] = asyncio.Queue()
        self._room = threading.Semaphore(_MOST_WAITING)
        self.closed = threading.Event()
        # Why the query ended, if it was not for its limit.
        self.failure: str = ""
        self.is_limit_reached = False

    def __repr__(self) -> str:
        return f"<RowFeed {'closed' if self.closed.is_set() else 'open'}, {self._queue.qsize()} batches waiting>"

    # The thread's side.

    def put(self, rows: list[ResultRow]) -> bool:
        """Hand over rows; return False if the client has disconnected."""
        while not self.closed.is_set():
            if self._room.acquire(timeout=_PUT_S):
                self._enqueue(rows)
                return True
        return False

    def end(self, failure: str = "", *, limit: bool = False) -> None:
        self.failure = failure
        self.is_limit_reached = limit
        self._enqueue(None)

    def _enqueue(self, item: list[ResultRow] | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:
            # The loop has ended, and with it the client.
            self.closed.set()

    # The loop's side.

    async def batches(self) -> AsyncIterator[list[ResultRow]]:
        while (batch := await self._queue.get()) is not None:
            self._room.release()
            yield batch

    def close(self) -> None:
        self.closed.set()
