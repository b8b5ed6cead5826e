"""HTTP Basic with the users of the Kafka cluster: a caller is let in if a broker would let it in.

A login is tried at a broker (`client/login_trial.py`), and its outcome is remembered:

    right   for `pessoa.authentication.remember.ms`; then it is tried again, and who was removed is refused
    wrong   for WRONG_MS, so that a caller who repeats a wrong password costs the brokers nothing

What is remembered is a digest of name and password under a key that this process makes at random, of at most
MAX_REMEMBERED logins each way.

A service may demand more of its callers than a login: an operation on the cluster that access control lists allow them
(`pessoa.authentication.kafka.operation`). A caller without it hears 403.

A flood of wrong passwords meets three bounds: TRIALS are under way at once, WAITING more stand in line, and of one name
NAME_TRIALS do both together; who comes beyond these hears 429. A login that was right once does not stand in that line:
KNOWN_TRIALS are kept for those. While no broker answers, it is also believed for GRACE_MS more, so that a service whose
brokers are away goes on with what it can do without them; another caller hears 503.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from pessoa.base.clock import Clock, SystemClock
from pessoa.client.blocking_connection import ConnectionFailed
from pessoa.client.client_errors import KafkaFailure
from pessoa.client.login_trial import log_in
from pessoa.web.auth import HttpCaller, PasswordCredentials, basic_credentials
from pessoa.web.problems import HttpProblem

log = logging.getLogger("pessoa.web")
_V = TypeVar("_V")

TRIALS = 4
KNOWN_TRIALS = 2
WAITING = 64
NAME_TRIALS = 16
MAX_REMEMBERED = 1000
WRONG_MS = 1000
GRACE_MS = 300_000
# A broker answers in milliseconds, and delays the answer to a wrong login (connection.failed.authentication.delay.ms).
TRIAL_TIMEOUT_S = 10.0
# Longer ones are no user's: the tools allow 128 and 256 characters.
LONGEST = 1024

# None if name and password are wrong, else the operations on the cluster that the user is allowed, as bits;
# `ConnectionFailed` or `KafkaFailure` if it cannot be told.
TryLogin = Callable[[str, str], int | None]


def brokers_say(servers: str, settings: Mapping[str, str], *, with_operations: bool) -> TryLogin:
    """Return a function that tries a login at the brokers, with the settings of the service's own clients (Java's
    names)."""
    return lambda name, password: log_in(
        servers, settings, name, password, TRIAL_TIMEOUT_S, with_operations=with_operations
    )


class _AcceptedLogin(NamedTuple):
    """A login that succeeded when it was last tried."""

    tried_ms: int
    operations: int


class KafkaUsers:
    """An `Authenticator` that tries HTTP Basic logins at the brokers. Used on one event loop."""

    def __init__(
        self,
        try_login: TryLogin,
        remember_ms: int,
        realm: str,
        operation: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Make an authenticator; `operation` is Kafka's number of the operation on the cluster that callers must be
        allowed."""
        self._try_login = try_login
        self._needed_operations = 0 if operation is None else 1 << operation
        self._remember_ms = remember_ms
        self._challenge = {"WWW-Authenticate": f'Basic realm="{realm}"'}
        self._clock = clock or SystemClock()
        self._key = secrets.token_bytes(32)
        self._accepted_logins: OrderedDict[bytes, _AcceptedLogin] = OrderedDict()
        # The time until which each refused login is refused without a trial.
        self._refused_until_ms: OrderedDict[bytes, int] = OrderedDict()
        self._trials: dict[bytes, asyncio.Task[_AcceptedLogin | None]] = {}
        self._names: Counter[str] = Counter()
        self._unknown_turns = asyncio.Semaphore(TRIALS)
        self._known_turns = asyncio.Semaphore(KNOWN_TRIALS)
        self._threads = ThreadPoolExecutor(TRIALS + KNOWN_TRIALS, thread_name_prefix="pessoa-login")

    def __repr__(self) -> str:
        return f"<KafkaUsers {len(self._accepted_logins)} logins remembered, {len(self._trials)} trials>"

    async def caller_of(self, header: str | None) -> HttpCaller:
        credentials = basic_credentials(header)
        if credentials is None or not _can_be_a_login(*credentials):
            raise self._refusal()
        name, password = credentials
        digest = self._digest(name, password)
        now_ms = self._clock.monotonic_ms()
        right = self._accepted_logins.get(digest)
        if right is not None and now_ms < right.tried_ms + self._remember_ms:
            self._accepted_logins.move_to_end(digest)
        else:
            is_wrong = now_ms < self._refused_until_ms.get(digest, now_ms)
            right = None if is_wrong else await self._try(digest, name, password)
        if right is None:
            raise self._refusal()
        if right.operations & self._needed_operations != self._needed_operations:
            raise HttpProblem(403, "Forbidden")
        return HttpCaller(name, PasswordCredentials(name, password))

    async def start(self) -> None:
        """Do nothing: the brokers are first contacted at the first login."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _refusal(self) -> HttpProblem:
        return HttpProblem(401, "Unauthorized", headers=self._challenge)

    def _digest(self, name: str, password: str) -> bytes:
        # No name has a colon in it: HTTP Basic ends it there.
        return hmac.digest(self._key, f"{name}:{password}".encode(), "sha256")

    async def _try(self, digest: bytes, name: str, password: str) -> _AcceptedLogin | None:
        """Return the result of a login trial, None if it was refused. All requests with this login share one trial."""
        task = self._trials.get(digest)
        if task is None:
            is_known = digest in self._accepted_logins
            is_crowded = len(self._trials) >= TRIALS + WAITING or self._names[name] >= NAME_TRIALS
            if is_crowded and not is_known:
                raise HttpProblem(429, "Too many logins are being tried.", headers={"Retry-After": "1"})
            self._names[name] += 1
            task = asyncio.create_task(self._run_trial(digest, name, password, self._known_turns if is_known else None))
            self._trials[digest] = task
            task.add_done_callback(lambda done: self._forget_trial(digest, name, done))
        # A caller that disconnects does not cancel the trial for the others.
        return await asyncio.shield(task)

    def _forget_trial(self, digest: bytes, name: str, done: asyncio.Task[_AcceptedLogin | None]) -> None:
        if not done.cancelled():
            # The exception is retrieved here as well: all callers may have disconnected.
            done.exception()
        del self._trials[digest]
        self._names[name] -= 1
        if not self._names[name]:
            del self._names[name]

    async def _run_trial(
        self, digest: bytes, name: str, password: str, turn: asyncio.Semaphore | None
    ) -> _AcceptedLogin | None:
        async with turn or self._unknown_turns:
            started_ms = self._clock.monotonic_ms()
            loop = asyncio.get_running_loop()
            try:
                operations = await loop.run_in_executor(self._threads, self._try_login, name, password)
            except (ConnectionFailed, KafkaFailure) as failure:
                return self._trust_without_brokers(digest, failure)
        if operations is None:
            self._accepted_logins.pop(digest, None)
            _put(self._refused_until_ms, digest, self._clock.monotonic_ms() + WRONG_MS)
            return None
        self._refused_until_ms.pop(digest, None)
        right = _AcceptedLogin(started_ms, operations)
        _put(self._accepted_logins, digest, right)
        return right

    def _trust_without_brokers(self, digest: bytes, failure: Exception) -> _AcceptedLogin:
        right = self._accepted_logins.get(digest)
        if right is not None and self._clock.monotonic_ms() < right.tried_ms + self._remember_ms + GRACE_MS:
            return right
        log.warning("no broker could say whether a login is right: %s", failure)
        raise HttpProblem(503, "No broker can be asked whether this login is right.", headers={"Retry-After": "1"})


def _put(table: OrderedDict[bytes, _V], digest: bytes, value: _V) -> None:
    table[digest] = value
    table.move_to_end(digest)
    if len(table) > MAX_REMEMBERED:
        table.popitem(last=False)


def _can_be_a_login(name: str, password: str) -> bool:
    """Whether the name and password can be sent by SASL, whose messages reserve some control characters."""
    return all(0 < len(part) <= LONGEST and part.isprintable() for part in (name, password))
