"""The controller of a node: active while this node leads the metadata quorum, and only then.

    quorum.on_leadership ──▶ we lead ──▶ activate: first records, then a timer for what is due by itself (fencing, …)
                         ──▶ another leads, or nobody does ──▶ deactivate: whoever waits hears NotController

`ControllerServices` is what the handlers of the CONTROLLER listener work with. A request that comes to a controller
which does not lead is answered with NOT_CONTROLLER, in the form of its API.

A broker that dies loses its connections at once, long before its session ends. So the connection that carries a
broker's heartbeats is watched: when it breaks, the controller suspects the broker, and fences it soon unless it is
heard of again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from pessoa.broker.dispatch import CONTROLLER_TABLE
from pessoa.broker.services import Node
from pessoa.broker.topic_listing import CLUSTER_OPERATIONS
from pessoa.controller.decision import NotController, Refusal
from pessoa.quorum.formatting import WrongDirectory
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from pessoa.base.clock import Clock
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.dispatch import Row
    from pessoa.broker.forwarding import Caller
    from pessoa.controller.controller import Controller
    from pessoa.metadata.image import MetadataImage
    from pessoa.net.listener import Connection
    from pessoa.quorum.publishing import ImagePublisher

log = logging.getLogger("pessoa.broker")

# Of DescribeCluster.
CONTROLLERS = 2
# A broker that registers between two looks makes deadlines of which the first look knew nothing.
_TICK_MS = 500
# What the quorum decides by itself.
_QUORUM_APIS = frozenset((ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER))


class ControllerNode:
    """Follows the quorum's leadership. `decide` is the one entrance for requests. `bootstrap` gives the records that a
    cluster begins with, or says why it cannot (WrongDirectory)."""

    def __init__(
        self,
        controller: Controller,
        quorum: Any,
        publisher: ImagePublisher,
        bootstrap: Callable[[], Sequence[Message]],
        clock: Clock,
    ) -> None:
        self.controller = controller
        self._quorum = quorum
        self._publisher = publisher
        self._bootstrap = bootstrap
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._activation: asyncio.Task[None] | None = None
        # Connection → the broker whose heartbeats it carries.
        self._heartbeats: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<ControllerNode {'leads' if self.is_active else 'follows'}: {self.controller!r}>"

    @property
    def is_active(self) -> bool:
        return self.controller.is_active

    # Leadership.

    def on_leadership(self, *_: object) -> None:
        if self._quorum.leader_id != self.controller.node_id:
            self._rest()
            self.controller.deactivate()
        elif not self.controller.is_active:
            log.info("node %s is the active controller in epoch %s", self.controller.node_id, self._quorum.epoch)
            try:
                bootstrap = self._read_bootstrap()
            except WrongDirectory as problem:
                self._quorum.fail(problem)
                return
            first_records = self.controller.activate(self._publisher.loader, bootstrap)
            self._activation = asyncio.get_running_loop().create_task(_wait_for(first_records))
            # Brokers come to a new controller at once. One that does not may have died with the old one, and nobody
            # else would notice before the end of its session.
            for broker in self.controller.image.cluster.brokers.values():
                if not broker.fenced:
                    self.controller.suspect(broker.id)
            self._tick()

    def _read_bootstrap(self) -> Sequence[Message]:
        """Asked for where a cluster begins, and only there."""
        loader = self._publisher.loader
        loader.finish_deferred()
        return () if loader.image.features.metadata_version else self._bootstrap()

    def close(self) -> None:
        self._rest()
        self.controller.deactivate()

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        """Do what is due, and come back when something is due again."""
        self._rest()
        now_ms = self._clock.monotonic_ms()
        deadline_ms = self.controller.tick(now_ms)
        if deadline_ms is not None:
            delay_ms = min(max(deadline_ms - now_ms, 1), _TICK_MS)
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    # Requests.

    def decide(self, request: Message, caller: Caller) -> Awaitable[Message]:
        """The response, when what was decided is committed; raises `NotController`."""
        if request.api_key in _QUORUM_APIS:
            return self._of_quorum(request, caller)
        return self.controller.submit(request, caller)

    async def _of_quorum(self, request: Message, caller: Caller) -> Message:
        if not self.is_active:
            raise NotController("this node does not lead the quorum")
        answer: Message | Awaitable[Message] = self._quorum.handle(request, caller)
        return answer if isinstance(answer, Message) else await answer

    # Connections that carry heartbeats.

    def heard_of(self, broker_id: int, broker_epoch: int, connection_id: int) -> None:
        """Whoever does not know the epoch of a broker cannot make it suspect by hanging up."""
        broker = self.controller.image.cluster.brokers.get(broker_id)
        if broker is not None and broker.epoch == broker_epoch:
            self._heartbeats[connection_id] = broker_id

    def connection_closed(self, connection: Connection) -> None:
        broker_id = self._heartbeats.pop(connection.id, None)
        if broker_id is not None and self.is_active and broker_id not in self._heartbeats.values():
            self.controller.suspect(broker_id)
            self._tick()


async def _wait_for(first_records: Awaitable[None]) -> None:
    try:
        await first_records
    except NotController:
        log.info("the lead was lost before the first records were committed")


class ControllerServices:
    """What the handlers of the CONTROLLER listener work with."""

    endpoint_type = CONTROLLERS
    table: tuple[Row, ...] = CONTROLLER_TABLE
    cluster_operations = CLUSTER_OPERATIONS

    def __init__(
        self, node: ControllerNode, quorum: Any, publisher: ImagePublisher, config: BrokerConfig, cluster_id: str
    ) -> None:
        self.node = node
        self.quorum = quorum
        self.config = config
        self.cluster_id = cluster_id
        self.node_id = config.node_id
        self._publisher = publisher

    def __repr__(self) -> str:
        return f"<ControllerServices of {self.node!r}>"

    @property
    def image(self) -> MetadataImage:
        return self._publisher.image

    @property
    def controller(self) -> ControllerServices:
        return self

    @property
    def controller_id(self) -> int:
        return int(self.quorum.leader_id)

    def nodes(self, listener: str) -> Iterator[Node]:
        """The registered controllers that have this listener."""
        for one in self.image.cluster.controllers.values():
            endpoint = one.listeners.get(listener)
            if endpoint is not None:
                yield Node(one.id, endpoint.host, endpoint.port, None, is_fenced=False)

    def decide(self, request: Message, context: Any) -> Awaitable[Message]:
        return self.node.decide(request, context)

    async def submit(self, request: Message, context: Any) -> Message:
        """As `decide`, for whoever asks without an envelope."""
        if isinstance(request, BrokerHeartbeatRequest):
            self.node.heard_of(request.broker_id, request.broker_epoch, context.connection_id)
        try:
            return await self.decide(request, context)
        except NotController as problem:
            from pessoa.controller.refusals import refused_response

            return refused_response(request, Refusal(ErrorCode.NOT_CONTROLLER, str(problem)), context.version)
