"""The store of a materialised table: order, deletions, transactions, threads, and files that are not a store."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from pessoa.pipelines.table_store import PAGE_ROWS, Change, Entry, StoreInUse, TableStore, is_damage


def change(key: bytes, value: bytes | None, offset: int = 0) -> Change:
    return Change(key, value, 1000 + offset, 0, offset)


def test_a_table_store_returns_the_last_change_of_a_key_and_none_after_a_deletion(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.apply([change(b"a", b"1"), change(b"b", b"1", 1), change(b"a", b"2", 2)], {0: 3})
    assert store.get(b"a") == Entry(b"a", b"2", 1002, 0, 2)
    assert store.count() == 2
    store.apply([change(b"a", b"3", 3), change(b"a", None, 4), change(b"c", None, 5)], {0: 6})
    assert store.get(b"a") is None
    assert (store.count(), store.positions()) == (1, {0: 6})
    store.close()


def test_range_is_in_byte_order_over_pages_and_excludes_its_end(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    keys = [number.to_bytes(3, "big") for number in range(2 * PAGE_ROWS + 7)]
    store.apply([change(key, b"") for key in reversed(keys)], {})
    assert [entry.key for entry in store.range(None, None)] == keys
    assert [entry.key for entry in store.range(keys[3], keys[PAGE_ROWS + 9])] == keys[3 : PAGE_ROWS + 9]
    assert list(store.range(keys[5], keys[5])) == []
    store.close()


def test_a_reopened_table_store_has_its_rows_positions_and_facts(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.apply([change(b"a", b"1")], {0: 1, 3: 9})
    store.keep_facts({"topic id": "x"})
    store.close()
    again = TableStore(tmp_path)
    assert again.get(b"a") is not None
    assert (again.positions(), again.fact("topic id"), again.fact("none")) == ({0: 1, 3: 9}, "x", None)
    again.clear({"topic id": "y"})
    assert (again.count(), again.positions(), again.fact("topic id")) == (0, {}, "y")
    again.close()


def test_a_failed_transaction_leaves_rows_and_positions_unchanged(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.apply([change(b"a", b"1")], {0: 1})
    with pytest.raises(sqlite3.Error):
        store.apply([change(b"a", b"2"), change(b"b", object())], {0: 2})  # type: ignore[arg-type]
    entry = store.get(b"a")
    assert entry is not None
    assert (entry.value, store.positions(), store.count()) == (b"1", {0: 1}, 1)
    store.close()


@pytest.mark.parametrize("content", [b"this is no database" * 100, b""])
def test_a_file_that_is_no_table_store_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "table.sqlite").write_bytes(content)
    store = TableStore(tmp_path)
    store.apply([change(b"a", b"1")], {0: 1})
    assert store.count() == 1
    store.close()


def test_a_damaged_table_store_raises_an_error_and_can_be_created_again(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    store.apply([change(b"%05d" % number, b"x" * 200) for number in range(5000)], {0: 5000})
    store.close()
    path = tmp_path / "table.sqlite"
    # The first page says that this is a database; the others are gone.
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    again = TableStore(tmp_path)
    with pytest.raises(sqlite3.DatabaseError) as damaged:
        list(again.range(None, None))
    assert is_damage(damaged.value)
    assert not is_damage(sqlite3.OperationalError("database or disk is full"))
    again.make_anew()
    again.apply([change(b"a", b"1")], {0: 1})
    assert ([entry.key for entry in again.range(None, None)], again.positions()) == ([b"a"], {0: 1})
    again.close()


def test_a_directory_can_be_opened_by_one_table_store_at_a_time(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    with pytest.raises(StoreInUse, match="another process keeps a table"):
        TableStore(tmp_path)
    store.close()
    TableStore(tmp_path).close()


def test_threads_read_whole_transactions_while_one_writes(tmp_path: Path) -> None:
    store = TableStore(tmp_path)
    keys = [b"k%d" % number for number in range(20)]
    store.apply([change(key, b"0") for key in keys], {})
    torn: list[set[bytes]] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            values = {entry.value for entry in store.range(None, None)}
            if len(values) != 1:
                torn.append(values)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number in range(200):
        store.apply([change(key, b"%d" % number) for key in keys], {0: number})
    done.set()
    for reader in readers:
        reader.join()
    assert torn == []
    store.close()
