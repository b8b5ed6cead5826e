"""The table of consumer instances: their owners, the lock of each, and when an instance ends.

An instance lives in the process that made it, and ends by DELETE, or when it got no request for
`consumer.instance.timeout.ms`, or with the last token of its principal, or with the proxy: SIGTERM lets every member
leave its group. A proxy that is killed cannot leave its groups; the coordinator removes its members after
`session.timeout.ms`.

Where the proxy acts as its callers, an instance belongs to the principal that made it: to others it is not there, and
they may have one of the same name. One principal has MAX_INSTANCES_OF_ONE at most.

The calls of one instance take turns (a lock); those of different instances share `consumer.threads` worker threads.

librdkafka's close() may never return, for example after a subscription that was interrupted. So an instance is closed
in a daemon thread of its own, and its callers wait `CLOSE_TIMEOUT_S` at most: a DELETE is answered by then, a proxy
stops by then. An instance whose close has not returned stays in `_closing` and counts against MAX_INSTANCES, so that
such threads cannot become more than that.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException

from pessoa.base.clock import Clock
from pessoa.rest_proxy.caller_clients import Identity
from pessoa.rest_proxy.caller_tokens import CallerToken
from pessoa.rest_proxy.instance import Instance
from pessoa.rest_proxy.media import Format
from pessoa.rest_proxy.proxy_config import ClientSettings, Config
from pessoa.rest_proxy.proxy_problems import instance_exists, instance_not_found, invalid_consumer_config, kafka_error
from pessoa.web.problems import HttpProblem

logger = logging.getLogger(__name__)
T = TypeVar("T")

EXPIRY_CHECK_MS = 1000
# Each has threads and connections of its own; without a limit, one caller could take all there are.
MAX_INSTANCES = 1000
MAX_INSTANCES_OF_ONE = 250
# The most that a DELETE or a stop waits for librdkafka. The commit and the LeaveGroup take milliseconds where brokers
# answer; the JVM's consumer gives them up after 30 s.
CLOSE_TIMEOUT_S = 10.0
# What the JVM's names for "start here" are to librdkafka.
OFFSET_RESETS = {"earliest": "earliest", "latest": "latest", "none": "error"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The settings in a request to create an instance; None means the proxy's setting."""

    group: str
    name: str
    format: Format = Format.BINARY
    auto_offset_reset: str | None = None
    auto_commit: bool | None = None
    min_bytes: int | None = None
    request_timeout_ms: int | None = None


class Key(NamedTuple):
    # A principal, or empty where the proxy acts as itself.
    owner: str
    group: str
    name: str


@dataclass(slots=True)
class Entry:
    instance: Instance
    # By the monotonic clock; a request in progress keeps the instance alive however long it takes.
    expires_ms: int
    # Which token the instance logs in with, if it does with one.
    token: CallerToken | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_closed: bool = False


