"""Which way a plan runs on Spark: by Spark's own operators where they mean what ksql means, or by the ordered operator.

| | native | ordered |
|---|---|---|
| operators | Spark's, in the JVM | ksql/operators, in Python workers |
| speed | real-time: a record by itself, milliseconds | micro-batches: tenths of a second |
| outputs | one for each change | one for each change |

`pessoa.speed` = `micro-batches` makes a query run the ordered way whatever it is. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.spark.native_plan import NativePlan, plan_native
from pessoa.ksql.spark.spark_expressions import NotNative
from pessoa.pipelines.plan import Start
from pessoa.pipelines.queries import Delivery

SPEED = "pessoa.speed"
MICRO_BATCHES = "micro-batches"
_EXACTLY_ONCE = ("exactly_once", "exactly_once_v2", "exactly_once_beta")


@dataclass(frozen=True)
class Choice:
    # None: the ordered way.
    native: NativePlan | None
    speed: str
    why: str


def delivery_of(properties: Mapping[str, str]) -> Delivery:
    return "exactly-once" if properties.get("processing.guarantee") in _EXACTLY_ONCE else "at-least-once"


def start_of(properties: Mapping[str, str]) -> Start:
    return "earliest" if properties.get("auto.offset.reset", "latest").lower() == "earliest" else "latest"


def choose(plan: LogicalPlan, properties: Mapping[str, str]) -> Choice:
    """Return whether a plan runs in real-time mode or in micro-batches, and the reason as a part of a sentence."""
    if properties.get(SPEED, "").lower() == MICRO_BATCHES:
        return Choice(None, MICRO_BATCHES, f"{SPEED} says so")
    if delivery_of(properties) == "exactly-once":
        return Choice(None, MICRO_BATCHES, "exactly-once writes batches in transactions")
    try:
        native = plan_native(plan, start_of(properties), properties)
    except NotNative as refused:
        return Choice(None, MICRO_BATCHES, str(refused))
    return Choice(native, "real-time", "Spark's own operators mean the same for all of it")
