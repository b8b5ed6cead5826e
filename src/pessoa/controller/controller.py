"""The controller of a node, a shell: it decides while this node leads the metadata quorum, one request after another,
and answers each when its records are committed.

    decide ──▶ a function of the image and the request ──▶ append the records, apply them to the image
           ──▶ … committed ──▶ response

Every node with the controller role has one, and the one whose node leads is active:

    standby ──activate──▶ active ──deactivate──▶ standby          (`follow_leadership` does both)

The image that decisions are made on is ahead of what is committed: it has every record that was appended, so that two
requests for the same topic name do not both succeed. Responses wait for the commit; one whose decision wrote nothing
waits too, for the records that the decision may have seen and that are not committed. If the log fails, all waiting
requests fail with its error. If another node becomes the leader, the image is dropped, with all that was not committed,
and all waiting requests raise `NotController`: their records may still be committed, or never.

`activate` makes a new cluster's first records: the features that the directory was formatted with, in a transaction, as
Kafka writes them. `tick` does what is due by time: it fences brokers whose session has ended, elects preferred leaders
(auto.leader.rebalance.enable), and elects uncleanly where that is allowed. While the controller is active, a timer
calls it.

A broker that dies loses its connections at once, long before its session ends. So the connection that carries a
broker's heartbeats is watched: when it is closed, the controller suspects the broker, and fences it soon unless a
heartbeat comes on another connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pessoa.controller.decision import MAX_RECORDS, Decision, NotController, Situation
from pessoa.controller.partition_change import MIN_INSYNC_REPLICAS
from pessoa.controller.sessions import BrokerSessions
from pessoa.metadata.image import ConfigResource
from pessoa.metadata.loader import MetadataLoader
from pessoa.metadata.supported_features import ELIGIBLE_LEADER_REPLICAS, METADATA_4_3_IV0, record_version
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import THIS_NODE, OwnRequest
from pessoa.wire.schema import Message
from pessoa.wire.stored.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

if TYPE_CHECKING:
    from pessoa.base.clock import Clock, Timer
    from pessoa.base.ids import Uuid
    from pessoa.controller.decision import ControllerConfig, DecidedApi, ServeInQuorum
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.table_images import QuotasImage
    from pessoa.quota.mutations import MutationCharge, MutationQuotas
    from pessoa.security.authorizer import Authorizer
    from pessoa.wire.request_context import Answer, Caller

log = logging.getLogger("pessoa.controller")

# broker.session.timeout.ms
SESSION_TIMEOUT_MS = 9_000
# As many as Kafka elects at once, and how soon it goes on if there may be more.
_MAX_ELECTIONS = 1_000
_MORE_ELECTIONS_AFTER_MS = 10
# The longest time between two ticks: a broker that registers in between has a session that the first did not know of.
_TICK_MS = 500


class Quorum(Protocol):
    """The part of the metadata quorum that the controller uses."""

    @property
    def leader_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, records: Sequence[tuple[Message, int]]) -> asyncio.Future[int]: ...

    def append_kraft_version(self, level: int) -> asyncio.Future[int]: ...

    def kraft_version_problem(self) -> str | None: ...

    def handle(self, serve: ServeInQuorum, request: Message, version: int) -> Answer[Message]: ...


class Controller:
    """Decides requests while this node leads the quorum. Otherwise `decide` raises `NotController`, and `submit`
    answers NOT_CONTROLLER in the form of the API."""

    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        quorum: Quorum,
        config: ControllerConfig,
        clock: Clock,
        new_uuid: Callable[[], Uuid],
        random_below: Callable[[int], int],
        api_of: Callable[[int], DecidedApi],
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        incarnation_id: Uuid | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        """`api_of` finds an API by its key. `incarnation_id` is that of the broker in the same process: it may register
        before the session of its last incarnation has ended."""
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.sessions = BrokerSessions(session_timeout_ms)
        self._quorum = quorum
        self._config = config
        self._clock = clock
        self._new_uuid = new_uuid
        self._random_below = random_below
        self._api_of = api_of
        self._incarnation_id = incarnation_id
        self._authorizer = authorizer
        # In which epoch of the quorum this node leads; None while standby.
        self._epoch: int | None = None
        self._has_been_active = False
        # While standby it is empty.
        self._loader = MetadataLoader()
        # Done when what was appended last is committed. All that are not done are in `_pending`, oldest first.
        self._last_append: asyncio.Future[None] | None = None
        self._pending: deque[asyncio.Future[None]] = deque()
        # When the next elections of each kind are due, in the order of `_elections`.
        self._due_ms: list[int] = []
        # Calls `_tick` while this controller is active.
        self._timer: Timer | None = None
        self._activation: asyncio.Task[None] | None = None
        # What clients have spent of their quotas, from the first quota on, and the quotas that this goes by.
        self._mutations: MutationQuotas | None = None
        self._quotas_followed: QuotasImage | None = None
        # Connection id → the broker whose heartbeats it carries.
        self._heartbeats: dict[int, int] = {}

    def __repr__(self) -> str:
        state = "standby" if self._epoch is None else f"active in epoch {self._epoch}"
        return f"<Controller {self.node_id} of {self.cluster_id}, {state}: {self.image!r}>"

    @property
    def image(self) -> MetadataImage:
        """The image with every appended record, committed or not."""
        return self._loader.image

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller. Checked with the quorum, which may have lost the leadership
        before it has called us."""
        return self._epoch == self._quorum.epoch and self._quorum.leader_id == self.node_id

    # Leading, and no longer leading.

    def follow_leadership(self, loader: MetadataLoader, bootstrap: Callable[[], Sequence[Message]]) -> None:
        """Activate if this node has become the leader of the quorum, deactivate if another has. `loader` has the image
        of the log. `bootstrap` returns the first records of a new cluster; it is called only for one, and its
        exceptions are raised here."""
        if self._quorum.leader_id != self.node_id:
            self.close()
        elif not self.is_active:
            log.info("node %s is the active controller in epoch %s", self.node_id, self._quorum.epoch)
            loader.finish_deferred()
            first_records = self.activate(loader, () if loader.image.features.metadata_version else bootstrap())
            self._activation = asyncio.get_running_loop().create_task(_wait_for(first_records))
            # Brokers send a heartbeat to a new controller at once. One that does not may have died with the old
            # controller, and would otherwise be noticed only at the end of its session.
            for broker in self.image.cluster.brokers.values():
                if not broker.fenced:
                    self.suspect(broker.id)
            self._tick()

    def close(self) -> None:
        self._stop_timer()
        self.deactivate()

    def activate(self, loader: MetadataLoader, bootstrap: Sequence[Message]) -> Awaitable[None]:
        """Begin to lead, with the image of the log; `bootstrap` is for a cluster that has no records yet. The awaitable
        is done when the first records are committed, if there are any."""
        self.deactivate()
        self._epoch = self._quorum.epoch
        loader.finish_deferred()
        self._loader = MetadataLoader(loader.image)
        now_ms = self._clock.monotonic_ms()
        self.sessions.restart(self.image, now_ms)
        if self._incarnation_id is None and not self._has_been_active:
            # The last incarnation of this node's broker ended with its controller: no session is left to wait for.
            self.sessions.end(self.node_id)
        self._has_been_active = True
        self._due_ms = [now_ms + period_ms for period_ms, _ in self._elections()]
        if loader.in_transaction:
            # A controller that died left a part of a transaction behind.
            self._write([AbortTransactionRecord(reason="The controller that began it is gone.")])
        if self.image.features.metadata_version == 0:
            self._append(self._first_records(bootstrap))
        return self._wait_until_committed(self._last_append)

    def deactivate(self) -> None:
        """Drop what is not committed, and fail the requests that wait for it, because this node does not lead the
        quorum any more."""
        self._epoch = None
        self._loader = MetadataLoader()
        self.sessions.clear()
        self._last_append = None
        while self._pending:
            _resolve(self._pending.popleft(), NotController())

    # Requests.

    async def submit(self, request: Message, caller: Caller) -> Message:
        """Return the response of `decide`, or one with NOT_CONTROLLER."""
        try:
            return await self.decide(request, caller)
        except NotController as problem:
            refusal = Refusal(ErrorCode.NOT_CONTROLLER, str(problem))
            return self._api_of(request.api_key).refuse(request, refusal, caller.version)

    def decide(self, request: Message, caller: Caller) -> Awaitable[Message]:
        """Decide on the request at once; the returned awaitable gives the response when the records are committed.
        Raises NotController."""
        if not self.is_active:
            return _raise_not_controller()
        api = self._api_of(request.api_key)
        if api.serve_in_quorum is not None:
            return self._ask_quorum(api.serve_in_quorum, request, caller)
        now_ms = self._clock.monotonic_ms()
        mutations = self._mutations_of(caller, now_ms)
        try:
            decision = api.decide(self._situation(caller, now_ms)._replace(mutations=mutations), request)
        except Refusal as refusal:
            decision = Decision([], api.refuse(request, refusal, caller.version))
        if mutations is not None and (throttle_ms := mutations.settle()):
            # Of the APIs that spend tokens: their responses have a place for it.
            decision.response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]
        return self._carry_out(decision)

    def _mutations_of(self, caller: Caller, now_ms: int) -> MutationCharge | None:
        """Return the caller's mutation quota for one request; None if no quota holds for it, and for requests of this
        node, on which no client waits."""
        if caller.principal == THIS_NODE:
            return None
        quotas = self.image.quotas
        if self._mutations is None:
            if not quotas.by_entity:
                return None
            from pessoa.quota.mutations import MutationQuotas
            from pessoa.quota.rates import Windows

            value = self._config.broker_value
            windows = Windows(
                int(value("controller.quota.window.num")), int(value("controller.quota.window.size.seconds")) * 1000
            )
            self._mutations = MutationQuotas({}, windows)
        if quotas is not self._quotas_followed:
            self._quotas_followed = quotas
            self._mutations.follow(quotas.by_entity)
        return self._mutations.charge_of(caller.principal, caller.client_id, now_ms)

    async def _ask_quorum(self, serve: ServeInQuorum, request: Message, caller: Caller) -> Message:
        answer = self._quorum.handle(serve, request, caller.version)
        return answer if isinstance(answer, Message) else await answer

    # Connections that carry heartbeats.

    def note_heartbeat(self, broker_id: int, broker_epoch: int, connection_id: int) -> None:
        """Remember which connection carries a broker's heartbeats. A client that does not know the broker's epoch
        cannot make the controller suspect the broker by closing a connection."""
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is not None and broker.epoch == broker_epoch:
            self._heartbeats[connection_id] = broker_id

    def note_connection_closed(self, connection_id: int) -> None:
        broker_id = self._heartbeats.pop(connection_id, None)
        if broker_id is not None and self.is_active and broker_id not in self._heartbeats.values():
            self.suspect(broker_id)
            self._tick()

    # What is due by time.

    def _tick(self) -> None:
        """Run `tick`, and set the timer for the next one."""
        self._stop_timer()
        now_ms = self._clock.monotonic_ms()
        deadline_ms = self.tick(now_ms)
        if deadline_ms is not None:
            delay_ms = min(max(deadline_ms - now_ms, 1), _TICK_MS)
            self._timer = self._clock.call_after_ms(delay_ms, self._tick)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def tick(self, now_ms: int) -> int | None:
        """Fence stale brokers and hold the elections that are due at this time of the monotonic clock; return when this
        must be called again, None if never."""
        if not self.is_active:
            return None
        self._fence_stale_brokers(now_ms)
        for position, (period_ms, elect) in enumerate(self._elections()):
            if now_ms >= self._due_ms[position]:
                records = elect(self._situation(OwnRequest(0), now_ms), _MAX_ELECTIONS)
                if records:
                    self._append(records)
                has_more = len(records) >= _MAX_ELECTIONS
                self._due_ms[position] = now_ms + (_MORE_ELECTIONS_AFTER_MS if has_more else period_ms)
        session_ms = self.sessions.next_deadline_ms(self.image)
        return min(self._due_ms if session_ms is None else [*self._due_ms, session_ms], default=None)

    def suspect(self, broker_id: int) -> None:
        """End the session of a broker soon, unless a heartbeat comes: the connection that carried its heartbeats is
        closed."""
        self.sessions.suspect(broker_id, self._clock.monotonic_ms())

    def _fence_stale_brokers(self, now_ms: int) -> None:
        from pessoa.controller.brokers import fence

        stale = self.sessions.stale(self.image, now_ms)
        for broker_id in stale:
            broker = self.image.cluster.brokers[broker_id]
            self._append(fence(self._situation(OwnRequest(0), now_ms), broker, absent=stale))
            self.sessions.end(broker_id)

    def _elections(self) -> Sequence[tuple[int, Callable[[Situation, int], list[Message]]]]:
        """Return the periodic elections and clean-ups, each with its interval."""
        from pessoa.controller.elections import out_of_trouble, toward_preferred

        value = self._config.broker_value
        elections = [(int(value("unclean.leader.election.interval.ms")), out_of_trouble)]
        if value("auto.leader.rebalance.enable").strip().lower() == "true":
            elections.append((int(value("leader.imbalance.check.interval.seconds")) * 1000, toward_preferred))
        if value("delegation.token.secret.key"):
            from pessoa.controller.tokens import remove_ended_tokens

            elections.append((int(value("delegation.token.expiry.check.interval.ms")), remove_ended_tokens))
        return elections

    # How a decision is carried out.

    def _situation(self, caller: Caller, now_ms: int) -> Situation:
        return Situation(
            image=self.image,
            caller=caller,
            now_ms=now_ms,
            next_offset=self._quorum.log_end_offset,
            cluster_id=self.cluster_id,
            config=self._config,
            sessions=self.sessions,
            new_uuid=self._new_uuid,
            random_below=self._random_below,
            incarnation_id=self._incarnation_id,
            kraft_version_problem=self._quorum.kraft_version_problem,
            authorizer=self._authorizer,
            wall_ms=self._clock.now_ms(),
        )

    def _carry_out(self, decision: Decision) -> Awaitable[Message]:
        if decision.records:
            self._append(decision.records)
        if decision.kraft_version is not None:
            self._expect(self._quorum.append_kraft_version(decision.kraft_version))
            self._loader.set_kraft_version(decision.kraft_version)
        if decision.then is not None:
            decision.then()
        return self._answer(decision.response, self._last_append)

    def _append(self, records: Sequence[Message]) -> None:
        """Append the records to the log, in several batches if one cannot hold them, and apply them to the image."""
        for start in range(0, len(records), MAX_RECORDS):
            batch = records[start : start + MAX_RECORDS]
            end = self._quorum.log_end_offset + len(batch)
            self._write(batch)
            self._loader.load(batch, end - 1, self._quorum.epoch)

    def _write(self, records: Sequence[Message]) -> None:
        level = self.image.features.metadata_version or METADATA_4_3_IV0
        self._expect(self._quorum.append([(record, record_version(record, level)) for record in records]))

    def _expect(self, appended: asyncio.Future[int]) -> None:
        """Make all later responses wait until this append is committed."""
        committed: asyncio.Future[None] = appended.get_loop().create_future()
        self._last_append = committed
        self._pending.append(committed)
        if appended.done():
            self._on_committed(committed, appended)
        else:
            appended.add_done_callback(partial(self._on_committed, committed))

    def _on_committed(self, committed: asyncio.Future[None], appended: asyncio.Future[int]) -> None:
        error = NotController() if appended.cancelled() else appended.exception()
        _resolve(committed, error if error is None or self.is_active else NotController())
        while self._pending and self._pending[0].done():
            self._pending.popleft()

    async def _answer(self, response: Message, last_append: asyncio.Future[None] | None) -> Message:
        await self._wait_until_committed(last_append)
        return response

    async def _wait_until_committed(self, last_append: asyncio.Future[None] | None) -> None:
        if last_append is not None:
            # Several requests may wait for one commit; one that is cancelled must not cancel it for the others.
            await asyncio.shield(last_append)

    def _first_records(self, bootstrap: Sequence[Message]) -> list[Message]:
        records: list[Message] = [BeginTransactionRecord(name="Bootstrap records"), *bootstrap]
        if any(
            isinstance(record, FeatureLevelRecord) and record.name == ELIGIBLE_LEADER_REPLICAS for record in bootstrap
        ):
            # Eligible leader replicas need one min.insync.replicas that all brokers agree on, so it is written down.
            minimum = self._config.broker_value(MIN_INSYNC_REPLICAS)
            records.append(
                ConfigRecord(
                    resource_type=ConfigResource.BROKER, resource_name="", name=MIN_INSYNC_REPLICAS, value=minimum
                )
            )
        records.append(EndTransactionRecord())
        return records


async def _raise_not_controller() -> Message:
    raise NotController("this node does not lead the quorum")


async def _wait_for(first_records: Awaitable[None]) -> None:
    try:
        await first_records
    except NotController:
        log.info("the quorum lost this leader before its first records were committed")


def _resolve(committed: asyncio.Future[None], error: BaseException | None) -> None:
    if committed.done():
        return
    if error is None:
        committed.set_result(None)
    else:
        committed.set_exception(error)
        # If no request waits for it, asyncio would log the exception as never retrieved.
        committed.exception()