class Consumers:
    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._entries: dict[Key, Entry | None] = {}
        # Instances that are in no table any more and whose close() has not returned.
        self._closing: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(config.consumer_threads, thread_name_prefix="pessoa-rest-consumer")

    def __repr__(self) -> str:
        return f"<Consumers {len(self._entries)} instances, {len(self._closing)} closing>"

    def __len__(self) -> int:
        return len(self._entries)

    async def create(self, wanted: Wanted, identity: Identity) -> None:
        key = Key(identity.owner, wanted.group, wanted.name)
        if key in self._entries:
            raise instance_exists()
        if key.owner and sum(other.owner == key.owner for other in self._entries) >= MAX_INSTANCES_OF_ONE:
            raise HttpProblem(
                429, f"{key.owner} has {MAX_INSTANCES_OF_ONE} consumer instances; delete one that is done."
            )
        if len(self._entries) + len(self._closing) >= MAX_INSTANCES:
            raise HttpProblem(429, f"There are {MAX_INSTANCES} consumer instances already; delete one that is done.")
        # The name is taken while librdkafka starts, so that a second request for it is told so.
        self._entries[key] = None
        try:
            instance = await self.in_thread(lambda: make_instance(wanted, self._config, identity.consumer))
            self._entries[key] = Entry(instance, self._deadline_ms(), identity.token)
        finally:
            if self._entries[key] is None:
                del self._entries[key]

    @asynccontextmanager
    async def turn(self, key: Key) -> AsyncIterator[Instance]:
        """Yield the instance; no other request uses it until the block ends."""
        entry = self.find(key)
        async with entry.turn:
            if entry.is_closed:
                raise instance_not_found()
            try:
                yield entry.instance
            finally:
                entry.expires_ms = self._deadline_ms()

    async def call(self, key: Key, work: Callable[[Instance], T]) -> T:
        """Return the result of `work`, called in a worker thread when no other request uses the instance."""
        async with self.turn(key) as instance:
            return await self.in_thread(lambda: work(instance))

    def find(self, key: Key) -> Entry:
        entry = self._entries.get(key)
        if entry is None:
            raise instance_not_found()
        entry.expires_ms = self._deadline_ms()
        return entry

    async def delete(self, key: Key) -> None:
        entry = self.find(key)
        del self._entries[key]
        closing = self._start_close(entry)
        await _wait_for([closing])
        if closing.done():
            closing.result()

    async def expire_forever(self) -> None:
        while True:
            await self._clock.wait_ms(EXPIRY_CHECK_MS)
            for key, entry in list(self._entries.items()):
                if entry is None or entry.turn.locked() or not (reason := self._reason_to_end(entry)):
                    continue
                logger.info("instance %s of group %s %s", key.name, key.group, reason)
                del self._entries[key]
                self._start_close(entry)

    def _reason_to_end(self, entry: Entry) -> str:
        if entry.expires_ms <= self._clock.monotonic_ms():
            return "was idle for too long"
        if entry.token is not None and entry.token.expires_at_ms <= self._clock.now_ms():
            return "has outlived the tokens of its principal"
        return ""

    async def close(self) -> None:
        for entry in self._entries.values():
            if entry is not None:
                self._start_close(entry)
        self._entries.clear()
        await _wait_for(self._closing)
        for task in self._closing:
            task.cancel()
        self._threads.shutdown(wait=False)

    def _start_close(self, entry: Entry) -> asyncio.Task[None]:
        entry.is_closed = True
        task = asyncio.create_task(_close(entry))
        self._closing.add(task)
        task.add_done_callback(self._on_closed)
        return task

    def _on_closed(self, task: asyncio.Task[None]) -> None:
        self._closing.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            logger.warning("a consumer could not be closed: %s", failure)

    def _deadline_ms(self) -> int:
        return self._clock.monotonic_ms() + self._config.consumer_instance_timeout_ms

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, a blocking call, from one of the `consumer.threads`. Returns only after the
        thread does, cancelled or not: otherwise a second thread could use the same consumer."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.wait([future])
            except asyncio.CancelledError as told:
                cancelled = told
        if cancelled is not None:
            # The caller does not wait for the result any more.
            future.exception()
            raise cancelled
        return future.result()


async def _close(entry: Entry) -> None:
    async with entry.turn:
        await _in_own_thread(entry.instance.close)


async def _wait_for(tasks: Collection[asyncio.Task[None]]) -> None:
    """Return when all tasks are done, or after `CLOSE_TIMEOUT_S`."""
    if tasks:
        _, unfinished = await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT_S)
        if unfinished:
            logger.warning(
                "%d consumers have not closed within %.0f s; the coordinator removes them from their groups when"
                " max.poll.interval.ms have passed",
                len(unfinished),
                CLOSE_TIMEOUT_S,
            )


def _in_own_thread(work: Callable[[], None]) -> asyncio.Future[None]:
    """Run `work` in a daemon thread and return its future: if it never returns, no worker is lost, and the process
    can end."""
    outcome: Future[None] = Future()

    # A future that runs cannot be cancelled, so that its outcome can be set even if its waiter is cancelled.
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 - raised again where the outcome is awaited
            outcome.set_exception(failure)
        else:
            outcome.set_result(None)

    threading.Thread(target=run, name="pessoa-rest-close", daemon=True).start()
    return asyncio.wrap_future(outcome)


def make_instance(wanted: Wanted, config: Config, consumer_settings: ClientSettings) -> Instance:
    commits_itself = wanted.auto_commit
    if commits_itself is None:
        commits_itself = str(consumer_settings.get("enable.auto.commit", "true")).lower() == "true"
    settings: ClientSettings = {
        "client.id": f"rest-proxy-{wanted.name}",
        **consumer_settings,
        "group.id": wanted.group,
        "enable.auto.commit": commits_itself,
        "enable.auto.offset.store": False,
        "enable.partition.eof": False,
    }
    if wanted.auto_offset_reset is not None:
        reset = OFFSET_RESETS.get(wanted.auto_offset_reset.lower())
        if reset is None:
            raise invalid_consumer_config(
                f"auto.offset.reset is {wanted.auto_offset_reset!r}; it can be earliest, latest or none"
            )
        settings["auto.offset.reset"] = reset
    try:
        consumer = Consumer(settings, logger=logger)
    except KafkaException as failure:
        raise invalid_consumer_config(kafka_error(failure).str()) from None
    except (ValueError, TypeError) as wrong:
        raise invalid_consumer_config(str(wrong)) from None
    return Instance(
        wanted.group,
        wanted.name,
        wanted.format,
        consumer,
        request_timeout_ms=(
            config.consumer_request_timeout_ms if wanted.request_timeout_ms is None else wanted.request_timeout_ms
        ),
        min_bytes=config.fetch_min_bytes if wanted.min_bytes is None else wanted.min_bytes,
        commits_itself=commits_itself,
    )
