"""How quickly an address may connect: `connection_creation_rate` of an IP address, or of all by default (KIP-612).

A connection that comes too early is not served. It is held for as long as its address would have to wait, a window at
most, and then closed: a client that reconnects in a loop is slowed down instead of answered. It does not count, so an
address is never kept out by its own attempts.

`MAX_ADDRESSES` are measured, those that came last.
"""

from __future__ import annotations

from collections import OrderedDict

from pessoa.quota.precedence import Configured, Limits
from pessoa.quota.rates import WindowedRate, Windows

MAX_ADDRESSES = 10_000


class AddressRates:
    def __init__(self, windows: Windows | None = None) -> None:
        self.windows = windows or Windows()
        self._limits = Limits({})
        # By last use, the longest unused first.
        self._rates: OrderedDict[str, WindowedRate] = OrderedDict()

    def __repr__(self) -> str:
        return f"<AddressRates of {len(self._rates)} addresses>"

    def follow(self, configured: Configured) -> bool:
        """Take over limits that have changed. Return whether any IP address is limited."""
        self._limits = Limits(configured)
        if not self._limits.has_addresses:
            self._rates.clear()
        return self._limits.has_addresses

    def hold_ms(self, address: str, now_ms: int) -> int:
        """Count a new connection and return 0; or, if it came too early, return for how long it is held before it is
        closed."""
        limit = self._limits.of_address(address)
        if limit is None:
            return 0
        rate = self._rate_of(address)
        rate.record(1, now_ms)
        hold_ms = min(rate.throttle_ms(limit, now_ms), self.windows.size_ms)
        if hold_ms:
            rate.record(-1, now_ms)
        return hold_ms

    def _rate_of(self, address: str) -> WindowedRate:
        found = self._rates.get(address)
        if found is None:
            found = self._rates[address] = WindowedRate(self.windows)
            if len(self._rates) > MAX_ADDRESSES:
                self._rates.popitem(last=False)
        self._rates.move_to_end(address)
        return found
