"""Progress messages while queries catch up."""

from __future__ import annotations

from pessoa.pipelines.queries import QueryStatus
from pessoa.pipelines.query_progress import Progress
from pessoa.streams.backlog import Backlog


def status(lag: int | None, batch_id: int) -> QueryStatus:
    progress = Progress(batch_id=batch_id, lag=lag, rows_per_second=12_345.6)
    return QueryStatus("vendas", "RUNNING", "at-least-once", "micro-batch", 0, "", "g", progress)


def test_a_query_that_is_far_behind_says_how_far_now_and_then_until_it_has_caught_up() -> None:
    backlog = Backlog()
    assert backlog.sentences([status(None, -1)], 0.0) == []
    assert backlog.sentences([status(500_000, 0)], 1.0) == [
        "vendas ▕░░░░░░░░░░░░░░░░░░░░▏ 0 % · 0 of 500,000 records · 12,346 a second · 41 s to go"
    ]
    assert backlog.sentences([status(400_000, 1)], 2.0) == [], "it spoke a second ago"
    assert backlog.sentences([status(300_000, 1)], 3.5) == [
        "vendas ▕████████░░░░░░░░░░░░▏ 40 % · 200,000 of 500,000 records · 12,346 a second · 24 s to go"
    ]
    assert backlog.sentences([status(300_000, 1)], 9.0) == [], "there is nothing new"
    assert backlog.sentences([status(0, 2)], 10.0) == ["vendas has caught up"]
    assert backlog.sentences([status(500_000, 3)], 20.0) == [], "a lag that comes later is not a catch-up"


def test_a_query_without_a_backlog_reports_nothing() -> None:
    backlog = Backlog()
    assert backlog.sentences([status(3, 0)], 0.0) == []
    assert backlog.sentences([status(500_000, 1)], 10.0) == []


def test_a_query_without_a_batch_is_reported_as_running() -> None:
    backlog = Backlog()
    assert backlog.sentences([status(None, -1)], 0.0) == []
    assert backlog.sentences([status(None, -1)], 6.0) == [
        "vendas runs, and Spark tells of it after its first batch: 6 s"
    ]
    assert backlog.sentences([status(None, -1)], 7.0) == [], "it spoke a second ago"
    assert backlog.sentences([status(0, 0)], 12.0) == []
