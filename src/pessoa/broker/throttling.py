"""Client quotas at work: what a request counts for, `throttle_time_ms` in its response, and a muted connection.

    dispatcher ── begin ──▶ RequestCharge ── settle(response) ──▶ response with throttle_time_ms
                                  │
                                  └── mute ──▶ Connection: nothing is served until the time is over

The row of an API says what its requests count for (`Quota`), `pessoa.quota` what is allowed and how long to wait:

    PRODUCE               the bytes of the request, when it comes. It is served and answered at once, then muted
    FETCH                 the bytes of the records. Over the limit: an empty response, then muted; nothing is recorded
    CONTROLLER_MUTATION   counted by the controller; its response says how long the broker has to mute the connection,
                          or the controller itself that of a client which asked it directly
    every one of these    the time for which it keeps the event loop busy: 100 percent are all of one event loop's time

What goes between brokers and controllers is exempt (`Quota.NONE`), as are fetches of followers on the listener between
brokers and what a client asks before its login. So is the time of a produce with acks=0, whose client could not hear
of it. All versions are muted: a client
that does not know `throttle_time_ms` waits as well (KIP-219).

Without any limit in the metadata, `services.throttling` is None, and that is all that a request asks.
"""

from __future__ import annotations

import time
from copy import copy
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from pessoa.base.config_table import int_value
from pessoa.broker.api_row import Quota
from pessoa.quota.address_rates import AddressRates
from pessoa.quota.client_quotas import ClientMeters, ClientQuotas, Reading
from pessoa.quota.rates import Windows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from pessoa.base.clock import Clock
    from pessoa.broker.config import BrokerConfig
    from pessoa.net.connection import Connection
    from pessoa.quota.client_quotas import Meter
    from pessoa.quota.precedence import Configured
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message

T = TypeVar("T")


