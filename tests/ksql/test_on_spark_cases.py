"""Run the cases of tests/ksql/cases whose plan is native on a real Spark, as batches.

A batch runs the plan of the stream over records in memory. Cases whose plan keeps no state are compared record by
record, those with an aggregate by the last row of each key.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.case_files import Case
from pessoa.ksql.ksql_errors import KsqlError
from pessoa.ksql.operators.case_runner import CaseFailure, OpenCase, check_outputs, open_case
from pessoa.ksql.operators.in_process import InProcessQuery
from pessoa.ksql.operators.key_partitioner import partition_of
from pessoa.ksql.operators.records import KafkaRecord
from pessoa.ksql.spark.query_choice import choose
from pessoa.ksql.spark.spark_expressions import SESSION_SETTINGS
from pessoa.pipelines.compiler import compile as compile_plan
from pessoa.pipelines.plan import KafkaSettings, Node, every
from pessoa.pipelines.stages import has_state
from tests.ksql.statements import row
from tests.ksql.test_ksql_cases import CASES

RECORDS = (
    "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY, timestamp TIMESTAMP,"
    " headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
# The frames of this many cases are run as one job of Spark.
CASES_IN_A_JOB = 12
MOST_NATIVE = 120
# Cases that differ by design (docs/DEVIATIONS.md): a number as text, and when a window closes.
DIFFERENT = ("STRING takes anything", "without GRACE rows are taken for a day")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def single_query(case: Case) -> tuple[OpenCase, LogicalPlan] | None:
    """Return the opened case and its plan; None unless it has exactly one persistent query and expects outputs."""
    if case.error is not None or case.outputs is None or case.schemas:
        return None
    try:
        opened = open_case(case)
    except KsqlError:
        return None
    plans = [decision.plan for decision in opened.queries]
    if len(plans) != 1 or plans[0] is None or plans[0].sink is None:
        return None
    return opened, plans[0]


def native_cases() -> Iterator[tuple[str, OpenCase, LogicalPlan, Node]]:
    for name, case in CASES:
        found = single_query(case)
        if found is not None and case.name not in DIFFERENT:
            choice = choose(found[1], {**dict(case.settings), "auto.offset.reset": "earliest"})
            if choice.native is not None:
                yield f"{name}: {case.name}", *found, choice.native.plan


def frame_of(spark: Any, opened: OpenCase, plan: Node, number: int) -> Any:
    by_topic: dict[str, list[tuple[object, ...]]] = {}
    for record in opened.input_records():
        headers = [{"key": key, "value": value} for key, value in record.headers]
        time = EPOCH + timedelta(milliseconds=record.timestamp_ms)
        by_topic.setdefault(record.topic, []).append(
            (record.topic, record.partition, record.offset, record.key, record.value, time, headers)
        )
    topics = {source.topic for source in opened.catalogue.sources.values()}
    rows = {topic: spark.createDataFrame(by_topic.get(topic, []), RECORDS).coalesce(1) for topic in topics}
    records = compile_plan(plan, spark, kafka=KafkaSettings("nowhere:1"), rows=rows)
    return records.selectExpr(f"{number} AS number", "key", "value", "unix_millis(timestamp) AS time_ms", "headers")


def test_native_spark_plans_of_cases_give_the_expected_outputs(spark: Any) -> None:
    for name, value in SESSION_SETTINGS.items():
        spark.conf.set(name, value)
    found = list(native_cases())
    chosen = found[:: max(1, len(found) // MOST_NATIVE)]
    assert len(chosen) >= 30, f"only {len(found)} cases are native"
    wrong: list[str] = []
    for first in range(0, len(chosen), CASES_IN_A_JOB):
        part = chosen[first : first + CASES_IN_A_JOB]
        frames = [frame_of(spark, opened, node, number) for number, (_, opened, _, node) in enumerate(part)]
        whole = frames[0]
        for frame in frames[1:]:
            whole = whole.unionAll(frame)
        outputs: dict[int, list[KafkaRecord]] = {}
        for number, key, value, time_ms, headers in whole.collect():
            kept = outputs.setdefault(number, [])
            pairs = tuple((name, _bytes(one)) for name, one in headers or ())
            kept.append(KafkaRecord("", 0, len(kept), time_ms, _bytes(key), _bytes(value), pairs))
        for number, (name, opened, plan, node) in enumerate(part):
            if problem := difference(opened, plan, node, outputs.get(number, [])):
                wrong.append(f"{name}: {problem}")
    assert not wrong, "\n".join(wrong[:20])


def difference(opened: OpenCase, plan: LogicalPlan, node: Node, records: list[KafkaRecord]) -> str:
    assert plan.sink is not None
    if any(map(has_state, every(node))):
        # A batch has only the last row of each key.
        query = InProcessQuery(plan, opened.settings, opened.schemas, 1)
        last = {one.key: row(*one[:3]) for record in opened.input_records() for one in query.take(record)}
        came = {one.key: row(one.key, one.value, one.timestamp_ms) for one in records}
        return "" if came == last else f"{came} is not {last}"
    topic, count = plan.sink.topic, opened.partitions(plan.sink.topic)
    # The partitions to which a producer would send the records.
    placed = [one._replace(topic=topic, partition=partition_of(one.key, count) if one.key else 0) for one in records]
    try:
        check_outputs(opened, {topic: placed})
    except CaseFailure as failure:
        return str(failure)
    return ""


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
