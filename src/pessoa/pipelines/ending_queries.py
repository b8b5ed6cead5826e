"""Spark's queries that are being stopped.

Spark answers a stop when the query's thread has ended. That thread may be asking a cluster something, and then it does
not let itself be interrupted: while the cluster is away that takes most of a minute. So a thread of its own waits for
each answer, and the engine's lock is free meanwhile. A caller who needs the query to have ended waits here, without
that lock. Until it has, none starts under its name: the checkpoint has one user.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# A query whose cluster answers has ended by then, mostly, and its engine goes on at once.
MOMENT_S = 0.5

log = logging.getLogger(__name__)


class EndingQueries:
    """The queries that are being stopped. `stop` needs the engine's lock, the other methods do not."""

    def __init__(self) -> None:
        self._threads: dict[str, threading.Thread] = {}

    def __repr__(self) -> str:
        return f"<EndingQueries {', '.join(self._threads) or 'none'}>"

    def stop(self, query_id: str, running: StreamingQuery) -> None:
        """Stop a query in Spark, and wait a moment until it has stopped."""
        assert self.has_ended(query_id), f"{query_id} is being stopped already"
        thread = threading.Thread(target=_stop, args=(query_id, running), name=f"pessoa-stop-{query_id}", daemon=True)
        self._threads = {name: each for name, each in self._threads.items() if each.is_alive()} | {query_id: thread}
        thread.start()
        thread.join(MOMENT_S)

    def has_ended(self, query_id: str) -> bool:
        thread = self._threads.get(query_id)
        return thread is None or not thread.is_alive()

    def wait_for(self, query_id: str, timeout_s: float | None = None) -> bool:
        """Wait until Spark has stopped the query; False if that takes too long."""
        thread = self._threads.get(query_id)
        if thread is not None:
            thread.join(timeout_s)
        return self.has_ended(query_id)

    def wait_for_all(self) -> None:
        for thread in self._threads.values():
            thread.join()


def _stop(query_id: str, running: StreamingQuery) -> None:
    try:
        running.stop()
    except Exception as silent:  # noqa: BLE001
        # A Spark that does not answer is noticed by the next round.
        log.info("query %s could not be stopped: %s", query_id, silent)
