"""The pure parts of the change-data source: pgoutput's messages, Debezium's types and envelope, and the transform."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.connect.connectors.debezium_events import CapturedTable, TableColumn, Where
from pessoa.connect.connectors.debezium_types import (
    ColumnType,
    Handling,
    interval_us,
    schema_of,
    split_array,
    timestamp_us,
    value_of,
)
from pessoa.connect.connectors.pgoutput import (
    UNCHANGED,
    Begin,
    Change,
    Commit,
    Ignored,
    MalformedMessage,
    Relation,
    RelationColumn,
    Truncate,
    decode,
    lsn_from_text,
    lsn_text,
)
from pessoa.connect.connectors.postgres_cdc import PostgresConnector
from pessoa.connect.connectors.table_filter import TableFilter
from pessoa.connect.data import DataFailure, Record, check
from pessoa.connect.transforms.debezium import ExtractNewRecordState

CELLS = b"\0\3" + b"t\0\0\0\2ol" + b"n" + b"u"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"B" + struct.pack(">QqI", 7, -946_684_800_000_000, 3), Begin(7, 0, 3)),
        (b"C\0" + struct.pack(">QQq", 7, 9, 0), Commit(7, 9)),
        (
            b"R" + struct.pack(">I", 5) + b"\0pg\0d\0\2" + b"\1id\0" + struct.pack(">Ii", 23, -1) + b"\0n\0"
            + struct.pack(">Ii", 1700, 6),
            Relation(
                5, "pg_catalog", "pg", "d", (RelationColumn("id", 23, -1, True), RelationColumn("n", 1700, 6, False))
            ),
        ),
        (b"I\0\0\0\5N" + CELLS, Change("c", 5, None, ("ol", None, UNCHANGED))),
        (b"U\0\0\0\5N" + CELLS, Change("u", 5, None, ("ol", None, UNCHANGED))),
        (b"U\0\0\0\5K" + CELLS + b"N" + CELLS, Change("u", 5, ("ol", None, UNCHANGED), ("ol", None, UNCHANGED), True)),
        (b"D\0\0\0\5O" + CELLS, Change("d", 5, ("ol", None, UNCHANGED), None)),
        (b"T" + struct.pack(">IBII", 2, 0, 5, 6), Truncate((5, 6))),
        (b"Y\0\0", Ignored("Y")),
    ],
)  # fmt: skip
def test_a_pgoutput_message_is_decoded(data: bytes, message: object) -> None:
    assert decode(data) == message


@given(st.binary(max_size=60), st.sampled_from(b"BCRIUDTX"))
def test_decoding_arbitrary_bytes_as_pgoutput_raises_only_the_expected_error(data: bytes, kind: int) -> None:
    with suppress(MalformedMessage):
        decode(bytes([kind]) + data)


@pytest.mark.parametrize("data", [b"", b"Q", b"I\0\0\0\5X", b"I\0\0\0\5N\0\1t\xff\xff\xff\xffab", b"D\0\0\0\5N\0\0"])
def test_a_truncated_pgoutput_message_raises_malformed_message(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(data)


def test_log_sequence_numbers_are_written_as_postgresql_writes_them() -> None:
    assert lsn_text(0x16_B374_D848) == "16/B374D848"
    assert lsn_from_text("16/B374D848") == 0x16_B374_D848


@pytest.mark.parametrize(
    ("kind", "handling", "text", "name", "value"),
    [
        ("numeric", Handling(), "1.50", "org.apache.kafka.connect.data.Decimal", Decimal("1.50")),
        ("numeric", Handling(decimals="double"), "1.50", None, 1.5),
        ("numeric", Handling(decimals="string"), "NaN", None, "NaN"),
        ("bytea", Handling(binaries="base64"), "\\x00ff", None, "AP8="),
        ("bytea", Handling(binaries="hex"), "\\x00ff", None, "00ff"),
        ("date", Handling(), "0044-03-15 BC", "io.debezium.time.Date", -735_160),
        ("date", Handling(), "infinity", "io.debezium.time.Date", 2**31 - 1),
        (
            "timestamptz",
            Handling(),
            "2026-11-17 08:00:00+00",
            "io.debezium.time.ZonedTimestamp",
            "2026-11-17T08:00:00Z",
        ),
        ("interval", Handling(intervals="string"), "P1D", "io.debezium.time.Interval", "P1D"),
        ("money", Handling(), "$1,234.50", "org.apache.kafka.connect.data.Decimal", Decimal("1234.50")),
    ],
)
def test_a_postgresql_cell_is_converted_to_a_value_of_its_schema(
    kind: str, handling: Handling, text: str, name: str | None, value: object
) -> None:
    column = ColumnType(kind, modifier=((10 << 16) | 2) + 4 if kind == "numeric" else -1)
    schema = schema_of(column, handling)
    assert schema.name == name
    found = value_of(column, schema, handling, text)
    assert found == value
    check(schema, found)


def test_time_precision_mode_connect_uses_connects_logical_types() -> None:
    handling = Handling(times="connect")
    for kind, text in (("date", "2026-11-17"), ("time", "01:02:03"), ("timestamp", "2026-11-17 01:02:03.5")):
        schema = schema_of(ColumnType(kind), handling)
        assert schema.name is not None
        assert schema.name.startswith("org.apache.kafka.connect.data.")
        check(schema, value_of(ColumnType(kind), schema, handling, text))


def test_times_and_intervals_are_counted_in_microseconds() -> None:
    assert timestamp_us("1969-12-31 23:59:59.999999") == -1
    assert timestamp_us("10000-01-01 00:00:00") == 253_402_300_800_000_000
    assert interval_us("P1Y2M3DT4H5M6.7S") == 14 * 2_629_800_000_000 + 3 * 86_400_000_000 + 14_706_700_000
    assert interval_us("P-1DT-1S") == -86_401_000_000


def test_elements_of_a_postgresql_array_are_parsed_within_quotes_and_braces() -> None:
    assert split_array('{1,NULL,"a \\"b\\" \\\\c","x,y","NULL",""}') == ["1", None, 'a "b" \\c', "x,y", "NULL", ""]
    assert split_array('{{1,"}"},{3,4}}') == ['{1,"}"}', "{3,4}"]
    assert split_array("{}") == []


def test_the_error_for_a_number_that_a_decimal_cannot_hold_names_the_setting() -> None:
    column = ColumnType("numeric")
    with pytest.raises(DataFailure, match=r"decimal\.handling\.mode"):
        value_of(column, schema_of(column, Handling()), Handling(), "NaN")


def test_tables_and_columns_are_included_by_full_case_insensitive_names() -> None:
    chosen = TableFilter(
        _config({"table.include.list": "public.a.*, Outra\\.b", "column.exclude.list": ".*\\.segredo"})
    )
    assert chosen.takes_table("public", "abc")
    assert chosen.takes_table("outra", "B")
    assert not chosen.takes_table("outra", "bc")
    assert not chosen.takes_column("public", "abc", "segredo")
    assert chosen.takes_column("public", "abc", "segredos")


def _config(more: Mapping[str, str]) -> Any:
    needed = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "p"}
    return PostgresConnector.CONFIG.parse({**needed, **more})


def test_older_debezium_setting_names_are_accepted_and_invalid_settings_are_refused() -> None:
    settings = PostgresConnector.adapted({"database.server.name": "loja", "table.whitelist": "public.a"})
    assert settings["topic.prefix"] == "loja"
    assert settings["table.include.list"] == "public.a"
    for name, text in (("plugin.name", "decoderbufs"), ("snapshot.mode", "always"), ("table.include.list", "(")):
        reports = {each.key.name: each.errors for each in PostgresConnector.CONFIG.validate({name: text})}
        assert reports[name], name


# The transform.

COLUMNS = (
    TableColumn("id", ColumnType("int4"), is_nullable=False, is_key=True),
    TableColumn("nome", ColumnType("text")),
)
OLD = {"id": 1, "nome": "ana", "__deleted": "true"}
TABLE = CapturedTable("loja", "db", "public", "contas", COLUMNS, Handling())


def _events(operation: str, old: Any, new: Any) -> list[Record]:
    where = Where(lsn=5, time_us=1000, xid=7, offset={"lsn": 5, "event": 1})
    return list(TABLE.events(operation, old, new, False, where, 2000))


def _unwrapped(records: list[Record], **settings: str) -> list[Record]:
    transform = ExtractNewRecordState({name.replace("_", "."): text for name, text in settings.items()})
    found = [transform.apply(each) for each in records]
    for each in found:
        if each is not None and each.value_schema is not None:
            check(each.value_schema, each.value)
    return [each for each in found if each is not None]


def test_the_unwrap_transform_extracts_the_row_and_adds_the_requested_fields() -> None:
    (row,) = _unwrapped(_events("c", None, ("1", "ana")), add_fields="op,table,source.ts_ms,lsn:onde", add_headers="op")
    assert row.value == {"id": 1, "nome": "ana", "__op": "c", "__table": "contas", "__source_ts_ms": 1, "__onde": 5}
    assert [(each.key, each.value) for each in row.headers] == [("__op", "c")]
    assert row.value_schema is not None
    assert row.value_schema.name == "loja.public.contas.Value"


@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({}, [None]),
        ({"delete_tombstone_handling_mode": "drop"}, []),
        ({"delete_tombstone_handling_mode": "delete-to-tombstone"}, [None]),
        ({"delete_tombstone_handling_mode": "rewrite"}, [OLD]),
        ({"delete_tombstone_handling_mode": "rewrite-with-tombstone"}, [OLD, None]),
        ({"drop_tombstones": "false"}, [None]),
        ({"delete_handling_mode": "drop"}, []),
        ({"delete_handling_mode": "none", "drop_tombstones": "false"}, [None, None]),
        ({"delete_handling_mode": "rewrite"}, [OLD]),
    ],
)  # fmt: skip
def test_the_unwrap_transform_handles_deletes_as_configured(settings: dict[str, str], values: list[Any]) -> None:
    assert [each.value for each in _unwrapped(_events("d", ("1", "ana"), None), **settings)] == values


def test_the_unwrap_transform_passes_other_records_unchanged() -> None:
    plain = Record("t", value={"id": 1})
    assert _unwrapped([plain]) == [plain]


def test_an_update_of_the_key_is_a_delete_and_a_create() -> None:
    records = _events("u", ("1", "ana"), ("2", "ana"))
    assert [(each.key, each.value and each.value["op"]) for each in records] == [  # type: ignore[index, call-overload]
        ({"id": 1}, "d"),
        ({"id": 1}, None),
        ({"id": 2}, "c"),
    ]
