"""The databases that the JDBC connectors speak to, behind one interface: PostgreSQL by psycopg, SQLite by sqlite3.

    jdbc:postgresql://host:5432/shop?user=ana       jdbc:sqlite:/data/shop.db

A `Database` is a connection with what differs between them: quoting, types, how a table is described, how a row is
inserted or updated in one statement. The connectors are written against it alone.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from pessoa.connect.connector import RetriableFailure
from pessoa.connect.data import (
    DATE,
    DECIMAL,
    LOGICAL,
    MISFITS,
    TIME,
    TIMESTAMP,
    ConnectValue,
    DataFailure,
    Schema,
    Type,
)

if TYPE_CHECKING:
    import psycopg

# The cells of a row, and the values of a statement's parameters.
Row = Sequence[ConnectValue]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    # As the database calls it, in lower case.
    type: str
    is_nullable: bool = True
    is_key: bool = False
    scale: int | None = None
    precision: int | None = None
    # Whether the database fills it in by counting up.
    counts_up: bool = False


class DatabaseFailure(Exception):
    """The database has refused a statement; trying again would not help."""


class Database(ABC):
    placeholder = "?"

    def quote(self, name: str) -> str:
        return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))

    def name(self, name: str) -> str:
        """Return a table or column name, quoted for a statement with parameters."""
        return self.quote(name)

    # Statements and transactions.

    @abstractmethod
    def rows(self, sql: str, values: Row = (), limit: int | None = None) -> Iterator[Row]: ...

    @abstractmethod
    def columns_of(self, sql: str, values: Row) -> list[str]:
        """Return the names of a query's columns."""

    @abstractmethod
    def run(self, sql: str, values: Row = ()) -> int:
        """Run a statement and return the count of rows that it changed."""

    @abstractmethod
    def run_many(self, sql: str, rows: Iterable[Row]) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    # Tables.

    @abstractmethod
    def tables(self, kinds: Sequence[str], schema: str | None = None) -> list[str]: ...

    @abstractmethod
    def columns(self, table: str) -> list[Column]:
        """Return the columns of a table; none if there is no such table."""

    @abstractmethod
    def now(self) -> datetime: ...

    # Types.

    @abstractmethod
    def type_for(self, schema: Schema, *, is_key: bool) -> str: ...

    def to_database(self, schema: Schema | None, value: ConnectValue) -> ConnectValue:
        return value

    # SQL.

    def insert_sql(self, table: str, columns: Sequence[str]) -> str:
        names = ", ".join(self.name(each) for each in columns)
        marks = ", ".join([self.placeholder] * len(columns))
        return f"INSERT INTO {self.name(table)} ({names}) VALUES ({marks})"  # noqa: S608

    def insert_once_sql(self, table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
        """Return an INSERT that does nothing where a row of this key exists: no two records share such a key."""
        conflict = ", ".join(self.name(each) for each in keys)
        return f"{self.insert_sql(table, columns)} ON CONFLICT ({conflict}) DO NOTHING"

    def upsert_sql(self, table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
        """Return an INSERT that updates the row of this key if it exists, in SQL that both databases accept."""
        conflict = ", ".join(self.name(each) for each in keys)
        others = [each for each in columns if each not in keys]
        sets = ", ".join(f"{self.name(each)} = excluded.{self.name(each)}" for each in others)
        action = f"DO UPDATE SET {sets}" if sets else "DO NOTHING"
        return f"{self.insert_sql(table, columns)} ON CONFLICT ({conflict}) {action}"

    def update_sql(self, table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
        """Return an UPDATE, whose parameters are the other columns first, then the keys."""
        sets = ", ".join(f"{self.name(each)} = {self.placeholder}" for each in columns if each not in keys)
        return f"UPDATE {self.name(table)} SET {sets} WHERE {self._where(keys)}"  # noqa: S608

    def delete_sql(self, table: str, keys: Sequence[str]) -> str:
        return f"DELETE FROM {self.name(table)} WHERE {self._where(keys)}"  # noqa: S608

    def _where(self, keys: Sequence[str]) -> str:
        return " AND ".join(f"{self.name(each)} = {self.placeholder}" for each in keys)

    def create_sql(self, table: str, columns: Sequence[tuple[str, Schema]], keys: Sequence[str]) -> str:
        lines = [self.column_sql(name, schema, is_key=name in keys) for name, schema in columns]
        if keys:
            lines.append(f"PRIMARY KEY({', '.join(self.quote(each) for each in keys)})")
        return f"CREATE TABLE {self.quote(table)} ({', '.join(lines)})"

    def column_sql(self, name: str, schema: Schema, *, is_key: bool) -> str:
        text = f"{self.quote(name)} {self.type_for(schema, is_key=is_key)}"
        if schema.default is not None:
            return f"{text} DEFAULT {self._literal(schema.default)}"
        return f"{text} NULL" if schema.optional and not is_key else f"{text} NOT NULL"

    def _literal(self, value: ConnectValue) -> str:
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, int | float | Decimal):
            return str(value)
        return "'" + str(value).replace("'", "''") + "'"


def connect(url: str, user: str | None = None, password: str | None = None) -> Database:
    """Connect to the database at an address: DataFailure if it is no address, RetriableFailure if nothing answers."""
    if url.startswith("jdbc:sqlite:"):
        return Sqlite(url.removeprefix("jdbc:sqlite:"))
    if url.startswith(("jdbc:postgresql:", "jdbc:pgsql:")):
        return Postgres(url.removeprefix("jdbc:"), user, password)
    raise DataFailure(
        f"{url} is no address of a database: write jdbc:postgresql://host:port/database or jdbc:sqlite:/path"
    )


# SQLite.

_SQLITE_TYPES = {
    Type.INT8: "INTEGER", Type.INT16: "INTEGER", Type.INT32: "INTEGER", Type.INT64: "INTEGER", Type.FLOAT32: "REAL",
    Type.FLOAT64: "REAL", Type.BOOLEAN: "INTEGER", Type.STRING: "TEXT", Type.BYTES: "BLOB",
}  # fmt: skip


class Sqlite(Database):
    def __init__(self, path: str) -> None:
        try:
            self._connection = sqlite3.connect(path, timeout=30, check_same_thread=False)
        except sqlite3.Error as wrong:
            raise RetriableFailure(f"{path}: {wrong}") from None

    def rows(self, sql: str, values: Row = (), limit: int | None = None) -> Iterator[Row]:
        cursor = self._execute(sql, values)
        return iter(cursor.fetchall() if limit is None else cursor.fetchmany(limit))

    def columns_of(self, sql: str, values: Row) -> list[str]:
        return [each[0] for each in self._execute(sql, values).description]

    def run(self, sql: str, values: Row = ()) -> int:
        return self._execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Iterable[Row]) -> None:
        try:
            self._connection.executemany(sql, rows)
        except sqlite3.Error as wrong:
            raise _sqlite_failure(wrong, sql) from None
        except MISFITS as wrong:
            raise DatabaseFailure(f"a value does not fit SQLite: {wrong}") from None

    def _execute(self, sql: str, values: Row) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except sqlite3.Error as wrong:
            raise _sqlite_failure(wrong, sql) from None
        except MISFITS as wrong:
            raise DatabaseFailure(f"a name or value does not fit SQLite: {wrong}") from None

    def commit(self) -> None:
        self._connection.commit()

    def rollback(self) -> None:
        self._connection.rollback()

    def close(self) -> None:
        self._connection.close()

    def tables(self, kinds: Sequence[str], schema: str | None = None) -> list[str]:
        wanted = [kind.lower() for kind in kinds]
        marks = ",".join("?" * len(wanted))
        sql = f"SELECT name FROM sqlite_master WHERE type IN ({marks}) AND name NOT LIKE 'sqlite_%' ORDER BY name"  # noqa: S608
        return [str(row[0]) for row in self.rows(sql, wanted)]

    def columns(self, table: str) -> list[Column]:
        found = list(self.rows(f"PRAGMA table_info({self.quote(table)})"))
        single = sum(1 for row in found if row[5]) == 1
        return [
            Column(str(row[1]), str(row[2]).lower(), is_nullable=not row[3], is_key=bool(row[5]),
                   counts_up=single and bool(row[5]) and str(row[2]).upper() == "INTEGER")
            for row in found
        ]  # fmt: skip

    def now(self) -> datetime:
        return datetime.now(UTC)

    def type_for(self, schema: Schema, *, is_key: bool) -> str:
        if schema.name in LOGICAL:
            return "NUMERIC"
        return _type(_SQLITE_TYPES, schema)

    def to_database(self, schema: Schema | None, value: ConnectValue) -> ConnectValue:
        match value:
            case Decimal():
                return str(value)
            case datetime():
                return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}"
            case date() | time():
                return value.isoformat()
            case bool():
                return int(value)
        return value


