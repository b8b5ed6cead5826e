"""The shell of the controller: one decision after another, each written before it is answered.

    submit ──▶ decide on the latest picture ──▶ append the records, apply them to the picture ──▶ … committed ──▶ reply

Every node of the quorum has one, and the one whose node leads is active:

    standby ──activate──▶ active ──deactivate──▶ standby

The picture that decisions are made on (`image`) is ahead of what is committed: it has every record that was appended,
so that two requests for the same topic name do not both succeed. Replies wait for the commit; one whose decision wrote
nothing waits too, for what it may have seen that is not committed. If the log fails, nothing that was appended may be
believed, and everybody who waits hears that. If leadership goes elsewhere, the picture is forgotten with all that was
not committed, and everybody who waits hears `NotController`: what they asked for may still be committed, or never.

`activate` makes a new cluster's first records: the features that the directory was formatted with, in a transaction, as
Kafka writes them. `tick` does what is due by time: it fences who is silent, gives leadership back to preferred leaders
(auto.leader.rebalance.enable), and elects uncleanly where that is allowed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pessoa.controller.decision import MAX_RECORDS, Decision, NotController, Refusal, Situation
from pessoa.controller.partition_change import MIN_INSYNC_REPLICAS
from pessoa.controller.sessions import BrokerSessions
from pessoa.metadata.features import ELIGIBLE_LEADER_REPLICAS, METADATA_4_3_IV0, record_version
from pessoa.metadata.image import ConfigResource
from pessoa.metadata.loader import MetadataLoader
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.stored.metadata_log import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)

if TYPE_CHECKING:
    from pessoa.base.clock import Clock
    from pessoa.base.ids import Uuid
    from pessoa.controller.decision import Caller, ControllerConfig
    from pessoa.metadata.image import MetadataImage
    from pessoa.wire.schema import Message

# broker.session.timeout.ms
SESSION_TIMEOUT_MS = 9_000
# As many as Kafka elects at once, and how soon it goes on if there may be more.
_MAX_ELECTIONS = 1_000
_MORE_ELECTIONS_AFTER_MS = 10


class Quorum(Protocol):
    """What the controller needs of the quorum that it leads."""

    @property
    def leader_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, records: Sequence[tuple[Message, int]]) -> asyncio.Future[int]: ...

    def append_kraft_version(self, level: int) -> asyncio.Future[int]: ...

    def kraft_version_problem(self) -> str | None: ...


class _Itself(NamedTuple):
    """The caller of what the controller decides by itself."""

    version: int = 0
    principal: str = "User:ANONYMOUS"


class Controller:
    def __init__(
        self,
        node_id: int,
        cluster_id: str,
        quorum: Quorum,
        config: ControllerConfig,
        clock: Clock,
        new_uuid: Callable[[], Uuid],
        random_below: Callable[[int], int],
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        incarnation_id: Uuid | None = None,
    ) -> None:
        """`incarnation_id` is that of the broker in the same process: it need not wait for the end of its last life."""
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.sessions = BrokerSessions(session_timeout_ms)
        self._quorum = quorum
        self._config = config
        self._clock = clock
        self._new_uuid = new_uuid
        self._random_below = random_below
        self._incarnation_id = incarnation_id
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

    def __repr__(self) -> str:
        state = "standby" if self._epoch is None else f"active in epoch {self._epoch}"
        return f"<Controller {self.node_id} of {self.cluster_id}, {state}: {self.image!r}>"

    @property
    def image(self) -> MetadataImage:
        """The picture with everything that was appended, committed or not."""
        return self._loader.image

    @property
    def is_active(self) -> bool:
        """Whether this node decides. A quorum that has lost its leadership may be ahead of its telling us so."""
        return self._epoch == self._quorum.epoch and self._quorum.leader_id == self.node_id

    # Leading, and no longer leading.

    def activate(self, loader: MetadataLoader, bootstrap: Sequence[Message]) -> Awaitable[None]:
        """Begin to lead, from the picture that the log has given; `bootstrap` is for a cluster that has none yet.

        Done when the first records are committed, if there are any.
        """
        self.deactivate()
        self._epoch = self._quorum.epoch
        loader.finish_deferred()
        self._loader = MetadataLoader(loader.image)
        now_ms = self._clock.monotonic_ms()
        self.sessions.restart(self.image, now_ms)
        if self._incarnation_id is None and not self._has_been_active:
            # The broker of this node lived and died with the controller of this node: it has no session to wait for.
            self.sessions.end(self.node_id)
        self._has_been_active = True
        self._due_ms = [now_ms + period_ms for period_ms, _ in self._elections()]
        if loader.in_transaction:
            # A controller that died left a part of something behind.
            self._write([AbortTransactionRecord(reason="The controller that began it is gone.")])
        if self.image.features.metadata_version == 0:
            self._append(self._first_records(bootstrap))
        return self._committed(self._last_append)

    def deactivate(self) -> None:
        """Another node leads, or nobody: forget what is not committed, and tell those who wait for it."""
        self._epoch = None
        self._loader = MetadataLoader()
        self.sessions.clear()
        self._last_append = None
        while self._pending:
            _settle(self._pending.popleft(), NotController())

    def submit(self, request: Message, caller: Caller) -> Awaitable[Message]:
        """Decide, now; the response comes when what was decided is committed. Or NotController."""
        if not self.is_active:
            return _not_here()
        decide = decision_of(request.api_key)
        try:
            decision = decide(self._situation(caller, self._clock.monotonic_ms()), request)
        except Refusal as refusal:
            from pessoa.controller.refusals import refused_response

            decision = Decision([], refused_response(request, refusal, caller.version))
        return self._carry_out(decision)

    # What is due by time.

    def tick(self, now_ms: int) -> int | None:
        """Do what is due at this moment of the clock that only grows; when there will be more to do, if ever."""
        if not self.is_active:
            return None
        self._fence_stale_brokers(now_ms)
        for position, (period_ms, elect) in enumerate(self._elections()):
            if now_ms >= self._due_ms[position]:
                records = elect(self._situation(_Itself(), now_ms), _MAX_ELECTIONS)
                if records:
                    self._append(records)
                has_more = len(records) >= _MAX_ELECTIONS
                self._due_ms[position] = now_ms + (_MORE_ELECTIONS_AFTER_MS if has_more else period_ms)
        session_ms = self.sessions.next_deadline_ms(self.image)
        return min(self._due_ms if session_ms is None else [*self._due_ms, session_ms], default=None)

    def suspect(self, broker_id: int) -> None:
        """The connection that brought a broker's heartbeats broke: unless it is heard of very soon, it is gone."""
        self.sessions.suspect(broker_id, self._clock.monotonic_ms())

    def _fence_stale_brokers(self, now_ms: int) -> None:
        from pessoa.controller.brokers import fence

        stale = self.sessions.stale(self.image, now_ms)
        for broker_id in stale:
            broker = self.image.cluster.brokers[broker_id]
            self._append(fence(self._situation(_Itself(), now_ms), broker, absent=stale))
            self.sessions.end(broker_id)

    def _elections(self) -> Sequence[tuple[int, Callable[[Situation, int], list[Message]]]]:
        """The kinds of elections that come by themselves, and how often."""
        from pessoa.controller.elections import out_of_trouble, toward_preferred

        value = self._config.broker_value
        elections = [(int(value("unclean.leader.election.interval.ms")), out_of_trouble)]
        if value("auto.leader.rebalance.enable").strip().lower() == "true":
            elections.append((int(value("leader.imbalance.check.interval.seconds")) * 1000, toward_preferred))
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
        """Write the records and believe them. More than one batch can hold are written in several, in order."""
        for start in range(0, len(records), MAX_RECORDS):
            batch = records[start : start + MAX_RECORDS]
            end = self._quorum.log_end_offset + len(batch)
            self._write(batch)
            self._loader.load(batch, end - 1, self._quorum.epoch)

    def _write(self, records: Sequence[Message]) -> None:
        level = self.image.features.metadata_version or METADATA_4_3_IV0
        self._expect(self._quorum.append([(record, record_version(record, level)) for record in records]))

    def _expect(self, appended: asyncio.Future[int]) -> None:
        """Whoever asks from now on waits for this to be committed."""
        committed: asyncio.Future[None] = appended.get_loop().create_future()
        self._last_append = committed
        self._pending.append(committed)
        if appended.done():
            self._on_committed(committed, appended)
        else:
            appended.add_done_callback(partial(self._on_committed, committed))

    def _on_committed(self, committed: asyncio.Future[None], appended: asyncio.Future[int]) -> None:
        error = NotController() if appended.cancelled() else appended.exception()
        _settle(committed, error if error is None or self.is_active else NotController())
        while self._pending and self._pending[0].done():
            self._pending.popleft()

    async def _answer(self, response: Message, last_append: asyncio.Future[None] | None) -> Message:
        await self._committed(last_append)
        return response

    async def _committed(self, last_append: asyncio.Future[None] | None) -> None:
        if last_append is not None:
            # Several may wait for one commit; one that gives up must not take it from the others.
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


