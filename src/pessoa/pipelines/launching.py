"""From a specification to a running Spark query: the records, their writer, the speed.

    speed         delivery         writer
    real-time     at-least-once    Spark's Kafka sink; with a class of ours in its producer where timestamps are kept
    micro-batch   at-least-once    Spark's Kafka sink, or topic_writer where timestamps are kept
    micro-batch   exactly-once     topic_writer, with transactions
    micro-batch   (Python)         python_sink

The writers of our own end in a sink that does nothing: they have written when their task is done.

A task of a micro-batch reads all that there is and flushes before it ends. So its clients work in bulk, which Kafka's
defaults do not (`BULK_READS`, `BULK_WRITES`), and no record waits longer for it. In real-time mode one would.

A stream that looks up the latest row of a table (`Join.lookup`) must not meet a table that is still empty. So such a
query reads its tables first, each time that it starts (`loads_tables`): in one run of micro-batches over what is there,
with the same checkpoint, while its streams are held where they are. Then it goes on in real-time mode.

Spark writes a file before and after every micro-batch, and a batch waits for both. A plan without state that is
delivered at least once need not: Spark can write them beside the batches, in order, and a crash then repeats a batch
or two more (`WRITTEN_ASIDE`). It does so in real-time mode by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pessoa.pipelines.kafka_options import spark_settings
from pessoa.pipelines.plan import KafkaSettings, Node, Sink, Source, every, inputs
from pessoa.pipelines.python_sink import into_python
from pessoa.pipelines.queries import QuerySpec, Speed, find_function
from pessoa.pipelines.spark_versions import SPARK_VERSION
from pessoa.pipelines.topic_writer import into_topics, into_topics_at_least_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Offsets are written down between two batches, and there records wait; so a batch in real-time mode is long.
REAL_TIME_BATCH_MS = 30_000


# Every batch, so that the files have no gaps and the same query may go on in any other way.
WRITTEN_ASIDE = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "0"}


# Seconds of CPU for a copy of 500,000 records with these, without, and by plain PySpark: 3.1, 4.4 and 3.8 in Spark, and
# 0.6, 1.1 and 1.0 in the broker. The size of a fetch stays Kafka's, since Spark keeps dozens of consumers.
BULK_READS = {"max.poll.records": "5000"}
BULK_WRITES = {"linger.ms": "20", "batch.size": "131072"}


# Spark's own choice for files on a local disk starts several processes (`readlink`) for each of them, where Hadoop has
# no native library. A micro-batch writes two: a batch of a copy took 159 ms with it, of which 111 were for these files,
# and 73 without, of which 27. In other stores the choice stays Spark's.
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


# A source that waits for more records than there can be, and longer than since 1970, reads none.
HELD = {"minOffsetsPerTrigger": str(2**62), "maxTriggerDelay": "100000d"}

# Spark's Kafka sink has no column for a time. In real-time mode it travels in a header, and a class of ours in Spark's
# producer takes it from there (java_classes).
TIME_INTERCEPTOR = "pessoa.RecordTime"
_TIME_HEADER = (
    "named_struct('key', 'pessoa.time', 'value', unhex(lpad(hex(greatest(0L, unix_millis(timestamp))), 16, '0')))"
)


def client_settings(kafka: KafkaSettings) -> dict[str, str]:
    """Return Kafka's settings under librdkafka's names."""
    from pessoa.client.librdkafka import to_librdkafka

    return to_librdkafka({"bootstrap.servers": kafka.bootstrap_servers, **kafka.options}, lambda _: None)


def settings_of_writer(spec: QuerySpec, kafka: KafkaSettings) -> KafkaSettings:
    """Return the settings of the producers of a query, for both kinds of writers."""
    return msgspec.structs.replace(kafka, options={**kafka.options, **spec.producer_options})


def settings_of_reader(spec: QuerySpec, kafka: KafkaSettings) -> KafkaSettings:
    """Return the settings of the consumers of a query that has a plan."""
    return kafka if speed_of(spec) == "real-time" else _with_defaults(kafka, BULK_READS)


def settings_of_sink(spec: QuerySpec, kafka: KafkaSettings) -> KafkaSettings:
    """Return the settings of the producers of Spark's own Kafka sink."""
    chosen = settings_of_writer(spec, kafka)
    return chosen if speed_of(spec) == "real-time" else _with_defaults(chosen, BULK_WRITES)


