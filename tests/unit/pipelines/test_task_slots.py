"""Task slots: how many Spark has, how many a plan holds, and the error message if they do not suffice."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.pipelines.plan import Aggregate, Column, Filter, Sink, Source, Union
from pessoa.pipelines.task_slots import (
    LOCAL_SLOTS,
    NoTaskSlots,
    TaskSlots,
    refuse_if_full,
    slots_of_master,
    slots_of_session,
    slots_wanted,
    with_room,
)

COUNT = (Column("count", "count(*)"),)


def test_all_cores_of_this_machine_have_room_for_dozens_of_queries() -> None:
    room = slots_of_master("local[*]")
    assert room is not None
    assert room >= LOCAL_SLOTS
    assert with_room("local[*]") == f"local[{room}]"


def test_a_configured_number_of_task_slots_is_used() -> None:
    assert with_room("local[3]") == "local[3]"
    assert (slots_of_master("local[3]"), slots_of_master("local"), slots_of_master("spark://host:7077")) == (3, 1, None)


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        (Sink(Filter(Source("six"), "true"), "x"), 6),
        (Sink(Aggregate(Source("six"), COUNT), "x"), 6 + 4),
        (Sink(Aggregate(Union((Source("six"), Source("two"))), COUNT), "x"), 6 + 2 + 4),
        (Sink(Source("unknown"), "x"), 1),
        (None, 1),
    ],
)
def test_a_plan_needs_a_task_slot_for_each_partition_that_it_reads_and_each_of_its_state(
    plan: Any, wanted: int
) -> None:
    assert slots_wanted(plan, {"six": 6, "two": 2}, 4) == wanted


def test_some_task_slots_are_reserved_for_micro_batches() -> None:
    assert TaskSlots(64, 50).free == 10
    assert TaskSlots(4, 0).free == 3
    assert TaskSlots(4, 9).free == 0


def test_a_query_that_exceeds_the_free_task_slots_is_refused_with_advice() -> None:
    refuse_if_full("vendas", 3, TaskSlots(4, 0))
    with pytest.raises(NoTaskSlots, match=r"vendas needs 4 task slots .* of Spark's 4 there are 3 to be had: stop"):
        refuse_if_full("vendas", 4, TaskSlots(4, 0))


@pytest.mark.parametrize(
    ("plan", "slots"),
    [
        ("== Physical Plan ==\n*(1) Range (0, 1, step=1, splits=32)\n", 32),
        ("Range (0, 1, step=1, splits=Some(8))", 8),
        ("LocalTableScan", None),
    ],
)
def test_the_task_slots_of_a_spark_cluster_are_read_from_the_plan_of_a_range(plan: str, slots: int | None) -> None:
    session: Any = SimpleNamespace(range=lambda _: SimpleNamespace(_explain_string=lambda: plan))
    assert slots_of_session(session) == slots
