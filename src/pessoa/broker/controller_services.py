"""What the handlers of the CONTROLLER listener work with: `BrokerServices` is their counterpart for clients' listeners.

A request that comes to a controller which does not lead is answered with NOT_CONTROLLER, in the form of its API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.metadata_progress import MetadataProgress
from pessoa.broker.services import Node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pessoa.base.clock import Clock
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.throttling import ControllerThrottling
    from pessoa.controller.controller import Controller
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.table_images import QuotasImage
    from pessoa.quorum.publishing import ImagePublisher
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.security.authorizer import Authorizer

# Of DescribeCluster.
CONTROLLERS = 2


class ControllerServices:
    endpoint_type = CONTROLLERS

    def __init__(
        self,
        controller: Controller,
        quorum: RaftQuorum,
        publisher: ImagePublisher,
        config: BrokerConfig,
        cluster_id: str,
        clock: Clock,
        authorizer: Authorizer | None = None,
        progress: MetadataProgress | None = None,
    ) -> None:
        self.controller = controller
        self.quorum = quorum
        self.config = config
        self.cluster_id = cluster_id
        # None: everything is allowed.
        self.authorizer = authorizer
        self.progress = progress if progress is not None else MetadataProgress(clock)
        self.node_id = config.node_id
        self._publisher = publisher
        self._clock = clock
        self._throttling: ControllerThrottling | None = None
        # Those that `_throttling` follows.
        self._limits: QuotasImage | None = None

    def __repr__(self) -> str:
        return f"<ControllerServices of {self.controller!r}>"

    @property
    def image(self) -> MetadataImage:
        return self._publisher.image

    @property
    def throttling(self) -> ControllerThrottling | None:
        """The quotas for requests to this controller; None in a cluster without quotas."""
        quotas = self.image.quotas
        if not quotas.by_entity:
            return None
        if self._throttling is None:
            from pessoa.broker.throttling import ControllerThrottling, quota_windows

            self._throttling = ControllerThrottling(self._clock, quota_windows(self.config))
        if quotas is not self._limits:
            self._limits = quotas
            self._throttling.follow(quotas.by_entity)
        return self._throttling

    @property
    def controller_id(self) -> int:
        return self.quorum.leader_id

    def nodes(self, listener: str) -> Iterator[Node]:
        """Yield the registered controllers that have this listener."""
        for one in self.image.cluster.controllers.values():
            endpoint = one.listeners.get(listener)
            if endpoint is not None:
                yield Node(one.id, endpoint.host, endpoint.port, None, is_fenced=False)
