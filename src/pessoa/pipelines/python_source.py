"""A source of records that is written in Python: the way of a source connector into Spark.

A `SourceReader` says where it starts and what comes after an offset. An offset is a dict that JSON can hold; what is in
it is the reader's own affair. Spark keeps the offsets in the query's checkpoint:

    initial_offset() ──► read(offset) ──► rows, next offset ──► a batch ──► commit(next offset) ──► read(next offset) …
                                                        crash ──┴──► read_between(offset, next offset), the batch again

The reader is pickled into the query, so its class must be importable where Spark runs Python. It is called in one
process beside Spark's driver: what it brings is spread over the executors afterwards. A read that brings nothing gives
back the offset that it was given, and then there is no batch.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from pessoa.base.json_value import JsonObject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource

# An offset goes through JSON.
Offset: TypeAlias = JsonObject
Headers = list[tuple[str, bytes | None]]

FORMAT = "pessoa-python-source"
ROW_SCHEMA = (
    "topic STRING, partition INT, key BINARY, value BINARY,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>, timestamp TIMESTAMP"
)
_READER_OPTION = "reader"


class SourceRow(NamedTuple):
    """A record to write to a topic. Without a partition the producer chooses one, without a timestamp it is the
    current time."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None


class SourceReader(Protocol):
    def initial_offset(self) -> Offset:
        """Return the offset at which a query without a checkpoint begins."""

    def read(self, offset: Offset) -> tuple[Iterable[SourceRow], Offset]:
        """Return one batch of rows after the offset, and the offset after the batch."""

    def read_between(self, start: Offset, end: Offset) -> Iterable[SourceRow]:
        """Return the rows of a batch again after a crash. A source that cannot be exact may give more, never fewer."""

    def commit(self, offset: Offset) -> None:
        """Note that all rows up to the offset have been written."""


def python_source(spark: SparkSession, reader: SourceReader) -> DataFrame:
    """Return a streaming DataFrame of ROW_SCHEMA with the rows of the reader."""
    from pyspark import cloudpickle

    spark.dataSource.register(_source_class())
    dumps: Callable[[object], bytes] = cloudpickle.dumps
    pickled = base64.b64encode(dumps(reader)).decode("ascii")
    return spark.readStream.format(FORMAT).option(_READER_OPTION, pickled).load()


def _source_class() -> type[DataSource]:
    """Return the class of Spark's data source. Its base classes are pyspark's, which is imported late."""
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    class Reading(SimpleDataSourceStreamReader):  # type: ignore[misc, unused-ignore]
        def __init__(self, reader: SourceReader) -> None:
            self.reader = reader

        def initialOffset(self) -> Offset:  # noqa: N802
            return self.reader.initial_offset()

        def read(self, start: Offset) -> tuple[Iterator[tuple[object, ...]], Offset]:
            rows, end = self.reader.read(start)
            return map(as_tuple, rows), end

        def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[tuple[object, ...]]:  # noqa: N802
            return map(as_tuple, self.reader.read_between(start, end))

        def commit(self, end: Offset) -> None:
            self.reader.commit(end)

    class PythonSource(DataSource):  # type: ignore[misc, unused-ignore]
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return ROW_SCHEMA

        def simpleStreamReader(self, schema: object) -> Reading:  # noqa: N802
            import pickle

            return Reading(pickle.loads(base64.b64decode(self.options[_READER_OPTION])))  # noqa: S301

    return PythonSource


def as_tuple(row: SourceRow) -> tuple[object, ...]:
    """Return the row with Spark's types: timestamps in UTC, headers as structs."""
    import datetime

    topic, partition, key, value, headers, timestamp_ms = row
    time = None
    if timestamp_ms is not None:
        time = datetime.datetime.fromtimestamp(timestamp_ms / 1000, datetime.UTC)
    return topic, partition, key, value, headers or None, time