def _sqlite_failure(wrong: sqlite3.Error, sql: str) -> Exception:
    if isinstance(wrong, sqlite3.OperationalError) and "locked" in str(wrong):
        return RetriableFailure(str(wrong))
    return DatabaseFailure(f"{wrong} (in: {sql})")


# PostgreSQL.

_POSTGRES_TYPES = {
    Type.INT8: "SMALLINT", Type.INT16: "SMALLINT", Type.INT32: "INT", Type.INT64: "BIGINT", Type.FLOAT32: "REAL",
    Type.FLOAT64: "DOUBLE PRECISION", Type.BOOLEAN: "BOOLEAN", Type.STRING: "TEXT", Type.BYTES: "BYTEA",
}  # fmt: skip
_POSTGRES_LOGICAL_TYPES = {DECIMAL: "DECIMAL", DATE: "DATE", TIME: "TIME", TIMESTAMP: "TIMESTAMP"}
_COLUMNS_SQL = """
    SELECT a.attname, format_type(a.atttypid, NULL), NOT a.attnotnull, COALESCE(a.attnum = ANY(i.indkey), false),
           CASE WHEN a.atttypid = 1700 AND a.atttypmod > 0 THEN (a.atttypmod - 4) & 65535 END,
           CASE WHEN a.atttypid = 1700 AND a.atttypmod > 0 THEN ((a.atttypmod - 4) >> 16) & 65535 END,
           a.attidentity <> '' OR COALESCE(pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%%', false)
    FROM pg_attribute a
    LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_TABLES_SQL = """
    SELECT table_name FROM information_schema.tables
    WHERE table_schema = %s AND table_type = ANY(%s) ORDER BY table_name
