"""How a plan runs: real-time or micro-batches, its output mode, and where it is split into stages."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from pessoa.pipelines.launching import HELD, holding_streams, must_load_tables
from pessoa.pipelines.plan import (
    Aggregate,
    Apply,
    Column,
    Distinct,
    Errors,
    Filter,
    Format,
    Function,
    Join,
    Node,
    Project,
    Rekey,
    Sink,
    Source,
    Through,
    Union,
    Window,
    Within,
    every,
)
from pessoa.pipelines.queries import QuerySpec
from pessoa.pipelines.shapes import shape
from pessoa.pipelines.stages import Stage, has_state, is_cut, output_mode, speed, stages, why_not_real_time

SALES = Source("vendas", value=Format("json", "produto STRING, valor DOUBLE"))
CLIENTS = Source("clientes", value=Format("json", "nome STRING"), is_table=True)
TOTAL = (Column("total", "sum(valor)"),)
MINUTE = Window("tumbling", 60_000)


def types(node: Node) -> Mapping[str, str]:
    return dict.fromkeys(shape(node).columns, "string")


LETTERS = Errors("dead-letter", "bad")
WITH_LETTERS = Source("vendas", value=Format("json", "produto STRING, valor DOUBLE"), errors=LETTERS)


@pytest.mark.parametrize(
    "plan",
    [
        Filter(SALES, "valor > 1"),
        Filter(WITH_LETTERS, "valor > 1"),
        Aggregate(SALES, TOTAL),
        Aggregate(SALES, TOTAL, MINUTE),
        Aggregate(SALES, TOTAL, Window("hopping", 60_000, 10_000)),
        Aggregate(Union((SALES, SALES)), TOTAL),
        Filter(Aggregate(SALES, TOTAL), "total > 1"),
        Union((SALES, SALES)),
        Distinct(SALES),
        Distinct(Union((SALES, SALES)), ("produto",)),
        Join(SALES, CLIENTS, lookup="latest"),
        Join(Filter(CLIENTS, "nome > ''"), Project(CLIENTS, (Column("nome", "upper(nome)"),)), right_prefix="r_"),
    ],
)
def test_a_plan_whose_state_is_at_most_an_aggregate_runs_in_real_time(plan: Node) -> None:
    assert why_not_real_time(Sink(plan, "x")) is None
    assert speed(Sink(plan, "x")) == "real-time"


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (Aggregate(SALES, TOTAL, Window("session", 1)), "a session is told when it has ended"),
        (Aggregate(SALES, TOTAL, Window("tumbling", 1, final=True)), "it says final results only"),
        (Join(SALES, SALES, within=Within(1, 1), right_prefix="r_"), "it joins two streams"),
        (Join(SALES, CLIENTS), "in the order of their times"),
        (Distinct(SALES, within_ms=1000), "what it has seen is forgotten after a time"),
        (
            Aggregate(Rekey(Aggregate(SALES, TOTAL), (Column("total", "total"),)), (Column("n", "count(*)"),)),
            "it keeps state after state",
        ),
        (Union((Rekey(Aggregate(SALES, TOTAL), (Column("key", "key"),)), SALES)), "it unites what an aggregate gives"),
        (Aggregate(WITH_LETTERS, TOTAL), "its bad records leave it beside an aggregate"),
        (Apply(SALES, Function("f", "INT")), "Python functions"),
        (Filter(SALES, Function("f", "BOOLEAN")), "Python functions"),
        (Source("t", value=Format("avro", "a INT")), "avro is read and written in Python"),
    ],
)
def test_the_reason_why_a_plan_cannot_run_in_real_time_is_shown(plan: Node, reason: str) -> None:
    assert reason in str(why_not_real_time(Sink(plan, "x")))
    assert speed(plan) == "micro-batch"


@pytest.mark.parametrize(
    ("plan", "mode"),
    [
        (SALES, "append"),
        (Aggregate(SALES, TOTAL), "update"),
        (Aggregate(SALES, TOTAL, MINUTE), "update"),
        (Aggregate(SALES, TOTAL, Window("tumbling", 1, final=True)), "append"),
        (Aggregate(SALES, TOTAL, Window("session", 1)), "append"),
        (Join(SALES, CLIENTS), "update"),
        (Distinct(SALES), "update"),
        (Distinct(SALES, within_ms=1), "append"),
        (Join(SALES, SALES, within=Within(1, 1), right_prefix="r_"), "append"),
    ],
)
def test_the_output_mode_is_derived_from_the_state_of_the_plan(plan: Node, mode: str) -> None:
    assert output_mode(Sink(plan, "x")) == mode


def test_a_plan_with_one_stateful_step_needs_one_query() -> None:
    plan = Sink(Aggregate(Rekey(SALES, (Column("produto", "produto"),)), TOTAL), "x")
    assert not is_cut(plan)
    (only,) = stages(plan, "app-x", types, real_time=True)
    assert only == Stage("app-x", plan, "x", is_internal=False)


def test_a_plan_is_split_at_a_through_topic() -> None:
    plan = Sink(Filter(Through(SALES, "meio", 6), "valor > 1"), "x")
    assert is_cut(plan)
    first, last = stages(plan, "app-x", types, real_time=True)
    assert (first.query, first.topic, first.is_internal, first.partitions) == ("app-x-1", "meio", True, 6)
    assert [node.topic for node in every(last.plan) if isinstance(node, Source)] == ["meio"]
    assert not any(isinstance(node, Through) for stage in (first, last) for node in every(stage.plan))


def test_a_plan_with_two_stateful_steps_in_a_row_is_split_by_a_topic() -> None:
    joined = Rekey(Join(SALES, CLIENTS), (Column("nome", "nome"),))
    plan = Sink(Aggregate(joined, TOTAL, MINUTE), "x")
    assert is_cut(plan)
    first, last = stages(plan, "app-x", types)
    assert (first.topic, first.is_internal, last.topic) == ("app-x-1-repartition", True, "x")
    assert (first.query, last.query) == ("app-x-1", "app-x")
    for stage in (first, last):
        assert sum(has_state(node) for node in every(stage.plan)) == 1
    assert shape(first.plan).keys == ("nome",)
    assert shape(last.plan) == shape(plan)
    assert [node.topic for node in every(last.plan) if isinstance(node, Source)] == ["app-x-1-repartition"]


def test_rows_read_back_from_an_internal_topic_equal_those_written() -> None:
    counted = Aggregate(SALES, TOTAL, MINUTE)
    plan = Sink(Join(counted, Aggregate(SALES, (Column("n", "count(*)"),), MINUTE)), "x")
    first, second, last = stages(plan, "a", types)
    assert [stage.topic for stage in (first, second)] == ["a-1-repartition", "a-2-repartition"]
    made = shape(last.plan)
    assert made.keys == ("key", "window_start", "window_end")
    assert made.is_table
    assert made.window == MINUTE


def test_a_union_of_two_stateful_steps_is_split_too() -> None:
    one = Rekey(Aggregate(SALES, TOTAL), (Column("key", "key"),))
    plan = Sink(Union((one, Project(Source("t"), (Column("total", "1"),)))), "x")
    assert not is_cut(plan)
    both = Sink(Union((one, one)), "x")
    assert [stage.is_internal for stage in stages(both, "a", types)] == [True, True, False]


def test_a_union_above_an_aggregate_is_split_only_for_real_time_mode() -> None:
    one = Rekey(Aggregate(SALES, TOTAL), (Column("key", "key"),))
    plan = Sink(Union((one, Project(Source("t"), (Column("total", "1"),)))), "x")
    assert len(stages(plan, "a", types)) == 1
    assert is_cut(plan, real_time=True)
    parts = stages(plan, "a", types, real_time=True)
    assert [part.is_internal for part in parts] == [True, False]
    assert [why_not_real_time(part.plan) for part in parts] == [None, None]


def test_dead_letters_beside_an_aggregate_get_their_own_query_only_for_real_time_mode() -> None:
    plan = Sink(Aggregate(WITH_LETTERS, TOTAL, MINUTE), "x")
    assert [part.plan for part in stages(plan, "a", types)] == [plan]
    letters, main = stages(plan, "a", types, real_time=True)
    assert (letters.query, letters.topic, letters.is_internal) == ("a-letters", "bad", False)
    assert not any(map(has_state, every(letters.plan)))
    assert (main.query, main.topic) == ("a", "x")
    assert [node.errors.then for node in every(main.plan) if isinstance(node, Source)] == ["skip"]
    assert [why_not_real_time(part.plan) for part in (letters, main)] == [None, None]


def test_a_plan_that_cannot_run_in_real_time_is_not_split_for_it() -> None:
    plan = Sink(Aggregate(Apply(WITH_LETTERS, Function("f", "STRUCT<valor: DOUBLE>"), LETTERS), TOTAL), "x")
    assert not is_cut(plan, real_time=True)
    assert [part.plan for part in stages(plan, "a", types, real_time=True)] == [plan]


def test_state_after_distinct_rows_goes_through_a_topic_and_both_parts_run_in_real_time() -> None:
    plan = Sink(Aggregate(Distinct(WITH_LETTERS, ("produto",)), TOTAL, MINUTE), "x")
    parts = stages(plan, "a", types, real_time=True)
    assert [part.query for part in parts] == ["a-1-letters", "a-1", "a"]
    assert [why_not_real_time(part.plan) for part in parts] == [None, None, None]


def test_a_stream_that_looks_up_a_table_waits_until_the_table_is_loaded() -> None:
    limited = msgspec.structs.replace(SALES, options={"maxOffsetsPerTrigger": "10", "failOnDataLoss": "false"})
    spec = QuerySpec("q", plan=Sink(Join(Filter(limited, "valor > 1"), CLIENTS, lookup="latest"), "x"))
    assert must_load_tables(spec)
    assert spec.plan is not None
    held = {node.topic: node.options for node in every(holding_streams(spec.plan)) if isinstance(node, Source)}
    assert held == {"vendas": {"failOnDataLoss": "false", **HELD}, "clientes": {}}
    assert not must_load_tables(QuerySpec("q", plan=spec.plan, delivery="exactly-once")), "sorted by time instead"
