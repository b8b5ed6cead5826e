"""Rates, token buckets and precedence of quotas, compared with second implementations that are as simple as
possible."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pessoa.quota.precedence import CLIENT_KEYS, PRODUCER_BYTE_RATE, Limits
from pessoa.quota.rates import TokenBucket, WindowedRate, Windows

WINDOWS = st.builds(Windows, st.integers(1, 12), st.sampled_from([100, 1_000, 2_000]))
# How long after the last one, and how much.
RECORDS = st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 1_000_000)), min_size=1, max_size=40)


class EveryRecord:
    """A rate that keeps each record with the start of its window, and looks at all of them every time."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.records: list[tuple[int, int, int]] = []

    def record(self, value: int, now_ms: int) -> None:
        began_ms = self.records[-1][0] if self.records else None
        if began_ms is None or now_ms - began_ms >= self.windows.size_ms:
            began_ms = now_ms
        self.records.append((began_ms, now_ms, value))

    def rate(self, now_ms: int) -> Fraction:
        last_of = {began_ms: at_ms for began_ms, at_ms, _ in self.records}
        live = [one for one in self.records if now_ms - last_of[one[0]] < self.windows.number * self.windows.size_ms]
        return Fraction(sum(value for _, _, value in live) * 1000, self.time_ms(live, now_ms))

    def time_ms(self, live: list[tuple[int, int, int]], now_ms: int) -> int:
        size_ms = self.windows.size_ms
        elapsed_ms = now_ms - min((began_ms for began_ms, _, _ in live), default=now_ms)
        while elapsed_ms // size_ms < self.windows.number - 1:
            elapsed_ms += size_ms
        return max(elapsed_ms, size_ms)


@given(WINDOWS, RECORDS, st.integers(1, 500_000))
def test_a_rate_is_that_of_all_records_in_the_windows_and_the_throttle_brings_it_down(
    windows: Windows, records: list[tuple[int, int]], limit: int
) -> None:
    rate, model = WindowedRate(windows), EveryRecord(windows)
    now_ms = 0
    for pause_ms, value in records:
        now_ms += pause_ms
        rate.record(value, now_ms)
        model.record(value, now_ms)
        expected = model.rate(now_ms)
        assert rate.measure(now_ms) == pytest.approx(float(expected))
        throttle_ms = rate.throttle_ms(limit, now_ms)
        assert (throttle_ms > 0) == (expected > limit) or abs(float(expected) - limit) < limit * 1e-3
        if throttle_ms:
            # The same sum over the time that was waited for as well.
            total = expected * model.time_ms(model.records, now_ms)
            if len({began_ms for began_ms, _, _ in model.records}) == 1:
                time_ms = model.time_ms(model.records, now_ms) + throttle_ms
                assert float(total / time_ms) == pytest.approx(limit, rel=1e-3)
    assert len(rate._recorded_windows) <= windows.number + 1


@given(WINDOWS, RECORDS)
def test_an_amount_that_is_refunded_at_once_leaves_the_rate_unchanged(
    windows: Windows, records: list[tuple[int, int]]
) -> None:
    rate, other = WindowedRate(windows), WindowedRate(windows)
    now_ms = 0
    for pause_ms, value in records:
        now_ms += pause_ms
        rate.record(value, now_ms)
        other.record(value, now_ms)
        rate.record(12_345, now_ms)
        rate.record(-12_345, now_ms)
        assert rate.measure(now_ms) == pytest.approx(other.measure(now_ms))


@given(WINDOWS, RECORDS, st.integers(1, 1_000))
def test_a_token_bucket_has_the_tokens_that_flowed_in_minus_those_spent(
    windows: Windows, records: list[tuple[int, int]], rate: int
) -> None:
    bucket = TokenBucket(windows)
    full = Fraction(rate * windows.number * windows.size_ms, 1000)
    tokens, now_ms = full, 7
    for pause_ms, cost in records:
        for _ in range(pause_ms):
            tokens = min(full, tokens + Fraction(rate, 1000))
            if tokens == full:
                break
        now_ms += pause_ms
        assert bucket.tokens(rate, now_ms) == pytest.approx(float(tokens))
        bucket.spend(cost % 1_000, rate, now_ms)
        tokens -= cost % 1_000
        throttle_ms = bucket.throttle_ms(rate, now_ms)
        assert throttle_ms == pytest.approx(max(0.0, float(-tokens / rate * 1000)), abs=0.51)
        if throttle_ms:
            assert bucket.tokens(rate, now_ms + throttle_ms + 1) >= 0


# Kafka's order (KIP-55, KIP-599), written down as it is documented.
ORDER: tuple[dict[str, str | None], ...] = (
    {"user": "u", "client-id": "c"},
    {"user": "u", "client-id": None},
    {"user": "u"},
    {"user": None, "client-id": "c"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "c"},
    {"client-id": None},
)


@given(st.sets(st.sampled_from(range(8))), st.sets(st.sampled_from(range(8))))
def test_the_quota_of_the_first_level_that_has_the_key_applies(with_key: set[int], with_another: set[int]) -> None:
    configured: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}
    for kind, levels in ((PRODUCER_BYTE_RATE, with_key), (CLIENT_KEYS[1], with_another)):
        for level in levels:
            configured.setdefault(tuple(sorted(ORDER[level].items())), {})[kind] = float(level + 1)
    # Of other users and client ids, which must not be taken for these.
    for user, client in product(("u2", "<absent>"), ("c2", "<absent>")):
        others = {kind: name for kind, name in (("user", user), ("client-id", client)) if name != "<absent>"}
        if others:
            configured[tuple(sorted(others.items()))] = {PRODUCER_BYTE_RATE: 99.0}
    limits = Limits(configured)
    found = limits.of_client(PRODUCER_BYTE_RATE, "u", "c")
    if not with_key:
        assert found is None
        return
    assert found is not None
    assert found.value == min(with_key) + 1
    # With whom it is shared: with all clients of the user, with all users of the client id, or with none.
    parts = ORDER[min(with_key)]
    assert (found.user, found.client_id) == ("u" if "user" in parts else None, "c" if "client-id" in parts else None)
