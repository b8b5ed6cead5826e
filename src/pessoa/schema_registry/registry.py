"""One instance of the registry: reads from its own state; writes as the leader, or names the leader.

    write(decide) ──▶ queue ──▶ decide on the leader's state ──▶ one transaction ──▶ replayed here ──▶ answer

Requests that arrive while a transaction is on its way are decided together in the next, in their order, each on top of
the ones before: `_ahead` is the state with everything that has been decided. An answer leaves when its records have
come back through the topic into `state`, so that a caller can read what it has written. If a transaction fails, it is
unknown whether it counts; then `_ahead` is worth nothing, waiting requests fail, and leadership starts anew from the
topic.

Becoming leader: open the writer, which fences the previous one; then read up to the no-op record that opening it wrote.
Only then is the state that decisions rest on complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from pessoa.client.topic_creation import TopicUnavailable
from pessoa.schema_registry import registry_problems
from pessoa.schema_registry.election import Election, Identity
from pessoa.schema_registry.registry_config import Config
from pessoa.schema_registry.registry_records import Record
from pessoa.schema_registry.schemas import canonical_of
from pessoa.schema_registry.schemas_topic import Fenced, Store, Writer, check_size
from pessoa.schema_registry.state import State
from pessoa.web.problems import HttpProblem

log = logging.getLogger("pessoa.schema_registry")

# Decisions per transaction.
_BATCH = 200
_RETRY_S = 0.25
# From the commit to the reader, which is as near as can be.
_COME_BACK_S = 10.0


class Outcome(Protocol):
    """The result of a decision: records to write, and the values for the response."""

    @property
    def records(self) -> tuple[Record, ...]:
        """The records to write; empty if the state already is as the request wants it."""


O = TypeVar("O", bound=Outcome)  # noqa: E741


class NotLeader(Exception):
    """This instance is not the leader, so it cannot write."""


class _Job(NamedTuple):
    decide: Callable[[State], Outcome]
    answer: asyncio.Future[Any]


class Registry:
    def __init__(self, config: Config, identity: Identity, client_settings: dict[str, str]) -> None:
        self.config = config
        self.identity = identity
        self.state = State(canonical_of)
        self.store = Store(config, client_settings, self.state.replay)
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._ahead: State | None = None
        self._writer: Writer | None = None
        self._election: Election | None = None
        self._term: asyncio.Task[None] | None = None
        self.leader: Identity | None = None
        self._wants_to_lead = False
        # Whether the election has announced a leader, or that there is none.
        self._has_announcement = False
        # Whether this instance was elected and could not write.
        self._has_failed = False
        # Replaced by a new one whenever something about leadership has changed.
        self._changed = asyncio.Event()

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader.url if self.leader else 'no leader'}"
        return f"<Registry {self.identity.url} {role}, {self.state!r}>"

    @property
    def is_leader(self) -> bool:
        """Whether this instance is the leader and takes decisions."""
        return self._ahead is not None

    @property
    def is_writable(self) -> bool:
        """Whether this instance leads, or knows the leader."""
        return self.is_leader or (self.leader is not None and not self._wants_to_lead)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        await self.store.start()

        def tell(leader: Identity | None, is_me: bool) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._on_election, leader, is_me)

        self._election = Election(
            self.config.bootstrap_servers,
            self.config.client_settings,
            self.config.group_id,
            self.identity,
            self.config.session_timeout_ms,
            tell,
        )
        self._election.start()

    async def wait_until_writable(self, timeout_s: float) -> bool:
        """Return True when writes are possible, here or by another leader; False after `timeout_s` or if an attempt
        to lead failed. A client takes the first response of a registry as the sign that it may write; so an instance
        answers no request before. An instance that is not eligible is ready as soon as the group has announced a
        leader or none."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while not self.is_writable and (self.identity.is_eligible or not self._has_announcement):
            left_s = deadline_s - loop.time()
            if left_s <= 0 or self._has_failed:
                return False
            await self.wait_for_change(left_s)
        return True

    async def stop(self) -> None:
        if self._election is not None:
            await asyncio.to_thread(self._election.stop)
        self._wants_to_lead = False
        await self._end_term()
        await self.store.stop()

    # Leadership.

    def _on_election(self, leader: Identity | None, is_me: bool) -> None:
        if leader != self.leader:
            log.info("%s: the leader is %s", self.identity.url, leader.url if leader else "unknown")
        self.leader = leader
        self._has_announcement = True
        self._wants_to_lead = is_me
        if is_me and self._term is None:
            self._term = asyncio.create_task(self._serve_term())
        elif not is_me and leader is not None and self._term is not None:
            self._term.cancel()
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _serve_term(self) -> None:
        """Lead until another instance leads."""
        try:
            while self._wants_to_lead:
                writer = self._writer = self.store.writer()
                try:
                    await self._lead(writer)
                except Fenced as failure:
                    log.warning("%s was shut out by another leader: %s", self.identity.url, failure)
                except TopicUnavailable as failure:
                    self._has_failed = True
                    log.warning(
                        "%s cannot write: %s. It writes in transactions: on fewer than three brokers these need "
                        "transaction.state.log.replication.factor=1 and transaction.state.log.min.isr=1",
                        self.identity.url, failure,
                    )  # fmt: skip
                finally:
                    self._ahead = self._writer = None
                    self._refuse_jobs()
                    self._notify()
                    await writer.close()
                await asyncio.sleep(_RETRY_S)
        finally:
            self._term = None
            if self._wants_to_lead:
                self._term = asyncio.create_task(self._serve_term())

    async def _end_term(self) -> None:
        term = self._term
        if term is not None:
            term.cancel()
            await asyncio.wait([term])

    async def _lead(self, writer: Writer) -> None:
        mark = await writer.open()
        await self.store.wait_until(mark, _COME_BACK_S)
        self._ahead = self.state.copy()
        log.info("%s leads, from offset %d", self.identity.url, mark)
        self._notify()
        while True:
            jobs = [await self._jobs.get()]
            while len(jobs) < _BATCH and not self._jobs.empty():
                jobs.append(self._jobs.get_nowait())
            await self._decide(writer, jobs)

    async def _decide(self, writer: Writer, jobs: Sequence[_Job]) -> None:
        assert self._ahead is not None
        decided: list[tuple[_Job, Outcome]] = []
        records: list[Record] = []
        for job in jobs:
            if job.answer.done():
                continue  # the caller has gone
            try:
                outcome = job.decide(self._ahead)
                check_size(outcome.records)
            except HttpProblem as problem:
                job.answer.set_exception(problem)
                continue
            except Exception as mistake:  # noqa: BLE001 - a mistake of ours belongs to the one request that met it
                job.answer.set_exception(mistake)
                continue
            for record in outcome.records:
                self._ahead.replay(record)
            records += outcome.records
            decided.append((job, outcome))
        try:
            if records:
                offset = await writer.write(records)
                await self.store.wait_until(offset, _COME_BACK_S)
        except BaseException as failure:
            for job, _ in decided:
                if not job.answer.done():
                    job.answer.set_exception(registry_problems.store_failed(str(failure) or "the leader has changed"))
            raise
        for job, outcome in decided:
            if not job.answer.done():
                job.answer.set_result(outcome)

    def _refuse_jobs(self) -> None:
        while not self._jobs.empty():
            job = self._jobs.get_nowait()
            if not job.answer.done():
                job.answer.set_exception(NotLeader())

    # For the API.

    async def write(self, decide: Callable[[State], O]) -> O:
        """Take a decision as the leader, write its records and return it. Raises NotLeader if another instance
        leads."""
        if not self.is_leader:
            raise NotLeader
        answer: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._jobs.put_nowait(_Job(decide, answer))
        return await answer

    async def wait_for_leader(self) -> None:
        """Return when this instance leads or knows the leader. Raises the problem 50004 if that takes too long."""
        deadline = asyncio.get_running_loop().time() + self.config.leader_timeout_ms / 1000
        while not self.is_writable:
            left_s = deadline - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise registry_problems.unknown_leader()
            await self.wait_for_change(left_s)

    async def wait_for_change(self, timeout_s: float) -> None:
        """Return when the leader, or this instance's part in leading, has changed, or after `timeout_s`."""
        changed = self._changed
        # Python 3.11's wait_for forgets a cancellation that comes in the moment of the change.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await changed.wait()
