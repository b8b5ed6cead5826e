"""JdbcSource: rows of tables, or of a query, as records; polled again and again.

    bulk                     everything, at every poll
    incrementing             rows whose id is larger than the largest one seen
    timestamp                rows whose time is later than the latest one seen, up to now
    timestamp+incrementing   rows that are later, or as late with a larger id: sees updates, misses nothing

A table's offset is what was seen last: `{"incrementing": 7, "timestamp": 1700000000000, "timestamp_nanos": 0}` for
the part `{"protocol": "1", "table": "public.orders"}`, or `{"query": "query"}`. Rows come in the order of these
columns. A topic is named after the table, behind `topic.prefix`.

By time alone, more rows may have one moment than make a page (an UPDATE of a whole table). Then they are read in the
order of the primary key, and the offset has the last key too: `{"timestamp": …, "row": 5000, "key": [5000]}`.
"""

from __future__ import annotations

import logging
import math
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TypeGuard

from pessoa.base.config_values import at_least, one_of, split_list
from pessoa.base.json_value import JsonObject, JsonValue
from pessoa.connect.connector import Offset, Offsets, Partition, RetriableFailure, SourceConnector, offset_number
from pessoa.connect.connectors.databases import Column, Database, DatabaseFailure, Row
from pessoa.connect.connectors.jdbc_keys import connect_with, connection_keys
from pessoa.connect.data import BOOLEAN as BOOLEAN_SCHEMA
from pessoa.connect.data import (
    BYTES,
    DATE_SCHEMA,
    EPOCH,
    FLOAT32,
    FLOAT64,
    INT16,
    INT32,
    INT64,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    Binary,
    ConnectValue,
    DataFailure,
    Field,
    Record,
    Schema,
    Type,
    decimal_schema,
)
from pessoa.connect.data import STRING as STRING_SCHEMA
from pessoa.connect.definition import BOOLEAN, HIGH, INT, LIST, LONG, LOW, MEDIUM, REQUIRED, STRING, Config, Table, key

log = logging.getLogger("pessoa.connect")

MODES = ("bulk", "timestamp", "incrementing", "timestamp+incrementing")
MAPPINGS = ("none", "precision_only", "best_fit", "best_fit_eager_double")
_TYPES = {
    "smallint": INT16, "integer": INT32, "int": INT32, "bigint": INT64, "real": FLOAT32, "double precision": FLOAT64,
    "float": FLOAT64, "double": FLOAT64, "boolean": BOOLEAN_SCHEMA, "bytea": BYTES, "blob": BYTES, "date": DATE_SCHEMA,
    "time without time zone": TIME_SCHEMA, "time": TIME_SCHEMA, "timestamp without time zone": TIMESTAMP_SCHEMA,
    "timestamp with time zone": TIMESTAMP_SCHEMA, "timestamp": TIMESTAMP_SCHEMA, "datetime": TIMESTAMP_SCHEMA,
}  # fmt: skip


