"""JdbcSink: records as rows of tables, inserted, updated or deleted.

    insert.mode=insert   a row each      upsert   a row for each key, the latest      update   only rows that are there
    pk.mode=none | kafka (topic, partition, offset) | record_key | record_value      which columns are the key
    delete.enabled       a record without a value deletes the row of its key
    auto.create, auto.evolve   make the table; add the columns that it lacks

A batch is one transaction, and after a crash it comes again: with upsert, or with pk.mode=kafka into a table that has
that key, this changes nothing; a plain insert into a table without a key adds the rows a second time.
"""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pessoa.base.config_values import at_least, one_of
from pessoa.connect.connector import RetriableFailure, SinkConnector
from pessoa.connect.connectors.databases import Database, DatabaseFailure
from pessoa.connect.connectors.jdbc_keys import connect_with, connection_keys
from pessoa.connect.converters.avro_converter import schema_of
from pessoa.connect.data import INT32, INT64, ConnectValue, DataFailure, Record, Schema, Struct, Type
from pessoa.connect.data import STRING as STRING_SCHEMA
from pessoa.connect.definition import BOOLEAN, HIGH, INT, LIST, LOW, MEDIUM, STRING, Config, Table, key

log = logging.getLogger("pessoa.connect")

KAFKA_KEYS = ("__connect_topic", "__connect_partition", "__connect_offset")
KAFKA_SCHEMAS = dict(zip(KAFKA_KEYS, (STRING_SCHEMA, INT32, INT64), strict=True))
PK_MODES = ("none", "kafka", "record_key", "record_value")
INSERT_MODES = ("insert", "upsert", "update")


class _Row(NamedTuple):
    """A record as a row: values by column, None if the row of the key is to be deleted."""

    record: Record
    table: str
    keys: Struct
    values: Struct | None
    schemas: dict[str, Schema]


