"""The use of quotas by every client: produced and fetched bytes, and request time.

    (user, client id) ──of──▶ ClientMeters ──▶ a `Meter` for each key that is limited for this client
                                                   ▲ shared by all clients that one limit holds for together

The limits come from the metadata image (`follow`) and change at run time. What was measured stays: a client looks for
its limits again with its first request behind a change.

Memory. A client chooses its client id, so it may choose a new one for each request:

- At most `MAX_CLIENTS` pairs of user and client id are kept, those that were used last, and with them what is measured
  for a client id. A long client id is kept as its beginning and a digest.
- What is measured for a user stands apart, and goes only when it would measure nothing: so no number of client ids
  makes a broker forget what their user has used. A client cannot choose its user.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple
from weakref import WeakValueDictionary

from pessoa.quota.precedence import (
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    Configured,
    Limit,
    Limits,
)
from pessoa.quota.rates import Pace, WindowedRate, Windows

MAX_CLIENTS = 10_000
# Kafka's clients have some tens of characters; the protocol allows 32,767.
_LONGEST_CLIENT_ID = 256
# From so many users on, those that measure nothing are looked for.
_MANY_USERS = 1_000
_KEYS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
# 100 percent are all of the time of one event loop.
_PERCENT_PER_NS = 100 / 1e9


class Reading(NamedTuple):
    """The measured rate of one entity and its limit, for metrics. A `user` or `client_id` of None stands for all of
    them."""

    key: str
    user: str | None
    client_id: str | None
    limit: float
    # Per second: bytes, or percent of one event loop.
    rate: float
    throttled_count: int
    # Of all that were throttled, together.
    throttle_time_ms: int


class Meter:
    """The rate of the clients that share one limit, and how often and how long they were throttled."""

    __slots__ = (
        "__weakref__",
        "_pace",
        "client_id",
        "key",
        "limit",
        "rate",
        "throttle_time_ms",
        "throttled_count",
        "user",
    )

    def __init__(self, key: str, limit: Limit, windows: Windows) -> None:
        self.key = key
        self.user, self.client_id = limit.user, limit.client_id
        self.limit = limit.value
        self.rate = WindowedRate(windows)
        # None unless the client was throttled lately.
        self._pace: Pace | None = None
        self.throttled_count = self.throttle_time_ms = 0

    def __repr__(self) -> str:
        return f"<Meter {self.key} of {self.user!r}, {self.client_id!r}: {self.limit:g}, {self.rate!r}>"

    def charge(self, value: float, now_ms: int) -> int:
        """Record `value`, and return for how many milliseconds the client must be muted."""
        self.rate.record(value, now_ms)
        return self.rate.throttle_ms(self.limit, now_ms)

    def charge_paced(self, value: float, now_ms: int, *, is_done: bool) -> int:
        """Record bytes as `charge` does, and return the throttle time; a client that was throttled is then kept at
        its limit (`Pace`). With `is_done` the bytes count at once; otherwise the response may still be withheld, and
        is allowed, however large, while the client owes no time from before."""
        throttle_ms = self.charge(value, now_ms)
        pace = self._pace
        if pace is None:
            if throttle_ms:
                self._pace = Pace(self.rate.windows, now_ms)
            return throttle_ms
        owed_ms = pace.owed_ms(self.limit, now_ms)
        pace.spend(value)
        if is_done:
            owed_ms = pace.owed_ms(self.limit, now_ms)
        throttle_ms = max(throttle_ms, owed_ms)
        if throttle_ms:
            pace.throttled_ms = now_ms
        elif pace.is_over(now_ms):
            self._pace = None
        return throttle_ms

    def take_back(self, value: float, now_ms: int) -> None:
        """Undo a charge for bytes that were not sent."""
        self.rate.record(-value, now_ms)
        if self._pace is not None:
            self._pace.spend(-value)

    def note_throttled(self, throttle_ms: int) -> None:
        self.throttled_count += 1
        self.throttle_time_ms += throttle_ms

    def read(self, now_ms: int) -> Reading:
        return Reading(
            self.key,
            self.user,
            self.client_id,
            self.limit,
            self.rate.measure(now_ms),
            self.throttled_count,
            self.throttle_time_ms,
        )


class ClientMeters:
    """The meters of one user and client id; a meter is None where no limit holds."""

    __slots__ = ("fetch", "generation", "produce", "request", "windows")

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        # Of the limits that it was made from.
        self.generation = -1
        self.produce: Meter | None = None
        self.fetch: Meter | None = None
        self.request: Meter | None = None

    def __repr__(self) -> str:
        return f"<ClientMeters: {self.produce!r}, {self.fetch!r}, {self.request!r}>"

    def charge_produce(self, size: int, now_ms: int) -> int:
        return 0 if self.produce is None else self.produce.charge_paced(size, now_ms, is_done=True)

    def charge_fetch(self, size: int, now_ms: int) -> int:
        """Charge a fetch response; return the throttle time. If that is not 0 the response is sent empty, and the
        caller must call `take_back_fetch`."""
        return 0 if self.fetch is None else self.fetch.charge_paced(size, now_ms, is_done=False)

    def take_back_fetch(self, size: int, now_ms: int) -> None:
        if self.fetch is not None:
            self.fetch.take_back(size, now_ms)

    def charge_request(self, busy_ns: int, now_ms: int) -> int:
        """Charge the time of a request; return the throttle time, at most one window, as in Kafka."""
        if self.request is None:
            return 0
        return min(self.request.charge(busy_ns * _PERCENT_PER_NS, now_ms), self.windows.size_ms)

    def fetch_limit_bytes(self, wanted_bytes: int) -> int:
        """Return how many of the wanted bytes a fetch may return: at most what the limit allows in all full windows,
        because the quota could never admit a larger response."""
        if self.fetch is None:
            return wanted_bytes
        return int(min(wanted_bytes, self.fetch.limit * self.windows.full_ms / 1000))


class ClientQuotas:
    def __init__(self, windows: Windows | None = None) -> None:
        self.windows = windows or Windows()
        self.limits = Limits({})
        # Whether no limit holds for any client, that of mutations included: then callers can skip the quotas.
        self.is_empty = True
        self._generation = 0
        # By last use, the longest unused first.
        self._clients: OrderedDict[tuple[str, str], ClientMeters] = OrderedDict()
        # (key, user): of limits that all client ids of a user share.
        self._meters_of_users: dict[tuple[str, str], Meter] = {}
        self._many_users = _MANY_USERS
        # (key, user or None, client id): while there are `_clients` that have them.
        self._meters_of_client_ids: WeakValueDictionary[tuple[str, str | None, str], Meter] = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"<ClientQuotas: {self.limits!r}, {len(self._clients)} clients, {len(self._meters_of_users)} of users>"

    def follow(self, configured: Configured) -> None:
        """Take over limits that have changed."""
        self.limits = Limits(configured)
        self.is_empty = not any(map(self.limits.has, CLIENT_KEYS))
        self._generation += 1
        if self.is_empty:
            self._clients.clear()
            self._meters_of_users.clear()

    def of(self, principal: str, client_id: str | None, now_ms: int) -> ClientMeters:
        name = shortened(client_id)
        found = self._clients.get((principal, name))
        if found is None:
            self._remove_idle_users(now_ms)
            found = self._clients[principal, name] = ClientMeters(self.windows)
            if len(self._clients) > MAX_CLIENTS:
                self._clients.popitem(last=False)
        else:
            self._clients.move_to_end((principal, name))
        if found.generation != self._generation:
            found.generation = self._generation
            found.produce, found.fetch, found.request = (self._meter(key, user_of(principal), name) for key in _KEYS)
        return found

    def readings(self, now_ms: int) -> Iterator[Reading]:
        """Yield the reading of every meter, for metrics."""
        for meter in (*self._meters_of_users.values(), *self._meters_of_client_ids.values()):
            yield meter.read(now_ms)

    def _meter(self, key: str, user: str, client_id: str) -> Meter | None:
        limit = self.limits.of_client(key, user, client_id)
        if limit is None:
            return None
        if limit.client_id is None:
            assert limit.user is not None, "a limit is one of a user, of a client id or of both"
            meter = self._meters_of_users.get((key, limit.user))
            if meter is None:
                meter = self._meters_of_users[key, limit.user] = Meter(key, limit, self.windows)
        else:
            place = (key, limit.user, limit.client_id)
            meter = self._meters_of_client_ids.get(place)
            if meter is None:
                meter = self._meters_of_client_ids[place] = Meter(key, limit, self.windows)
        meter.limit = limit.value
        return meter

    def _remove_idle_users(self, now_ms: int) -> None:
        if len(self._meters_of_users) < self._many_users:
            return
        # Clients that still have one of these would go on with it beside a new one.
        self._generation += 1
        self._meters_of_users = {
            place: one for place, one in self._meters_of_users.items() if not one.rate.is_idle(now_ms)
        }
        self._many_users = max(_MANY_USERS, 2 * len(self._meters_of_users))


def user_of(principal: str) -> str:
    """Return the user's name in a principal: the text behind its type, `User:`."""
    return principal.partition(":")[2]


def shortened(client_id: str | None) -> str:
    if client_id is None:
        return ""
    if len(client_id) <= _LONGEST_CLIENT_ID:
        return client_id
    digest = blake2b(client_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{client_id[: _LONGEST_CLIENT_ID - 33]}~{digest}"