class JdbcSourceConnector(SourceConnector):
    NAMES = ("io.confluent.connect.jdbc.JdbcSourceConnector",)
    CONFIG = Table(
        connection_keys(),
        key("mode", STRING, REQUIRED, one_of(*MODES), HIGH, "How new rows are found.", group="Mode", width="MEDIUM",
            display="Table Loading Mode", dependents=("incrementing.column.name", "timestamp.column.name"),
            recommended=MODES),
        key("incrementing.column.name", STRING, "", MEDIUM, "The column that counts up; found by itself if empty.",
            group="Mode"),
        key("timestamp.column.name", LIST, (), MEDIUM, "The columns with the time of the last change; the first that "
            "is not null counts.", group="Mode"),
        key("timestamp.initial", LONG, None, LOW, "Where to begin, in milliseconds since 1970; -1 for now.",
            group="Mode"),
        key("validate.non.null", BOOLEAN, True, LOW, "Whether the columns above must be NOT NULL.", group="Mode"),
        key("query", STRING, "", MEDIUM, "A query instead of tables.", group="Mode", width="SHORT"),
        key("query.suffix", STRING, "", LOW, "What is put behind every query.", group="Mode"),
        key("table.whitelist", LIST, (), MEDIUM, "The tables to read; all if empty.", group="Database"),
        key("table.blacklist", LIST, (), MEDIUM, "The tables not to read.", group="Database"),
        key("schema.pattern", STRING, None, HIGH, "The schema of the tables.", group="Database"),
        key("table.types", LIST, ("TABLE",), LOW, "What counts as a table: TABLE, VIEW.", group="Connector"),
        key("numeric.mapping", STRING, None, one_of(*MAPPINGS), LOW, "How NUMERIC columns are mapped.",
            group="Database"),
        key("topic.prefix", STRING, REQUIRED, HIGH, "What stands before the table's name in the topic's; the whole "
            "name for a query.", group="Connector"),
        key("poll.interval.ms", INT, 5000, at_least(0), HIGH, "How long to wait between two looks.", group="Connector"),
        key("batch.max.rows", INT, 1000, at_least(1), LOW, "The most rows of one look at once.", group="Connector"),
        key("table.poll.interval.ms", LONG, 60000, at_least(0), LOW, "How often new tables are looked for.",
            group="Connector"),
        key("timestamp.delay.interval.ms", LONG, 0, at_least(0), HIGH,
            "How old a row must be, so that transactions that "
            "began earlier are done.", group="Connector"),
        key("db.timezone", STRING, "UTC", MEDIUM, "The zone of times without one; UTC.", group="Connector"),
    )  # fmt: skip

    @classmethod
    def adapted(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        new = {"table.include.list": "table.whitelist", "table.exclude.list": "table.blacklist"}
        return {new.get(name, name): text for name, text in settings.items()}

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        mode, query = settings.get("mode", ""), settings.get("query", "")
        if query and (settings.get("table.whitelist") or settings.get("table.blacklist")):
            return {"query": "query cannot be combined with table.whitelist or table.blacklist"}
        if settings.get("table.whitelist") and settings.get("table.blacklist"):
            return {"table.whitelist": "table.whitelist and table.blacklist cannot be combined"}
        if "timestamp" in mode and not settings.get("timestamp.column.name"):
            return {"timestamp.column.name": f"mode={mode} needs timestamp.column.name"}
        if query and "incrementing" in mode and not settings.get("incrementing.column.name"):
            return {"incrementing.column.name": "a query needs incrementing.column.name"}
        return {}

    @classmethod
    def tasks(cls, settings: Mapping[str, str], max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Distribute the named tables among the tasks; without names, one task reads all tables and finds new ones."""
        tables = split_list(cls.adapted(settings).get("table.whitelist", ""))
        count = min(max_tasks, len(tables))
        if count < 2:
            return [settings]
        shares = [tables[index::count] for index in range(count)]
        others = {name: text for name, text in settings.items() if name != "table.include.list"}
        return [{**others, "table.whitelist": ",".join(share)} for share in shares]

    @classmethod
    def is_beyond(cls, offset: Offset, end: Offset) -> bool | None:
        columns = {*offset, *end} & {"timestamp", "incrementing"}
        if not columns or any(name not in each for name in columns for each in (offset, end)):
            # Offsets of mode bulk, or of a row without a timestamp before the first row with one.
            return None
        return _order_of(offset) > _order_of(end)

    def start(self, config: Config, offsets: Offsets) -> None:
        self._config = config
        self._offsets = offsets
        self._database: Database | None = None
        self._inputs: list[_Input] = []
        self._look_for_tables_at = 0.0

    def has_read_all(self, partition: Partition) -> bool:
        if self._database is None:
            return False
        # A table that is no longer among the inputs has no more rows.
        return all(each.was_read_to_its_end for each in self._inputs if each.partition == partition)

    def poll(self) -> list[Record]:
        now = clock.monotonic()
        try:
            if self._database is None:
                self._database = self._connect()
            if now >= self._look_for_tables_at:
                self._find_inputs(self._database)
                self._look_for_tables_at = now + self._config.integer("table.poll.interval.ms") / 1000
            for each in list(self._inputs):
                if now >= each.due_at:
                    records = list(self._records(self._database, each))
                    if not each.has_more:
                        each.was_read_to_its_end = True
                        each.due_at = clock.monotonic() + self._config.integer("poll.interval.ms") / 1000
                        each.bulk_offset = 0
                    if records:
                        # The other tables have their turn before this one has another.
                        self._inputs.remove(each)
                        self._inputs.append(each)
                        return records
        except (RetriableFailure, ConnectionError) as failure:
            log.warning("the connection to the database broke: %s", failure)
            # The next poll connects again; `_connect` gives up after `connection.attempts`.
            self._disconnect()
        return []

    def stop(self) -> None:
        self._disconnect()

    def _disconnect(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database = None

    def _connect(self) -> Database:
        attempts = self._config.integer("connection.attempts")
        for attempt in range(attempts):
            try:
                return connect_with(self._config)
            except RetriableFailure as failure:
                last = failure
                log.warning("attempt %d at the database failed: %s", attempt + 1, failure)
                if attempt + 1 < attempts:
                    clock.sleep(self._config.integer("connection.backoff.ms") / 1000)
        raise DatabaseFailure(f"the database cannot be reached: {last}")

    # Tables and queries.

    def _find_inputs(self, database: Database) -> None:
        config = self._config
        known = {each.name for each in self._inputs}
        if config["query"]:
            names = ["query"]
        else:
            names = list(config.entries("table.whitelist")) or database.tables(
                config.entries("table.types"), config.optional_string("schema.pattern")
            )
            names = [name for name in names if name not in config.entries("table.blacklist")]
        for name in names:
            if name not in known:
                self._inputs.append(self._input(database, name))

    def _input(self, database: Database, name: str) -> _Input:
        config = self._config
        is_query = bool(config["query"])
        columns = [] if is_query else database.columns(name)
        if not is_query and not columns:
            raise DatabaseFailure(f"there is no table {name}")
        mode = config.string("mode")
        incrementing = self._incrementing_column(name, columns) if "incrementing" in mode else None
        times = list(config.entries("timestamp.column.name")) if "timestamp" in mode else []
        self._check_columns(name, columns, [*([] if incrementing is None else [incrementing]), *times], len(times))
        prefix = config.string("topic.prefix")
        partition: JsonObject = {"query": "query"} if is_query else {"protocol": "1", "table": name}
        offset = dict(self._offsets.of(partition))
        initial = config["timestamp.initial"]
        if times and "timestamp" not in offset and isinstance(initial, int):
            offset |= _time_offset(database.now() if initial < 0 else EPOCH + timedelta(milliseconds=initial))
        topic = prefix if is_query else prefix + name.rpartition(".")[2]
        return _Input(name, topic, partition, columns, incrementing, times, offset)

    def _incrementing_column(self, name: str, columns: Sequence[Column]) -> str:
        given = self._config.string("incrementing.column.name")
        counting = [column.name for column in columns if column.counts_up]
        if not given and len(counting) != 1:
            raise DatabaseFailure(f"{name} has no single column that counts up: set incrementing.column.name")
        return given or counting[0]

    def _check_columns(self, name: str, columns: Sequence[Column], used: Sequence[str], times_count: int) -> None:
        by_name = {column.name.lower(): column for column in columns}
        for each in used:
            column = by_name.get(each.lower())
            if columns and column is None:
                raise DatabaseFailure(f"{name} has no column {each}")
            if self._config["validate.non.null"] and column is not None and column.is_nullable and times_count < 2:
                raise DatabaseFailure(f"{name}.{each} may be null, so rows could be missed: make it NOT NULL, or set "
                                      "validate.non.null=false")  # fmt: skip

    # Rows.

    def _records(self, database: Database, each: _Input) -> Iterator[Record]:
        fetched = self._moment_page(database, each) if each.is_within_moment else []
        if fetched:
            each.has_more = True
        else:
            each.end_moment()
            sql, values = self._select_sql(database, each)
            fetched = list(database.rows(sql, values))
            each.has_more = len(fetched) >= self._config.integer("batch.max.rows")
        if not fetched:
            database.rollback()
            return
        names = [column.name for column in each.columns] or database.columns_of(*self._select_sql(database, each))
        rows = fetched if each.is_within_moment else self._drop_last_moment(database, each, names, fetched)
        if each.schema is None:
            each.schema = self._schema(each, names, rows)
        for row in rows:
            value = {
                one.name: _convert_cell(one.schema, cell) for one, cell in zip(each.schema.fields, row, strict=True)
            }
            each.advance(names, row)
            yield Record(
                each.topic,
                value_schema=each.schema,
                value=value,
                source_partition=each.partition,
                source_offset=dict(each.offset),
            )
        database.rollback()

    def _drop_last_moment(self, database: Database, each: _Input, names: Sequence[str], rows: list[Row]) -> list[Row]:
        """Return the rows without those of the last timestamp, of which the next page may have more.

        By time alone, a page may not end between two rows of one timestamp: the second would never be read.
        """
        if not each.times or each.incrementing is not None or not each.has_more:
            return rows
        lowered = [name.lower() for name in names]
        indexes = [lowered.index(name.lower()) for name in each.times]

        def moment(row: Row) -> ConnectValue:
            return next((row[index] for index in indexes if row[index] is not None), None)

        last = moment(rows[-1])
        before = [row for row in rows if moment(row) != last]
        if before:
            return before
        if each.keys:
            each.begin_moment(_moment(last))
            return self._moment_page(database, each)
        where = f"{_moment_sql(database, each)} = {database.placeholder}"
        return list(database.rows(f"{self._from_sql(database, each)} WHERE {where}", [last]))

    def _moment_page(self, database: Database, each: _Input) -> list[Row]:
        """Return the next rows with the timestamp of the offset, whose keys are greater than the offset's key."""
        keys = ", ".join(database.quote(name) for name in each.keys)
        seen = database.to_database(TIMESTAMP_SCHEMA, _seen_time(each.offset))
        where, values = f"{_moment_sql(database, each)} = {database.placeholder}", [seen]
        last = each.offset.get("key")
        if isinstance(last, list) and last:
            marks = ", ".join([database.placeholder] * len(last))
            where, values = f"{where} AND ({keys}) > ({marks})", [*values, *(one for one in last if _is_key(one))]
        limit = self._config["batch.max.rows"]
        return list(
            database.rows(f"{self._from_sql(database, each)} WHERE {where} ORDER BY {keys} LIMIT {limit}", values)
        )

    def _from_sql(self, database: Database, each: _Input) -> str:
        if self._config["query"]:
            return self._config.string("query")
        names = ", ".join(database.quote(column.name) for column in each.columns)
        return f"SELECT {names} FROM {database.quote(each.name)}"  # noqa: S608

    def _select_sql(self, database: Database, each: _Input) -> tuple[str, Row]:
        config = self._config
        sql = self._from_sql(database, each)
        where, order, values = _where_sql(database, each, config.integer("timestamp.delay.interval.ms"))
        limit = config["batch.max.rows"]
        suffix = f" {config['query.suffix']}" if config["query.suffix"] else ""
        if not where:
            # Bulk: page by page, so that a table of any size goes through.
            return f"{sql}{suffix} LIMIT {limit} OFFSET {each.bulk_offset}", values
        return f"{sql} WHERE {where} ORDER BY {order}{suffix} LIMIT {limit}", values

    def _schema(self, each: _Input, names: Sequence[str], rows: Sequence[Row]) -> Schema:
        if each.columns:
            fields = [Field(one.name, self._column_schema(one)) for one in each.columns]
        else:
            fields = [Field(name, _guess_schema([row[index] for row in rows])) for index, name in enumerate(names)]
        return Schema(
            Type.STRUCT, name=None if not each.columns else each.name.rpartition(".")[2], fields=tuple(fields)
        )

    def _column_schema(self, column: Column) -> Schema:
        kind = column.type.partition("(")[0].strip()
        if kind in ("numeric", "decimal"):
            schema = self._numeric_schema(column)
        elif kind == "integer" and self._config.string("connection.url").startswith("jdbc:sqlite"):
            # SQLite's integers have up to 64 bits.
            schema = INT64
        else:
            schema = _TYPES.get(kind, STRING_SCHEMA)
        return schema.as_optional if column.is_nullable else schema

    def _numeric_schema(self, column: Column) -> Schema:
        mapping = self._config["numeric.mapping"] or "none"
        scale, precision = column.scale or 0, column.precision
        if mapping == "none" or precision is None:
            return decimal_schema(scale, precision)
        if scale == 0 and precision < 19:
            return INT16 if precision < 5 else INT32 if precision < 10 else INT64
        if scale > 0 and (mapping == "best_fit_eager_double" or (mapping == "best_fit" and precision < 16)):
            return FLOAT64
        return decimal_schema(scale, precision)


@dataclass(slots=True)
class _Input:
    """A table, or the query, and the offset up to which it was read."""

    name: str
    topic: str
    partition: JsonObject
    columns: list[Column]
    incrementing: str | None
    times: list[str]
    offset: JsonObject = field(default_factory=dict)
    schema: Schema | None = None
    due_at: float = 0.0
    # Whether the last page was full. Fewer rows of it may have been returned: see `_drop_last_moment`.
    has_more: bool = False
    # Whether a page since the start was not full, and so was the last one.
    was_read_to_its_end: bool = False
    # In mode bulk: the count of rows that were read in this round.
    bulk_offset: int = 0

    @property
    def keys(self) -> list[str]:
        return [column.name for column in self.columns if column.is_key]

    @property
    def is_within_moment(self) -> bool:
        return "row" in self.offset

    def begin_moment(self, moment: datetime) -> None:
        self.offset = {**_time_offset(moment), "row": 0, "key": []}

    def end_moment(self) -> None:
        self.offset.pop("row", None)
        self.offset.pop("key", None)

    def advance(self, names: Sequence[str], row: Row) -> None:
        cells = {name.lower(): cell for name, cell in zip(names, row, strict=True)}
        if self.incrementing is not None:
            self.offset["incrementing"] = int(_number(cells[self.incrementing.lower()]))
        moments = [cells[name.lower()] for name in self.times if cells[name.lower()] is not None]
        if moments:
            self.offset |= _time_offset(_moment(moments[0]))
        if self.is_within_moment:
            self.offset["row"] = offset_number(self.offset, "row") + 1
            self.offset["key"] = [_key_text(cells[name.lower()]) for name in self.keys]
        self.bulk_offset += 1


def _moment_sql(database: Database, each: _Input) -> str:
    """Return SQL for when a row was changed last: the first of its times that is not null."""
    times = [database.quote(name) for name in each.times]
    return f"COALESCE({', '.join(times)})" if len(times) > 1 else "".join(times)


def _where_sql(database: Database, each: _Input, delay_ms: int) -> tuple[str, str, Row]:
    mark, quote = database.placeholder, database.quote
    number = quote(each.incrementing) if each.incrementing else ""
    moment = _moment_sql(database, each)
    seen_number = offset_number(each.offset, "incrementing", -1)
    if not each.times:
        return (f"{number} > {mark}", f"{number} ASC", [seen_number]) if number else ("", "", [])
    until = database.to_database(TIMESTAMP_SCHEMA, database.now() - timedelta(milliseconds=delay_ms))
    seen = database.to_database(TIMESTAMP_SCHEMA, _seen_time(each.offset))
    if not number:
        return f"{moment} > {mark} AND {moment} < {mark}", f"{moment} ASC", [seen, until]
    return (
        f"{moment} < {mark} AND (({moment} = {mark} AND {number} > {mark}) OR {moment} > {mark})",
        f"{moment}, {number} ASC",
        [until, seen, seen_number, seen],
    )


def _time_offset(moment: datetime) -> dict[str, int]:
    since = moment - EPOCH
    millis = since // timedelta(milliseconds=1)
    nanos = (since - timedelta(milliseconds=millis)) // timedelta(microseconds=1) * 1000 + millis % 1000 * 1_000_000
    return {"timestamp": millis, "timestamp_nanos": nanos}


def _seen_time(offset: Offset) -> datetime:
    millis = offset_number(offset, "timestamp")
    nanos = offset_number(offset, "timestamp_nanos", millis % 1000 * 1_000_000)
    return EPOCH + timedelta(seconds=millis // 1000, microseconds=nanos // 1000)


def _order_of(offset: Offset) -> tuple[datetime, int, float]:
    # An offset without `row` is after all rows of its timestamp.
    row = offset_number(offset, "row") if "row" in offset else math.inf
    return _seen_time(offset), offset_number(offset, "incrementing"), row


def _key_text(cell: ConnectValue) -> int | str:
    """Return a primary key cell as an integer or text for the offset: a database parses the text that it printed."""
    return cell if isinstance(cell, int | str) else str(cell)


def _is_key(value: JsonValue) -> TypeGuard[int | str]:
    return isinstance(value, int | str)


def _moment(value: ConnectValue) -> datetime:
    match value:
        case datetime():
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        case date():
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        case int():
            return EPOCH + timedelta(milliseconds=value)
        case str():
            moment = datetime.fromisoformat(value)
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    raise DataFailure(f"{value!r} is no time")


def _number(cell: ConnectValue) -> float | str | Decimal:
    """Return a value that `int` and `float` accept: drivers return numbers of some types as text."""
    if not isinstance(cell, int | float | str | Decimal):
        raise TypeError(f"{cell!r} is no number")
    return cell


def _convert_cell(schema: Schema, cell: ConnectValue) -> ConnectValue:
    """Return a cell that the driver has read as a value of Connect."""
    if cell is None:
        return None
    if schema.name == TIMESTAMP_SCHEMA.name:
        return _moment(cell)
    if schema.name == DATE_SCHEMA.name:
        return cell if isinstance(cell, date) else date.fromisoformat(str(cell))
    if schema.name == TIME_SCHEMA.name:
        return cell if isinstance(cell, time) else time.fromisoformat(str(cell))
    match schema.type:
        case Type.BYTES:
            if isinstance(cell, Decimal | bytes):
                return cell
            if schema.name is not None:
                return Decimal(str(cell))
            if isinstance(cell, Binary):
                return bytes(cell)
            raise TypeError(f"{cell!r} is not binary")
        case Type.STRING:
            return cell if isinstance(cell, str) else str(cell)
        case Type.FLOAT32 | Type.FLOAT64:
            return float(_number(cell))
        case Type.BOOLEAN:
            return bool(cell)
    return int(_number(cell))


def _guess_schema(cells: Row) -> Schema:
    """Return the schema of the first cell that is not null: a query's columns have no declared types."""
    kinds: list[tuple[type, Schema]] = [
        (bool, BOOLEAN_SCHEMA), (int, INT64), (float, FLOAT64), (str, STRING_SCHEMA), (bytes, BYTES),
        (datetime, TIMESTAMP_SCHEMA), (date, DATE_SCHEMA), (time, TIME_SCHEMA),
    ]  # fmt: skip
    for cell in cells:
        if isinstance(cell, Decimal):
            exponent = cell.as_tuple().exponent
            return decimal_schema(-exponent if isinstance(exponent, int) else 0).as_optional
        for kind, schema in kinds:
            if isinstance(cell, kind):
                return schema.as_optional
    return STRING_SCHEMA.as_optional
