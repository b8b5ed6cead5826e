"""Records handed to Python code, batch by batch, on the executors: the way of a sink connector out of Spark.

    Kafka source ──► one Spark task for each partition of a topic ──► SinkWriter.open, put, close

`put` gets the rows of one partition of a topic in their order. When it has returned for every partition, the batch is
done and will not come again. After a crash a batch that was not done is repeated whole: same number, same rows. So a
writer that takes a row exactly once remembers the number of the batch together with its rows, or writes rows so that
a second time changes nothing (an upsert).

The writer is pickled into the query, so its class must be importable where Spark runs Python. An exception in it ends
the query, with its traceback as the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pessoa.pipelines.tasks import Task, this_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

# Spark's Kafka source numbers the types of timestamps as Kafka does.
TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value")
_MICROSECONDS = 1000


class KafkaRow(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class SinkWriter(Protocol):
    def open(self, task: Task) -> None:
        """Prepare for the rows of a partition in a batch; called before the first row."""

    def put(self, rows: Iterable[KafkaRow], batch_id: int) -> None:
        """Write the rows; the iterator reads them from Spark, and can be read once."""

    def close(self) -> None:
        """Release what `open` opened; also called if `put` failed."""


def into_python(records: DataFrame, writer: SinkWriter) -> DataFrame:
    """Return the DataFrame of Spark's Kafka source (with `includeHeaders`), with the writer at its end; it outputs
    no rows."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        put_all(writer, batches)
        return iter(())

    return records.mapInArrow(write, "nothing INT")


def put_all(writer: SinkWriter, batches: Iterator[pa.RecordBatch]) -> None:
    first = next(batches, None)
    if first is None:
        return
    task = this_task()
    writer.open(task)
    try:
        writer.put(rows_of(first, batches), task.batch_id)
    finally:
        writer.close()


def rows_of(first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> Iterator[KafkaRow]:
    yield from _rows(first)
    for batch in others:
        yield from _rows(batch)


def _rows(batch: pa.RecordBatch) -> Iterator[KafkaRow]:
    columns = {name: batch.column(name) for name in batch.schema.names}
    plain = [columns[name].to_pylist() for name in _COLUMNS if name != "timestamp"]
    # As numbers: a timestamp as a Python object would cost more than all the rest.
    times = columns["timestamp"].cast("int64").to_pylist()
    headers = columns["headers"].to_pylist() if "headers" in columns else [None] * batch.num_rows
    for topic, partition, offset, kind, key, value, time, pairs in zip(*plain, times, headers, strict=True):
        named = [(pair["key"], pair["value"]) for pair in pairs or ()]
        timestamp_type = TIMESTAMP_TYPES.get(kind, "NoTimestampType")
        yield KafkaRow(topic, partition, offset, time // _MICROSECONDS, timestamp_type, key, value, named)
