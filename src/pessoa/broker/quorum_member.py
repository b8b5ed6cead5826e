"""This node's member of the metadata quorum, made from the configuration.

Voters are named by `controller.quorum.voters`; a node that is none of them follows the log as an observer. Without
voters, `controller.quorum.bootstrap.servers` says whom to ask for them, and the log says who they are (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.net.channel import Channels
from pessoa.quorum.quorum_settings import QuorumNode, QuorumSettings
from pessoa.quorum.raft_quorum import RaftQuorum
from pessoa.raft.voters import Address, VoterSet
from pessoa.wire.api.fetch import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.base.clock import Clock
    from pessoa.base.entropy import Entropy
    from pessoa.base.ids import Uuid
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.config_listeners import ListenerEndpoint
    from pessoa.log.files import Disk
    from pessoa.log.flusher import Flusher
    from pessoa.net.channel import Login
    from pessoa.net.network import Network
    from pessoa.wire.schema import Message


class QuorumTransport:
    """The connections of a quorum member to the others: separate ones for fetches, which wait long."""

    def __init__(self, network: Network, node_id: int, login: Login | None = None) -> None:
        self._fetches = Channels(network, f"raft-{node_id}-fetch", login)
        self._other_channels = Channels(network, f"raft-{node_id}", login)

    def __repr__(self) -> str:
        return f"<QuorumTransport: {self._fetches!r}, {self._other_channels!r}>"

    async def send(self, host: str, port: int, request: Message, version: int, timeout_ms: int) -> Message:
        """Return the response. Raises ChannelFailed. A vote does not wait behind a fetch that waits for records."""
        channels = self._fetches if isinstance(request, FetchRequest) else self._other_channels
        return await channels.of(host, port).send(request, version, timeout_ms)

    def close(self) -> None:
        self._fetches.close()
        self._other_channels.close()


def controller_addresses(config: BrokerConfig) -> list[tuple[str, int]]:
    """Return the addresses of controllers in the configuration."""
    voters = [voter.partition("@")[2] for voter in config.controller_quorum_voters]
    return [_address(entry) for entry in (*voters, *config.controller_quorum_bootstrap_servers)]


def make_quorum(
    config: BrokerConfig,
    disk: Disk,
    cluster_id: str,
    directory_id: Uuid,
    clock: Clock,
    entropy: Entropy,
    flusher: Flusher,
    transport: QuorumTransport,
    own: Sequence[ListenerEndpoint],
) -> RaftQuorum:
    """Return the quorum member. `own` are the addresses of this controller, with the actual ports where the
    configuration has port 0."""
    own_port = own[0].port if own else 0
    voters = {}
    for entry in config.controller_quorum_voters:
        voter_id, _, address = entry.partition("@")
        host, port = _address(address)
        voters[int(voter_id)] = (host, port or own_port)
    node = QuorumNode(
        config.node_id,
        cluster_id,
        directory_id,
        config.is_controller,
        {one.name: Address(one.host, one.port) for one in own},
        config.controller_quorum_auto_join_enable,
    )
    return RaftQuorum(
        disk,
        config.metadata_log_dir,
        node,
        VoterSet.static(voters, config.controller_listener_names[0].upper()),
        clock,
        entropy,
        flusher,
        transport.send,
        _settings(config),
        [_address(entry) for entry in config.controller_quorum_bootstrap_servers],
    )


def _settings(config: BrokerConfig) -> QuorumSettings:
    return QuorumSettings(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        metadata_log_segment_bytes=config.metadata_log_segment_bytes,
        metadata_log_segment_ms=config.metadata_log_segment_ms,
        metadata_log_max_record_bytes_between_snapshots=config.metadata_log_max_record_bytes_between_snapshots,
        metadata_log_max_snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        metadata_max_retention_bytes=config.metadata_max_retention_bytes,
        metadata_max_retention_ms=config.metadata_max_retention_ms,
    )


def _address(entry: str) -> tuple[str, int]:
    host, _, port = entry.rpartition(":")
    return host.strip("[]"), int(port)
