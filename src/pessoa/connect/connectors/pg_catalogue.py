"""Queries of a change-data source to PostgreSQL's catalogue: tables, columns and their types, slots, publications; and
the rows of a snapshot.

Rows are read by COPY, which prints cells exactly as pgoutput does. A table with a primary key is read in its order, so
a snapshot that was interrupted goes on behind the last key; a table without one is begun anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from pessoa.connect.connector import RetriableFailure
from pessoa.connect.connectors.databases import DatabaseFailure
from pessoa.connect.connectors.debezium_types import ColumnType
from pessoa.connect.connectors.pg_replication import PRINTING, quote
from pessoa.connect.connectors.pgoutput import Relation, RelationColumn, lsn_from_text

if TYPE_CHECKING:
    import psycopg

_TABLES = """
SELECT c.oid::int8, n.nspname, c.relname, c.relreplident::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND c.relpersistence = 'p' AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
"""
_COLUMNS = """
SELECT a.attname, a.atttypid::int8, a.atttypmod, a.attnotnull, array_position(i.indkey::int2[], a.attnum)
FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum
"""
_TYPE = """
SELECT t.typname, t.typtype::text, t.typelem::int8, t.typbasetype::int8, t.typtypmod,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = t.oid ORDER BY e.enumsortorder)
FROM pg_type t WHERE t.oid = %s::oid
"""


@dataclass(frozen=True, slots=True)
class CatalogueColumn:
    column: RelationColumn
    is_nullable: bool
    # Its place in the primary key, from 1.
    key_position: int | None


@dataclass(frozen=True, slots=True)
class Slot:
    confirmed_lsn: int
    plugin: str
    is_active: bool


class Catalogue:
    """A connection that queries PostgreSQL's catalogue, each query in a transaction of its own."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        self._connection = connect(parameters, autocommit=True)
        self._types: dict[int, ColumnType] = {}

    def __repr__(self) -> str:
        return f"<Catalogue, {len(self._types)} types known>"

    def close(self) -> None:
        self._connection.close()

    def _rows(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        import psycopg

        try:
            return self._connection.execute(sql.encode(), values or None).fetchall()
        except psycopg.OperationalError as failure:
            raise RetriableFailure(str(failure)) from None

    def run(self, sql: str) -> None:
        import psycopg

        try:
            self._connection.execute(sql.encode())
        except psycopg.OperationalError as failure:
            raise RetriableFailure(str(failure)) from None
        except psycopg.Error as refused:
            raise DatabaseFailure(f"{sql}: {refused}") from None

    def wal_level(self) -> str:
        return str(self._rows("SHOW wal_level")[0][0])

    def slot(self, name: str) -> Slot | None:
        rows = self._rows(
            "SELECT confirmed_flush_lsn::text, plugin, active FROM pg_replication_slots WHERE slot_name = %s", name
        )
        return Slot(lsn_from_text(str(rows[0][0])), str(rows[0][1]), bool(rows[0][2])) if rows else None

    def has_publication(self, name: str) -> bool:
        return bool(self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", name))

    def published(self, name: str) -> set[tuple[str, str]]:
        rows = self._rows("SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", name)
        return {(str(schema), str(table)) for schema, table in rows}

    def tables(self) -> list[Relation]:
        """Return all tables of users, without their columns, by schema and name."""
        return [
            Relation(int(str(oid)), str(schema), str(table), str(identity), ())
            for oid, schema, table, identity in self._rows(_TABLES)
        ]

    def columns(self, relation_id: int) -> list[CatalogueColumn]:
        """Return the columns of a table; an empty list if the table no longer exists."""
        return [
            CatalogueColumn(
                RelationColumn(str(name), int(str(oid)), int(str(modifier)), position is not None),
                not not_null,
                None if position is None else int(str(position)),
            )
            for name, oid, modifier, not_null, position in self._rows(_COLUMNS, relation_id)
        ]

    def type_of(self, oid: int, modifier: int) -> ColumnType:
        if oid not in self._types:
            self._types[oid] = self._look_up_type(oid)
        found = self._types[oid]
        if found.element is not None:
            return replace(found, element=replace(found.element, modifier=modifier))
        return found if found.modifier >= 0 else replace(found, modifier=modifier)

    def _look_up_type(self, oid: int) -> ColumnType:
        rows = self._rows(_TYPE, oid)
        if not rows:
            return ColumnType("text")
        name, kind, element, base, modifier, labels = rows[0]
        if kind == "d":
            return self.type_of(int(str(base)), int(str(modifier)))
        if str(name).startswith("_") and int(str(element)):
            return ColumnType(str(name), element=self.type_of(int(str(element)), -1))
        assert isinstance(labels, list)
        return ColumnType(str(name), labels=tuple(str(each) for each in labels))


@dataclass(frozen=True, slots=True)
class TableToRead:
    schema: str
    name: str
    columns: Sequence[str]
    # The columns of the primary key in its order.
    keys: Sequence[str]


class SnapshotReader:
    """Rows of tables as one transaction sees them: that of an exported snapshot, or one that begins now."""

    def __init__(self, parameters: Mapping[str, str], snapshot: str | None) -> None:
        import psycopg

        self._connection = connect(parameters, autocommit=False)
        try:
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            if snapshot is not None:
                quoted = snapshot.replace("'", "''")
                self._connection.execute(f"SET TRANSACTION SNAPSHOT '{quoted}'".encode())
            row = self._connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        except psycopg.Error as failure:
            self._connection.close()
            raise RetriableFailure(f"the snapshot could not be begun: {failure}") from None
        assert row is not None
        self.lsn = lsn_from_text(str(row[0]))

    def rows(self, table: TableToRead, behind: Sequence[str] | None) -> Iterator[tuple[str | None, ...]]:
        """Yield the rows of a table; only those with a greater key than `behind`, if it is given."""
        import psycopg

        if not table.columns:
            return
        names = ", ".join(quote(each) for each in table.columns)
        sql = f"SELECT {names} FROM {quote(table.schema)}.{quote(table.name)}"  # noqa: S608
        keys = ", ".join(quote(each) for each in table.keys)
        values = list(behind) if keys and behind is not None else None
        if values is not None:
            marks = ", ".join(["%s"] * len(values))
            # With parameters, a percent sign in a name is one that is doubled.
            sql, keys = sql.replace("%", "%%"), keys.replace("%", "%%")
            sql += f" WHERE ({keys}) > ({marks})"
        if keys:
            sql += f" ORDER BY {keys}"
        try:
            with self._connection.cursor() as cursor, cursor.copy(f"COPY ({sql}) TO STDOUT".encode(), values) as copy:
                yield from cast("Iterator[tuple[str | None, ...]]", copy.rows())
        except psycopg.OperationalError as failure:
            raise RetriableFailure(f"the snapshot of {table.schema}.{table.name} broke off: {failure}") from None

    def close(self) -> None:
        self._connection.close()


def connect(parameters: Mapping[str, str], *, autocommit: bool) -> psycopg.Connection[tuple[object, ...]]:
    import psycopg

    try:
        return psycopg.connect(**parameters, options=PRINTING, autocommit=autocommit)  # type: ignore[arg-type]
    except psycopg.OperationalError as failure:
        raise RetriableFailure(f"the database cannot be reached: {failure}") from None