class Throttling:
    """The quotas of one broker. `busy_ns` is the CPU time of the event loop's thread."""

    def __init__(
        self,
        clock: Clock,
        windows: Windows,
        inter_broker_listener: str,
        busy_ns: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self.now_ms = clock.monotonic_ms
        self.busy_ns = busy_ns
        self._quotas = ClientQuotas(windows)
        self._addresses = AddressRates(windows)
        self._inter_broker_listener = inter_broker_listener

    def __repr__(self) -> str:
        return f"<Throttling: {self._quotas!r}>"

    def follow(self, configured: Configured) -> Throttling | None:
        """Take over other limits. Return the throttling for requests; None if no limit is left."""
        self._quotas.follow(configured)
        return None if self._quotas.is_empty else self

    def follow_addresses(self, configured: Configured) -> Callable[[str, int], int] | None:
        """Take over other limits of addresses. Return the function that checks new connections; None if no limit is
        left."""
        return self._addresses.hold_ms if self._addresses.follow(configured) else None

    def readings(self) -> Iterator[Reading]:
        """Yield the usage of every entity that has a limit, for metrics."""
        return self._quotas.readings(self.now_ms())

    def begin(
        self, quota: Quota, connection: Connection, context: RequestContext, request: Message, size: int
    ) -> RequestCharge | None:
        """Charge a request of `size` bytes; return its charge, which is also in the request's context, or None if it is
        exempt."""
        if connection.is_before_login:
            return None
        if quota is Quota.FETCH and context.listener == self._inter_broker_listener and is_of_follower(request):
            return None
        client = self._quotas.of(context.principal, context.client_id, self.now_ms())
        charge = context.charge = RequestCharge(self, connection, client, quota)
        if quota is Quota.PRODUCE:
            charge.count_produced(size)
            if getattr(request, "acks", -1) == 0:
                charge.exempt_time()
        return charge


class ControllerThrottling(Throttling):
    """The quotas of one controller, for clients that ask it directly: their request time, and their mutations.
    Envelopes are exempt, since the broker that sent one mutes its client; so are the requests of nodes, such as fetches
    of the metadata log."""

    def __init__(self, clock: Clock, windows: Windows, busy_ns: Callable[[], int] = time.thread_time_ns) -> None:
        super().__init__(clock, windows, "", busy_ns)

    def begin(
        self, quota: Quota, connection: Connection, context: RequestContext, request: Message, size: int
    ) -> RequestCharge | None:
        if quota is Quota.FETCH or connection.is_before_login:
            return None
        client = self._quotas.of(context.principal, context.client_id, self.now_ms())
        return RequestCharge(self, connection, client, quota)


def quota_windows(config: BrokerConfig) -> Windows:
    return Windows(int_value(config, "quota.window.num"), int_value(config, "quota.window.size.seconds") * 1000)


class RequestCharge:
    """The charge of one request to the quotas of its client."""

    __slots__ = (
        "_began_ns",
        "_busy_ns",
        "_client",
        "_connection",
        "_is_timed",
        "_owner",
        "_quota",
        "throttle_ms",
    )

    def __init__(self, owner: Throttling, connection: Connection, client: ClientMeters, quota: Quota) -> None:
        self._owner = owner
        self._connection = connection
        self._client = client
        self._quota = quota
        # How long its client shall wait.
        self.throttle_ms = 0
        # For how long it has kept the event loop busy, and since when it does so again; None while it does not.
        self._busy_ns = 0
        self._began_ns: int | None = None
        # Whether its time has to be counted yet. No later limit changes that: of a request that was served in part when
        # it appeared, no time was measured.
        self._is_timed = client.request is not None
        self.resume_timing()

    def __repr__(self) -> str:
        return f"<RequestCharge of {self._client!r}: {self.throttle_ms} ms>"

    # The time of the event loop.

    def resume_timing(self) -> None:
        if self._is_timed:
            self._began_ns = self._owner.busy_ns()

    def pause_timing(self) -> None:
        if self._began_ns is not None:
            self._busy_ns += self._owner.busy_ns() - self._began_ns
            self._began_ns = None

    def exempt_time(self) -> None:
        """Do not charge the time of this request to its client, which gets no response and so no throttle time."""
        self._is_timed = False

    def timed(self, work: Awaitable[T]) -> Awaitable[T]:
        """Return the same awaitable, such that the time of each of its steps is charged to the client."""
        return _TimedWork(work, self) if self._is_timed else work

    # What is counted.

    def count_produced(self, size: int) -> None:
        self._throttle(self._client.produce, self._client.charge_produce(size, self._owner.now_ms()))

    def limit_fetch(self, max_bytes: int) -> int:
        """Return how many bytes a fetch may return at most under the client's quota."""
        return self._client.fetch_limit_bytes(max_bytes)

    def admits_fetch(self, size: int) -> bool:
        """Charge the bytes that a fetch has found; return False if the client gets none of them now. A single batch
        that is larger than all windows allow is sent to a client that got nothing for that long: it would never get it
        otherwise."""
        client, now_ms = self._client, self._owner.now_ms()
        self._count_time(now_ms)
        is_first = client.fetch is None or client.fetch.rate.measure(now_ms) < 1
        fetch_ms = client.charge_fetch(size, now_ms)
        self._throttle(client.fetch, fetch_ms)
        if not self.throttle_ms or (is_first and self.throttle_ms == fetch_ms):
            return True
        client.take_back_fetch(size, now_ms)
        return False

    def count_fetched(self, size: int) -> None:
        """Charge the bytes of a fetch that is sent in any case: `admits_fetch` was called before its size was known."""
        self._throttle(self._client.fetch, self._client.charge_fetch(size, self._owner.now_ms()))

    def _count_time(self, now_ms: int) -> None:
        if self._is_timed:
            self._is_timed = False
            self.pause_timing()
            self._throttle(self._client.request, self._client.charge_request(self._busy_ns, now_ms))

    def _throttle(self, meter: Meter | None, throttle_ms: int) -> None:
        if meter is not None and throttle_ms > 0:
            meter.note_throttled(throttle_ms)
            self._mute(throttle_ms)

    def _mute(self, throttle_ms: int) -> None:
        self.throttle_ms = max(self.throttle_ms, throttle_ms)
        self._connection.mute(self._owner.now_ms() + throttle_ms)

    # The response.

    def make(self, response: Callable[[], Message | None]) -> Message | None:
        """Return the response of `settle`, later than the request was served."""
        self.resume_timing()
        return self.settle(response())

    def lose(self) -> None:
        """Charge the time of a request without a response. Its connection ends, so there is nothing to mute."""
        if self._is_timed:
            self._is_timed = False
            self.pause_timing()
            self._client.charge_request(self._busy_ns, self._owner.now_ms())

    def settle(self, response: Message | None) -> Message | None:
        """Charge the time of the request, and return its response with `throttle_time_ms`."""
        if response is None:
            return None
        self._count_time(self._owner.now_ms())
        if self._quota is Quota.CONTROLLER_MUTATION:
            said_ms = getattr(response, "throttle_time_ms", 0)
            if said_ms > self.throttle_ms:
                self._mute(said_ms)
        if self.throttle_ms and hasattr(response, "throttle_time_ms"):
            # The response may be one that others get as well.
            response = copy(response)
            response.throttle_time_ms = self.throttle_ms
        return response


class _TimedWork(Generic[T]):
    """Awaits something, and charges the time of each step."""

    __slots__ = ("_charge", "_work")

    def __init__(self, work: Awaitable[T], charge: RequestCharge) -> None:
        self._work = work
        self._charge = charge

    def __await__(self) -> Generator[object, object, T]:
        steps = cast("Generator[object, object, T]", self._work.__await__())
        charge = self._charge
        value: object = None
        problem: BaseException | None = None
        while True:
            charge.resume_timing()
            try:
                awaited = steps.send(value) if problem is None else steps.throw(problem)
            except StopIteration as done:
                return cast("T", done.value)
            finally:
                charge.pause_timing()
            try:
                value, problem = (yield awaited), None
            except BaseException as thrown:  # noqa: BLE001 (it is thrown into the work)
                problem = thrown


def is_of_follower(request: Message) -> bool:
    state = getattr(request, "replica_state", None)
    replica_id: int = getattr(request, "replica_id", -1) if state is None else state.replica_id
    return replica_id >= 0