class JdbcSinkConnector(SinkConnector):
    NAMES = ("io.confluent.connect.jdbc.JdbcSinkConnector",)
    CONFIG = Table(
        connection_keys(),
        key("insert.mode", STRING, "insert", one_of(*INSERT_MODES), HIGH, "What is done with a record.", group="Writes",
            recommended=INSERT_MODES),
        key("batch.size", INT, 3000, at_least(0), MEDIUM, "The most records of one statement.", group="Writes"),
        key("delete.enabled", BOOLEAN, False, MEDIUM, "Whether a record without a value deletes; needs record_key.",
            group="Writes"),
        key("table.name.format", STRING, "${topic}", MEDIUM, "The table's name; ${topic} is the topic's.",
            group="Data Mapping"),
        key("pk.mode", STRING, "none", one_of(*PK_MODES), HIGH, "Where the key comes from.", group="Data Mapping",
            recommended=PK_MODES),
        key("pk.fields", LIST, (), MEDIUM, "The columns of the key, by pk.mode.", group="Data Mapping"),
        key("fields.whitelist", LIST, (), MEDIUM, "The fields of the value that become columns; all if empty.",
            group="Data Mapping"),
        key("db.timezone", STRING, "UTC", MEDIUM, "The zone of times without one; UTC.", group="Data Mapping"),
        key("auto.create", BOOLEAN, False, MEDIUM, "Whether a missing table is created.", group="DDL Support"),
        key("auto.evolve", BOOLEAN, False, MEDIUM, "Whether missing columns are added.", group="DDL Support"),
        key("table.types", LIST, ("TABLE",), LOW, "What counts as a table.", group="Writes"),
        key("max.retries", INT, 10, at_least(0), MEDIUM, "How often a failed batch is tried again.", group="Retries"),
        key("retry.backoff.ms", INT, 3000, at_least(0), MEDIUM, "The pause before that.", group="Retries"),
    )  # fmt: skip

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        mode, keys = settings.get("pk.mode", "none"), settings.get("insert.mode", "insert")
        if settings.get("delete.enabled", "false").lower() == "true" and mode != "record_key":
            return {"delete.enabled": "Deletes are only supported for pk.mode record_key"}
        if keys in ("upsert", "update") and mode == "none":
            return {"insert.mode": f"{keys} needs to know what a row's key is: set pk.mode"}
        return {}

    def start(self, config: Config) -> None:
        self._config = config
        self._database: Database | None = None
        # Columns by table, as far as they are known to be there, and those of the primary key.
        self._tables: dict[str, set[str]] = {}
        self._primary_keys: dict[str, set[str]] = {}

    def stop(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database = None
        self._tables = {}

    def put(self, records: Sequence[Record]) -> None:
        rows = self._rows(records)
        retries, backoff_ms = self._config.integer("max.retries"), self._config.integer("retry.backoff.ms")
        while rows:
            try:
                self._write(rows)
            except RetriableFailure as failure:
                self.stop()
                if not retries:
                    raise DatabaseFailure(f"given up after {self._config['max.retries']} retries: {failure}") from None
                log.warning("the database is asked again in %d ms: %s", backoff_ms, failure)
                retries -= 1
                clock.sleep(backoff_ms / 1000)
            except (DatabaseFailure, DataFailure) as failure:
                self._rollback()
                if len(rows) == 1:
                    self.report(rows[0].record, failure)
                    return
                # One of them is wrong; with errors.tolerance=all the others are to be written.
                for row in rows:
                    self._write_one(row)
                return
            else:
                return

    def _write_one(self, row: _Row) -> None:
        try:
            self._write([row])
        except (DatabaseFailure, DataFailure) as failure:
            self._rollback()
            self.report(row.record, failure)

    def _rollback(self) -> None:
        if self._database is not None:
            self._database.rollback()
            self._tables = {}

    # Records as rows.

    def _rows(self, records: Sequence[Record]) -> list[_Row]:
        rows = []
        for record in records:
            try:
                rows.append(self._row(record))
            except DataFailure as failure:
                self.report(record, failure)
        return rows

    def _row(self, record: Record) -> _Row:
        table = self._config.string("table.name.format").replace("${topic}", record.topic)
        if record.value is None:
            if not self._config["delete.enabled"]:
                raise DataFailure(f"a record of {record.topic} has no value, and delete.enabled is false")
            keys, schemas = self._keys(record, {}, {})
            return _Row(record, table, keys, None, schemas)
        if not isinstance(record.value, dict):
            raise DataFailure(f"a record of {record.topic} is no struct: its value is {type(record.value).__name__}")
        schema = record.value_schema or schema_of(record.value)
        values = {each.name: record.value.get(each.name) for each in schema.fields}
        schemas = {each.name: each.schema for each in schema.fields}
        keys, key_schemas = self._keys(record, values, schemas)
        chosen = self._config.entries("fields.whitelist")
        columns = {name: one for name, one in values.items() if not chosen or name in chosen or name in keys}
        return _Row(record, table, keys, {**columns, **keys}, {**schemas, **key_schemas})

    def _keys(self, record: Record, values: Struct, schemas: dict[str, Schema]) -> tuple[Struct, dict[str, Schema]]:
        names = self._config.entries("pk.fields")
        match self._config["pk.mode"]:
            case "none":
                return {}, {}
            case "kafka":
                names = names or KAFKA_KEYS
                place: tuple[ConnectValue, ...] = (record.topic, record.partition, record.offset)
                return dict(zip(names, place, strict=True)), dict(zip(names, KAFKA_SCHEMAS.values(), strict=True))
            case "record_value":
                names = names or tuple(values)
                source, known = values, schemas
            case _:
                source, known = _key_fields(record, names)
                names = names or tuple(source)
        missing = [name for name in names if name not in source]
        if missing:
            raise DataFailure(f"a record of {record.topic} lacks {', '.join(missing)}, which pk.fields names")
        # For a null key a database may generate a number, which may be the key of another record.
        empty = [name for name in names if source[name] is None or source[name] != source[name]]
        if empty:
            raise DataFailure(f"a record of {record.topic} has no value in {', '.join(empty)}, which is its key")
        return {name: source[name] for name in names}, {name: known[name] for name in names}

    # Rows into tables.

    def _write(self, rows: Sequence[_Row]) -> None:
        if self._database is None:
            self._database = connect_with(self._config)
        size = self._config.integer("batch.size") or len(rows)
        for first in range(0, len(rows), size):
            # Rows of one shape in a row make one statement, so that their order stays.
            run: list[_Row] = []
            for row in rows[first : first + size]:
                if run and _shape(row) != _shape(run[0]):
                    self._write_run(self._database, run)
                    run = []
                run.append(row)
            self._write_run(self._database, run)
        self._database.commit()

    def _write_run(self, database: Database, run: Sequence[_Row]) -> None:
        first = run[0]
        keys = list(first.keys)
        self._ensure_table(database, first)
        if first.values is None:
            sql = database.delete_sql(first.table, keys)
            database.run_many(sql, [[_cell(database, row, name) for name in keys] for row in run])
            return
        columns = list(first.values)
        mode = self._config["insert.mode"]
        if mode == "update":
            ordered = [name for name in columns if name not in keys] + keys
            sql = database.update_sql(first.table, keys, columns)
        elif mode == "upsert":
            ordered, sql = columns, database.upsert_sql(first.table, keys, columns)
        elif self._config["pk.mode"] == "kafka" and self._primary_keys.get(first.table) == set(keys):
            # After a crash the same records come again.
            ordered, sql = columns, database.insert_once_sql(first.table, keys, columns)
        else:
            ordered, sql = columns, database.insert_sql(first.table, columns)
        database.run_many(sql, [[_cell(database, row, name) for name in ordered] for row in run])

    def _ensure_table(self, database: Database, row: _Row) -> None:
        wanted = row.values or row.keys
        known = self._tables.get(row.table)
        if known is not None and known.issuperset(wanted):
            return
        found = database.columns(row.table)
        columns = {column.name for column in found}
        self._primary_keys[row.table] = {column.name for column in found if column.is_key}
        if not columns:
            if not self._config["auto.create"]:
                raise DatabaseFailure(f"there is no table {row.table}, and auto.create is false")
            pairs = [(name, row.schemas[name]) for name in wanted]
            database.run(database.create_sql(row.table, pairs, list(row.keys)))
            columns = set(wanted)
            self._primary_keys[row.table] = set(row.keys)
        missing = [name for name in wanted if name not in columns]
        if missing:
            self._add_columns(database, row, missing)
        self._tables[row.table] = columns | set(missing)

    def _add_columns(self, database: Database, row: _Row, missing: Sequence[str]) -> None:
        names = ", ".join(missing)
        if not self._config["auto.evolve"]:
            raise DatabaseFailure(f"{row.table} has no column {names}, and auto.evolve is false")
        for name in missing:
            schema = row.schemas[name]
            if not schema.optional and schema.default is None:
                raise DatabaseFailure(f"{row.table} has no column {name}, which has no default and may not be null")
            column = database.column_sql(name, schema, is_key=False)
            database.run(f"ALTER TABLE {database.quote(row.table)} ADD COLUMN {column}")


def _key_fields(record: Record, names: Sequence[str]) -> tuple[Struct, dict[str, Schema]]:
    if record.key is None:
        raise DataFailure(f"a record of {record.topic} has no key, and pk.mode is record_key")
    if isinstance(record.key, dict):
        schema = record.key_schema or schema_of(record.key)
        return dict(record.key), {each.name: each.schema for each in schema.fields}
    if len(names) != 1:
        raise DataFailure("a key that is no struct needs one name in pk.fields")
    schema = record.key_schema or schema_of(record.key)
    return {names[0]: record.key}, {names[0]: schema}


def _shape(row: _Row) -> tuple[str, bool, tuple[str, ...]]:
    return row.table, row.values is None, tuple(row.values or row.keys)


def _cell(database: Database, row: _Row, name: str) -> ConnectValue:
    value = (row.values or row.keys)[name]
    schema = row.schemas.get(name)
    if value is None and schema is not None:
        value = schema.default
    if isinstance(value, dict) or (isinstance(value, list) and schema is not None and schema.type is Type.MAP):
        raise DataFailure(f"{name} is nested, and a column is not; flatten it first (Flatten$Value)")
    return database.to_database(schema, value)
