"""Windows in a store: of one key and of all keys, time windows and sessions, with keys encoded as in Kafka."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from pessoa.pipelines.materialised_table import MaterialisedTable
from pessoa.pipelines.plan import Format, Window
from pessoa.pipelines.table_store import Change, TableStore
from pessoa.streams.queryable_state import Store, StoredTable

MINUTE = datetime.timedelta(minutes=1)
ZERO = datetime.datetime.fromtimestamp(0, datetime.UTC)


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[TableStore]:
    store = TableStore(tmp_path)
    yield store
    store.close()


def store_of(rows: TableStore, window: Window, keys: dict[bytes, bytes]) -> Store:
    rows.apply([Change(key, value, 0, 0, 0) for key, value in keys.items()], {})
    table = MaterialisedTable("t", {}, Path("unused"))
    table._store = rows
    return Store(StoredTable("t", Format("string"), Format("long"), window), table)


def test_time_windows_are_found_by_key_and_start_and_for_all_keys(rows: TableStore) -> None:
    keys = {
        name + struct.pack(">q", minute * 60_000): struct.pack(">q", minute)
        for name in (b"ana", b"anabela", b"rui")
        for minute in (1, 2, 3)
    }
    store = store_of(rows, Window("tumbling", 60_000), keys)
    assert [(row.key, row.start - ZERO, row.end - row.start, row.value) for row in store.windows("ana")] == [
        ("ana", MINUTE * minute, MINUTE, minute) for minute in (1, 2, 3)
    ]
    assert [row.value for row in store.windows("ana", ZERO + 2 * MINUTE, ZERO + 3 * MINUTE)] == [2]
    assert [(row.key, row.value) for row in store.windows(start=ZERO + 3 * MINUTE)] == [
        ("ana", 3), ("anabela", 3), ("rui", 3),
    ]  # fmt: skip


def test_the_key_of_a_session_store_has_the_end_before_the_start(rows: TableStore) -> None:
    sessions = [(5, 9), (1, 2)]
    keys = {
        b"ana" + struct.pack(">qq", end * 60_000, start * 60_000): struct.pack(">q", start) for start, end in sessions
    }
    store = store_of(rows, Window("session", 60_000), keys)
    assert [(row.start - ZERO, row.end - ZERO, row.value) for row in store.windows("ana")] == [
        (MINUTE, 2 * MINUTE, 1), (5 * MINUTE, 9 * MINUTE, 5),
    ]  # fmt: skip
    assert [row.value for row in store.windows("ana", end=ZERO + 5 * MINUTE)] == [1]
