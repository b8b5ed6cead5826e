"""pgoutput: the messages of PostgreSQL's own plugin for logical decoding, protocol version 1, as values. Pure.

A stream is transactions, one behind the other in the order of their commits:

    B   begin     LSN of the commit record, time of the commit, id of the transaction
    R   relation  a table's id, name and columns: once before its first change, and again after its columns changed
    I   insert    the new row
    U   update    the new row; before it the old one (O, with REPLICA IDENTITY FULL) or its old key (K, if it changed)
    D   delete    the old row (O), or its key with nulls around it (K)
    T   truncate  the ids of tables
    C   commit    LSN of the commit record, LSN behind it, time

A cell is text as PostgreSQL prints it, null, or UNCHANGED: a large value that is stored apart and was not touched by an
update is not in the log. Times count microseconds since 2000. https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum

# 2000-01-01 in microseconds since 1970.
EPOCH_2000_US = 946_684_800_000_000


class Unchanged(Enum):
    """Stands in place of a TOASTed value that an update did not change, and that the server therefore does not send."""

    UNCHANGED = "unchanged"


UNCHANGED = Unchanged.UNCHANGED
Cell = str | Unchanged | None
Cells = tuple[Cell, ...]


class MalformedMessage(Exception):
    """A message that does not follow the protocol: another version, or a broken stream."""


@dataclass(frozen=True, slots=True)
class Begin:
    # Of the record that commits it: transactions come in this order.
    commit_lsn: int
    time_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    commit_lsn: int
    end_lsn: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type_oid: int
    type_modifier: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class Relation:
    id: int
    schema: str
    table: str
    # d: the primary key, f: all columns, i: an index, n: nothing.
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one row. A delete has `old`, as has an update of the key or of a table with REPLICA IDENTITY FULL."""

    # c, u or d, as Debezium calls them.
    operation: str
    relation_id: int
    old: Cells | None
    new: Cells | None
    # Whether `old` has no more than the key, with nulls for the rest.
    old_is_key: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    relation_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Ignored:
    """A message that changes no row: the origin of a transaction, a type, a message that a program wrote."""

    kind: str


Message = Begin | Commit | Relation | Change | Truncate | Ignored


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 1

    def numbers(self, layout: str) -> tuple[int, ...]:
        found: tuple[int, ...] = struct.unpack_from(layout, self._data, self._position)
        self._position += struct.calcsize(layout)
        return found

    def number(self, layout: str) -> int:
        return self.numbers(layout)[0]

    def text(self) -> str:
        """Return a text that ends with a zero byte."""
        end = self._data.index(0, self._position)
        found = self._data[self._position : end].decode()
        self._position = end + 1
        return found

    def letter(self) -> str:
        return chr(self.number(">B"))

    def cells(self) -> Cells:
        return tuple(self._cell() for _ in range(self.number(">H")))

    def _cell(self) -> Cell:
        kind = self.letter()
        if kind == "n":
            return None
        if kind == "u":
            return UNCHANGED
        if kind != "t":
            raise MalformedMessage(f"a cell of the kind {kind!r}; only text is asked for")
        size = self.number(">I")
        end = self._position + size
        if end > len(self._data):
            raise MalformedMessage(f"a cell of {size} bytes in a message of {len(self._data)}")
        found = self._data[self._position : end].decode()
        self._position = end
        return found


def decode(data: bytes) -> Message:
    """Return the decoded message; MalformedMessage if the bytes are not one."""
    if not data:
        raise MalformedMessage("an empty message")
    try:
        return _decode(chr(data[0]), _Reader(data))
    except (struct.error, ValueError, IndexError) as wrong:
        raise MalformedMessage(
            f"a message {chr(data[0])!r} of {len(data)} bytes that cannot be read: {wrong}"
        ) from wrong


def _decode(kind: str, reader: _Reader) -> Message:
    match kind:
        case "B":
            commit_lsn, time, xid = reader.numbers(">QqI")
            return Begin(commit_lsn, time + EPOCH_2000_US, xid)
        case "C":
            _, commit_lsn, end_lsn, _ = reader.numbers(">BQQq")
            return Commit(commit_lsn, end_lsn)
        case "R":
            return _relation(reader)
        case "I":
            relation = reader.number(">I")
            _expect(reader.letter(), "N")
            return Change("c", relation, None, reader.cells())
        case "U":
            return _update(reader)
        case "D":
            relation, mark = reader.number(">I"), reader.letter()
            _expect(mark, "KO")
            return Change("d", relation, reader.cells(), None, old_is_key=mark == "K")
        case "T":
            count, _ = reader.numbers(">IB")
            return Truncate(reader.numbers(f">{count}I"))
    if kind in "OYM":
        return Ignored(kind)
    raise MalformedMessage(f"a message of the kind {kind!r}, which version 1 of the protocol does not have")


def _expect(mark: str, allowed: str) -> None:
    if mark not in allowed:
        raise MalformedMessage(f"a row marked {mark!r} where one of {allowed} belongs")


def _relation(reader: _Reader) -> Relation:
    relation = reader.number(">I")
    # An empty name stands for the schema of the system's own tables.
    schema, table = reader.text() or "pg_catalog", reader.text()
    identity = reader.letter()
    columns = []
    for _ in range(reader.number(">H")):
        flags, name = reader.number(">B"), reader.text()
        type_oid, modifier = reader.numbers(">Ii")
        columns.append(RelationColumn(name, type_oid, modifier, bool(flags & 1)))
    return Relation(relation, schema, table, identity, tuple(columns))


def _update(reader: _Reader) -> Change:
    relation, mark = reader.number(">I"), reader.letter()
    _expect(mark, "KON")
    old = None
    if mark != "N":
        old = reader.cells()
        _expect(reader.letter(), "N")
    return Change("u", relation, old, reader.cells(), old_is_key=mark == "K")


# Log sequence numbers.


def lsn_text(lsn: int) -> str:
    """Return the LSN as PostgreSQL writes it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFF_FFFF:X}"


def lsn_from_text(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)
