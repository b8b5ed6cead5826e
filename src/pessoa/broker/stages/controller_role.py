"""A controller that serves other controllers and brokers, and is registered with the active one (KIP-919)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pessoa.broker.controller_services import ControllerServices
from pessoa.broker.dispatch import Dispatcher
from pessoa.broker.registration import register_controller
from pessoa.broker.stages.node_context import BackgroundTasks

if TYPE_CHECKING:
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.stages.cluster_member import ClusterMember
    from pessoa.broker.stages.node_context import NodeContext
    from pessoa.broker.stages.node_listeners import NodeListeners
    from pessoa.controller.controller import Controller
    from pessoa.net.connection import Connection
    from pessoa.security.authorizer import Authorizer


class ControllerRole:
    def __init__(
        self,
        node: NodeContext,
        controller: Controller,
        member: ClusterMember,
        listeners: NodeListeners,
    ) -> None:
        self._node = node
        self._member = member
        self._listeners = listeners
        self._tasks = BackgroundTasks(node)
        services = ControllerServices(
            controller,
            member.quorum,
            node.publisher,
            node.config.current,
            controller.cluster_id,
            node.clock,
            node.authorizer,
            node.progress,
        )

        def configure(config: BrokerConfig) -> None:
            services.config = config

        def on_closed(connection: Connection) -> None:
            controller.note_connection_closed(connection.id)

        node.config.on_change.append(configure)
        listeners.watch_closed(on_closed)
        listeners.serve(lambda name: Dispatcher(services, node.observers, name, is_of_controller=True).serve)
        # Done when this node has read of the registration of its controller in the log.
        self.registered = self._tasks.run(self._register())

    def __repr__(self) -> str:
        return f"<ControllerRole: {self._listeners!r}>"

    async def close(self) -> None:
        await self._tasks.cancel()

    def abandon(self) -> None:
        """Do nothing: a killed process has nothing else to release here."""

    def follow_metadata_alone(self) -> None:
        """Apply the metadata on a node without a broker. A broker would wait until it has read the log; this node
        cannot, so its image is published from the start, and its ACLs are used once it has read its own registration:
        before that there may be more of them."""
        node, authorizer = self._node, self._node.authorizer
        node.publisher.subscribers.append(node.config.follow)
        node.publisher.go_live()
        if authorizer is not None:
            self._tasks.run(self._load_acls(authorizer))

    async def _load_acls(self, authorizer: Authorizer) -> None:
        node = self._node
        await asyncio.wait([self.registered])
        node.publisher.subscribers.insert(0, lambda delta: authorizer.load(delta.new.acls.by_id))
        authorizer.load(node.publisher.image.acls.by_id)
        node.progress.look()

    async def _register(self) -> None:
        node = self._node
        if await register_controller(
            self._member.controller_client,
            node.config.current,
            node.clock,
            node.incarnation_id,
            self._listeners.advertised,
        ):
            await node.progress.wait_until(self._is_registered)

    def _is_registered(self) -> bool:
        known = self._node.publisher.image.cluster.controllers.get(self._node.config.current.node_id)
        return known is not None and known.incarnation_id == self._node.incarnation_id
