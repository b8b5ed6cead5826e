"""Spark's own plan of a plan, as Spark prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pessoa.pipelines.compiler import compile as compile_plan
from pessoa.pipelines.plan import KafkaSettings, Node

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_plan(plan: Node, spark: SparkSession, kafka: KafkaSettings) -> list[str]:
    frame: Any = compile_plan(plan, spark, kafka=kafka)
    # What `explain` prints; PySpark has no public name for it.
    text: str = frame._explain_string(mode="simple")
    return [line for line in text.splitlines() if line.strip()]
