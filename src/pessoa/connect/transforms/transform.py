"""What a transform is: a table of keys, and a function from a record to a record or to nothing.

Most transforms work on the key or on the value alone and exist twice, as `X$Key` and `X$Value`; `Sided` is what they
share. A transform is made once for each task and then asked for every record, so what can be prepared is prepared in
`configure`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from pessoa.connect.data import ConnectValue, DataFailure, Record, Schema, Struct, Type
from pessoa.connect.definition import Config, Table


class Transform(ABC):
    CONFIG: ClassVar[Table] = Table()

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.configure(self.CONFIG.parse(settings))

    def configure(self, config: Config) -> None:  # noqa: B027
        """Prepare for records with these settings."""

    @abstractmethod
    def apply(self, record: Record) -> Record | None:
        """Return the transformed record; None drops the record."""

    def close(self) -> None:  # noqa: B027
        """Close what `configure` has opened."""


class Sided(Transform):
    """A transform of the key or of the value."""

    IS_KEY: ClassVar[bool] = False
    # What the transform is for, in its failures.
    PURPOSE: ClassVar[str] = ""

    def schema_of(self, record: Record) -> Schema | None:
        return record.key_schema if self.IS_KEY else record.value_schema

    def value_of(self, record: Record) -> ConnectValue:
        return record.key if self.IS_KEY else record.value

    def changed(self, record: Record, schema: Schema | None, value: ConnectValue) -> Record:
        if self.IS_KEY:
            return record.but(key_schema=schema, key=value)
        return record.but(value_schema=schema, value=value)

    def fields_of(self, schema: Schema | None, value: ConnectValue) -> Struct:
        """Return the fields of a struct, or of a map without a schema. DataFailure for every other value."""
        if schema is not None and schema.type is not Type.STRUCT:
            raise DataFailure(f"Only Struct objects supported for [{self.PURPOSE}], found: {schema.type}")
        if not isinstance(value, dict):
            kind = "null" if value is None else type(value).__name__
            absence = "" if schema is not None else "in absence of schema "
            raise DataFailure(f"Only Map objects supported {absence}for [{self.PURPOSE}], found: {kind}")
        return value


def with_default(schema: Schema, value: ConnectValue, replace_null: bool = True) -> ConnectValue:
    return schema.default if value is None and replace_null else value
