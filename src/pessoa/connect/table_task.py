"""A table sink inside its query: rows of a topic converted and transformed as for any sink, then made rows of Spark's.

    KafkaRow ──converters, transforms──► Record ──TableSinkConnector──► dict ──► Arrow, which Spark's writer takes

What does not fit the columns goes the way of every record that a sink cannot deliver: a dead letter, or the end of the
task.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from pessoa.connect.data import ConnectValue, DataFailure, Record
from pessoa.connect.sink_task import CHUNK, SinkTask

if TYPE_CHECKING:
    import pyarrow as pa

    from pessoa.pipelines.python_sink import KafkaRow


class TableTask(SinkTask):
    """A `RowMaker` for the records of one connector."""

    def batches(self, rows: Iterable[KafkaRow], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        sink = self.opened()
        remaining = iter(rows)
        try:
            while chunk := list(islice(remaining, CHUNK)):
                sink.put(chunk)
                taken = sink.connector_object.take_rows()  # type: ignore[attr-defined]
                yield from _batches(taken, schema, sink.report)
                sink.flush()
        except BaseException:
            self.end()
            raise


def _batches(taken: list[tuple[Record, dict[str, ConnectValue]]], schema: pa.Schema, report: Any) -> Iterator[Any]:
    """Yield the rows as one Arrow batch; rows that do not fit the columns are reported and left out."""
    import pyarrow as pa

    if not taken:
        return
    try:
        yield pa.RecordBatch.from_pylist([row for _, row in taken], schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        fitting = []
        for record, row in taken:
            try:
                pa.RecordBatch.from_pylist([row], schema=schema)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as wrong:
                report(record, DataFailure(f"a record does not fit table.schema: {wrong}"))
            else:
                fitting.append(row)
        if fitting:
            yield pa.RecordBatch.from_pylist(fitting, schema=schema)
