"""The lengths of batches keep the queries of one Spark apart."""

from __future__ import annotations

import heapq

from pessoa.ksql.spark.batch_lengths import batch_ms

QUERIES = [f"CSAS_S{number}_{number}" for number in range(30)]
# Of a core, to plan one batch.
PLAN_MS = 150


def longest_busy_ms(lengths: list[int]) -> int:
    """Return the longest time without a pause for which plans are made in the second hour, if all begin at once."""
    ends = [(length, number) for number, length in enumerate(lengths)]
    heapq.heapify(ends)
    free_ms = busy_since_ms = longest = 0
    while (end_ms := ends[0][0]) < 7_200_000:
        if end_ms > free_ms:
            busy_since_ms = end_ms
        free_ms = max(free_ms, end_ms) + PLAN_MS
        if busy_since_ms > 3_600_000:
            longest = max(longest, free_ms - busy_since_ms)
        heapq.heapreplace(ends, (free_ms + lengths[ends[0][1]], ends[0][1]))
    return longest


def test_batches_last_from_half_a_minute_to_a_minute() -> None:
    lengths = [batch_ms(name) for name in QUERIES]
    assert min(lengths) >= 30_000
    assert max(lengths) < 60_000
    assert lengths == [batch_ms(name) for name in QUERIES]


def test_queries_that_begin_together_part() -> None:
    in_a_lump = longest_busy_ms([30_000] * len(QUERIES))
    assert in_a_lump == len(QUERIES) * PLAN_MS
    assert 4 * longest_busy_ms([batch_ms(name) for name in QUERIES]) < in_a_lump
