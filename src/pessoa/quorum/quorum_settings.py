"""What the configuration says about the quorum, its log and this node of it, and how the shell reaches others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pessoa.raft.ready import Timeouts

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.raft.voters import Address
    from pessoa.wire.schema import Message

# send(host, port, request, version, timeout_ms); raises ChannelFailed where no answer comes.
Send = Callable[[str, int, "Message", int, int], Awaitable["Message"]]


class LeaderAndEpoch(NamedTuple):
    """The node that leads the quorum, -1 if none is known."""

    leader_id: int
    epoch: int


class QuorumNode(NamedTuple):
    """This node in the quorum. `listeners` are the addresses of this controller: a voter in the log keeps the others
    informed of them, and with `auto_join` a controller becomes a voter by itself."""

    node_id: int
    cluster_id: str
    directory_id: Uuid
    is_controller: bool = True
    listeners: Mapping[str, Address] = MappingProxyType({})
    auto_join: bool = False


class QuorumSettings(NamedTuple):
    """Named as in the configuration, without `controller.quorum.`; the defaults are Kafka's."""

    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    metadata_log_segment_bytes: int = 1 << 30
    metadata_log_segment_ms: int = 604_800_000
    metadata_log_max_record_bytes_between_snapshots: int = 20_971_520
    metadata_log_max_snapshot_interval_ms: int = 3_600_000
    metadata_max_retention_bytes: int = 104_857_600
    metadata_max_retention_ms: int = 604_800_000

    @property
    def fetch_max_wait_ms(self) -> int:
        """How long a leader holds a fetch that has nothing new: Kafka's 500 ms, and well below the fetch timeout."""
        return min(500, self.fetch_timeout_ms // 2)

    @property
    def timeouts(self) -> Timeouts:
        """The timeouts of the raft machine; those of elections and fetches are at least one millisecond. Kafka accepts
        0, but an election that ends when it begins would begin again and again, and nothing else could run."""
        return Timeouts(
            max(1, self.election_timeout_ms),
            self.election_backoff_max_ms,
            max(1, self.fetch_timeout_ms),
            self.retry_backoff_ms,
        )


DEFAULT_SETTINGS = QuorumSettings()
