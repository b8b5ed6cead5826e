"""A node's part in its cluster: the metadata quorum that it follows or votes in, its controller, if it has that role,
and the way to the active controller."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from pessoa.broker.api_table import row_of
from pessoa.broker.config_rules import ConfigRules
from pessoa.broker.controller_client import ControllerClient
from pessoa.broker.quorum_member import QuorumTransport, make_quorum
from pessoa.controller.controller import Controller
from pessoa.quorum.formatting import WrongDirectory, read_bootstrap
from pessoa.quorum.snapshotting import SnapshotTaker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.broker.stages.log_directories import LogDirectories
    from pessoa.broker.stages.node_context import NodeContext
    from pessoa.broker.stages.node_listeners import NodeListeners
    from pessoa.quorum.batches import MetadataBatch
    from pessoa.quorum.snapshot_file import SnapshotReader
    from pessoa.wire.schema import Message

log = logging.getLogger("pessoa.broker")


class ClusterMember:
    """The metadata quorum and the image of a node. `controller` is None on a node without that role. `listeners` are
    those on which other controllers reach this one."""

    def __init__(self, node: NodeContext, directories: LogDirectories, listeners: NodeListeners) -> None:
        config = node.config.current
        self._node = node
        login = node.controller_login()
        self._transport = QuorumTransport(node.controller_network, config.node_id, login)
        self.quorum = make_quorum(
            config,
            node.disk,
            directories.cluster_id,
            directories.metadata_id,
            node.clock,
            node.entropy,
            node.flusher,
            self._transport,
            listeners.advertised,
        )
        self.quorum.on_failure = node.fail
        self.quorum.listeners.append(self._on_committed)
        self.quorum.on_snapshot.append(self._on_snapshot)
        self._snapshots = SnapshotTaker(self.quorum, node.publisher)
        self.quorum.listeners.append(self._snapshots.listen)
        self.controller = self._make_controller(directories.cluster_id) if config.is_controller else None
        self.controller_client = ControllerClient(
            config.node_id,
            self.controller,
            self.quorum,
            node.controller_network,
            node.clock,
            config.request_timeout_ms,
            login,
            node.authorizer,
        )

    def __repr__(self) -> str:
        return f"<ClusterMember: {self.quorum!r}, {self.controller!r}>"

    async def start(self) -> None:
        await self.quorum.start()

    async def close(self) -> None:
        if self.controller is not None:
            self.controller.close()
        await self._snapshots.close()
        await self.quorum.close()
        self._transport.close()
        self.controller_client.close()

    def abandon(self) -> None:
        self.controller_client.close()
        self._transport.close()
        self.quorum.abandon()

    def _make_controller(self, cluster_id: str) -> Controller:
        node, config = self._node, self._node.config.current
        controller = Controller(
            config.node_id,
            cluster_id,
            self.quorum,
            ConfigRules(config),
            node.clock,
            node.new_uuid,
            node.random_below,
            row_of,
            config.broker_session_timeout_ms,
            node.incarnation_id,
            node.authorizer,
        )
        self.quorum.on_leadership.append(partial(self._on_leadership, controller, self._read_bootstrap()))
        return controller

    def _read_bootstrap(self) -> Callable[[], list[Message]]:
        """Return a function that returns the bootstrap records of a new cluster. Damage is logged at once, but raised
        only if this node leads a cluster that needs them."""
        read = partial(read_bootstrap, self._node.disk, self._node.config.current.metadata_log_dir)
        try:
            records = read()
        except WrongDirectory as problem:
            log.warning("%s. A cluster that has begun does not need it", problem)
            return read
        return lambda: records

    def _on_leadership(self, controller: Controller, bootstrap: Callable[[], list[Message]], *_: object) -> None:
        try:
            controller.follow_leadership(self._node.publisher.loader, bootstrap)
        except WrongDirectory as problem:
            self.quorum.fail(problem)

    def _on_committed(self, batch: MetadataBatch) -> None:
        self._node.publisher.listen(batch)
        self._node.progress.advance(batch.last_offset)

    def _on_snapshot(self, snapshot: SnapshotReader) -> None:
        self._node.publisher.load_snapshot(snapshot)
        self._node.progress.advance(snapshot.snapshot.offset - 1)
