"""The Kafka clients of the proxy, and of each of its callers where the proxy acts as them.

With `confluent.rest.auth.propagate.method=JETTY_AUTH` a request is served with clients that have logged in to Kafka
with what the caller has logged in to the proxy with: brokers see the caller's principal, and their access control
lists decide. Otherwise all requests share the clients of the proxy.

    request ──caller──► CallerClients.take() ──► Clients: producer, topics, admin ──► Kafka, as User:caller
                             │ released when the response has been sent
                             ▼
         idle for `pessoa.caller.clients.idle.ms`, or the longest idle when another caller needs the room: closed

Invariants: clients are found by principal and password together, so no caller ever gets those of another, and a changed
password gets new ones; clients in use are not closed; there are at most `pessoa.caller.clients.max`, and a caller for
whom there is no room hears 429. Clients are made when they are first used: each has threads and connections.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response

from pessoa.base.clock import Clock
from pessoa.client.login_trial import with_user
from pessoa.rest_proxy.async_admin import Administrator
from pessoa.rest_proxy.known_topics import KnownTopics
from pessoa.rest_proxy.producing import ProducerMetrics, SharedProducer
from pessoa.rest_proxy.proxy_config import ClientSettings, Config
from pessoa.web.auth import Caller, PasswordCredentials
from pessoa.web.problems import HttpProblem

CLIENTS_KEY = "pessoa.clients"
EXPIRY_CHECK_MS = 1000
_KEY = secrets.token_bytes(32)


def clients_of(request: Request) -> Clients:
    """The clients that serve this request."""
    found: Clients = request.scope[CLIENTS_KEY]
    return found


class StreamedResponse(Response):
    """A response that goes on using the clients of its request while it is being sent."""

    # Called when the last has been sent, or the caller has gone.
    on_end: Callable[[], object] = staticmethod(lambda: None)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who clients log in as: the settings of each kind of them. `repr` shows none."""

    # The principal that consumer instances belong to; empty for the proxy itself, whose instances are everybody's.
    owner: str
    producer: ClientSettings = field(repr=False)
    consumer: ClientSettings = field(repr=False)
    admin: ClientSettings = field(repr=False)
    java_admin: Mapping[str, str] = field(repr=False)


def own_identity(config: Config) -> Identity:
    return Identity("", config.producer, config.consumer, config.admin, config.java_admin)


def caller_identity(config: Config, caller: Caller) -> Identity:
    """The caller, with the password that it has sent."""
    given = caller.credentials
    if not isinstance(given, PasswordCredentials):
        raise HttpProblem(403, "This proxy acts as its callers, who must log in with a password.")
    login = {"sasl.username": given.username, "sasl.password": given.password}
    return Identity(
        caller.principal,
        {**config.producer, **login},
        {**config.consumer, **login},
        {**config.admin, **login},
        with_user(config.java_admin, given.username, given.password),
    )


class Clients:
    """The clients of one identity. Must be used on one event loop."""

    def __init__(self, config: Config, identity: Identity, metrics: ProducerMetrics) -> None:
        self._config = config
        self._metrics = metrics
        self.identity = identity

    def __repr__(self) -> str:
        return f"<Clients of {self.identity.owner or 'the proxy'}>"

    @cached_property
    def producer(self) -> SharedProducer:
        return SharedProducer(self.identity.producer, self._metrics)

    @cached_property
    def topics(self) -> KnownTopics:
        return KnownTopics(self.producer.list_topics)

    @cached_property
    def admin(self) -> Administrator:
        return Administrator(self.identity.admin, self.identity.java_admin, self._config.bootstrap_servers)

    async def close(self) -> None:
        """Give records under way a last chance; bounded by `producing.CLOSE_TIMEOUT_S`."""
        made = vars(self)
        if "producer" in made:
            await self.producer.close()
        if "admin" in made:
            await self.admin.close()


@dataclass(slots=True)
class _Entry:
    clients: Clients
    users: int = 0
    idle_since_ms: int = 0


class CallerClients:
    """The clients of callers, bounded in number."""

    def __init__(self, config: Config, metrics: ProducerMetrics, clock: Clock) -> None:
        self._config = config
        self._metrics = metrics
        self._clock = clock
        # The longest idle first.
        self._entries: OrderedDict[tuple[str, bytes], _Entry] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<CallerClients of {len(self._entries)} callers, {len(self._closing)} closing>"

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, caller: Caller) -> Clients:
        """The clients of a caller, which must be given back (`release`)."""
        key = _key(caller)
        entry = self._entries.get(key)
        if entry is None:
            self._make_room()
            entry = _Entry(Clients(self._config, caller_identity(self._config, caller), self._metrics))
            self._entries[key] = entry
        self._entries.move_to_end(key)
        entry.users += 1
        return entry.clients

    def release(self, caller: Caller) -> None:
        entry = self._entries[_key(caller)]
        assert entry.users > 0, "released more often than taken"
        entry.users -= 1
        entry.idle_since_ms = self._clock.monotonic_ms()

    def _make_room(self) -> None:
        # Those whose close() is under way have their threads still.
        if len(self._entries) + len(self._closing) < self._config.callers_max:
            return
        idle = next((key for key, entry in self._entries.items() if not entry.users), None)
        if idle is None or len(self._closing) >= self._config.callers_max:
            raise HttpProblem(429, "Too many callers have requests under way.", headers={"Retry-After": "1"})
        self._start_close(idle)

    async def expire_forever(self) -> None:
        while True:
            await self._clock.wait_ms(EXPIRY_CHECK_MS)
            before_ms = self._clock.monotonic_ms() - self._config.callers_idle_ms
            for key, entry in list(self._entries.items()):
                if not entry.users and entry.idle_since_ms <= before_ms:
                    self._start_close(key)

    async def close(self) -> None:
        for key in list(self._entries):
            self._start_close(key)
        await asyncio.gather(*self._closing)

    def _start_close(self, key: tuple[str, bytes]) -> None:
        task = asyncio.create_task(self._entries.pop(key).clients.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _key(caller: Caller) -> tuple[str, bytes]:
    """A principal with its password, which need not stand here in clear."""
    given = caller.credentials
    secret = given.password if isinstance(given, PasswordCredentials) else given.token
    return caller.principal, hmac.digest(_KEY, secret.encode(), "sha256")
