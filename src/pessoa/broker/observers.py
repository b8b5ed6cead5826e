"""What looks at requests while they are served: the logs of a broker (`broker.logs`), its metrics (`broker.metrics`).

    dispatcher ── begin(context, request, size) ──▶ Observation ── end(response, frames), or lose() ──▶ a line, a count

A `Watcher` says by the row of an API whether it looks at its requests, and with which function. What a route has to
call is put together when watchers come or go, and not for each request: a route that no watcher looks at has None, and
costs its requests one comparison with None. So the log of changes of the cluster costs a produce nothing.

A watcher takes what it needs from a request in `begin`, and keeps nothing of it: record data is a view of the
connection's buffer, which is used again before the response is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyRow
    from pessoa.net.pending import Observation
    from pessoa.wire.frames import Buffer
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message

# What is called with a request, and with the size of its frame in bytes.
Begin: TypeAlias = "Callable[[RequestContext, Message, int], Observation]"


class Watcher(Protocol):
    def watches(self, row: AnyRow) -> bool:
        """Return whether the watcher observes requests of this API."""

    def begin_of(self, row: AnyRow) -> Begin:
        """Return the function that is called with each request of this API before it is served."""


class Observers:
    """The watchers of a node's requests, by name. `on_change` is called after one was added or removed."""

    def __init__(self) -> None:
        self._watchers: dict[str, Watcher] = {}
        # Called with the address, the listener, the mechanism, the principal and the outcome of each login.
        self.on_log_in: Callable[[str, str, str, str | None, str], None] | None = None
        self.on_change: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Observers: {', '.join(self._watchers) or 'none'}>"

    def put(self, name: str, watcher: Watcher | None) -> None:
        """Set the watcher of this name; None removes it."""
        if watcher is self._watchers.get(name):
            return
        if watcher is None:
            del self._watchers[name]
        else:
            self._watchers[name] = watcher
        for tell in self.on_change:
            tell()

    def note_log_in(self, listener: str, host: str, mechanism: str, principal: str | None, outcome: str) -> None:
        """Report a successful or failed login to the watchers; after a failure the principal is None."""
        if self.on_log_in is not None:
            self.on_log_in(host, listener, mechanism, principal, outcome)

    def begin_of(self, row: AnyRow) -> Begin | None:
        """Return the function to call with each request of an API, which begins its observation; None if no watcher
        wants that API."""
        begins = [one.begin_of(row) for one in self._watchers.values() if one.watches(row)]
        if len(begins) <= 1:
            return begins[0] if begins else None

        def begin_all(context: RequestContext, request: Message, size: int) -> Observation:
            return _Observations([begin(context, request, size) for begin in begins])

        return begin_all


class _Observations:
    """The observations of one request by several watchers, called as one."""

    __slots__ = ("_all",)

    def __init__(self, observations: list[Observation]) -> None:
        self._all = observations

    def wait(self) -> None:
        for one in self._all:
            one.wait()

    def end(self, response: Message | None, frames: list[Buffer] | None) -> None:
        for one in self._all:
            one.end(response, frames)

    def lose(self) -> None:
        for one in self._all:
            one.lose()
