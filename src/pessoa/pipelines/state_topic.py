"""The state topic of the engine, which is compacted: for each query its specification and the state it should be in.

    key     the query's id
    value   JSON: {"spec": {…}, "target": "RUNNING" | "PAUSED" | "STOPPED"}; null when the query was deleted

An engine that starts reads the topic to its end and goes on with every query whose target is RUNNING. Where a query
is in its input stands in its checkpoint, not here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pessoa.client.table_topic import Batch

STATE_TOPIC = "_pessoa_queries"


class StateTopic:
    def __init__(self, settings: Mapping[str, str], name: str = STATE_TOPIC) -> None:
        from pessoa.client.table_topic import TableReader, TableWriter
        from pessoa.client.topic_creation import table_spec

        self.name = name
        self._values: dict[str, dict[str, Any]] = {}
        self._reader = TableReader("pessoa-engine", settings, [table_spec(name)], self._replay)
        self._writer = TableWriter(settings)

    def load(self) -> dict[str, dict[str, Any]]:
        """Return the last value of each query that was not deleted."""
        try:
            self._reader.start()
            self._reader.wait_for_end()
        finally:
            # Only this engine writes, so there is nothing to follow.
            self._reader.stop()
        return self._values

    def _replay(self, batch: Batch) -> None:
        for row in batch.rows:
            query_id = (row.key or b"").decode()
            if row.value is None:
                self._values.pop(query_id, None)
            else:
                self._values[query_id] = json.loads(row.value)

    def put(self, query_id: str, value: Mapping[str, Any] | None) -> Callable[[], object]:
        """Write the value of a query, or a tombstone; calling the result waits until it is written. Order is kept."""
        return self._writer.send(self.name, query_id.encode(), None if value is None else json.dumps(value).encode())
