"""One ordered operator with state on Spark: records of topics in, records out, the meaning is a program's.

    Kafka source ─ prepare ─ (task, row) ─ shuffle by task ─ run with the task's state ─ records for a topic writer

A program says what the records mean; rows are opaque here. It is named as `module:function` with an argument of
bytes, and each Python worker loads it once. A task is a number: all of its rows of a batch come to one call, which has
the whole state of the task as bytes by name and key (Spark's MapState in RocksDB). So a program can put the rows in an
order of its own, and says each step that it makes. Rows of a program without state are not shuffled.

Spark's state is asked through a socket. `CachedState` reads an entry once in a batch and writes it once at its end.

A batch that Spark repeats has the same rows and the same state before it, so a program whose result depends on nothing
else writes the same again: this is what exactly-once asks for (docs/decisions/0009). Records are dealt to transactions
by their task, and so stay in the order in which the task said them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pessoa.pipelines.plan import KafkaSettings
from pessoa.pipelines.topic_writer import DEALT_BY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

# All rows of a batch for a task are in memory at once.
RECORDS_PER_BATCH = 100_000
# Programs are small, and a worker serves many queries.
MOST_LOADED = 256
ROWS_PER_ARROW_BATCH = 10_000
OUTPUT = (
    "task INT, topic STRING, partition INT, key BINARY, value BINARY, time_ms BIGINT,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
OUTPUT_COLUMNS = ("task", "topic", "partition", "key", "value", "time_ms", "headers")
PREPARED = "task INT, row BINARY"


class ReadRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class WrittenRecord(NamedTuple):
    topic: str
    # None: the producer's choice, by the key.
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


class TaskState(Protocol):
    def get(self, name: str, key: bytes) -> bytes | None: ...

    def put(self, name: str, key: bytes, value: bytes) -> None: ...

    def delete(self, name: str, key: bytes) -> None: ...


class OrderedProgram(Protocol):
    @property
    def has_state(self) -> bool: ...

    def prepare(self, record: ReadRecord) -> Iterable[tuple[int, bytes]]:
        """Return the rows of a record, each with the number of its task."""

    def run(self, task: int, rows: list[bytes], state: TaskState) -> Iterable[WrittenRecord]:
        """Return the records that a task makes of its rows of a batch, which come in no particular order."""


@dataclass(frozen=True)
class OrderedQuery:
    """The topics to read, and the program: the function `program` (`module:function`) returns it for `argument`."""

    topics: tuple[str, ...]
    program: str
    argument: bytes
    # Spark's startingOffsets.
    start: str = "earliest"
    # Options of Spark's Kafka source.
    options: Mapping[str, str] = field(default_factory=dict)


@lru_cache(MOST_LOADED)
def load(program: str, argument: bytes) -> OrderedProgram:
    from importlib import import_module

    module, _, name = program.partition(":")
    found: OrderedProgram = getattr(import_module(module), name)(argument)
    return found


def pack(value: object, by_value: Iterable[ModuleType] = ()) -> bytes:
    """Return a value of this process, functions included, pickled for the workers of its own Spark; `unpack` is the
    inverse.

    Functions of the modules `by_value`, which workers cannot import, are pickled with everything that they use.
    """
    from pyspark import cloudpickle

    for module in by_value:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    packed: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return packed


def unpack(packed: bytes) -> object:
    """Return the value that `pack` packed. The bytes come from the driver alone, as every query's functions do."""
    import pickle

    return pickle.loads(packed)  # noqa: S301


def records_of(query: OrderedQuery, spark: SparkSession, kafka: KafkaSettings) -> DataFrame:
    """Return the records that the program makes: topic, partition, key, value, headers, timestamp."""
    program, argument = query.program, query.argument
    records = _read(query, spark, kafka)
    if load(program, argument).has_state:
        rows = records.mapInArrow(lambda batches: _prepared(batches, program, argument), PREPARED)
        made = rows.groupBy("task").transformWithState(
            statefulProcessor=_processor(program, argument),
            outputStructType=OUTPUT,
            outputMode="Append",
            timeMode="None",
        )
    else:
        made = records.mapInArrow(lambda batches: _run_without_state(batches, program, argument), OUTPUT)
    return made.selectExpr(
        "topic", "partition", "key", "value", "headers", "timestamp_millis(time_ms) AS timestamp", f"task AS {DEALT_BY}"
    )


def start_function(query: OrderedQuery) -> Callable[[SparkSession, KafkaSettings], DataFrame]:
    """Return the query as the start function of an engine's specification."""
    return partial(records_of, query)


def _processor(program: str, argument: bytes) -> StatefulProcessor:
    from pessoa.pipelines.ordered_state_processor import OrderedProcessor

    return OrderedProcessor(program, argument)


