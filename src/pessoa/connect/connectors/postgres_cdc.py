"""PostgresConnector: every change of PostgreSQL's tables as a record, as Debezium's connector has it.

    slot and publication ──► snapshot: all rows, op r ──► the log from there on: op c, u, d, by logical decoding

The slot is made first, so nothing falls between the snapshot and the log: the snapshot shows the tables exactly where
the slot begins. The server keeps its log for the slot until the offsets of what was read are written down (`commit`);
then it is told, and lets go. While nothing is under way it is told how far the server itself is, so that a database
whose other tables are busy does not fill its disk for our slot. `heartbeat.interval.ms` moves the offset on as well.

The offset of the one partition, `{"server": <topic.prefix>}`, is one of

    {"snapshot": "INITIAL", "table": "public.contas", "row": 4711, "last": ["4711"]}    rows of a table that were read
    {"lsn": 24023128, "event": 2, "txId": 739, "ts_usec": …}    the change of a transaction, by its commit's LSN

An interrupted snapshot goes on behind the last key. What changed meanwhile is in the log that the slot keeps, so the
last record of a key is always right, though a row may come twice.

Left out: other plugins than pgoutput, incremental snapshots and signals, transaction metadata, `snapshot.mode=always`.
"""

from __future__ import annotations

import logging
import time as clock
from collections.abc import Iterable, Mapping

from pessoa.base.config_values import ConfigProblem, Value, at_least, one_of
from pessoa.base.json_value import JsonObject
from pessoa.connect.connector import (
    Offset,
    OffsetRefused,
    Offsets,
    Partition,
    RetriableFailure,
    SourceConnector,
    offset_number,
)
from pessoa.connect.connectors.databases import DatabaseFailure
from pessoa.connect.connectors.debezium_events import CapturedTable, TableColumn, heartbeat
from pessoa.connect.connectors.debezium_types import Handling
from pessoa.connect.connectors.pg_catalogue import Catalogue, CatalogueColumn, SnapshotReader, TableToRead
from pessoa.connect.connectors.pg_log import LogReader
from pessoa.connect.connectors.pg_replication import ReplicationConnection, quote
from pessoa.connect.connectors.pg_snapshot import SnapshotEvents
from pessoa.connect.connectors.pgoutput import (
    Relation,
    lsn_text,
)
from pessoa.connect.connectors.table_filter import TableFilter, filter_keys
from pessoa.connect.data import Record
from pessoa.connect.definition import (
    BOOLEAN,
    HIGH,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    PASSWORD,
    REQUIRED,
    STRING,
    Config,
    Settings,
    Table,
    key,
)

log = logging.getLogger("pessoa.connect")

NAMES = ("io.debezium.connector.postgresql.PostgresConnector", "pessoa.connect.connectors.PostgresConnector")
SNAPSHOT_MODES = ("initial", "initial_only", "no_data", "never", "when_needed")
# How long a poll waits for the server when nothing has come, and how long it collects what comes.
WAIT_S = 0.05
COLLECT_S = 0.5
# How long a server may take to notice that a connection is closed.
DROP_S = 10.0


def _plugin_complaint(value: Value, _: Settings) -> str | None:
    return None if value == "pgoutput" else "only pgoutput is decoded, which every PostgreSQL since 10 has"


def _mode_complaint(value: Value, _: Settings) -> str | None:
    if value in SNAPSHOT_MODES:
        return None
    return f"it must be one of {', '.join(SNAPSHOT_MODES)}"


