"""The task of the table sink: rows from records, and errors for records that do not fit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from pessoa.connect.connectors.table_sink import TableSinkConnector
from pessoa.connect.data import Record
from pessoa.connect.table_task import _batches
from tests.unit.connect.test_connectors import opened

SCHEMA = pa.schema([("id", pa.int64()), ("nome", pa.string()), ("_offset", pa.int64())])


def record(value: Any, offset: int = 0) -> Record:
    return Record("t", 1, key=5, value=value, offset=offset, timestamp=1000)


def sink(schema: str) -> Any:
    return opened(TableSinkConnector, {"table.path": "/t", "table.schema": schema})


def test_rows_have_the_fields_of_the_value_and_the_requested_record_metadata() -> None:
    table = sink("id BIGINT, _offset BIGINT, _timestamp TIMESTAMP, _key STRING")
    table.put([record({"id": 1, "x": 2}, 7), record(None), record("text")])
    ((_, row),) = table.take_rows()
    assert row == {"id": 1, "x": 2, "_offset": 7, "_timestamp": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), "_key": "5"}
    assert table.take_rows() == []
    ((_, why),) = table.refused
    assert "HoistField" in str(why)


def test_a_row_that_does_not_fit_the_table_is_reported_and_the_others_are_written() -> None:
    table = sink("id BIGINT, nome STRING, _offset BIGINT")
    table.put([record({"id": 1, "nome": "a"}, 1), record({"id": "x"}, 2), record({"nome": "c"}, 3)])
    refused: list[Any] = []
    (batch,) = _batches(table.take_rows(), SCHEMA, lambda record, why: refused.append((record.offset, str(why))))
    assert batch.to_pylist() == [{"id": 1, "nome": "a", "_offset": 1}, {"id": None, "nome": "c", "_offset": 3}]
    ((offset, why),) = refused
    assert offset == 2
    assert "table.schema" in why


@pytest.mark.parametrize(
    ("name", "text"), [("table.schema", ""), ("table.schema", "id"), ("table.schema", "<>"), ("table.path", None)]
)
def test_columns_that_spark_cannot_parse_are_refused(name: str, text: str | None) -> None:
    settings = {"table.path": "/t", "table.schema": "id BIGINT", name: text}
    errors = {each.key.name: each.errors for each in TableSinkConnector.CONFIG.validate(settings)}
    assert errors[name]


def test_partitioning_a_table_by_an_unknown_column_is_refused() -> None:
    assert TableSinkConnector.check({"table.schema": "id BIGINT, loja STRING", "table.partition.by": "loja"}) == {}
    assert "table.partition.by" in TableSinkConnector.check({"table.schema": "id BIGINT", "table.partition.by": "loja"})
