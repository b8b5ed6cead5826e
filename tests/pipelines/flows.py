"""Pipelines that the tests start by the names of these functions, written as a user of `pessoa pipelines` would."""

from __future__ import annotations

from typing import Any

from pessoa.pipelines.kafka_options import spark_settings
from pessoa.pipelines.plan import KafkaSettings


def records(spark: Any, kafka: KafkaSettings, topic: str, **options: str) -> Any:
    source = spark.readStream.format("kafka").options(**spark_settings(kafka))
    return source.options(subscribe=topic, startingOffsets="earliest", **options).load()


def copy(spark: Any, kafka: KafkaSettings) -> Any:
    """Return a query that copies records from `input` to the topic that the query names, in small batches."""
    return records(spark, kafka, "input", maxOffsetsPerTrigger="500").select("key", "value")


def shout(spark: Any, kafka: KafkaSettings) -> Any:
    return records(spark, kafka, "input").selectExpr("key", "CAST(upper(CAST(value AS STRING)) AS BINARY) AS value")


def windowed_count(spark: Any, kafka: KafkaSettings) -> Any:
    """Return a query that counts the records of a key in each minute of event time, and emits every change."""
    counted = (
        records(spark, kafka, "input", maxOffsetsPerTrigger="500")
        .selectExpr("CAST(key AS STRING) AS name", "timestamp")
        .withWatermark("timestamp", "1 hour")
        .groupBy("name", _window())
        .count()
    )
    return counted.selectExpr("name AS key", "concat(unix_seconds(window.start), '=', count) AS value")


def _window() -> Any:
    from pyspark.sql.functions import window

    return window("timestamp", "1 minute")


def fails_on_poison(spark: Any, kafka: KafkaSettings) -> Any:
    from pyspark.sql.functions import col, udf

    @udf("string", useArrow=False)
    def checked(value: bytes) -> str:
        if value == b"poison":
            raise ValueError("this record is poison")
        return value.decode()

    return records(spark, kafka, "poisoned").select(col("key"), checked(col("value")).alias("value"))
