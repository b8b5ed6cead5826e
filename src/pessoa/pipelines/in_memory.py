"""A plan on records in memory: the whole of them as one batch, the same compiler, the same Spark, no cluster.

What differs from a stream: there is one batch, so an aggregate says its last word only, and nothing is ever late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pessoa.pipelines import compiler
from pessoa.pipelines.plan import KafkaSettings, Node
from pessoa.pipelines.python_functions import NamedFunctions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = (
    "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY, time_ms BIGINT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


class KafkaRecord(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


def run(
    plan: Node,
    spark: SparkSession,
    records: Mapping[str, Iterable[KafkaRecord]],
    functions: NamedFunctions,
) -> list[KafkaRecord]:
    """Return the records that a plan with a sink at its end writes, in the order of their times."""
    # State is kept by a part of Spark that is created by the first request about streams; before that, a batch with
    # state fails.
    _ = spark.streams.active
    frames = {topic: frame_of(spark, given) for topic, given in records.items()}
    written = compiler.compile(plan, spark, kafka=KafkaSettings(""), functions=functions, rows=frames)
    rows = written.selectExpr("topic", "key", "value", "unix_millis(timestamp) AS time_ms", "headers").collect()
    found = [
        KafkaRecord(
            row.topic,
            _bytes(row.key),
            _bytes(row.value),
            row.time_ms,
            tuple((header.key, _bytes(header.value)) for header in row.headers or ()),
        )
        for row in rows
    ]
    return sorted(found, key=lambda record: record.timestamp_ms)


def frame_of(spark: SparkSession, records: Iterable[KafkaRecord]) -> DataFrame:
    rows = [
        (record.topic, 0, offset, record.key, record.value, record.timestamp_ms, list(record.headers))
        for offset, record in enumerate(records)
    ]
    frame = spark.createDataFrame(rows, _COLUMNS)
    return frame.selectExpr(
        "topic", "partition", "offset", "key", "value", "timestamp_millis(time_ms) AS timestamp", "headers"
    )


def _bytes(data: bytes | bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)


_session: SparkSession | None = None


def session(home: Path | None = None) -> SparkSession:
    """Return the session for trials, of a Spark that this process starts once and stops at its exit."""
    global _session
    if _session is None:
        import atexit
        import tempfile

        from pessoa.pipelines.spark_server import SparkOptions, SparkServer

        folder = tempfile.TemporaryDirectory(prefix="pessoa-trial-", ignore_cleanup_errors=True)
        server = SparkServer.start(home or Path(folder.name), SparkOptions(master="local[2]"))
        atexit.register(folder.cleanup)
        atexit.register(server.stop)
        _session = server.session()
    return _session
