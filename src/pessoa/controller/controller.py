"""The shell of the controller: one decision after another, each written before it is answered.

    submit ──▶ decide on the latest picture ──▶ append the records, apply them to the picture ──▶ … committed ──▶ reply

The picture that decisions are made on (`image`) is ahead of what is committed: it has every record that was appended,
so that two requests for the same topic name do not both succeed. Replies wait for the commit; one whose decision wrote
nothing waits too, for what it may have seen that is not committed. If the log fails, nothing that was appended may be
believed, and everybody who waits hears that.

`activate` makes a new cluster's first records: the features that the directory was formatted with, in a transaction, as
Kafka writes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pessoa.controller.decision import Decision, Refusal, Situation
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


class Quorum(Protocol):
    """What the controller needs of the quorum that it leads."""

    @property
    def epoch(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    def append(self, records: Sequence[tuple[Message, int]]) -> asyncio.Future[int]: ...


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
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.sessions = BrokerSessions(session_timeout_ms)
        self._quorum = quorum
        self._config = config
        self._clock = clock
        self._new_uuid = new_uuid
        self._random_below = random_below
        self._loader = MetadataLoader()
        self._last_append: asyncio.Future[int] | None = None

    def __repr__(self) -> str:
        return f"<Controller {self.node_id} of {self.cluster_id}: {self.image!r}>"

    @property
    def image(self) -> MetadataImage:
        """The picture with everything that was appended, committed or not."""
        return self._loader.image

    def activate(self, loader: MetadataLoader, bootstrap: Sequence[Message]) -> Awaitable[None]:
        """Begin to lead, from the picture that the log has given; `bootstrap` is for a cluster that has none yet.

        Done when the first records are committed, if there are any.
        """
        loader.finish_deferred()
        if loader.in_transaction:
            # A controller that died left a part of something behind.
            abort = AbortTransactionRecord(reason="The controller that began it is gone.")
            self._last_append = self._quorum.append([(abort, 0)])
        self._loader = MetadataLoader(loader.image)
        # The broker of this node lived and died with the controller of this node, so it has no session to wait for.
        self.sessions.restart(self.image, self._clock.monotonic_ms())
        self.sessions.end(self.node_id)
        if self.image.features.metadata_version == 0:
            self._append(self._first_records(bootstrap))
        return self._committed()

    def submit(self, request: Message, caller: Caller) -> Awaitable[Message]:
        """Decide, now; the response comes when what was decided is committed."""
        decide = decision_of(request.api_key)
        try:
            decision = decide(self._situation(caller), request)
        except Refusal as refusal:
            from pessoa.controller.refusals import refused_response

            decision = Decision([], refused_response(request, refusal))
        return self._carry_out(decision)

    def fence_stale_brokers(self) -> Awaitable[None]:
        """Fence every broker that has not been heard of for a session. To be called now and then."""
        from pessoa.controller.brokers import fence

        situation = self._situation(_Itself())
        for broker_id in self.sessions.stale(situation.image, situation.now_ms):
            self._append(fence(situation, situation.image.cluster.brokers[broker_id]))
            self.sessions.end(broker_id)
            situation = self._situation(_Itself())
        return self._committed()

    # How a decision is carried out.

    def _situation(self, caller: Caller) -> Situation:
        return Situation(
            image=self.image,
            caller=caller,
            now_ms=self._clock.monotonic_ms(),
            next_offset=self._quorum.log_end_offset,
            cluster_id=self.cluster_id,
            config=self._config,
            sessions=self.sessions,
            new_uuid=self._new_uuid,
            random_below=self._random_below,
        )

    def _carry_out(self, decision: Decision) -> Awaitable[Message]:
        if decision.records:
            self._append(decision.records)
        if decision.then is not None:
            decision.then()
        return self._answer(decision.response, self._last_append)

    def _append(self, records: Sequence[Message]) -> None:
        level = self.image.features.metadata_version or METADATA_4_3_IV0
        end = self._quorum.log_end_offset + len(records)
        self._last_append = self._quorum.append([(record, record_version(record, level)) for record in records])
        self._loader.load(records, end - 1, self._quorum.epoch)

    async def _answer(self, response: Message, last_append: asyncio.Future[int] | None) -> Message:
        if last_append is not None:
            # Several may wait for one commit; one that gives up must not take it from the others.
            await asyncio.shield(last_append)
        return response

    async def _committed(self) -> None:
        if self._last_append is not None:
            await asyncio.shield(self._last_append)

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
