"""The usage of clients' quotas: which clients share a quota, changes of quotas, and memory."""

from __future__ import annotations

import tracemalloc

import pytest

from pessoa.quota.client_quotas import MAX_CLIENTS, ClientQuotas, Reading, shortened
from pessoa.quota.precedence import Configured
from pessoa.quota.rates import Windows

PRODUCE = "producer_byte_rate"
FETCH = "consumer_byte_rate"
REQUEST = "request_percentage"
ALICE, BOB = "User:alice", "User:bob"


def quotas(configured: Configured) -> ClientQuotas:
    made = ClientQuotas(Windows())
    made.follow(configured)
    return made


def test_clients_of_one_user_share_its_limit_and_another_user_has_its_own() -> None:
    table = quotas({(("user", None),): {PRODUCE: 1_000.0}})
    assert table.of(ALICE, "a", 0).charge_produce(10_000, 0) == 0
    # 20,000 bytes over ten seconds are twice what is allowed: as long again has to pass.
    assert table.of(ALICE, "b", 0).charge_produce(10_000, 0) == 10_000
    assert table.of(BOB, "a", 0).charge_produce(10_000, 0) == 0


def test_a_limit_of_a_client_id_is_shared_by_users_and_one_of_user_and_client_id_is_not() -> None:
    table = quotas({(("client-id", "c"),): {PRODUCE: 1_000.0}})
    table.of(ALICE, "c", 0).charge_produce(10_000, 0)
    assert table.of(BOB, "c", 0).charge_produce(1_000, 0) > 0
    table = quotas({(("client-id", None), ("user", None)): {PRODUCE: 1_000.0}})
    table.of(ALICE, "c", 0).charge_produce(10_000, 0)
    assert table.of(BOB, "c", 0).charge_produce(1_000, 0) == 0
    assert table.of(ALICE, "d", 0).charge_produce(1_000, 0) == 0


def test_a_client_id_that_rotates_does_not_evade_the_limit_of_its_user_and_takes_bounded_memory() -> None:
    table = quotas({(("user", None),): {PRODUCE: 1_000.0}, (("client-id", None), ("user", None)): {FETCH: 1_000.0}})
    tracemalloc.start()
    try:
        for number in range(5 * MAX_CLIENTS):
            client = table.of(ALICE, f"{number}{'x' * 5_000}", number // 1_000)
            client.charge_produce(1_000, number // 1_000)
            client.charge_fetch(10, number // 1_000)
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes < 20_000_000
    [of_user] = [one for one in table.readings(50) if one.key == PRODUCE]
    assert of_user.rate == pytest.approx(5 * MAX_CLIENTS * 1_000 / 10, rel=0.01)
    assert table.of(ALICE, "fresh", 50).charge_produce(1, 50) > 0


def test_users_without_requests_during_all_quota_windows_are_removed() -> None:
    table = quotas({(("user", None),): {PRODUCE: 1_000.0}})
    for number in range(3_000):
        table.of(f"User:{number}", "c", number * 100).charge_produce(1, number * 100)
    assert len(list(table.readings(300_000))) < 2_100
    # One that is measured all the time is measured as one, however many others come.
    table = quotas({(("user", None),): {PRODUCE: 1_000.0}})
    for number in range(3_000):
        table.of(f"User:{number}", "c", number).charge_produce(1, number)
        assert (table.of(ALICE, "c", number).charge_produce(10, number) > 0) == (number >= 1_000)


def test_a_changed_quota_applies_from_the_next_request_and_the_measured_rate_is_kept() -> None:
    table = quotas({(("user", "alice"),): {PRODUCE: 1_000.0}})
    assert table.of(ALICE, "c", 0).charge_produce(8_000, 0) == 0
    table.follow({(("user", "alice"),): {PRODUCE: 400.0}})
    assert table.of(ALICE, "c", 0).charge_produce(0, 0) == 10_000
    table.follow({(("user", "bob"),): {PRODUCE: 400.0}})
    assert table.of(ALICE, "c", 0).produce is None
    table.follow({})
    assert table.is_empty
    assert not list(table.readings(0))


def test_a_throttled_fetch_is_refunded_and_fetches_are_limited_to_what_all_windows_allow() -> None:
    client = quotas({(("client-id", None),): {FETCH: 1_000.0}}).of(ALICE, "c", 0)
    assert client.fetch_limit_bytes(1 << 20) == 10_000
    assert client.fetch_limit_bytes(5) == 5
    assert client.charge_fetch(10_000, 0) == 0
    throttle_ms = client.charge_fetch(5_000, 500)
    client.take_back_fetch(5_000, 500)
    assert throttle_ms > 0
    assert client.charge_fetch(0, 500) == 0


def test_request_time_is_a_percentage_of_one_event_loop_and_throttles_for_at_most_a_second() -> None:
    client = quotas({(("user", "alice"),): {REQUEST: 50.0}}).of(ALICE, None, 0)
    assert client.charge_request(5_000_000_000, 0) == 0
    assert client.charge_request(10_000_000, 0) == pytest.approx(20, abs=1)
    assert client.charge_request(5_000_000_000, 0) == 1_000


def test_long_client_ids_are_distinguished_by_hash_and_stored_short() -> None:
    first, second = "c" * 30_000 + "1", "c" * 30_000 + "2"
    assert shortened(first) != shortened(second)
    assert len(shortened(first)) == 256
    assert shortened("c" * 256) == "c" * 256
    assert shortened(None) == ""


def test_quota_metrics_have_the_entity_the_rate_and_the_throttle_time() -> None:
    table = quotas({(("user", "alice"),): {PRODUCE: 1_000.0}})
    client = table.of(ALICE, "c", 0)
    throttle_ms = client.charge_produce(20_000, 0)
    assert client.produce is not None
    client.produce.note_throttled(throttle_ms)
    [reading] = table.readings(0)
    assert reading == Reading(PRODUCE, "alice", None, 1_000.0, 2_000.0, 1, 10_000)
