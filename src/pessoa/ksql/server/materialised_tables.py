"""The tables that pull queries read, followed on this server: one `pipelines/materialised_table.py` for each topic.

A table is followed from the moment it is created (or the server starts), so that the first look-up need not wait. Every
server follows all tables: any of them answers.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.server.kafka_clients import KafkaRefused, Settings
from pessoa.ksql.server.ksql_state import KsqlState
from pessoa.ksql.syntax.statement_nodes import SourceKind

if TYPE_CHECKING:
    from pessoa.pipelines.materialised_table import MaterialisedTable

log = logging.getLogger("pessoa.ksql")

_FIRST_READ_S = 30.0


class MaterialisedTables:
    def __init__(self, settings: Settings, directory: Path) -> None:
        self._settings = {name: str(value) for name, value in settings.items()}
        self._directory = directory
        self._lock = threading.Lock()
        self._tables: dict[str, MaterialisedTable] = {}

    def __repr__(self) -> str:
        return f"<MaterialisedTables {sorted(self._tables)}>"

    def follow(self, state: KsqlState) -> None:
        """Follow the tables of the image, and stop following all others."""
        wanted = {one.topic for one in state.catalogue.sources.values() if one.kind is SourceKind.TABLE
                  and one.materialised}  # fmt: skip
        with self._lock:
            for topic in self._tables.keys() - wanted:
                self._tables.pop(topic).close()
                shutil.rmtree(self._directory / topic, ignore_errors=True)
            for topic in wanted - self._tables.keys():
                try:
                    self._open(topic)
                except (OSError, sqlite3.Error):
                    # The replay of commands continues; a query of this table opens it again, and reports the error.
                    log.exception("the table %s cannot be followed", topic)

    def of(self, source: Source) -> MaterialisedTable:
        """Return the table, after it is read up to the end that it had when this server began to follow it."""
        with self._lock:
            try:
                table = self._tables.get(source.topic) or self._open(source.topic)
            except (OSError, sqlite3.Error) as failure:
                raise KafkaRefused(f"The table {source.name} cannot be followed here: {failure}") from None
        if table.staleness().as_of_ms is None:
            from pessoa.pipelines.materialised_table import TableBehind

            try:
                table.wait_until_read(table.end_offsets(), time.monotonic() + _FIRST_READ_S)
            except TableBehind as behind:
                raise KafkaRefused(f"The table {source.name} is still being read: {behind}") from None
        return table

    def close(self) -> None:
        with self._lock:
            tables, self._tables = list(self._tables.values()), {}
        for table in tables:
            table.close()

    def _open(self, topic: str) -> MaterialisedTable:
        from pessoa.pipelines.materialised_table import MaterialisedTable

        table = MaterialisedTable(topic, self._settings, self._directory / topic)
        table.start()
        self._tables[topic] = table
        return table