def _with_defaults(kafka: KafkaSettings, defaults: Mapping[str, str]) -> KafkaSettings:
    return msgspec.structs.replace(kafka, options={**defaults, **kafka.options})


def speed_of(spec: QuerySpec) -> Speed:
    if spec.speed is not None:
        return spec.speed
    if spec.plan is None or spec.writer is not None or spec.delivery == "exactly-once" or spec.keep_timestamps:
        return "micro-batch"
    from pessoa.pipelines.stages import speed

    return speed(spec.plan)


def mode_of(spec: QuerySpec) -> Literal["append", "update"]:
    if spec.output_mode is not None:
        return spec.output_mode
    if speed_of(spec) == "real-time":
        # Spark takes no other there; without state it makes no difference.
        return "update"
    if spec.plan is None:
        return "append"
    from pessoa.pipelines.stages import output_mode

    return output_mode(spec.plan)


def must_load_tables(spec: QuerySpec) -> bool:
    """Whether the query reads tables to their end before it runs in real-time mode."""
    if spec.plan is None or speed_of(spec) != "real-time":
        return False
    from pessoa.pipelines.stages import lookups

    return bool(lookups(spec.plan))


def holding_streams(plan: Node) -> Node:
    """Return the plan in which the streams that look up a table read nothing until the table is loaded."""
    from pessoa.pipelines.stages import lookups, with_inputs

    held = {id(source) for join in lookups(plan) for source in every(join.left) if isinstance(source, Source)}

    def hold(node: Node) -> Node:
        if isinstance(node, Source) and id(node) in held:
            others = {name: value for name, value in node.options.items() if name != "maxOffsetsPerTrigger"}
            return msgspec.structs.replace(node, options={**others, **HELD})
        return with_inputs(node, tuple(map(hold, inputs(node))))

    return hold(plan)


def records_of(
    spec: QuerySpec, spark: SparkSession, kafka: KafkaSettings, *, loads_tables: bool = False, looks: bool = True
) -> DataFrame:
    """Return the records that the query writes, as a DataFrame. With `looks`, Spark checks the plan; PlanRefused
    describes its error in terms of the plan."""
    if spec.plan is not None:
        from pessoa.pipelines import compiler

        is_fast = speed_of(spec) == "real-time"
        reading = settings_of_reader(spec, kafka)
        plan = holding_streams(spec.plan) if loads_tables else spec.plan
        return compiler.compile(plan, spark, kafka=reading, functions=spec.functions, real_time=is_fast, looks=looks)
    function = find_function(spec.start_function) if isinstance(spec.start_function, str) else spec.start_function
    assert function is not None, "a specification has a plan or a function"
    return function(spark, kafka)


def choose_file_manager(spark: SparkSession, checkpoint: str) -> None:
    """Set Spark's checkpoint file manager; call it before queries with this checkpoint start in the session."""
    # Other versions of Spark have the class elsewhere.
    if checkpoint.startswith("file:") and str(spark.version).startswith(SPARK_VERSION.rpartition(".")[0]):
        spark.conf.set(FILE_MANAGER, LOCAL_FILES)


