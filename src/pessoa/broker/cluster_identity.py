"""Which cluster a node belongs to, before its directories say so.

There is no separate step that formats directories, so nodes that start for the first time must come to one id by
themselves:

    named on the command line, or in a directory       that one
    the only voter                                     a new one
    one of several voters                              one that follows from `controller.quorum.voters`, which all share
    no voter                                           that of the controllers, who are asked (KIP-919)

Without `controller.quorum.voters` the voters stand in the log, and one has to be the first of them: a controller
whose only `controller.quorum.bootstrap.servers` is itself, which is what the file says that Kafka ships, begins alone.
Any other waits to be added (KIP-853). Several that begin together are formatted by `kafka-storage`.
"""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING

from pessoa.base.ids import UUID_SIZE, ZERO_UUID, Uuid
from pessoa.broker.quorum_member import controller_addresses
from pessoa.net.channel import Channel, ChannelFailed
from pessoa.quorum.formatting import WrongDirectory
from pessoa.raft.messages import ReplicaKey
from pessoa.raft.voters import Address, Voter, VoterSet
from pessoa.wire.api.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pessoa.base.clock import Clock
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.config_listeners import ListenerEndpoint
    from pessoa.net.channel import Login
    from pessoa.net.network import Network

log = logging.getLogger("pessoa.broker")

_CONTROLLERS = 2
_RETRY_MS = 100
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


def first_voters(config: BrokerConfig, new_uuid: Callable[[], Uuid]) -> VoterSet | None:
    """Return the voter set of a new quorum whose first and only voter is this node; None if this node does not begin a
    quorum, or if `controller.quorum.voters` names the voters."""
    servers = config.controller_quorum_bootstrap_servers
    if config.controller_quorum_voters or not config.is_controller or len(servers) != 1:
        return None
    own = _own_controller_listeners(config)
    if not any(_is_at(servers[0], one) for one in own):
        return None
    listeners = {one.name: Address(one.host, one.port) for one in own}
    return VoterSet([Voter(ReplicaKey(config.node_id, new_uuid()), listeners)])


def _own_controller_listeners(config: BrokerConfig) -> list[ListenerEndpoint]:
    """Return this node's controller listeners in the order of `controller.listener.names`: other nodes use the
    first."""
    known = {one.name: one for one in (*config.listeners, *config.advertised_listeners)}
    return [known[name.upper()] for name in config.controller_listener_names if name.upper() in known]


def _is_at(server: str, listener: ListenerEndpoint) -> bool:
    """Return whether a bootstrap server is this node: it has a name of this machine and the port of a listener."""
    host, _, port = server.rpartition(":")
    return int(port) == listener.port and host.strip("[]") in (listener.host, *_THIS_MACHINE)


async def first_cluster_id(
    config: BrokerConfig, network: Network, clock: Clock, login: Login | None = None
) -> str | None:
    """Return the cluster id with which to format directories that belong to no node; None if this node makes a new
    id."""
    shared = shared_cluster_id(config)
    if shared is not None:
        return shared
    is_alone = len(config.controller_quorum_voters) == 1 or first_voters(config, lambda: ZERO_UUID) is not None
    if config.is_controller and is_alone:
        return None
    addresses = controller_addresses(config)
    timeout_ms = config.initial_broker_registration_timeout_ms
    found = await ask_for_cluster_id(network, clock, addresses, config.node_id, timeout_ms, login)
    if found is None and addresses:
        shown = ",".join(f"{host}:{port}" for host, port in addresses)
        raise WrongDirectory(
            f"the directories of node {config.node_id} are not formatted, and no controller at {shown} says for which "
            "cluster they should be; start one, or format them with kafka-storage"
        )
    return found


def shared_cluster_id(config: BrokerConfig) -> str | None:
    """Return the cluster id that several static voters derive from their configuration; None if there is none."""
    voters = config.controller_quorum_voters
    if not config.is_controller or len(voters) < 2:
        return None
    digest = hashlib.sha256(",".join(sorted(voters)).encode()).digest()
    # An id never starts with a dash, which a command line would take for an option; a clear top bit keeps it from that.
    return str(Uuid(bytes([digest[0] & 0x7F]) + digest[1:UUID_SIZE]))


async def ask_for_cluster_id(
    network: Network,
    clock: Clock,
    controllers: Sequence[tuple[str, int]],
    node_id: int,
    timeout_ms: int,
    login: Login | None = None,
) -> str | None:
    """Return the cluster id that the first controller to answer names; None if none answers in time."""
    deadline_ms = clock.monotonic_ms() + timeout_ms
    while True:
        for host, port in controllers:
            channel = Channel(network, host, port, f"node-{node_id}-first-contact", login=login)
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