def _read(query: OrderedQuery, spark: SparkSession, kafka: KafkaSettings) -> DataFrame:
    from pessoa.pipelines.kafka_options import spark_settings

    reader = spark.readStream.format("kafka").options(**spark_settings(kafka))
    reader = (
        reader.option("kafka.bootstrap.servers", kafka.bootstrap_servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", ",".join(query.topics))
        .option("startingOffsets", query.start)
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", str(RECORDS_PER_BATCH))
    )
    for name, value in query.options.items():
        reader = reader.option(name, value)
    return reader.load().select("topic", "partition", "offset", "timestamp", "key", "value", "headers")


# What runs in the tasks.


def _prepared(batches: Iterable[pa.RecordBatch], program: str, argument: bytes) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    prepare = load(program, argument).prepare
    schema = pa.schema([("task", pa.int32()), ("row", pa.binary())])
    for batch in batches:
        rows = [row for record in _records(batch) for row in prepare(record)]
        for first in range(0, len(rows), ROWS_PER_ARROW_BATCH):
            tasks, packed = zip(*rows[first : first + ROWS_PER_ARROW_BATCH], strict=True)
            yield pa.RecordBatch.from_arrays(
                [pa.array(tasks, pa.int32()), pa.array(packed, pa.binary())], schema=schema
            )


def _run_without_state(batches: Iterable[pa.RecordBatch], program: str, argument: bytes) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    loaded = load(program, argument)
    schema = output_schema()
    for batch in batches:
        rows_by_task: dict[int, list[bytes]] = {}
        for record in _records(batch):
            for task, row in loaded.prepare(record):
                rows_by_task.setdefault(task, []).append(row)
        made = [
            output_row(task, record)
            for task, rows in rows_by_task.items()
            for record in loaded.run(task, rows, NoState())
        ]
        if made:
            columns = list(zip(*made, strict=True))
            arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def output_schema() -> pa.Schema:
    """Return OUTPUT as an Arrow schema."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("task", pa.int32()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("time_ms", pa.int64()),
            ("headers", pa.list_(header)),
        ]
    )


def output_row(task: int, record: WrittenRecord) -> tuple[object, ...]:
    headers = [{"key": name, "value": value} for name, value in record.headers] or None
    return (task, record.topic, record.partition, record.key, record.value, record.timestamp_ms, headers)


def _records(batch: pa.RecordBatch) -> Iterator[ReadRecord]:
    names = ("topic", "partition", "offset", "key", "value", "headers")
    columns = [batch.column(name).to_pylist() for name in names]
    times = batch.column("timestamp").cast("int64").to_pylist()
    for topic, partition, offset, key, value, headers, time_us in zip(*columns, times, strict=True):
        pairs = tuple((header["key"], header["value"]) for header in headers) if headers else ()
        yield ReadRecord(topic, partition, offset, time_us // 1000, key, value, pairs)


class NoState:
    """The state of a program whose `has_state` is False; every access fails."""

    def get(self, name: str, key: bytes) -> bytes | None:
        raise AssertionError(f"the program has no state, and asks for {name} {key!r}")

    def put(self, name: str, key: bytes, value: bytes) -> None:
        raise AssertionError(f"the program has no state, and puts {len(value)} bytes to {name} {key!r}")

    def delete(self, name: str, key: bytes) -> None:
        raise AssertionError(f"the program has no state, and deletes {name} {key!r}")


class StoredMap(Protocol):
    """The methods of Spark's MapState that are used."""

    def getValue(self, key: tuple[object, ...]) -> Iterable[object] | None: ...  # noqa: N802

    def updateValue(self, key: tuple[object, ...], value: tuple[object, ...]) -> None: ...  # noqa: N802

    def removeKey(self, key: tuple[object, ...]) -> None: ...  # noqa: N802


class CachedState:
    """The state of a task during a batch: each entry is read once, and written once by `flush` if it has changed."""

    def __init__(self, stored: StoredMap) -> None:
        self._stored = stored
        self._before: dict[tuple[str, bytes], bytes | None] = {}
        self._now: dict[tuple[str, bytes], bytes | None] = {}

    def get(self, name: str, key: bytes) -> bytes | None:
        place = (name, key)
        if place not in self._now:
            found = self._stored.getValue(place)
            self._before[place] = self._now[place] = None if found is None else _bytes(next(iter(found)))
        return self._now[place]

    def put(self, name: str, key: bytes, value: bytes) -> None:
        self._now[name, key] = value

    def delete(self, name: str, key: bytes) -> None:
        self._now[name, key] = None

    def flush(self) -> None:
        for place, value in self._now.items():
            if place in self._before and self._before[place] == value:
                continue
            if value is not None:
                self._stored.updateValue(place, (value,))
            elif self._before.get(place, b"") is not None:
                self._stored.removeKey(place)
        self._before = dict(self._now)


def _bytes(value: object) -> bytes:
    # Spark's rows have bytearrays.
    assert isinstance(value, bytes | bytearray)
    return bytes(value)