def launch(
    spec: QuerySpec, spark: SparkSession, kafka: KafkaSettings, checkpoint: str, slots: int,
    *, loads_tables: bool = False,
) -> StreamingQuery:  # fmt: skip
    """Start the query; Spark's own exceptions are raised unchanged. With `loads_tables` the query ends when its
    tables are loaded."""
    choose_file_manager(spark, checkpoint)
    for name, value in spec.spark_settings.items():
        spark.conf.set(name, value)
    # Spark looks at a plan when it starts it; to ask before would be a quarter of the time that a start takes. Our own
    # writers ask for its columns.
    is_known = isinstance(spec.plan, Sink) and speed_of(spec) == "real-time"
    records = records_of(spec, spark, kafka, loads_tables=loads_tables, looks=not is_known)
    writer, options = (records, {}) if spec.table is not None else _writer(spec, records, kafka, slots)
    # PySpark has no type for the real-time trigger.
    stream: Any = writer.writeStream.queryName(spec.id).outputMode(mode_of(spec))
    stream = stream.option("checkpointLocation", checkpoint).options(**options)
    stream = stream.format("kafka" if options else "noop") if spec.table is None else spec.table.applied(stream)
    if loads_tables:
        stream = stream.trigger(availableNow=True)
    elif speed_of(spec) == "real-time":
        stream = stream.trigger(realTime=f"{spec.trigger_ms or REAL_TIME_BATCH_MS} milliseconds")
    elif spec.trigger_ms is not None:
        stream = stream.trigger(processingTime=f"{spec.trigger_ms} milliseconds")
    if may_write_progress_aside(spec):
        stream = stream.options(**WRITTEN_ASIDE)
    try:
        started: StreamingQuery = stream.start()
    except Exception:
        # If it is the plan's fault, this says so in the plan's words.
        records_of(spec, spark, kafka, loads_tables=loads_tables)
        raise
    return started


def has_java_classes(spark: SparkSession) -> bool:
    """Whether a Spark that was started elsewhere has our classes."""
    from pyspark.errors import PySparkException

    try:
        spark.sql(f"SELECT java_method('java.lang.Class', 'forName', '{TIME_INTERCEPTOR}')").collect()
    except PySparkException:
        return False
    return True


def columns_of(spec: QuerySpec, records: DataFrame) -> Sequence[str]:
    """Return the columns that a query writes. Only for a plan that does not end in a topic is Spark queried for
    them."""
    if not isinstance(spec.plan, Sink):
        return records.columns
    from pessoa.pipelines.compiler import SINK_COLUMNS

    return SINK_COLUMNS


def with_times_in_headers(records: DataFrame, columns: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions

    given = "coalesce(headers, array())" if "headers" in columns else "array()"
    headers = f"IF(timestamp IS NULL, {given}, concat({given}, array({_TIME_HEADER})))"
    return records.withColumn("headers", functions.expr(headers))


def may_write_progress_aside(spec: QuerySpec) -> bool:
    if spec.plan is None or spec.writer is not None or spec.delivery == "exactly-once" or spec.keep_timestamps:
        return False
    from pessoa.pipelines.stages import has_state

    return speed_of(spec) == "micro-batch" and not any(map(has_state, every(spec.plan)))


def _writer(
    spec: QuerySpec, records: DataFrame, kafka: KafkaSettings, slots: int
) -> tuple[DataFrame, Mapping[str, str]]:
    if spec.writer is not None:
        return into_python(records, spec.writer), {}
    is_timed = spec.keep_timestamps and speed_of(spec) == "real-time"
    if spec.delivery == "exactly-once" or (spec.keep_timestamps and not is_timed):
        settings = client_settings(settings_of_writer(spec, kafka))
        if spec.delivery == "exactly-once":
            return into_topics(records, settings, spec.id, slots, spec.topic), {}
        return into_topics_at_least_once(records, settings, spec.topic), {}
    options = spark_settings(settings_of_sink(spec, kafka))
    if spec.topic is not None:
        options["topic"] = spec.topic
    columns = columns_of(spec, records)
    if is_timed:
        records = with_times_in_headers(records, columns)
        options["kafka.interceptor.classes"] = TIME_INTERCEPTOR
    known = [name for name in ("topic", "partition", "key", "value", "headers") if name in columns]
    return records.select(*known), options
