"""A broker that is registered, serves its clients and sends heartbeats; and how it leaves, before its ports close."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.dispatch import Dispatcher
from pessoa.broker.stages.node_context import BackgroundTasks

if TYPE_CHECKING:
    from pessoa.broker.stages.broker_role import BrokerRole
    from pessoa.broker.stages.node_context import NodeContext
    from pessoa.broker.stages.node_listeners import NodeListeners
    from pessoa.quorum.raft_quorum import RaftQuorum


class Membership:
    def __init__(self, node: NodeContext, quorum: RaftQuorum, role: BrokerRole, listeners: NodeListeners) -> None:
        self._node = node
        self._quorum = quorum
        self._role = role
        self._listeners = listeners
        self._heartbeats = BackgroundTasks(node)

    def __repr__(self) -> str:
        return f"<Membership: {self._role.registration!r}>"

    async def join(self) -> None:
        """Register, catch up with the metadata, serve, and be unfenced."""
        registration, services = self._role.registration, self._role.services
        await registration.register()
        self._node.publisher.go_live()
        # The access control lists are loaded now, and requests wait for that.
        self._node.progress.look()
        services.replicas.remove_strays(services.image)
        # The logs were opened before it was known for how long producers are remembered.
        await self._role.upkeep.expire_producers()
        self._listeners.serve(lambda name: Dispatcher(services, self._node.observers, name).serve)
        await registration.unfence()
        self._heartbeats.run(registration.keep_alive())

    async def leave(self) -> None:
        """Let other brokers become the leaders of what this one leads (controlled shutdown)."""
        await self._heartbeats.cancel()
        if not self._node.failed.done():
            await self._role.registration.leave()

    async def hand_over(self) -> None:
        """Leave, and serve on until clients have moved to the new leaders; nothing if there is no other broker."""
        from pessoa.broker.draining import active_others

        if active_others(self._role.services):
            began_ms = self._node.clock.monotonic_ms()
            await self.leave()
            if self._role.registration.is_released:
                await self._send_clients_away(began_ms)

    async def close(self) -> None:
        await self._heartbeats.cancel()
        for partition in self._role.services.replicas.all():
            partition.wake_all()
        await self._listeners.close()

    def abandon(self) -> None:
        """Do nothing: a killed process has nothing else to release here."""

    async def _send_clients_away(self, began_ms: int) -> None:
        """Close the client connections. Meanwhile another controller is elected, if this one was active: by then all
        brokers know what this one has decided."""
        from pessoa.broker.draining import end_connections, wait_until_clients_left, wait_until_unlisted

        services = self._role.services
        await wait_until_unlisted(services, services.peers)
        services.is_leaving = True
        for partition in services.replicas.all():
            partition.wake_all()
        if len(self._quorum.voters) > 1:
            self._quorum.resign(self._quorum.epoch)
        listeners, clock = self._listeners.all, self._node.clock
        await wait_until_clients_left(services, listeners, clock, began_ms)
        await end_connections(services, listeners, clock)
