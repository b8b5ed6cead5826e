"""Changes of rows as Debezium's events: the schemas of a table, and the records of a change. Pure.

    topic   <topic.prefix>.<schema>.<table>
    key     the primary key, a struct; none without one
    value   {before, after, source, transaction, op, ts_ms, ts_us, ts_ns}    op: c, u, d, r (snapshot), t (truncate)

A delete is followed by a tombstone (null value), for topics that are compacted. An update that changes the key is a
delete of the old key and a create of the new one.

What `before` lacks (without REPLICA IDENTITY FULL the log has only the key of the old row) is null, or zero where the
column may not be null, as Debezium fills it. A large value that an update did not touch is not in the log: text has
`unavailable.value.placeholder` in its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from pessoa import __version__
from pessoa.base.json_value import JsonObject
from pessoa.connect.connectors.debezium_types import VARIABLE_DECIMAL, ColumnType, Handling, schema_of, value_of
from pessoa.connect.connectors.pgoutput import UNCHANGED, Cell, Cells
from pessoa.connect.data import (
    DATE,
    DECIMAL,
    EPOCH,
    EPOCH_DAY,
    INT64,
    OPTIONAL_STRING,
    STRING,
    TIME,
    TIMESTAMP,
    ConnectValue,
    Field,
    Record,
    Schema,
    Struct,
    Type,
    struct,
)

OPTIONAL_INT64 = INT64.as_optional
SNAPSHOT = Schema(
    Type.STRING, optional=True, name="io.debezium.data.Enum", version=1, default="false",
    parameters={"allowed": "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"},
)  # fmt: skip
SOURCE = struct(
    {
        "version": STRING, "connector": STRING, "name": STRING, "ts_ms": INT64, "snapshot": SNAPSHOT, "db": STRING,
        "sequence": OPTIONAL_STRING, "ts_us": OPTIONAL_INT64, "ts_ns": OPTIONAL_INT64, "schema": STRING,
        "table": STRING, "txId": OPTIONAL_INT64, "lsn": OPTIONAL_INT64, "xmin": OPTIONAL_INT64,
    },
    name="io.debezium.connector.postgresql.Source", version=1,
)  # fmt: skip
TRANSACTION = struct(
    {"id": STRING, "total_order": INT64, "data_collection_order": INT64},
    name="event.block", version=1, optional=True,
)  # fmt: skip
HEARTBEAT_KEY = struct({"serverName": STRING}, name="io.debezium.connector.common.ServerNameKey", version=1)
HEARTBEAT = struct({"ts_ms": INT64}, name="io.debezium.connector.common.Heartbeat", version=1)


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    type: ColumnType
    is_nullable: bool = True
    is_key: bool = False
    is_included: bool = True


@dataclass(frozen=True, slots=True)
class Where:
    """The position of a change: the facts for the event's `source`, and the offset from which the connector
    continues."""

    lsn: int
    time_us: int
    xid: int | None
    offset: JsonObject
    snapshot: str = "false"
    last_commit_lsn: int | None = None


@dataclass(slots=True)
class CapturedTable:
    """A table whose changes become events. `columns` are in the order of the cells of its rows."""

    server: str
    database: str
    schema: str
    name: str
    columns: Sequence[TableColumn]
    handling: Handling
    placeholder: str = "__debezium_unavailable_value"
    delimiter: str = "."
    topic: str = field(init=False)
    key_schema: Schema | None = field(init=False)
    row_schema: Schema = field(init=False)
    envelope: Schema = field(init=False)
    _schemas: list[Schema] = field(init=False)

    def __post_init__(self) -> None:
        full = f"{self.server}.{self.schema}.{self.name}"
        self.topic = self.delimiter.join((self.server, self.schema, self.name))
        self._schemas = [
            plain.as_optional if each.is_nullable and not each.is_key else plain
            for each in self.columns
            for plain in (schema_of(each.type, self.handling),)
        ]
        fields = {each.name: one for each, one in zip(self.columns, self._schemas, strict=True) if each.is_included}
        keys = {each.name: one for each, one in zip(self.columns, self._schemas, strict=True) if each.is_key}
        self.key_schema = struct(keys, name=f"{full}.Key") if keys else None
        self.row_schema = struct(fields, name=f"{full}.Value", optional=True)
        self.envelope = Schema(
            Type.STRUCT, name=f"{full}.Envelope", version=2,
            fields=(
                Field("before", self.row_schema), Field("after", self.row_schema), Field("source", SOURCE),
                Field("transaction", TRANSACTION), Field("op", STRING), Field("ts_ms", OPTIONAL_INT64),
                Field("ts_us", OPTIONAL_INT64), Field("ts_ns", OPTIONAL_INT64),
            ),
        )  # fmt: skip

    # Rows.

    def row(self, cells: Cells, older: Cells | None = None) -> Struct:
        """Return the values of the columns. An unchanged value is taken from `older`, a whole row, if it is known."""
        found: Struct = {}
        for index, each in enumerate(self.columns):
            if each.is_included:
                cell = cells[index]
                if cell is UNCHANGED and older is not None:
                    cell = older[index]
                found[each.name] = self._value(index, cell)
        return found

    def key(self, cells: Cells) -> Struct | None:
        keys = {each.name: self._value(n, cells[n]) for n, each in enumerate(self.columns) if each.is_key}
        return keys or None

    def _value(self, index: int, cell: Cell) -> ConnectValue:
        schema = self._schemas[index]
        if cell is UNCHANGED:
            return _placeholder(schema, self.placeholder)
        if cell is None:
            return None if schema.optional else zero(schema)
        return value_of(self.columns[index].type, schema, self.handling, cell)

    # Events.

    def events(
        self, operation: str, old: Cells | None, new: Cells | None, old_is_key: bool, where: Where, now_us: int,
        *, tombstones: bool = True,
    ) -> Iterator[Record]:  # fmt: skip
        """Return the records of a change of one row."""
        older = None if old_is_key else old
        before = None if old is None else self.row(old)
        after = None if new is None else self.row(new, older)
        if operation == "u" and old is not None and new is not None and self.key(old) != self.key(new):
            yield from self._delete_events(old, before, where, now_us, tombstones)
            yield self._record("c", self.key(new), None, after, where, now_us)
        elif operation == "d":
            assert old is not None
            yield from self._delete_events(old, before, where, now_us, tombstones)
        else:
            # A key alone is not the row before the change.
            shown = None if old_is_key else before
            yield self._record(operation, None if new is None else self.key(new), shown, after, where, now_us)

    def truncated(self, where: Where, now_us: int) -> Record:
        return self._record("t", None, None, None, where, now_us).but(key_schema=None)

    def _delete_events(
        self, old: Cells, before: Struct | None, where: Where, now_us: int, tombstones: bool
    ) -> Iterator[Record]:
        deletion = self._record("d", self.key(old), before, None, where, now_us)
        yield deletion
        if tombstones and self.key_schema is not None:
            yield deletion.but(value_schema=None, value=None)

    def _record(
        self, operation: str, key: Struct | None, before: Struct | None, after: Struct | None, where: Where, now_us: int
    ) -> Record:
        value: Struct = {
            "before": before, "after": after, "source": self._source(where), "transaction": None, "op": operation,
            "ts_ms": now_us // 1000, "ts_us": now_us, "ts_ns": now_us * 1000,
        }  # fmt: skip
        return Record(
            self.topic,
            key_schema=None if key is None else self.key_schema,
            key=key,
            value_schema=self.envelope,
            value=value,
            source_partition={"server": self.server},
            source_offset=where.offset,
        )

    def _source(self, where: Where) -> Struct:
        last = None if where.last_commit_lsn is None else str(where.last_commit_lsn)
        return {
            "version": __version__, "connector": "postgresql", "name": self.server, "ts_ms": where.time_us // 1000,
            "snapshot": where.snapshot, "db": self.database, "sequence": json.dumps([last, str(where.lsn)]),
            "ts_us": where.time_us, "ts_ns": where.time_us * 1000, "schema": self.schema, "table": self.name,
            "txId": where.xid, "lsn": where.lsn, "xmin": None,
        }  # fmt: skip


def heartbeat(topic: str, server: str, now_ms: int, offset: JsonObject) -> Record:
    """Return a record that advances the source offset while no captured table changes."""
    return Record(
        topic,
        key_schema=HEARTBEAT_KEY,
        key={"serverName": server},
        value_schema=HEARTBEAT,
        value={"ts_ms": now_ms},
        source_partition={"server": server},
        source_offset=offset,
    )


_LOGICAL_ZEROS: dict[str | None, ConnectValue] = {
    DECIMAL: Decimal(0), DATE: EPOCH_DAY, TIME: EPOCH.time(), TIMESTAMP: EPOCH,
    "io.debezium.time.ZonedTimestamp": "1970-01-01T00:00:00Z", "io.debezium.time.ZonedTime": "00:00:00Z",
}  # fmt: skip


def zero(schema: Schema) -> ConnectValue:
    """Return the placeholder for an unknown value that may not be null: zero, or empty."""
    if schema.name in _LOGICAL_ZEROS:
        return _LOGICAL_ZEROS[schema.name]
    if schema.name == VARIABLE_DECIMAL.name:
        return {"scale": 0, "value": b"\0"}
    match schema.type:
        case Type.STRING:
            return ""
        case Type.BYTES:
            return b""
        case Type.BOOLEAN:
            return False
        case Type.FLOAT32 | Type.FLOAT64:
            return 0.0
        case Type.ARRAY:
            return []
    return 0


def _placeholder(schema: Schema, text: str) -> ConnectValue:
    if schema.type is Type.STRING:
        return text
    if schema.type is Type.BYTES and schema.name is None:
        return text.encode()
    if schema.type is Type.ARRAY and schema.values is not None and schema.values.type is Type.STRING:
        return [text]
    return None if schema.optional else zero(schema)
