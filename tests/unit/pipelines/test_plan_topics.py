"""The topics that a plan writes."""

from __future__ import annotations

from pessoa.pipelines.plan import Errors, Filter, Sink, Source, Through, Union
from pessoa.pipelines.plan_topics import topics_written


def test_topics_written_by_a_plan_are_its_sinks_through_topics_and_dead_letters() -> None:
    left = Source("orders", errors=Errors("dead-letter", "orders-refused"))
    between = Through(Filter(Union((left, Source("returns"))), "true"), "orders-again")
    plan = Sink(between, "totals")
    assert topics_written(plan) == ("orders-again", "orders-refused", "totals")


def test_internal_topics_are_not_among_the_topics_written_by_a_plan() -> None:
    plan = Through(Source("orders"))
    assert topics_written(plan) == ()
