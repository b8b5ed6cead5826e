"""The topics that a plan writes."""

from __future__ import annotations

from pessoa.pipelines.plan import Errors, Filter, Sink, Source, Through, Union
from pessoa.pipelines.plan_topics import topics_written


def test_a_plan_writes_its_sink_topics_between_and_dead_letters() -> None:
    left = Source("orders", errors=Errors("dead-letter", "orders-refused"))
    between = Through(Filter(Union((left, Source("returns"))), "true"), "orders-again")
    plan = Sink(between, "totals")
    assert topics_written(plan) == ("orders-again", "orders-refused", "totals")


def test_a_topic_of_ours_between_two_queries_is_not_named() -> None:
    plan = Through(Source("orders"))
    assert topics_written(plan) == ()
