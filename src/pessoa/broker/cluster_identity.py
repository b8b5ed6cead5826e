"""Which cluster a node belongs to, before its directories say so.

There is no separate step that formats directories, so nodes that start for the first time must come to one id by
themselves:

    named on the command line, or in a directory       that one
    the only voter, or nobody says who votes           a new one
    one of several voters                              one that follows from `controller.quorum.voters`, which all share
    no voter                                           that of the controllers, who are asked (KIP-919)
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING

from pessoa.base.ids import UUID_SIZE, Uuid
from pessoa.net.channel import Channel, ChannelFailed
from pessoa.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.base.clock import Clock
    from pessoa.broker.config import BrokerConfig
    from pessoa.net.network import Network

log = logging.getLogger("pessoa.broker")

_CONTROLLERS = 2
_RETRY_MS = 100


def shared_cluster_id(config: BrokerConfig) -> str | None:
    """The id that several voters have in common from the beginning; None if there is no such."""
    voters = config.controller_quorum_voters
    if not config.is_controller or len(voters) < 2:
        return None
    digest = hashlib.sha256(",".join(sorted(voters)).encode()).digest()
    # An id never starts with a dash, which a command line would take for an option; a clear top bit keeps it from that.
    return str(Uuid(bytes([digest[0] & 0x7F]) + digest[1:UUID_SIZE]))


async def ask_for_cluster_id(
    network: Network, clock: Clock, controllers: Sequence[tuple[str, int]], node_id: int, timeout_ms: int
) -> str | None:
    """What the first controller says that answers; None if none does in time."""
    deadline_ms = clock.monotonic_ms() + timeout_ms
    while True:
        for host, port in controllers:
            channel = Channel(network, host, port, f"node-{node_id}-first-contact")
            try:
                answer = await channel.send(_question(), DescribeClusterRequest.versions.last, timeout_ms)
            except ChannelFailed as problem:
                log.debug("%s", problem)
                continue
            finally:
                channel.close()
            assert isinstance(answer, DescribeClusterResponse)
            if answer.error_code == ErrorCode.NONE and answer.cluster_id:
                return answer.cluster_id
        if clock.monotonic_ms() >= deadline_ms:
            return None
        await clock.wait_ms(_RETRY_MS)


def _question() -> DescribeClusterRequest:
    return DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=_CONTROLLERS)
