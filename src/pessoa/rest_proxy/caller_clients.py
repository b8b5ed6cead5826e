"""The Kafka clients of the proxy, and of each of its callers where the proxy acts as them.

With `confluent.rest.auth.propagate.method=JETTY_AUTH` a request is served with clients that have logged in to Kafka
with what the caller has logged in to the proxy with: brokers see the caller's principal, and their access control
lists decide. Otherwise all requests share the clients of the proxy.

    request ──caller──► CallerClients.take() ──► Clients: producer, topics, admin ──► Kafka, as User:caller
                             │ released when the response has been sent
                             ▼
         idle for `pessoa.caller.clients.idle.ms`, or the longest idle when another caller needs the room, or the
         caller's token has expired: closed

A caller with a password logs in by the mechanism of the proxy, a caller with a bearer token by OAUTHBEARER
(`caller_tokens.py`): brokers verify the token once more, and end the session when the token ends. A token is first
tried with a login of its own, so that one which brokers refuse is answered 401 at once, and changes nothing.

Invariants: clients are found by principal and password or token together, so no caller ever gets those of another, and
a changed password or a refreshed token gets new ones; clients in use are not closed; there are at most
`pessoa.caller.clients.max`, of one principal with tokens MAX_TOKENS_OF_ONE, and a caller for whom there is no room
hears 429. Clients are made when they are first used: each has threads and connections.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from weakref import WeakValueDictionary

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from starlette.requests import Request
from starlette.responses import Response

from pessoa.base.clock import Clock
from pessoa.client.blocking_connection import ConnectionFailed
from pessoa.client.login_trial import log_in_with, with_user
from pessoa.rest_proxy.async_admin import Administrator, open_admin
from pessoa.rest_proxy.caller_tokens import CallerToken, java_with_token, with_token
from pessoa.rest_proxy.known_topics import KnownTopics
from pessoa.rest_proxy.producing import ProducerMetrics, SharedProducer, open_producer
from pessoa.rest_proxy.proxy_config import ClientSettings, Config
from pessoa.rest_proxy.proxy_problems import AUTHENTICATION, UNREACHABLE, from_kafka, kafka_error
from pessoa.web.asgi_app import caller as caller_of
from pessoa.web.auth import BearerCredentials, HttpCaller, PasswordCredentials
from pessoa.web.problems import HttpProblem

CLIENTS_KEY = "pessoa.clients"
EXPIRY_CHECK_MS = 1000
LOGIN_TIMEOUT_S = 10.0
# A principal whose programs each have a token; one that comes with a new token each time must not take all the room.
MAX_TOKENS_OF_ONE = 4
_KEY = secrets.token_bytes(32)
_REFUSED = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
_EXPIRED = {"WWW-Authenticate": 'Bearer error="invalid_token", error_description="the token has expired"'}


def clients_of(request: Request) -> Clients:
    """Return the clients that serve this request."""
    found: Clients = request.scope[CLIENTS_KEY]
    return found


def life_ms(request: Request, now_ms: int) -> float:
    """Return how long work for this request may go on: until the caller's token expires."""
    found = caller_of(request)
    if found is None or not isinstance(found.credentials, BearerCredentials):
        return math.inf
    return max(0, found.credentials.expires_at_ms - now_ms)


class StreamedResponse(Response):
    """A response that goes on using the clients of its request while it is being sent."""

    # Called when the last byte has been sent, or the caller has disconnected.
    on_end: Callable[[], object] = staticmethod(lambda: None)


@dataclass(frozen=True, slots=True)
class Identity:
    """The login of a set of clients: the settings of each kind of client. `repr` shows none of them."""

    # The principal that consumer instances belong to; empty for the proxy itself, whose instances any caller may use.
    owner: str
    producer: ClientSettings = field(repr=False)
    consumer: ClientSettings = field(repr=False)
    admin: ClientSettings = field(repr=False)
    java_admin: Mapping[str, str] = field(repr=False)
    # What consumers log in with, if it is a token; it is renewed by later requests of the owner.
    token: CallerToken | None = None
    # Makes the caller's token that of the consumers; called once a broker has accepted it.
    renewal: Callable[[], None] | None = field(default=None, repr=False)


def own_identity(config: Config) -> Identity:
    return Identity("", config.producer, config.consumer, config.admin, config.java_admin)


def token_identity(config: Config, caller: HttpCaller, given: BearerCredentials, of_consumers: CallerToken) -> Identity:
    """Return the identity of a caller with its token; `of_consumers` is the token that all consumers of the
    principal share."""
    own = CallerToken(given)
    return Identity(
        caller.principal,
        with_token(config.producer, own),
        with_token(config.consumer, of_consumers),
        with_token(config.admin, own),
        java_with_token(config.java_admin, given),
        of_consumers,
        partial(of_consumers.renew, given),
    )


