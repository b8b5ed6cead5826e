"""The databases that the JDBC connectors speak to, behind one small door: PostgreSQL by psycopg, SQLite by sqlite3.

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
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pessoa.connect.connector import RetriableFailure
from pessoa.connect.data import DATE, DECIMAL, TIME, TIMESTAMP, DataFailure, Schema, Type

Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    # As the database calls it, in lower case.
    type: str
    is_nullable: bool = True
    is_key: bool = False
    scale: int | None = None
    precision: int | None = None
    # Filled in by the database itself, by counting up.
    counts_up: bool = False


class DatabaseFailure(Exception):
    """The database said no; trying again would not help."""


class Database(ABC):
    placeholder = "?"

    def quote(self, name: str) -> str:
        return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))

    # Asking and telling.

    @abstractmethod
    def rows(self, sql: str, values: Sequence[Any] = (), limit: int | None = None) -> Iterator[Row]: ...

    @abstractmethod
    def columns_of(self, sql: str, values: Sequence[Any]) -> list[str]:
        """The names that a query's columns have."""

    @abstractmethod
    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """The number of rows that were changed."""

    @abstractmethod
    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None: ...

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    # What is there.

    @abstractmethod
    def tables(self, kinds: Sequence[str], schema: str | None = None) -> list[str]: ...

    @abstractmethod
    def columns(self, table: str) -> list[Column]:
        """Empty if there is no such table."""

    @abstractmethod
    def now(self) -> datetime: ...

    # Types.

    @abstractmethod
    def type_for(self, schema: Schema, *, is_key: bool) -> str: ...

    def to_database(self, schema: Schema | None, value: Any) -> Any:
        return value

    # Statements.

    def insert_sql(self, table: str, columns: Sequence[str]) -> str:
        names = ", ".join(self.quote(each) for each in columns)
        marks = ", ".join([self.placeholder] * len(columns))
        return f"INSERT INTO {self.quote(table)} ({names}) VALUES ({marks})"  # noqa: S608

    def insert_once_sql(self, table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
        """For keys that no two records share: a row with such a key is the same row."""
        conflict = ", ".join(self.quote(each) for each in keys)
        return f"{self.insert_sql(table, columns)} ON CONFLICT ({conflict}) DO NOTHING"

    def upsert_sql(self, table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
        """Both databases speak the same dialect here."""
        conflict = ", ".join(self.quote(each) for each in keys)
        others = [each for each in columns if each not in keys]
        sets = ", ".join(f"{self.quote(each)} = excluded.{self.quote(each)}" for each in others)
        action = f"DO UPDATE SET {sets}" if sets else "DO NOTHING"
        return f"{self.insert_sql(table, columns)} ON CONFLICT ({conflict}) {action}"

    def update_sql(self, table: str, keys: Sequence[str], columns: Sequence[str]) -> str:
        """Takes the other columns first, then the keys."""
        sets = ", ".join(f"{self.quote(each)} = {self.placeholder}" for each in columns if each not in keys)
        return f"UPDATE {self.quote(table)} SET {sets} WHERE {self._where(keys)}"  # noqa: S608

    def delete_sql(self, table: str, keys: Sequence[str]) -> str:
        return f"DELETE FROM {self.quote(table)} WHERE {self._where(keys)}"  # noqa: S608

    def _where(self, keys: Sequence[str]) -> str:
        return " AND ".join(f"{self.quote(each)} = {self.placeholder}" for each in keys)

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

    def _literal(self, value: Any) -> str:
        if isinstance(value, bool):
            return "TRUE" if value else "FALSE"
        if isinstance(value, int | float | Decimal):
            return str(value)
        return "'" + str(value).replace("'", "''") + "'"


def connect(url: str, user: str | None = None, password: str | None = None) -> Database:
    """DataFailure for an address that nobody understands, RetriableFailure where the database does not answer."""
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

    def rows(self, sql: str, values: Sequence[Any] = (), limit: int | None = None) -> Iterator[Row]:
        cursor = self._execute(sql, values)
        return iter(cursor.fetchall() if limit is None else cursor.fetchmany(limit))

    def columns_of(self, sql: str, values: Sequence[Any]) -> list[str]:
        return [each[0] for each in self._execute(sql, values).description]

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        return self._execute(sql, values).rowcount

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            self._connection.executemany(sql, rows)
        except sqlite3.Error as wrong:
            raise _sqlite_failure(wrong, sql) from None

    def _execute(self, sql: str, values: Sequence[Any]) -> sqlite3.Cursor:
        try:
            return self._connection.execute(sql, values)
        except sqlite3.Error as wrong:
            raise _sqlite_failure(wrong, sql) from None

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
            Column(row[1], str(row[2]).lower(), is_nullable=not row[3], is_key=bool(row[5]),
                   counts_up=single and bool(row[5]) and str(row[2]).upper() == "INTEGER")
            for row in found
        ]  # fmt: skip

    def now(self) -> datetime:
        return datetime.now(UTC)

    def type_for(self, schema: Schema, *, is_key: bool) -> str:
        if schema.name == DECIMAL:
            return "NUMERIC"
        if schema.name in (DATE, TIME, TIMESTAMP):
            return "NUMERIC"
        return _type(_SQLITE_TYPES, schema)

    def to_database(self, schema: Schema | None, value: Any) -> Any:
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

    def __init__(self, url: str, user: str | None, password: str | None) -> None:
        import psycopg

        self._psycopg = psycopg
        try:
            parts = urlsplit(url)
            port = parts.port or 5432
        except ValueError as wrong:
            raise DataFailure(f"jdbc:{url} is no address of a database: {wrong}") from None
        options = dict(parse_qsl(parts.query))
        facts: dict[str, Any] = {
            "host": options.pop("host", None) or parts.hostname or "localhost",
            "port": port,
            "dbname": unquote(parts.path.lstrip("/")) or "postgres",
            "user": user or options.pop("user", None) or parts.username,
            "password": password or options.pop("password", None) or parts.password,
        }
        self.schema = options.pop("currentSchema", "public")
        # Durable or not is the server's affair; the rest of what a JDBC address may say is Java's.
        facts = {name: fact for name, fact in facts.items() if fact is not None}
        try:
            self._connection = psycopg.connect(**facts, connect_timeout=10)
        except psycopg.OperationalError as wrong:
            raise RetriableFailure(f"{url.partition('?')[0]}: {wrong}") from None
        self._connection.execute("SET TIME ZONE 'UTC'")
        self._connection.commit()

    def rows(self, sql: str, values: Sequence[Any] = (), limit: int | None = None) -> Iterator[Row]:
        cursor = self._execute(sql, values)
        return iter(cursor.fetchall() if limit is None else cursor.fetchmany(limit))

    def columns_of(self, sql: str, values: Sequence[Any]) -> list[str]:
        description = self._execute(sql, values).description
        return [each.name for each in description or ()]

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        return int(self._execute(sql, values).rowcount)

    def run_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            with self._connection.cursor() as cursor:
                cursor.executemany(sql, list(rows))
        except self._psycopg.Error as wrong:
            raise self._failure(wrong) from None

    def _execute(self, sql: str, values: Sequence[Any]) -> Any:
        try:
            # Without values a percent sign is a percent sign.
            return self._connection.execute(sql, values or None)
        except self._psycopg.Error as wrong:
            raise self._failure(wrong) from None

    def _failure(self, wrong: Any) -> Exception:
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
        # A connection that is about to break forgets what was done in it too.
        with suppress(self._psycopg.Error):
            self._connection.rollback()

    def close(self) -> None:
        self._connection.close()

    def tables(self, kinds: Sequence[str], schema: str | None = None) -> list[str]:
        wanted = ["BASE TABLE" if kind.upper() == "TABLE" else kind.upper() for kind in kinds]
        return [str(row[0]) for row in self.rows(_TABLES_SQL, (schema or self.schema, wanted))]

    def columns(self, table: str) -> list[Column]:
        name = table if "." in table else f"{self.schema}.{table}"
        return [Column(row[0], row[1], row[2], row[3], row[4], row[5], row[6])
                for row in self.rows(_COLUMNS_SQL, (self.quote(name),))]  # fmt: skip

    def quote(self, name: str) -> str:
        return super().quote(name)

    def now(self) -> datetime:
        (row,) = self.rows("SELECT clock_timestamp()")
        moment: datetime = row[0]
        return moment.astimezone(UTC)

    def type_for(self, schema: Schema, *, is_key: bool) -> str:
        match schema.name:
            case "org.apache.kafka.connect.data.Decimal":
                return "DECIMAL"
            case "org.apache.kafka.connect.data.Date":
                return "DATE"
            case "org.apache.kafka.connect.data.Time":
                return "TIME"
            case "org.apache.kafka.connect.data.Timestamp":
                return "TIMESTAMP"
        if schema.type is Type.ARRAY and schema.values is not None:
            return f"{self.type_for(schema.values, is_key=False)}[]"
        return _type(_POSTGRES_TYPES, schema)

    def to_database(self, schema: Schema | None, value: Any) -> Any:
        # Columns are TIMESTAMP without a zone, in UTC.
        return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def _type(types: dict[Type, str], schema: Schema) -> str:
    if schema.type not in types:
        raise DataFailure(f"a value of type {schema.type} has no column type; flatten it first (Flatten$Value)")
    return types[schema.type]
