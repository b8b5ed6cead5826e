"""The figures of a topic's messages."""

from __future__ import annotations

import random

from pessoa.control_center.topic_analysis import HOUR_MS, MAX_HOURS, DistinctEstimate, SizeFigures, TopicFigures


def test_topic_analysis_counts_nulls_sizes_partitions_and_hours() -> None:
    figures = TopicFigures()
    figures.add(0, 10, b"k", b"12345")
    figures.add(1, HOUR_MS + 5, None, b"1")
    figures.add(1, HOUR_MS + 7, b"k", None)
    found = figures.report()
    assert (found.messages, found.null_keys, found.null_values) == (3, 1, 1)
    assert (found.distinct_keys, found.distinct_values) == (1, 2)
    assert found.value_bytes == [1.0, 3.0, 1.0, 5.0, 5.0, 5.0]
    assert (found.first_ms, found.last_ms) == (10, HOUR_MS + 7)
    assert found.partitions == {0: 1, 1: 2}
    assert found.hours == [(0, 1), (HOUR_MS, 2)]
    assert TopicFigures().report().key_bytes == []


def test_percentiles_are_right_to_a_tenth() -> None:
    rng = random.Random(7)
    sizes = [rng.randrange(1, 100_000) for _ in range(5000)]
    figures = SizeFigures()
    for size in sizes:
        figures.add(size)
    ordered = sorted(sizes)
    for percent in (1, 50, 95, 99):
        exact = ordered[len(ordered) * percent // 100 - 1]
        assert 0.9 * exact - 1 <= (figures.percentile(percent) or 0) <= exact


def test_distinct_values_are_estimated_to_a_few_percent() -> None:
    for count in (0, 1, 500, 50_000):
        found = DistinctEstimate()
        for number in range(count):
            found.add(b"%d" % number)
            found.add(b"%d" % number)
        assert abs(found.estimate() - count) <= 0.06 * count


def test_the_hours_of_a_topic_analysis_take_bounded_memory() -> None:
    figures = TopicFigures()
    for hour in range(5 * MAX_HOURS):
        figures.add(0, hour * HOUR_MS, None, None)
    assert len(figures.report().hours) == MAX_HOURS
    assert figures.report().hours[-1] == ((5 * MAX_HOURS - 1) * HOUR_MS, 1)
