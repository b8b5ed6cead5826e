"""A client that sends or reads as fast as it can, on a manual clock: how many bytes its quota allows.

The bytes of the first ten seconds may come at once, as in Apache Kafka. The tests assert what comes after: in every
twenty seconds the client gets the bytes of twenty seconds, without a further burst.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

import pytest

from pessoa.quota.client_quotas import ClientMeters, ClientQuotas, Meter

LIMIT = 1_000_000.0
USER = (("user", "ann"),)
WARM_UP_MS = 22_000
SPAN_MS = 20_000
END_MS = 120_000


def client(key: str) -> ClientMeters:
    quotas = ClientQuotas()
    quotas.follow({USER: {key: LIMIT}})
    return quotas.of("User:ann", "c", 0)


def produced(batch_bytes: int, bytes_per_ms: int) -> list[tuple[int, int]]:
    """Return (time, bytes) of the batches of a producer that waits for each throttle time."""
    meters, now_ms, sent = client("producer_byte_rate"), 0, []
    while now_ms < END_MS:
        throttle_ms = meters.charge_produce(batch_bytes, now_ms)
        sent.append((now_ms, batch_bytes))
        now_ms += max(1, batch_bytes // bytes_per_ms) + throttle_ms
    return sent


def fetched(most_bytes: int, bytes_per_ms: int) -> list[tuple[int, int]]:
    """Return (time, bytes) of the fetches of a consumer; fetches over the quota are empty."""
    meters, now_ms, got = client("consumer_byte_rate"), 0, []
    while now_ms < END_MS:
        size = meters.fetch_limit_bytes(most_bytes)
        throttle_ms = meters.charge_fetch(size, now_ms)
        if throttle_ms:
            meters.take_back_fetch(size, now_ms)
        else:
            got.append((now_ms, size))
        now_ms += max(1, size // bytes_per_ms) + throttle_ms
    return got


def spans(moved: list[tuple[int, int]]) -> list[float]:
    """Return the rates, as shares of the quota, over spans of twenty seconds that begin at different times."""
    times = [at_ms for at_ms, _ in moved]
    totals = list(accumulate((size for _, size in moved), initial=0))

    def share(start_ms: int) -> float:
        moved_bytes = totals[bisect_left(times, start_ms + SPAN_MS)] - totals[bisect_left(times, start_ms)]
        return moved_bytes * 1000 / SPAN_MS / LIMIT

    return [share(start_ms) for start_ms in range(WARM_UP_MS, END_MS - SPAN_MS, 250)]


@pytest.mark.parametrize("bytes_per_ms", [5_000, 50_000])
@pytest.mark.parametrize("batch_bytes", [1_000, 16_384, 100_000, 1_000_000])
def test_a_throttled_producer_is_kept_at_its_limit(batch_bytes: int, bytes_per_ms: int) -> None:
    moved = produced(batch_bytes, bytes_per_ms)
    assert all(0.9 <= share <= 1.1 for share in spans(moved))
    assert sum(size for at_ms, size in moved if at_ms < 11_000) >= 10 * LIMIT, "the burst at first, as in Apache Kafka"


@pytest.mark.parametrize("most_bytes", [50_000, 300_000])
def test_a_throttled_consumer_is_kept_at_its_limit(most_bytes: int) -> None:
    assert all(0.9 <= share <= 1.1 for share in spans(fetched(most_bytes, 20_000)))


@pytest.mark.parametrize("most_bytes", [300_000, 1_000_000, 3_000_000, 50_000_000])
def test_a_consumer_of_large_responses_gets_no_less_than_by_kafkas_formula_alone(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = sum(size for _, size in fetched(most_bytes, 20_000))
    monkeypatch.setattr(Meter, "charge_paced", lambda self, value, now_ms, *, is_done: self.charge(value, now_ms))
    assert total >= 0.99 * sum(size for _, size in fetched(most_bytes, 20_000))


def test_a_client_below_its_limit_is_never_throttled_and_one_that_was_may_burst_again_later() -> None:
    meters = client("producer_byte_rate")
    assert all(meters.charge_produce(90_000, now_ms) == 0 for now_ms in range(0, 60_000, 100))
    assert meters.charge_produce(30_000_000, 60_000) > 0
    # It has been silent for long enough: what it had is forgotten, but not that it was throttled.
    now_ms = 60_000 + 40_000
    assert meters.charge_produce(1_000_000, now_ms) == 0
    assert meters.charge_produce(8_000_000, now_ms + 20_000) == 0
    assert meters.charge_produce(1_500_000, now_ms + 20_000) == 0, "ten seconds' worth at once"


def test_bytes_that_a_fetch_returns_to_the_quota_are_not_charged() -> None:
    meters = client("consumer_byte_rate")
    assert meters.charge_fetch(10_000_000, 0) == 0
    for now_ms in range(1, 100):
        assert meters.charge_fetch(5_000_000, now_ms) > 0
        meters.take_back_fetch(5_000_000, now_ms)
    assert meters.charge_fetch(1_000_000, 11_000) == 0