"""


class Postgres(Database):
    placeholder = "%s"

    def name(self, name: str) -> str:
        # psycopg looks for its placeholders everywhere.
        return self.quote(name).replace("%", "%%")

    def __init__(self, url: str, user: str | None, password: str | None) -> None:
        import psycopg

        self._psycopg = psycopg
        try:
            parts = urlsplit(url)
            port = parts.port or 5432
        except ValueError as wrong:
            raise DataFailure(f"jdbc:{url} is no address of a database: {wrong}") from None
        options = dict(parse_qsl(parts.query))
        # The other options of a JDBC address are for Java's driver.
        self.schema = options.get("currentSchema", "public")
        try:
            self._connection = psycopg.connect(
                host=options.get("host") or parts.hostname or "localhost",
                port=port,
                dbname=unquote(parts.path.lstrip("/")) or "postgres",
                user=user or options.get("user") or parts.username,
                password=password or options.get("password") or parts.password,
                connect_timeout=10,
            )
        except psycopg.OperationalError as wrong:
            raise RetriableFailure(f"{url.partition('?')[0]}: {wrong}") from None
        self._connection.execute("SET TIME ZONE 'UTC'")
        self._connection.commit()

    def rows(self, sql: str, values: Row = (), limit: int | None = None) -> Iterator[Row]:
        cursor = self._execute(sql, values)
        return iter(cursor.fetchall() if limit is None else cursor.fetchmany(limit))

    def columns_of(self, sql: str, values: Row) -> list[str]:
        description = self._execute(sql, values).description
        return [each.name for each in description or ()]

    def run(self, sql: str, values: Row = ()) -> int:
        return int(self._execute(sql, values).rowcount)

    def run_many(self, sql: str, rows: Iterable[Row]) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.executemany(sql, list(rows))
        except self._psycopg.Error as wrong:
            raise self._failure(wrong) from None
        except MISFITS as wrong:
            self.rollback()
            raise DatabaseFailure(f"a value does not fit PostgreSQL: {wrong}") from None

    def _execute(self, sql: str, values: Row) -> psycopg.Cursor:
        try:
            # Without parameters psycopg leaves a percent sign alone.
            return self._connection.execute(sql, values or None)
        except self._psycopg.Error as wrong:
            raise self._failure(wrong) from None
        except MISFITS as wrong:
            self.rollback()
            raise DatabaseFailure(f"a name or value does not fit PostgreSQL: {wrong}") from None

    def _failure(self, wrong: psycopg.Error) -> Exception:
        # Connections that break, deadlocks, a server that shuts down.
        passing = isinstance(wrong, self._psycopg.OperationalError) or (wrong.sqlstate or "")[:2] in ("08", "40", "57")
        if self._connection.closed:
            passing = True
        else:
            self.rollback()
        return (RetriableFailure if passing else DatabaseFailure)(str(wrong).strip())

    def commit(self) -> None:
        try:
            self._connection.commit()
        except self._psycopg.Error as wrong:
            raise self._failure(wrong) from None

    def rollback(self) -> None:
        # A connection that breaks is rolled back by the server.
        with suppress(self._psycopg.Error):
            self._connection.rollback()

    def close(self) -> None:
        self._connection.close()

    def tables(self, kinds: Sequence[str], schema: str | None = None) -> list[str]:
        wanted: list[ConnectValue] = ["BASE TABLE" if kind.upper() == "TABLE" else kind.upper() for kind in kinds]
        return [str(row[0]) for row in self.rows(_TABLES_SQL, (schema or self.schema, wanted))]

    def columns(self, table: str) -> list[Column]:
        name = table if "." in table else f"{self.schema}.{table}"
        found = self.rows(_COLUMNS_SQL, (self.quote(name),))
        return [
            Column(str(name), str(kind), bool(nullable), bool(is_key), _as_int(scale), _as_int(precision), bool(counts))
            for name, kind, nullable, is_key, scale, precision, counts in found
        ]

    def now(self) -> datetime:
        ((moment,),) = self.rows("SELECT clock_timestamp()")
        assert isinstance(moment, datetime)
        return moment.astimezone(UTC)

    def type_for(self, schema: Schema, *, is_key: bool) -> str:
        if schema.name in _POSTGRES_LOGICAL_TYPES:
            return _POSTGRES_LOGICAL_TYPES[schema.name]
        if schema.type is Type.ARRAY and schema.values is not None:
            return f"{self.type_for(schema.values, is_key=False)}[]"
        return _type(_POSTGRES_TYPES, schema)

    def to_database(self, schema: Schema | None, value: ConnectValue) -> ConnectValue:
        # Columns are TIMESTAMP without a zone, in UTC.
        return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def _as_int(cell: ConnectValue) -> int | None:
    return cell if isinstance(cell, int) else None


def _type(types: dict[Type, str], schema: Schema) -> str:
    if schema.type not in types:
        raise DataFailure(f"a value of type {schema.type} has no column type; flatten it first (Flatten$Value)")
    return types[schema.type]
