"""The materialised tables of one process: opened when they are first asked for, one for each topic, closed together.

At most MOST_TABLES are open: the one that was asked for the longest ago is closed for a new one, and goes on from its
file when it is asked for again.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping
from pathlib import Path

from pessoa.pipelines.materialised_table import MaterialisedTable

MOST_TABLES = 64


class TableShelf:
    def __init__(self, kafka: Mapping[str, str], directory: Path) -> None:
        self._kafka = dict(kafka)
        self._directory = directory
        self._mutex = threading.Lock()
        # The last one was asked for last.
        self._tables: dict[str, MaterialisedTable] = {}
        self.is_closed = False

    def __repr__(self) -> str:
        return f"<TableShelf in {self._directory} with {', '.join(self._tables) or 'no tables'}>"

    def open(self, topic: str) -> MaterialisedTable:
        """Return the table of a topic; it follows the topic from now on."""
        with self._mutex:
            if self.is_closed:
                raise RuntimeError("the tables are closed")
            table = self._tables.pop(topic, None)
            if table is None:
                if len(self._tables) >= MOST_TABLES:
                    self._tables.pop(next(iter(self._tables))).close()
                table = MaterialisedTable(topic, self._kafka, self._directory / folder_of(topic))
                table.start()
            self._tables[topic] = table
            return table

    def tables(self) -> list[MaterialisedTable]:
        with self._mutex:
            return sorted(self._tables.values(), key=lambda table: table.topic)

    def close(self) -> None:
        with self._mutex:
            self.is_closed = True
            while self._tables:
                self._tables.popitem()[1].close()


def folder_of(topic: str) -> str:
    """Return the folder name of a topic; a text that is no valid topic name is hashed to one."""
    if re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}", topic):
        return topic
    return "topic-" + hashlib.sha256(topic.encode()).hexdigest()
