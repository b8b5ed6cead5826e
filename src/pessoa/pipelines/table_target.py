"""Records of topics as rows of a table that one of Spark's own writers keeps: the way of a table sink out of Spark.

    Kafka source ──► one Spark task for each partition: RowMaker, bytes to rows ──► Spark's writer: parquet, …

Spark's file sinks and table formats take a batch once: its number is written down together with its files, so a batch
that is repeated after a crash adds nothing. Readers see a batch whole or not at all (for files, those that read the
folder with Spark, which knows the list of files in `_spark_metadata`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pessoa.pipelines.python_sink import KafkaRow, rows_of
from pessoa.pipelines.tasks import Task, this_task

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class TableTarget:
    # A format of Spark's: parquet, orc, json, csv, or one whose jars Spark was started with (delta, iceberg).
    format: str
    # A folder, or with a catalogue the table's name.
    path: str
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    def applied(self, stream: Any) -> Any:
        """Return the stream writer with its target set. PySpark has no type for both kinds of sessions."""
        stream = stream.format(self.format).options(**self.options).option("path", self.path)
        return stream.partitionBy(*self.partition_by) if self.partition_by else stream


class RowMaker(Protocol):
    """Makes the rows of a table from records; pickled into the query."""

    def open(self, task: Task) -> None:
        """Prepare for the rows of a partition in a batch; called before the first row."""

    def batches(self, rows: Iterable[KafkaRow], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the table as Arrow batches."""


def as_rows(spark: SparkSession, records: DataFrame, maker: RowMaker, columns: str) -> DataFrame:
    """Return the DataFrame of Spark's Kafka source (with `includeHeaders`) as rows with columns like `id INT, name
    STRING`."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Only a session can read such text; in the tasks there is none.
    schema = to_arrow_schema(spark.createDataFrame([], columns).schema, timezone="UTC")

    def convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:
            return
        maker.open(this_task())
        yield from maker.batches(rows_of(first, batches), schema)

    return records.mapInArrow(convert, columns)
