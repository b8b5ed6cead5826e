"""The rows of one table on this disk, and how far its topic was read: one SQLite file.

    rows        key → value, timestamp, partition, offset; in the byte order of the keys
    positions   partition → the next offset to be read
    facts       the id of the topic that was read, and when the file was last known to follow it

Rows and positions change in one transaction, so a process that is killed leaves a file that says exactly what it has
read. The file is a copy of a topic: one that is damaged, or of another version, is thrown away and made anew.

One thread writes. Any number of threads read while it does (write-ahead log), each with a connection of a small pool; a
read sees whole transactions. The figures that SQLite was chosen by are in docs/decisions/0016.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

log = logging.getLogger(__name__)

VERSION = 1
# Rows that a scan fetches at a time: one page is consistent, and no reader delays a checkpoint of the WAL for long.
PAGE_ROWS = 1000
# In KiB, for SQLite. Loading rows in the order of a topic touches pages all over the file.
_WRITER_CACHE_KIB = 32 * 1024
_READER_CACHE_KIB = 4 * 1024
# Pages that are written to the WAL before a checkpoint moves them to the file; each checkpoint costs a sync.
_CHECKPOINT_PAGES = 10_000
_DAMAGES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SCHEMA = """
CREATE TABLE rows (
    key BLOB PRIMARY KEY, value BLOB NOT NULL, timestamp_ms INTEGER NOT NULL, partition INTEGER NOT NULL,
    offset INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE positions (partition INTEGER PRIMARY KEY, offset INTEGER NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
"""
_GET = "SELECT key, value, timestamp_ms, partition, offset FROM rows WHERE key = ?"
_FROM = "SELECT key, value, timestamp_ms, partition, offset FROM rows WHERE key >= ? ORDER BY key LIMIT ?"
_BETWEEN = (
    "SELECT key, value, timestamp_ms, partition, offset FROM rows WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
)


class Entry(NamedTuple):
    """A row of a table: the record that its key has now."""

    key: bytes
    value: bytes
    timestamp_ms: int
    partition: int
    offset: int


class Change(NamedTuple):
    """The effect of a record on the table; a record without a value deletes its key."""

    key: bytes
    value: bytes | None
    timestamp_ms: int
    partition: int
    offset: int


class StoreInUse(RuntimeError):
    """Another process keeps this table in the same directory."""


class TableStore:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / "table.sqlite"
        self._lock = _lock(directory)
        self._readers: list[sqlite3.Connection] = []
        self._is_closed = False
        # The number of rows, until the next change.
        self._count: int | None = None
        try:
            self._writer = self._open()
        except BaseException:
            self._lock.close()
            raise

    def __repr__(self) -> str:
        return f"<TableStore {self._path}, read up to {self.positions()}>"

    def close(self) -> None:
        self._is_closed = True
        while self._readers:
            self._readers.pop().close()
        self._writer.close()
        self._lock.close()

    # Reading, from any thread

    def get(self, key: bytes) -> Entry | None:
        with self._reader() as reader:
            found = reader.execute(_GET, (key,)).fetchone()
        return None if found is None else Entry(*found)

    def range(self, start: bytes | None, end: bytes | None) -> Iterator[Entry]:
        """Yield the rows from `start` to before `end`, in the byte order of their keys; None is open."""
        first = start or b""
        while True:
            with self._reader() as reader:
                if end is None:
                    page = reader.execute(_FROM, (first, PAGE_ROWS)).fetchall()
                else:
                    page = reader.execute(_BETWEEN, (first, end, PAGE_ROWS)).fetchall()
            yield from map(Entry._make, page)
            if len(page) < PAGE_ROWS:
                return
            # The smallest key behind the last one.
            first = page[-1][0] + b"\0"

    def count(self) -> int:
        if (known := self._count) is None:
            with self._reader() as reader:
                known = int(reader.execute("SELECT count(*) FROM rows").fetchone()[0])
            self._count = known
        return known

    def positions(self) -> dict[int, int]:
        with self._reader() as reader:
            return dict(reader.execute("SELECT partition, offset FROM positions").fetchall())

    def fact(self, name: str) -> str | None:
        with self._reader() as reader:
            found = reader.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if found is None else str(found[0])

    @contextlib.contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        try:
            reader = self._readers.pop()
        except IndexError:
            reader = self._connect(_READER_CACHE_KIB)
        try:
            yield reader
        finally:
            if self._is_closed:
                reader.close()
            else:
                self._readers.append(reader)

    # Writing, from one thread

    def apply(self, changes: Iterable[Change], positions: Mapping[int, int]) -> None:
        """Apply these changes (the latest of a key last) and the positions after them in one transaction."""
        last = {change.key: change for change in changes}
        # In the order of the keys, pages of the file are visited once: loading is three times as quick.
        written = sorted(change for change in last.values() if change.value is not None)
        deleted = sorted(change.key for change in last.values() if change.value is None)
        with self._transaction() as writer:
            writer.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", written)
            writer.executemany("DELETE FROM rows WHERE key = ?", ((key,) for key in deleted))
            writer.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?)", positions.items())

    def keep_facts(self, facts: Mapping[str, str]) -> None:
        with self._transaction() as writer:
            writer.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def clear(self, facts: Mapping[str, str]) -> None:
        """Delete all rows and positions, and keep these facts."""
        with self._transaction() as writer:
            for delete in ("DELETE FROM rows", "DELETE FROM positions", "DELETE FROM facts"):
                writer.execute(delete)
            writer.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield self._writer
            self._writer.execute("COMMIT")
        except BaseException:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            raise
        finally:
            self._count = None

    def make_anew(self) -> None:
        """Delete the file and begin with an empty one. Reads in progress end on the old file."""
        self._writer.close()
        self._delete_file()
        while self._readers:
            self._readers.pop().close()
        self._writer = self._open()
        self._count = None

    # The file

    def _open(self) -> sqlite3.Connection:
        try:
            return self._open_file()
        except sqlite3.DatabaseError as failure:
            if not is_damage(failure):
                raise
            log.warning("%s cannot be read (%s) and is made anew", self._path, failure)
        except _AnotherVersion:
            log.info("%s is of another version and is made anew", self._path)
        self._delete_file()
        return self._open_file()

    def _open_file(self) -> sqlite3.Connection:
        writer = self._connect(_WRITER_CACHE_KIB)
        try:
            _prepare(writer)
        except BaseException:
            writer.close()
            raise
        return writer

    def _delete_file(self) -> None:
        for name in ("", "-wal", "-shm"):
            Path(f"{self._path}{name}").unlink(missing_ok=True)

    def _connect(self, cache_kib: int) -> sqlite3.Connection:
        # SQLite is built to be shared by threads, and the pool gives a connection to one at a time.
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
        try:
            connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        except BaseException:
            connection.close()
            raise
        return connection


def is_damage(failure: BaseException) -> bool:
    """Whether SQLite reports a corrupt file or no database, rather than a passing error such as a full disk."""
    code: int = getattr(failure, "sqlite_errorcode", 0)
    # The lower byte says the kind, the others more about it.
    return isinstance(failure, sqlite3.DatabaseError) and code & 0xFF in _DAMAGES


class _AnotherVersion(Exception):
    pass


def _prepare(writer: sqlite3.Connection) -> None:
    """Create the tables in a new file; raise _AnotherVersion if another version of this code has made the file."""
    # Normal: nothing that was committed is lost when the process dies; a power cut may lose the last transactions
    # whole, and they are read again.
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", f"wal_autocheckpoint = {_CHECKPOINT_PAGES}"):
        writer.execute(f"PRAGMA {pragma}").fetchall()
    version = writer.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return
    if writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise _AnotherVersion
    writer.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")


def _lock(directory: Path) -> IO[bytes]:
    file = (directory / "lock").open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise StoreInUse(
            f"another process keeps a table in {directory}: give this one a directory of its own"
        ) from None
    return file
