"""How many connections there may be, how many from one address, and how quickly new ones may come.

There is one quota for all listeners of a broker that clients come to, and one for each listener by itself (KIP-308,
KIP-402, KIP-612). A connection enters all that its listener has, and leaves them when it ends:

    max.connections, max.connections.per.ip (.overrides)   one too many is refused
    max.connection.creation.rate                           one too early waits for its turn, unread
    connection_creation_rate of the address (`hold_ms`)    one too early is held, unread, and then closed

The rate is an average over Kafka's windows (`quota.window.num`, `quota.window.size.seconds`): after so long without
a new connection, as many may come at once. A connection that would wait for longer than a client does is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

UNLIMITED = (1 << 31) - 1
# What Kafka's windows come to by default: eleven of a second, of which the last is being filled.
DEFAULT_WINDOW_S = 10.0
# A client gives up on a connection that is not served for so long (its `request.timeout.ms`).
LONGEST_TURN_S = 30.0


class ConnectionRefused(Exception):
    """A connection is refused: the configuration key of the limit, and its value."""


class ConnectionHeld(Exception):
    """The connection must be closed, but not before so many milliseconds have passed."""

    def __init__(self, hold_ms: int) -> None:
        super().__init__(f"connection_creation_rate: closed in {hold_ms} ms")
        self.hold_ms = hold_ms


class ConnectionLimits(NamedTuple):
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    # Address → its own `max_connections_per_ip`.
    overrides: Mapping[str, int] = MappingProxyType({})
    max_creation_rate: int = UNLIMITED
    window_s: float = DEFAULT_WINDOW_S


class ConnectionQuota:
    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self.limits = limits or ConnectionLimits()
        self.count = 0
        self._per_host: dict[str, int] = {}
        # For how long a new connection from an address is held before it is closed, at a time; 0: it is not. None: no
        # address has a limit.
        self.hold_ms: Callable[[str, int], int] | None = None
        # When the connections that have come would all have come at the allowed rate.
        self._paid_until_s = float("-inf")

    def __repr__(self) -> str:
        return f"<ConnectionQuota: {self.count} connections from {len(self._per_host)} addresses>"

    def enter(self, host: str, now_s: float) -> float:
        """Count one more connection, and return how many seconds it is too early. Raises `ConnectionRefused` or
        `ConnectionHeld`; such a connection is counted too, until `leave`."""
        limits = self.limits
        self.count += 1
        of_host = self._per_host[host] = self._per_host.get(host, 0) + 1
        if self.count > limits.max_connections:
            raise ConnectionRefused(f"max.connections is {limits.max_connections}")
        allowed = limits.overrides.get(host, limits.max_connections_per_ip)
        if of_host > allowed:
            key = "max.connections.per.ip" + (".overrides" if host in limits.overrides else "")
            raise ConnectionRefused(f"{key} is {allowed}")
        if self.hold_ms is not None and (hold_ms := self.hold_ms(host, round(now_s * 1000))):
            raise ConnectionHeld(hold_ms)
        return self._turn_of(now_s) if limits.max_creation_rate < UNLIMITED else 0.0

    def _turn_of(self, now_s: float) -> float:
        rate = self.limits.max_creation_rate
        if rate == 0:
            raise ConnectionRefused("max.connection.creation.rate is 0")
        begun_s = max(self._paid_until_s, now_s - self.limits.window_s)
        early_s = max(0.0, begun_s + 1 / rate - now_s)
        if early_s > LONGEST_TURN_S:
            raise ConnectionRefused(f"max.connection.creation.rate is {rate}")
        self._paid_until_s = begun_s + 1 / rate
        return early_s

    def leave(self, host: str) -> None:
        self.count -= 1
        left = self._per_host[host] - 1
        assert left >= 0
        if left:
            self._per_host[host] = left
        else:
            del self._per_host[host]
