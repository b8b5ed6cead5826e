"""From a specification to a running Spark query: the records, their writer, the speed.

    speed         delivery         writer
    real-time     at-least-once    Spark's Kafka sink
    micro-batch   at-least-once    Spark's Kafka sink, or topic_writer where timestamps are kept
    micro-batch   exactly-once     topic_writer, with transactions
    micro-batch   (Python)         python_sink

The writers of our own end in a sink that does nothing: they have written when their task is done.

Spark writes a file before and after every micro-batch, and a batch waits for both. A plan without state that is
delivered at least once need not: Spark can write them beside the batches, in order, and a crash then repeats a batch
or two more (`WRITTEN_ASIDE`). It does so in real-time mode by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pessoa.pipelines.plan import KafkaSettings, every
from pessoa.pipelines.python_sink import into_python
from pessoa.pipelines.queries import QuerySpec, Speed, find_function
from pessoa.pipelines.topic_writer import into_topics, into_topics_at_least_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Offsets are written down between two batches, and there records wait; so a batch in real-time mode is long.
REAL_TIME_BATCH_MS = 30_000


# Every batch, so that the files have no gaps and the same query may go on in any other way.
WRITTEN_ASIDE = {"asyncProgressTrackingEnabled": "true", "asyncProgressTrackingCheckpointIntervalMs": "0"}


def client_settings(kafka: KafkaSettings) -> dict[str, str]:
    """Kafka's settings in librdkafka's words."""
    from pessoa.client.librdkafka import to_librdkafka

    return to_librdkafka({"bootstrap.servers": kafka.bootstrap_servers, **kafka.options}, lambda _: None)


def spark_settings(kafka: KafkaSettings) -> dict[str, str]:
    """The same as options of Spark's Kafka source and sink."""
    options = {f"kafka.{key}": value for key, value in kafka.options.items()}
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, **options}


def settings_of_writer(spec: QuerySpec, kafka: KafkaSettings) -> KafkaSettings:
    """The settings for the producers of a query, whichever of the two writers it gets."""
    return msgspec.structs.replace(kafka, options={**kafka.options, **spec.producer_options})


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


def records_of(spec: QuerySpec, spark: SparkSession, kafka: KafkaSettings) -> DataFrame:
    if spec.plan is not None:
        from pessoa.pipelines import compiler

        return compiler.compile(spec.plan, spark, kafka=kafka, functions=spec.functions)
    function = find_function(spec.start_function) if isinstance(spec.start_function, str) else spec.start_function
    assert function is not None, "a specification has a plan or a function"
    return function(spark, kafka)


def launch(spec: QuerySpec, spark: SparkSession, kafka: KafkaSettings, checkpoint: str, slots: int) -> StreamingQuery:
    """Start the query; what Spark refuses is raised as it comes."""
    records = records_of(spec, spark, kafka)
    writer, options = _writer(spec, records, kafka, slots)
    # PySpark has no type for the real-time trigger.
    stream: Any = writer.writeStream.queryName(spec.id).outputMode(mode_of(spec))
    stream = stream.option("checkpointLocation", checkpoint).options(**options)
    stream = stream.format("kafka" if options else "noop")
    if speed_of(spec) == "real-time":
        stream = stream.trigger(realTime=f"{spec.trigger_ms or REAL_TIME_BATCH_MS} milliseconds")
    elif spec.trigger_ms is not None:
        stream = stream.trigger(processingTime=f"{spec.trigger_ms} milliseconds")
    if may_write_progress_aside(spec):
        stream = stream.options(**WRITTEN_ASIDE)
    started: StreamingQuery = stream.start()
    return started


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
    kafka = settings_of_writer(spec, kafka)
    if spec.delivery == "exactly-once":
        return into_topics(records, client_settings(kafka), spec.id, slots, spec.topic), {}
    if spec.keep_timestamps:
        return into_topics_at_least_once(records, client_settings(kafka), spec.topic), {}
    options = spark_settings(kafka)
    if spec.topic is not None:
        options["topic"] = spec.topic
    known = [name for name in ("topic", "partition", "key", "value", "headers") if name in records.columns]
    return records.select(*known), options
