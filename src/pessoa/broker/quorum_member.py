"""This node's member of the metadata quorum, made from the configuration.

Voters are named by `controller.quorum.voters`; a node that is none of them follows the log as an observer. Without
voters, `controller.quorum.bootstrap.servers` says whom to ask for them (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pessoa.quorum.single_voter import SingleVoterQuorum

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.base.clock import Clock
    from pessoa.base.entropy import Entropy
    from pessoa.base.ids import Uuid
    from pessoa.broker.config import BrokerConfig
    from pessoa.log.files import Disk
    from pessoa.log.flushing import Flusher
    from pessoa.net.network import Network
    from pessoa.wire.schema import Message


def controller_addresses(config: BrokerConfig) -> list[tuple[str, int]]:
    """Where controllers can be found, as the configuration says."""
    entries = [voter.partition("@")[2] for voter in config.controller_quorum_voters]
    entries += config.controller_quorum_bootstrap_servers
    addresses = []
    for entry in entries:
        host, _, port = entry.rpartition(":")
        addresses.append((host.strip("[]"), int(port)))
    return addresses


class _Alone(SingleVoterQuorum):
    """A quorum of one with the interface of any quorum."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.on_leadership: list[Callable[[object], None]] = []

    async def start(self) -> None:  # type: ignore[override]
        super().start()
        for listener in self.on_leadership:
            listener(self)

    def endpoint_of(self, node_id: int) -> tuple[str, int] | None:
        return None

    def handle(self, request: Message, context: Any) -> Message:
        from pessoa.quorum.describe import describe_quorum

        return describe_quorum(self, request, {}, self._clock.now_ms())  # type: ignore[arg-type]


def make_quorum(
    config: BrokerConfig,
    disk: Disk,
    cluster_id: str,  # noqa: ARG001
    directory_id: Uuid,  # noqa: ARG001
    clock: Clock,
    entropy: Entropy,  # noqa: ARG001
    flusher: Flusher,
    network: Network,  # noqa: ARG001
) -> Any:
    return _Alone(disk, config.metadata_log_dir, config.node_id, clock, flusher)
