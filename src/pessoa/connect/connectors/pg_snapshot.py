"""The rows that tables have when a capture begins, as events of the operation r.

Tables are taken by name, and the rows of one by its key (`pg_catalogue.SnapshotReader` reads them at the point where
the slot begins). The offset of a row says how many of its table were read and which key was the last, so an interrupted
snapshot goes on behind that key. A table without a key is read again from its first row.
"""

from __future__ import annotations

import time as clock
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from pessoa.base.json_value import JsonObject
from pessoa.connect.connectors.debezium_events import CapturedTable, Where
from pessoa.connect.connectors.pg_catalogue import SnapshotReader, TableToRead
from pessoa.connect.data import Record


class SnapshotEvents:
    """The rows of all captured tables as events of the operation r, in the order of tables and keys."""

    def __init__(
        self, reader: SnapshotReader, tables: list[tuple[CapturedTable, TableToRead]], offset: Mapping[str, object]
    ) -> None:
        self._reader = reader
        self._rows = self._all_rows(tables, offset)
        # One row is read ahead: the last of all is marked.
        self._ahead = next(self._rows, None)

    @property
    def is_done(self) -> bool:
        return self._ahead is None

    def _all_rows(
        self, tables: list[tuple[CapturedTable, TableToRead]], offset: Mapping[str, object]
    ) -> Generator[_SnapshotRow]:
        begun = str(offset.get("table", ""))
        for table, to_read in sorted(tables, key=lambda pair: f"{pair[1].schema}.{pair[1].name}"):
            name = f"{to_read.schema}.{to_read.name}"
            if name < begun:
                continue
            last = offset.get("last") if name == begun else None
            behind = [str(each) for each in last] if isinstance(last, list) and to_read.keys else None
            number = int(str(offset.get("row", 0))) if behind is not None else 0
            places = [list(to_read.columns).index(each) for each in to_read.keys]
            for cells in self._reader.rows(to_read, behind):
                number += 1
                yield _SnapshotRow(table, name, cells, number, [str(cells[place]) for place in places])

    def next_records(self, count: int) -> list[Record]:
        records: list[Record] = []
        now_us = clock.time_ns() // 1000
        while self._ahead is not None and len(records) < count:
            row, self._ahead = self._ahead, next(self._rows, None)
            offset: JsonObject = {"snapshot": "INITIAL", "table": row.name, "row": row.number, "last": list(row.key)}
            mark = "last" if self._ahead is None else "true"
            where = Where(self._reader.lsn, now_us, None, offset, mark)
            records += row.table.events("r", None, row.cells, False, where, now_us)
        return records

    def close(self) -> None:
        self._rows.close()
        self._reader.close()


@dataclass(frozen=True, slots=True)
class _SnapshotRow:
    table: CapturedTable
    name: str
    cells: tuple[str | None, ...]
    number: int
    key: list[str]
