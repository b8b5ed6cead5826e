"""TimestampConverter: moments between text, numbers since 1970 and Connect's own types."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

from pessoa.base.config_values import one_of
from pessoa.connect.data import (
    DATE,
    DATE_SCHEMA,
    EPOCH,
    INT64,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectValue,
    DataFailure,
    Field,
    Record,
    Schema,
    Type,
)
from pessoa.connect.data import STRING as STRING_SCHEMA
from pessoa.connect.definition import HIGH, LOW, REQUIRED, STRING, Config, Table, key
from pessoa.connect.java_dates import JavaDateFormat
from pessoa.connect.transforms.fields import REPLACE_NULL
from pessoa.connect.transforms.transform import Sided, with_default

_TARGETS = {
    "string": STRING_SCHEMA,
    "unix": INT64,
    "Date": DATE_SCHEMA,
    "Time": TIME_SCHEMA,
    "Timestamp": TIMESTAMP_SCHEMA,
}
_UNITS = {
    "seconds": timedelta(seconds=1),
    "milliseconds": timedelta(milliseconds=1),
    "microseconds": timedelta(microseconds=1),
}


class TimestampConverter(Sided):
    PURPOSE = "converting timestamp formats"
    CONFIG = Table(
        key("field", STRING, "", HIGH, "The field with the timestamp, or empty if the entire value is one."),
        key("target.type", STRING, REQUIRED, one_of(*_TARGETS), HIGH, "The desired representation."),
        key("format", STRING, "", "A pattern of SimpleDateFormat, for text that is read or written."),
        key("unix.precision", STRING, "milliseconds", one_of("nanoseconds", "microseconds", "milliseconds", "seconds"),
            LOW,
            "The unit of numbers."),
        REPLACE_NULL,
    )  # fmt: skip

    def configure(self, config: Config) -> None:
        self._field = config.string("field")
        self._target = config.string("target.type")
        self._precision = config.string("unix.precision")
        self._replace_null = config.boolean("replace.null.with.default")
        pattern = config.string("format")
        if self._target == "string" and not pattern:
            raise DataFailure("TimestampConverter requires format option to be specified when using string timestamps")
        try:
            self._format = JavaDateFormat(pattern) if pattern else None
        except ValueError as wrong:
            raise DataFailure(
                "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps: "
                f"{pattern} ({wrong})"
            ) from None
        self._schemas: dict[Schema, Schema] = {}

    def apply(self, record: Record) -> Record:
        schema, value = self.schema_of(record), self.value_of(record)
        if not self._field:
            if value is None and schema is None:
                return record
            target = None if schema is None else self._target_schema(schema)
            return self.changed(record, target, self._convert(schema, value))
        if value is None:
            return record
        fields = dict(self.fields_of(schema, value))
        if schema is None:
            fields[self._field] = self._convert(None, fields.get(self._field))
            return self.changed(record, None, fields)
        inner = schema.field(self._field)
        if inner is None:
            raise DataFailure(f"Unknown field: {self._field}")
        fields[self._field] = self._convert(inner, fields.get(self._field))
        known = self._schemas.get(schema)
        if known is None:
            changed = (
                Field(each.name, self._target_schema(each.schema)) if each.name == self._field else each
                for each in schema.fields
            )
            known = self._schemas[schema] = replace(schema, fields=tuple(changed))
        return self.changed(record, known, fields)

    def _target_schema(self, schema: Schema) -> Schema:
        return replace(_TARGETS[self._target], optional=schema.optional)

    def _convert(self, schema: Schema | None, value: ConnectValue) -> ConnectValue:
        if schema is not None:
            value = with_default(schema, value, self._replace_null)
        if value is None:
            return None
        return self._from_moment(self._to_moment(schema, value))

    def _to_moment(self, schema: Schema | None, value: ConnectValue) -> datetime:
        kind = schema.name if schema is not None else None
        if isinstance(value, datetime):
            return value
        if isinstance(value, date) and kind in (None, DATE):
            return datetime(value.year, value.month, value.day, tzinfo=UTC)
        if isinstance(value, time) and kind in (None, TIME):
            return datetime.combine(EPOCH.date(), value, UTC)
        if isinstance(value, str):
            if self._format is None:
                raise DataFailure(
                    "TimestampConverter requires format option to be specified when using string timestamps"
                )
            return self._format.parse(value)
        if isinstance(value, int) and not isinstance(value, bool) and (schema is None or schema.type is Type.INT64):
            if self._precision == "nanoseconds":
                return EPOCH + timedelta(microseconds=value // 1000)
            return EPOCH + value * _UNITS[self._precision]
        raise DataFailure(f"TimestampConverter does not support {type(value).__name__} objects as timestamps")

    def _from_moment(self, moment: datetime) -> ConnectValue:
        match self._target:
            case "string":
                assert self._format is not None
                return self._format.format(moment)
            case "unix":
                # Java's dates have no more than milliseconds.
                millis = (moment - EPOCH) // timedelta(milliseconds=1)
                return {"seconds": millis // 1000, "milliseconds": millis, "microseconds": millis * 1000,
                        "nanoseconds": millis * 1_000_000}[self._precision]  # fmt: skip
            case "Date":
                return moment.date()
            case "Time":
                return moment.time()
        return moment