class PostgresConnector(SourceConnector):
    NAMES = NAMES
    CONFIG = Table(
        key("database.hostname", STRING, REQUIRED, HIGH, "The host of the database.", group="Postgres"),
        key("database.port", INT, 5432, at_least(1), HIGH, "Its port.", group="Postgres"),
        key("database.user", STRING, REQUIRED, HIGH, "A user with REPLICATION.", group="Postgres"),
        key("database.password", PASSWORD, None, HIGH, "The user's password.", group="Postgres"),
        key("database.dbname", STRING, REQUIRED, HIGH, "The database whose changes are read.", group="Postgres"),
        key("database.sslmode", STRING, "prefer", one_of("disable", "allow", "prefer", "require", "verify-ca",
            "verify-full"), MEDIUM, "Whether the connection is encrypted.", group="Postgres"),
        key("database.sslrootcert", STRING, None, MEDIUM, "The file of the authority to trust.", group="Postgres"),
        key("topic.prefix", STRING, REQUIRED, HIGH, "What topics begin with, and the name of the server in offsets.",
            group="Postgres"),
        key("topic.delimiter", STRING, ".", LOW, "What stands between prefix, schema and table.", group="Postgres"),
        key("plugin.name", STRING, "pgoutput", _plugin_complaint, MEDIUM, "The plugin that decodes: pgoutput.",
            group="Replication"),
        key("slot.name", STRING, "debezium", MEDIUM, "The replication slot; made if it is not there.",
            group="Replication"),
        key("slot.drop.on.stop", BOOLEAN, False, MEDIUM, "Whether the slot goes when the connector stops: changes from "
            "then on are lost.", group="Replication"),
        key("slot.max.retries", INT, 6, at_least(0), LOW, "How often in a row a connection is tried again.",
            group="Replication"),
        key("slot.retry.delay.ms", LONG, 10000, at_least(0), LOW, "The pause before that.", group="Replication"),
        key("publication.name", STRING, "dbz_publication", MEDIUM, "The publication.", group="Replication"),
        key("publication.autocreate.mode", STRING, "all_tables", one_of("all_tables", "filtered", "disabled"), MEDIUM,
            "What a publication that is not there is made for; filtered needs no superuser.", group="Replication"),
        key("status.update.interval.ms", INT, 10000, at_least(1), LOW, "How often the server is told how far we are.",
            group="Replication"),
        filter_keys("Filters"),
        key("snapshot.mode", STRING, "initial", _mode_complaint, HIGH, "Whether rows that are there are read first: "
            "initial, initial_only, no_data, when_needed.", group="Snapshot"),
        key("max.batch.size", INT, 2048, at_least(1), MEDIUM, "The most changes of one poll.", group="Connector"),
        key("tombstones.on.delete", BOOLEAN, True, MEDIUM, "Whether a null value follows a delete.", group="Connector"),
        key("skipped.operations", LIST, ("t",), LOW, "Operations that are left out: c, u, d, t, or none.",
            group="Connector"),
        key("decimal.handling.mode", STRING, "precise", one_of("precise", "double", "string"), MEDIUM,
            "What numeric columns become.", group="Types"),
        key("time.precision.mode", STRING, "adaptive", one_of("adaptive", "adaptive_time_microseconds", "connect"),
            MEDIUM, "What columns of time become.", group="Types"),
        key("binary.handling.mode", STRING, "bytes", one_of("bytes", "base64", "base64-url-safe", "hex"), LOW,
            "What bytea columns become.", group="Types"),
        key("interval.handling.mode", STRING, "numeric", one_of("numeric", "string"), LOW,
            "What interval columns become.", group="Types"),
        key("unavailable.value.placeholder", STRING, "__debezium_unavailable_value", LOW,
            "What stands for a large value that an update did not touch.", group="Types"),
        key("heartbeat.interval.ms", INT, 0, at_least(0), MEDIUM, "How often a heartbeat is written; 0 for never.",
            group="Heartbeat"),
        key("heartbeat.topics.prefix", STRING, "__debezium-heartbeat", LOW, "The topic of heartbeats is this, a point "
            "and topic.prefix.", group="Heartbeat"),
        key("heartbeat.action.query", STRING, None, LOW, "A statement that is run with every heartbeat.",
            group="Heartbeat"),
    )  # fmt: skip

    @classmethod
    def adapted(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        """Return the settings with the key names of Debezium 1 translated."""
        older = {
            "database.server.name": "topic.prefix",
            "table.whitelist": "table.include.list",
            "table.blacklist": "table.exclude.list",
            "schema.whitelist": "schema.include.list",
            "schema.blacklist": "schema.exclude.list",
        }
        return {**{new: settings[old] for old, new in older.items() if old in settings}, **settings}

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        for kind in ("table", "schema", "column"):
            if settings.get(f"{kind}.include.list") and settings.get(f"{kind}.exclude.list"):
                return {f"{kind}.exclude.list": f"{kind}.include.list and {kind}.exclude.list cannot be combined"}
        if settings.get("provide.transaction.metadata", "false").lower() == "true":
            return {"topic.prefix": "provide.transaction.metadata=true is not offered: leave it out"}
        needed = ("database.hostname", "database.user", "database.dbname")
        if any("${" in text for text in settings.values()) or not all(settings.get(name) for name in needed):
            return {}
        try:
            config = cls.CONFIG.parse(cls.adapted(settings))
        except ConfigProblem:
            # The answer says of each key what is wrong with it.
            return {}
        return _check_database(config)

    @classmethod
    def check_offset(cls, partition: Partition, offset: Offset) -> None:
        if set(partition) != {"server"}:
            raise OffsetRefused('the partition of a PostgreSQL source is {"server": "<topic.prefix>"}')
        if "lsn" not in offset and "table" not in offset:
            raise OffsetRefused('an offset has "lsn" (and "event"), or "snapshot", "table" and "row"')
        _order_of(offset)

    @classmethod
    def is_beyond(cls, offset: Offset, end: Offset) -> bool | None:
        return _order_of(offset) > _order_of(end)

    # What the worker calls: start, poll, commit, stop.

    def start(self, config: Config, offsets: Offsets) -> None:
        self._config = config
        self._server = config.string("topic.prefix")
        self._filter = TableFilter(config)
        self._handling = Handling(
            config.string("time.precision.mode"), config.string("decimal.handling.mode"),
            config.string("binary.handling.mode"), config.string("interval.handling.mode"),
        )  # fmt: skip
        # The offset that was committed, and the offset of the last record that `poll` returned.
        self._committed_offset = self._polled_offset = dict(offsets.of({"server": self._server}))
        self._catalogue: Catalogue | None = None
        self._snapshot: SnapshotEvents | None = None
        self._stream: LogReader | None = None
        self._failures = 0
        self._due_s = 0.0
        self._heartbeat_due_s = 0.0

    def poll(self) -> Iterable[Record]:
        if clock.monotonic() < self._due_s:
            return []
        try:
            records = self._poll()
        except RetriableFailure as failure:
            self._disconnect()
            self._failures += 1
            if self._failures > self._config.integer("slot.max.retries"):
                raise DatabaseFailure(f"{failure} (after {self._failures} attempts)") from failure
            log.warning("%s: tried again in a moment: %s", self._server, failure)
            self._due_s = clock.monotonic() + self._config.integer("slot.retry.delay.ms") / 1000
            return []
        except BaseException:
            self._disconnect()
            raise
        self._failures = 0
        if records:
            offset = records[-1].source_offset
            assert offset is not None
            self._polled_offset = dict(offset)
        return records

    def commit(self, offsets: Offsets) -> None:
        self._committed_offset = dict(offsets.of({"server": self._server}))

    def stop(self) -> None:
        if self._stream is not None and self._polled_offset == self._committed_offset:
            self._stream.confirm_quietly(self._safe_lsn(self._stream))
        self._disconnect()
        if self._config.boolean("slot.drop.on.stop"):
            self._drop_slot(self._config.string("slot.name"))

    def _drop_slot(self, name: str) -> None:
        """Drop the replication slot, after the server has noticed that our connection is closed."""
        catalogue = Catalogue(_parameters(self._config))
        try:
            deadline_s = clock.monotonic() + DROP_S
            while (slot := catalogue.slot(name)) is not None and slot.is_active and clock.monotonic() < deadline_s:
                clock.sleep(WAIT_S)
            if slot is not None:
                quoted = name.replace("'", "''")
                catalogue.run(f"SELECT pg_drop_replication_slot('{quoted}')")
        finally:
            catalogue.close()

    def _disconnect(self) -> None:
        for each in (self._snapshot, self._stream, self._catalogue):
            if each is not None:
                each.close()
        self._snapshot = self._stream = self._catalogue = None

    def _poll(self) -> list[Record]:
        if self._catalogue is None:
            self._catalogue = Catalogue(_parameters(self._config))
        if self._snapshot is None and self._stream is None:
            self._begin(self._catalogue)
        if self._snapshot is not None:
            records = self._snapshot.next_records(self._config.integer("max.batch.size"))
            if self._snapshot.is_done:
                self._snapshot.close()
                self._snapshot = None
                if self._config["snapshot.mode"] != "initial_only":
                    self._follow_log(self._catalogue)
            return records
        return [] if self._stream is None else self._poll_stream(self._stream)

    # Slot, publication, snapshot.

    def _begin(self, catalogue: Catalogue) -> None:
        config, mode = self._config, self._config.string("snapshot.mode")
        if catalogue.wal_level() != "logical":
            raise DatabaseFailure("the server has wal_level other than logical: set it in postgresql.conf and restart")
        is_unfinished = "table" in self._polled_offset
        has_begun = bool(self._polled_offset)
        if mode == "initial_only" and has_begun and not is_unfinished:
            return
        self._ensure_publication(catalogue)
        name = config.string("slot.name")
        slot = catalogue.slot(name)
        if slot is not None and slot.plugin != "pgoutput":
            raise DatabaseFailure(f"the slot {name} is of the plugin {slot.plugin}; set slot.name to another name")
        if slot is None and has_begun and mode != "when_needed":
            raise DatabaseFailure(
                f"the slot {name} is gone, and with it the changes since {self._shown_offset()}. To read all tables "
                "again, set snapshot.mode=when_needed, or stop the connector and delete its offsets"
            )
        wants_snapshot = mode not in ("no_data", "never") and (not has_begun or is_unfinished or slot is None)
        snapshot_name = None
        creator = None
        if slot is None:
            creator = ReplicationConnection(_parameters(config))
            try:
                snapshot_name = creator.create_slot(name).snapshot
            except BaseException:
                creator.close()
                raise
            # With a new slot the old offset means nothing.
            self._polled_offset, is_unfinished = {}, False
        try:
            if wants_snapshot:
                reader = SnapshotReader(_parameters(config), snapshot_name)
                tables = self._captured_tables(catalogue)
                self._snapshot = SnapshotEvents(reader, tables, self._polled_offset if is_unfinished else {})
        finally:
            # The exported snapshot ends with its connection; the reader has imported it by now.
            if creator is not None:
                creator.close()
        if not wants_snapshot:
            self._follow_log(catalogue)

    def _shown_offset(self) -> str:
        return lsn_text(offset_number(self._polled_offset, "lsn")) if "lsn" in self._polled_offset else "the snapshot"

    def _ensure_publication(self, catalogue: Catalogue) -> None:
        config = self._config
        name, mode = config.string("publication.name"), config.string("publication.autocreate.mode")
        wanted = [each for each in catalogue.tables() if self._filter.takes_table(each.schema, each.table)]
        listed = ", ".join(f"{quote(each.schema)}.{quote(each.table)}" for each in wanted)
        if not catalogue.has_publication(name):
            if mode == "disabled":
                raise DatabaseFailure(f"there is no publication {name}, and publication.autocreate.mode is disabled")
            if mode == "filtered" and not wanted:
                raise DatabaseFailure(
                    "table.include.list matches no table of the database, so there is none to publish"
                )
            what = "FOR ALL TABLES" if mode == "all_tables" else f"FOR TABLE {listed}"
            catalogue.run(f"CREATE PUBLICATION {quote(name)} {what}")
        elif mode == "filtered" and {(each.schema, each.table) for each in wanted} - catalogue.published(name):
            catalogue.run(f"ALTER PUBLICATION {quote(name)} SET TABLE {listed}")

    def _captured_tables(self, catalogue: Catalogue) -> list[tuple[CapturedTable, TableToRead]]:
        found = []
        for relation in catalogue.tables():
            if self._filter.takes_table(relation.schema, relation.table):
                known = catalogue.columns(relation.id)
                table = self._make_captured_table(catalogue, relation, known, known)
                keys = sorted((each.key_position, each.column.name) for each in known if each.key_position is not None)
                names = [each.column.name for each in known]
                found.append((table, TableToRead(relation.schema, relation.table, names, [name for _, name in keys])))
        return found

    def _make_captured_table(
        self, catalogue: Catalogue, relation: Relation, cells: Iterable[CatalogueColumn], known: list[CatalogueColumn]
    ) -> CapturedTable:
        facts = {each.column.name: each for each in known}
        has_primary = any(each.key_position is not None for each in known)
        columns = []
        for each in cells:
            fact = facts.get(each.column.name, each)
            is_key = fact.key_position is not None or (
                not has_primary and relation.identity == "i" and each.column.is_key
            )
            columns.append(
                TableColumn(
                    each.column.name,
                    catalogue.type_of(each.column.type_oid, each.column.type_modifier),
                    fact.is_nullable,
                    is_key,
                    is_key or self._filter.takes_column(relation.schema, relation.table, each.column.name),
                )
            )
        return CapturedTable(
            self._server, self._config.string("database.dbname"), relation.schema, relation.table, columns,
            self._handling, self._config.string("unavailable.value.placeholder"),
            self._config.string("topic.delimiter"),
        )  # fmt: skip

    # The log.

    def _follow_log(self, catalogue: Catalogue) -> None:
        config = self._config
        connection = ReplicationConnection(_parameters(config))
        lsn = offset_number(self._polled_offset, "lsn") if "lsn" in self._polled_offset else 0
        event = offset_number(self._polled_offset, "event") if "lsn" in self._polled_offset else 0
        try:
            connection.start(config.string("slot.name"), lsn, config.string("publication.name"))
        except BaseException:
            connection.close()
            raise
        self._stream = LogReader(connection, (lsn, event), lambda relation: self._table_of(catalogue, relation))

    def _table_of(self, catalogue: Catalogue, relation: Relation) -> CapturedTable | None:
        if not self._filter.takes_table(relation.schema, relation.table):
            return None
        cells = [CatalogueColumn(each, True, None) for each in relation.columns]
        return self._make_captured_table(catalogue, relation, cells, catalogue.columns(relation.id))

    def _poll_stream(self, stream: LogReader) -> list[Record]:
        config = self._config
        skipped = config.entries("skipped.operations")
        records: list[Record] = []
        deadline_s, has_waited = clock.monotonic() + COLLECT_S, False
        while len(records) < config.integer("max.batch.size") and clock.monotonic() < deadline_s:
            if not stream.receive(records, skipped, tombstones=config.boolean("tombstones.on.delete")):
                if records or has_waited:
                    break
                stream.connection.wait(WAIT_S)
                has_waited = True
        is_idle = not records and self._polled_offset == self._committed_offset
        stream.maybe_confirm(
            self._safe_lsn(stream) if is_idle else offset_number(self._committed_offset, "lsn"),
            config.integer("status.update.interval.ms") / 1000,
        )
        return records or (self._heartbeat(stream) if is_idle else [])

    def _safe_lsn(self, stream: LogReader) -> int:
        """Return the LSN up to which the WAL may be dropped once all delivered records are written."""
        return max(stream.clear_lsn, offset_number(self._committed_offset, "lsn"))

    def _heartbeat(self, stream: LogReader) -> list[Record]:
        interval_ms = self._config.integer("heartbeat.interval.ms")
        now_s = clock.monotonic()
        if not interval_ms or now_s < self._heartbeat_due_s:
            return []
        self._heartbeat_due_s = now_s + interval_ms / 1000
        statement = self._config.optional_string("heartbeat.action.query")
        if statement and self._catalogue is not None:
            self._catalogue.run(statement)
        topic = f"{self._config['heartbeat.topics.prefix']}.{self._server}"
        now_ms = clock.time_ns() // 1_000_000
        offset: JsonObject = {"lsn": self._safe_lsn(stream), "event": 0, "txId": None, "ts_usec": now_ms * 1000}
        return [heartbeat(topic, self._server, now_ms, offset)]


def _order_of(offset: Offset) -> tuple[int, str, int, int]:
    """Return the sort key of an offset: offsets of the snapshot come before those of the WAL."""
    try:
        if "table" in offset:
            return 0, str(offset["table"]), offset_number(offset, "row"), 0
        return 1, "", offset_number(offset, "lsn"), offset_number(offset, "event")
    except (TypeError, ValueError) as wrong:
        raise OffsetRefused(str(wrong)) from None


def _parameters(config: Config) -> dict[str, str]:
    """Return the connection's parameters under libpq's names."""
    found = {
        "host": config.string("database.hostname"),
        "port": str(config["database.port"]),
        "user": config.string("database.user"),
        "dbname": config.string("database.dbname"),
        "sslmode": config.string("database.sslmode"),
        "connect_timeout": "10",
        "application_name": "pessoa-connect",
    }
    for name, key_name in (("password", "database.password"), ("sslrootcert", "database.sslrootcert")):
        text = config.optional_string(key_name)
        if text:
            found[name] = text
    return found


def _check_database(config: Config) -> Mapping[str, str]:
    """Return what is wrong with the server; a server that does not answer is not a configuration error."""
    try:
        catalogue = Catalogue(_parameters(config))
    except RetriableFailure as failure:
        log.info("the configuration was not checked against the database: %s", failure)
        return {}
    try:
        if catalogue.wal_level() != "logical":
            return {
                "database.hostname": "the server's wal_level is not logical: set it in postgresql.conf, and restart"
            }
        slot = catalogue.slot(config.string("slot.name"))
    finally:
        catalogue.close()
    if slot is not None and slot.plugin != "pgoutput":
        return {"slot.name": f"this slot is of the plugin {slot.plugin}; choose another name"}
    return {}
