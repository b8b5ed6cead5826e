"""TableSink: records as rows of a table, written by Spark itself: Parquet, ORC, JSON or CSV files, or another format
that Spark was started with.

The columns are given, in Spark's words: `table.schema=id BIGINT, nome STRING, preco DECIMAL(10,2)`. A field of the same
name fills a column, others are left out, and a column without a field is null. `_topic`, `_partition`, `_offset`,
`_timestamp` and `_key` are there for the asking. A record without a value is left out: rows are only ever added.

Every record is in the table once: Spark writes the number of a batch down with its files (`pipelines/table_target.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pessoa.base.config_values import Value
from pessoa.connect.connector import SinkConnector
from pessoa.connect.data import ConnectValue, DataFailure, Record, from_millis
from pessoa.connect.definition import HIGH, LIST, MEDIUM, REQUIRED, STRING, Config, Settings, Table, key

METADATA = ("_topic", "_partition", "_offset", "_timestamp", "_key")
_COLUMN = re.compile(r"\s*(?:`[^`]+`|\w+)\s+\w+")


def _schema_complaint(value: Value, _: Settings) -> str | None:
    if _COLUMN.match(str(value)):
        return None
    return "it must be columns in Spark's words, such as: id BIGINT, nome STRING"


class TableSinkConnector(SinkConnector):
    NAMES = ("pessoa.connect.connectors.TableSinkConnector",)
    # Its rows go to one of Spark's writers, and not to `put` alone.
    IS_WRITTEN_BY_SPARK: ClassVar[bool] = True
    CONFIG = Table(
        key("table.path", STRING, REQUIRED, HIGH, "The folder of the table, as Spark sees it (file:, s3a:, hdfs:).",
            group="Table"),
        key("table.format", STRING, "parquet", HIGH, "parquet, orc, json, csv, or another that Spark has.",
            group="Table"),
        key("table.schema", STRING, REQUIRED, _schema_complaint, HIGH, "The columns: id BIGINT, nome STRING.",
            group="Table"),
        key("table.partition.by", LIST, (), MEDIUM, "The columns that become folders.", group="Table"),
    )  # fmt: skip

    @classmethod
    def check(cls, settings: Mapping[str, str]) -> Mapping[str, str]:
        schema = settings.get("table.schema", "")
        for name in (each.strip() for each in settings.get("table.partition.by", "").split(",")):
            if name and not re.search(rf"(^|[\s,`<]){re.escape(name)}[\s`]", schema):
                return {"table.partition.by": f"table.schema has no column {name}"}
        return {}

    def start(self, config: Config) -> None:
        self._rows: list[tuple[Record, dict[str, ConnectValue]]] = []
        schema = config.string("table.schema")
        self._metadata = [name for name in METADATA if re.search(rf"\b{name}\b", schema)]

    def put(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.value is None:
                continue
            if not isinstance(record.value, dict):
                kind = type(record.value).__name__
                self.report(record, DataFailure(f"a value of the type {kind} has no fields (HoistField$Value)"))
                continue
            self._rows.append((record, {**record.value, **self._facts(record)}))

    def _facts(self, record: Record) -> dict[str, ConnectValue]:
        if not self._metadata:
            return {}
        facts: dict[str, ConnectValue] = {
            "_topic": record.topic,
            "_partition": record.partition,
            "_offset": record.offset,
            "_timestamp": None if record.timestamp is None else from_millis(record.timestamp),
            "_key": record.key if record.key is None else str(record.key),
        }
        return {name: facts[name] for name in self._metadata}

    def take_rows(self) -> list[tuple[Record, dict[str, ConnectValue]]]:
        """Return the rows that were put since the last call."""
        rows, self._rows = self._rows, []
        return rows
