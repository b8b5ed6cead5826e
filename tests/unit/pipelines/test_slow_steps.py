"""A slow step reports that it runs and its progress; a fast one reports nothing."""

from __future__ import annotations

import threading

from pessoa.pipelines.query_progress import Progress
from pessoa.pipelines.slow_steps import saying


def test_a_slow_step_reports_its_name_and_progress_until_it_is_done() -> None:
    said: list[str] = []
    was_said = threading.Event()

    def say(sentence: str) -> None:
        said.append(sentence)
        was_said.set()

    with saying(say, "Starting Spark", lambda: "3 of 4 jars", interval_s=0.01):
        assert was_said.wait(60)
    assert said[0] == "Starting Spark: 0 s so far (3 of 4 jars)"
    count = len(said)
    with saying(say, "Quick", interval_s=60):
        pass
    assert len(said) == count


def test_a_query_that_is_far_behind_reports_its_remaining_time() -> None:
    assert Progress(lag=120_000, rows_per_second=4000).catching_up() == (
        "catches up: 120,000 records to read at 4,000 a second, 30 s to go"
    )
    for near in (Progress(lag=100, rows_per_second=4000), Progress(lag=0, rows_per_second=1), Progress(lag=None)):
        assert near.catching_up() == ""