async def _not_here() -> Message:
    raise NotController


def _settle(committed: asyncio.Future[None], error: BaseException | None) -> None:
    if committed.done():
        return
    if error is None:
        committed.set_result(None)
    else:
        committed.set_exception(error)
        # Nobody may be waiting for it, and then it is nobody's exception.
        committed.exception()


# API → the function that decides, as module.function of this package. A module is imported at the first request for it:
# a broker that starts needs two of them.
_DECISIONS = {
    ApiKey.CREATE_TOPICS: "topics.create_topics",
    ApiKey.DELETE_TOPICS: "topics.delete_topics",
    ApiKey.CREATE_PARTITIONS: "topics.create_partitions",
    ApiKey.ALTER_CONFIGS: "configs.alter_configs",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "configs.incremental_alter_configs",
    ApiKey.ELECT_LEADERS: "elections.elect_leaders",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "reassignments.alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "reassignments.list_partition_reassignments",
    ApiKey.ALTER_PARTITION: "replicas.alter_partition",
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: "replicas.assign_replicas_to_dirs",
    ApiKey.ALLOCATE_PRODUCER_IDS: "producer_ids.allocate_producer_ids",
    ApiKey.UPDATE_FEATURES: "features.update_features",
    ApiKey.ALTER_CLIENT_QUOTAS: "quotas.alter_client_quotas",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: "scram.alter_user_scram_credentials",
    ApiKey.CREATE_ACLS: "acls.create_acls",
    ApiKey.DELETE_ACLS: "acls.delete_acls",
    ApiKey.CREATE_DELEGATION_TOKEN: "tokens.create_delegation_token",
    ApiKey.RENEW_DELEGATION_TOKEN: "tokens.renew_delegation_token",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "tokens.expire_delegation_token",
    ApiKey.BROKER_REGISTRATION: "brokers.register_broker",
    ApiKey.BROKER_HEARTBEAT: "brokers.heartbeat",
    ApiKey.CONTROLLER_REGISTRATION: "brokers.register_controller",
    ApiKey.UNREGISTER_BROKER: "brokers.unregister_broker",
}
_found: dict[int, Callable[[Situation, Any], Decision]] = {}


def decision_of(api_key: int) -> Callable[[Situation, Any], Decision]:
    found = _found.get(api_key)
    if found is None:
        module, _, name = _DECISIONS[ApiKey(api_key)].partition(".")
        found = _found[api_key] = getattr(import_module(f"pessoa.controller.{module}"), name)
    return found
