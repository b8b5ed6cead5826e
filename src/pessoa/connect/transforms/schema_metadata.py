"""SetSchemaMetadata: another name or version for the schema."""

from __future__ import annotations

from dataclasses import replace

from pessoa.connect.data import DataFailure, Record
from pessoa.connect.definition import HIGH, INT, STRING, Config, Table, key
from pessoa.connect.transforms.fields import REPLACE_NULL
from pessoa.connect.transforms.transform import Sided


class SetSchemaMetadata(Sided):
    CONFIG = Table(
        key("schema.name", STRING, None, HIGH, "Schema name to set."),
        key("schema.version", INT, None, HIGH, "Schema version to set."),
        REPLACE_NULL,
    )

    def configure(self, config: Config) -> None:
        self._name = config.optional_string("schema.name")
        self._version = None if config["schema.version"] is None else config.integer("schema.version")
        if self._name is None and self._version is None:
            raise DataFailure("Neither schema name nor version configured")

    def apply(self, record: Record) -> Record:
        schema = self.schema_of(record)
        if schema is None:
            if self.value_of(record) is None:
                return record
            raise DataFailure("Schema required for [updating schema metadata]")
        name = schema.name if self._name is None else self._name
        version = schema.version if self._version is None else self._version
        return self.changed(record, replace(schema, name=name, version=version), self.value_of(record))
