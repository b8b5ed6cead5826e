"""How a plan runs: its speed, its output mode, and where it is cut."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pessoa.pipelines.plan import (
    Aggregate,
    Apply,
    Column,
    Filter,
    Format,
    Function,
    Join,
    Node,
    Project,
    Rekey,
    Sink,
    Source,
    Union,
    Window,
    Within,
    every,
)
from pessoa.pipelines.shapes import shape
from pessoa.pipelines.stages import has_state, is_cut, output_mode, speed, stages, why_not_real_time

SALES = Source("vendas", value=Format("json", "produto STRING, valor DOUBLE"))
CLIENTS = Source("clientes", value=Format("json", "nome STRING"), is_table=True)
TOTAL = (Column("total", "sum(valor)"),)
MINUTE = Window("tumbling", 60_000)


def types(node: Node) -> Mapping[str, str]:
    return dict.fromkeys(shape(node).columns, "string")


def test_a_plan_without_state_runs_in_real_time() -> None:
    assert speed(Sink(Filter(SALES, "valor > 1"), "x")) == "real-time"


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (Aggregate(SALES, TOTAL), "it keeps state"),
        (Apply(SALES, Function("f", "INT")), "Python functions"),
        (Filter(SALES, Function("f", "BOOLEAN")), "Python functions"),
        (Source("t", value=Format("avro", "a INT")), "avro is read and written in Python"),
        (Union((SALES, SALES)), "it reads vendas twice"),
    ],
)
def test_what_keeps_a_plan_from_real_time_is_said(plan: Node, reason: str) -> None:
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
        (Join(SALES, SALES, within=Within(1, 1), right_prefix="r_"), "append"),
    ],
)
def test_the_output_mode_follows_from_the_state(plan: Node, mode: str) -> None:
    assert output_mode(Sink(plan, "x")) == mode


def test_one_state_needs_one_query() -> None:
    plan = Sink(Aggregate(Rekey(SALES, (Column("produto", "produto"),)), TOTAL), "x")
    assert not is_cut(plan)
    (only,) = stages(plan, "app-x", types)
    assert (only.plan, only.topic, only.is_internal) == (plan, "x", False)


def test_state_after_state_goes_through_a_topic() -> None:
    joined = Rekey(Join(SALES, CLIENTS), (Column("nome", "nome"),))
    plan = Sink(Aggregate(joined, TOTAL, MINUTE), "x")
    assert is_cut(plan)
    first, last = stages(plan, "app-x", types)
    assert (first.topic, first.is_internal, last.topic) == ("app-x-1-repartition", True, "x")
    for stage in (first, last):
        assert sum(has_state(node) for node in every(stage.plan)) == 1
    assert shape(first.plan).keys == ("nome",)
    assert shape(last.plan) == shape(plan)
    assert [node.topic for node in every(last.plan) if isinstance(node, Source)] == ["app-x-1-repartition"]


def test_what_is_read_back_from_the_topic_is_what_went_in() -> None:
    counted = Aggregate(SALES, TOTAL, MINUTE)
    plan = Sink(Join(counted, Aggregate(SALES, (Column("n", "count(*)"),), MINUTE)), "x")
    first, second, last = stages(plan, "a", types)
    assert [stage.topic for stage in (first, second)] == ["a-1-repartition", "a-2-repartition"]
    made = shape(last.plan)
    assert made.keys == ("key", "window_start", "window_end")
    assert made.is_table
    assert made.window == MINUTE


def test_state_side_by_side_is_cut_too() -> None:
    one = Rekey(Aggregate(SALES, TOTAL), (Column("key", "key"),))
    plan = Sink(Union((one, Project(Source("t"), (Column("total", "1"),)))), "x")
    assert not is_cut(plan)
    both = Sink(Union((one, one)), "x")
    assert [stage.is_internal for stage in stages(both, "a", types)] == [True, True, False]
