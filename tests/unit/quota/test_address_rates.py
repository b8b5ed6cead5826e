"""How quickly an address may connect."""

from __future__ import annotations

import pytest

from pessoa.quota.address_rates import MAX_ADDRESSES, AddressRates
from pessoa.quota.precedence import Configured

RATE = "connection_creation_rate"


def rates(configured: Configured) -> AddressRates:
    made = AddressRates()
    made.follow(configured)
    return made


def test_an_address_over_its_connection_rate_is_held_for_at_most_a_second() -> None:
    table = rates({(("ip", "10.0.0.1"),): {RATE: 2.0}})
    assert [table.hold_ms("10.0.0.1", 0) for _ in range(20)] == [0] * 20
    # 21 in ten seconds are a tenth of a connection per second too many, of two: half a second.
    assert table.hold_ms("10.0.0.1", 0) == 500
    assert table.hold_ms("10.0.0.2", 0) == 0
    table.follow({(("ip", "10.0.0.1"),): {RATE: 1.0}})
    assert table.hold_ms("10.0.0.1", 0) == 1_000


def test_held_connections_do_not_lower_the_rate_of_their_address() -> None:
    table = rates({(("ip", None),): {RATE: 2.0}})
    for _ in range(20):
        table.hold_ms("10.0.0.1", 0)
    held = [table.hold_ms("10.0.0.1", now_ms) for now_ms in range(0, 60_000, 10)]
    served = held.count(0)
    assert served == pytest.approx(120, abs=22)


def test_the_rate_of_an_address_overrides_the_default_and_spellings_of_an_address_are_one() -> None:
    table = rates({(("ip", None),): {RATE: 1.0}, (("ip", "0:0:0:0:0:0:0:1"),): {RATE: 100.0}})
    assert [table.hold_ms("::1", 0) for _ in range(100)] == [0] * 100
    assert [table.hold_ms("10.0.0.1", 0) > 0 for _ in range(11)] == [False] * 10 + [True]


def test_tracked_addresses_are_bounded_and_removed_with_the_last_limit() -> None:
    table = rates({(("ip", None),): {RATE: 1.0}})
    for number in range(MAX_ADDRESSES + 100):
        table.hold_ms(f"10.0.{number // 256}.{number % 256}", 0)
    assert len(table._rates) == MAX_ADDRESSES
    assert not table.follow({(("user", None),): {"producer_byte_rate": 1.0}})
    assert len(table._rates) == 0
    assert table.hold_ms("10.0.0.1", 0) == 0
