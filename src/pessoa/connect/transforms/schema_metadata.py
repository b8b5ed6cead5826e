"""SetSchemaMetadata: another name or version for the schema."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pessoa.connect.data import DataFailure, Record
from pessoa.connect.definition import HIGH, INT, STRING, Table, key
from pessoa.connect.transforms.fields import REPLACE_NULL
from pessoa.connect.transforms.transform import Sided


class SetSchemaMetadata(Sided):
    CONFIG = Table(
        key("schema.name", STRING, None, HIGH, "Schema name to set."),
        key("schema.version", INT, None, HIGH, "Schema version to set."),
        REPLACE_NULL,
    )

    def configure(self, config: dict[str, Any]) -> None:
        self._changes = {
            name: config[f"schema.{name}"] for name in ("name", "version") if config[f"schema.{name}"] is not None
        }
        if not self._changes:
            raise DataFailure("Neither schema name nor version configured")

    def apply(self, record: Record) -> Record:
        schema = self.schema_of(record)
        if schema is None:
            if self.value_of(record) is None:
                return record
            raise DataFailure("Schema required for [updating schema metadata]")
        return self.changed(record, replace(schema, **self._changes), self.value_of(record))
