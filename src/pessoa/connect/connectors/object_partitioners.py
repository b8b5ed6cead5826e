"""Confluent's partitioners: which folder a record goes to.

DefaultPartitioner     partition=0
FieldPartitioner       country=pt/city=porto                          partition.field.name=country,city
TimeBasedPartitioner   year=2026/month=11/day=16/hour=03              path.format, partition.duration.ms
Hourly-, DailyPartitioner   the same with a format and duration of their own
"""

from __future__ import annotations

import time as clock
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, date, datetime

from pessoa.connect.data import ConnectValue, DataFailure, Record, from_millis, to_millis
from pessoa.connect.definition import Config
from pessoa.connect.java_dates import JavaDateFormat

_DAY_MS = 86_400_000
# The most bytes of a value in a folder's name: file systems allow 255, and the field's name stands before it.
LONGEST_NAME = 200


class Partitioner(ABC):
    def __init__(self, config: Config) -> None:
        self.config = config

    @abstractmethod
    def folder(self, record: Record) -> str:
        """Return the record's folder, with slashes if nested; DataFailure if the record lacks the field that names
        it."""


class DefaultPartitioner(Partitioner):
    def folder(self, record: Record) -> str:
        return f"partition={record.partition}"


class FieldPartitioner(Partitioner):
    def folder(self, record: Record) -> str:
        return "/".join(
            f"{name}={_clean(_field(record, name))}" for name in self.config.entries("partition.field.name")
        )


class TimeBasedPartitioner(Partitioner):
    FORMAT = ""
    DURATION_MS = 0

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        # Joda's Y is the year of the era, which is the year.
        self._format = JavaDateFormat((self.FORMAT or config.string("path.format")).replace("Y", "y"))
        self._duration_ms = self.DURATION_MS or max(config.integer("partition.duration.ms"), 1)

    def folder(self, record: Record) -> str:
        moment_ms = self._moment_ms(record)
        return self._format.format(from_millis(moment_ms - moment_ms % self._duration_ms))

    def _moment_ms(self, record: Record) -> int:
        match self.config["timestamp.extractor"]:
            case "Record":
                if record.timestamp is None:
                    raise DataFailure("the record has no timestamp")
                return record.timestamp
            case "RecordField":
                return _millis(_field(record, self.config.string("timestamp.field")))
        return int(clock.time() * 1000)


class HourlyPartitioner(TimeBasedPartitioner):
    FORMAT = "'year'=yyyy/'month'=MM/'day'=dd/'hour'=HH"
    DURATION_MS = _DAY_MS // 24


class DailyPartitioner(TimeBasedPartitioner):
    FORMAT = "'year'=yyyy/'month'=MM/'day'=dd"
    DURATION_MS = _DAY_MS


def _field(record: Record, path: str) -> ConnectValue:
    value = record.value
    for name in path.split("."):
        if not isinstance(value, dict) or value.get(name) is None:
            raise DataFailure(f"the record has no field {path}")
        value = value[name]
    return value


def _clean(value: ConnectValue) -> str:
    # A field's value names one folder, never a path to another one.
    name = "".join("_" if letter in "/\\" or ord(letter) < 32 else letter for letter in str(value))
    if len(name.encode()) > LONGEST_NAME:
        raise DataFailure(f"{name[:40]}… is too long for the name of a folder: {len(name)} characters")
    return name


def _millis(value: ConnectValue) -> int:
    match value:
        case datetime():
            return to_millis(value)
        case date():
            return to_millis(datetime(value.year, value.month, value.day, tzinfo=UTC))
        case int():
            return value
        case str():
            try:
                return to_millis(datetime.fromisoformat(value))
            except ValueError:
                pass
    raise DataFailure(f"{value!r} is no time")


PARTITIONERS: dict[str, Callable[[Config], Partitioner]] = {
    kind.__name__: kind
    for kind in (DefaultPartitioner, FieldPartitioner, TimeBasedPartitioner, HourlyPartitioner, DailyPartitioner)
}