def password_identity(config: Config, caller: HttpCaller, given: PasswordCredentials) -> Identity:
    """Return the identity of a caller with its password."""
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
        self._opening: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Clients of {self.identity.owner or 'the proxy'}>"

    @cached_property
    def producer(self) -> SharedProducer:
        return SharedProducer(open_producer(self.identity.producer), self._metrics)

    @cached_property
    def topics(self) -> KnownTopics:
        return KnownTopics(self.producer.list_topics)

    @cached_property
    def admin(self) -> Administrator:
        return self._administrator(open_admin(self.identity.admin))

    def _administrator(self, admin: AdminClient) -> Administrator:
        return Administrator(admin, self.identity.java_admin, self._config.bootstrap_servers)

    async def start(self) -> None:
        """Try the caller's token, and create the clients that log in with it. They are created in worker threads:
        each waits for its token."""
        if self.identity.token is None:
            return
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        await asyncio.shield(self._opening)

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, _try_login, self._config.bootstrap_servers, self.identity.java_admin)
        try:
            producer, admin = await asyncio.gather(
                loop.run_in_executor(None, open_producer, self.identity.producer),
                loop.run_in_executor(None, open_admin, self.identity.admin),
            )
        except KafkaException as failure:
            raise from_kafka(kafka_error(failure)) from None
        if self.identity.renewal is not None:
            self.identity.renewal()
        self.producer = SharedProducer(producer, self._metrics)
        self.admin = self._administrator(admin)

    async def close(self) -> None:
        """Flush the records in flight and close the clients; bounded by `producing.CLOSE_TIMEOUT_S`."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        made = vars(self)
        if "producer" in made:
            await self.producer.close()
        if "admin" in made:
            await self.admin.close()


@dataclass(slots=True)
class _Entry:
    clients: Clients
    # By the wall clock: when the caller's token does.
    ends_at_ms: float = math.inf
    users: int = 0
    idle_since_ms: int = 0

    @property
    def has_token(self) -> bool:
        return self.ends_at_ms != math.inf


class CallerClients:
    """The clients of callers, bounded in number."""

    def __init__(self, config: Config, metrics: ProducerMetrics, clock: Clock) -> None:
        self._config = config
        self._metrics = metrics
        self._clock = clock
        # The longest idle first.
        self._entries: OrderedDict[tuple[str, bytes], _Entry] = OrderedDict()
        # What the consumers of a principal log in with, as long as one of its clients is there.
        self._tokens: WeakValueDictionary[str, CallerToken] = WeakValueDictionary()
        self._closing: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<CallerClients of {len(self._entries)} callers, {len(self._closing)} closing>"

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, caller: HttpCaller) -> Clients:
        """Return the clients of a caller, which must be given back (`release`)."""
        key = _key(caller)
        self._check_life(caller)
        entry = self._entries.get(key)
        if entry is None:
            self._make_room(caller)
            entry = self._entries[key] = self._entry(caller)
        self._entries.move_to_end(key)
        entry.users += 1
        return entry.clients

    def release(self, caller: HttpCaller) -> None:
        entry = self._entries[_key(caller)]
        assert entry.users > 0, "released more often than taken"
        entry.users -= 1
        entry.idle_since_ms = self._clock.monotonic_ms()

    def _check_life(self, caller: HttpCaller) -> None:
        given = caller.credentials
        if isinstance(given, BearerCredentials) and given.expires_at_ms <= self._clock.now_ms():
            # The verifier lets clocks be apart by some seconds; librdkafka does not.
            raise HttpProblem(401, "The token has expired.", AUTHENTICATION, headers=_EXPIRED)

    def _entry(self, caller: HttpCaller) -> _Entry:
        given = caller.credentials
        if isinstance(given, PasswordCredentials):
            return _Entry(Clients(self._config, password_identity(self._config, caller, given), self._metrics))
        token = self._tokens.get(caller.principal)
        if token is None:
            token = self._tokens[caller.principal] = CallerToken()
        identity = token_identity(self._config, caller, given, token)
        return _Entry(Clients(self._config, identity, self._metrics), given.expires_at_ms)

    def _make_room(self, caller: HttpCaller) -> None:
        if isinstance(caller.credentials, BearerCredentials):
            own = [key for key, entry in self._entries.items() if key[0] == caller.principal and entry.has_token]
            if len(own) >= MAX_TOKENS_OF_ONE:
                self._close_longest_idle(own, f"{caller.principal} has requests with too many tokens under way.")
        # Those whose close() is under way have their threads still.
        if len(self._entries) + len(self._closing) < self._config.callers_max:
            return
        self._close_longest_idle(list(self._entries), "Too many callers have requests under way.")

    def _close_longest_idle(self, keys: list[tuple[str, bytes]], problem: str) -> None:
        idle_key = next((key for key in keys if not self._entries[key].users), None)
        if idle_key is None or len(self._closing) >= self._config.callers_max:
            raise HttpProblem(429, problem, headers={"Retry-After": "1"})
        self._start_close(idle_key)

    async def expire_forever(self) -> None:
        while True:
            await self._clock.wait_ms(EXPIRY_CHECK_MS)
            before_ms = self._clock.monotonic_ms() - self._config.callers_idle_ms
            now_ms = self._clock.now_ms()
            for key, entry in list(self._entries.items()):
                if not entry.users and (entry.idle_since_ms <= before_ms or entry.ends_at_ms <= now_ms):
                    self._start_close(key)

    async def close(self) -> None:
        for key in list(self._entries):
            self._start_close(key)
        await asyncio.gather(*self._closing)

    def _start_close(self, key: tuple[str, bytes]) -> None:
        task = asyncio.create_task(self._entries.pop(key).clients.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _try_login(servers: str, java_settings: Mapping[str, str]) -> None:
    try:
        if log_in_with(servers, java_settings, LOGIN_TIMEOUT_S) is None:
            raise HttpProblem(401, "The brokers refuse the token.", AUTHENTICATION, headers=_REFUSED)
    except ConnectionFailed as failure:
        raise HttpProblem(503, str(failure), UNREACHABLE) from None


def _key(caller: HttpCaller) -> tuple[str, bytes]:
    """Return the principal with a digest of its password or token, so that neither is kept in clear."""
    given = caller.credentials
    secret = given.password if isinstance(given, PasswordCredentials) else given.token
    return caller.principal, hmac.digest(_KEY, secret.encode(), "sha256")
