"""The settings of replication in a broker's configuration. Names are Kafka's keys with underscores, and defaults are
Kafka's too, except for `replica.lag.time.max.ms`: 10 s instead of 30 s (docs/DEVIATIONS.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from pessoa.base.config_table import Settings


class ReplicationSettings(NamedTuple):
    replica_lag_time_max_ms: int = 10_000
    replica_fetch_min_bytes: int = 1
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_max_bytes: int = 1 << 20
    replica_fetch_response_max_bytes: int = 10 << 20
    replica_fetch_backoff_ms: int = 1000
    replica_socket_timeout_ms: int = 30_000
    num_replica_fetchers: int = 1
    replica_high_watermark_checkpoint_interval_ms: int = 5000
    # Of topics that say nothing else.
    min_insync_replicas: int = 1
    # None is without a limit.
    leader_replication_throttled_rate: int | None = None
    follower_replication_throttled_rate: int | None = None
    replica_alter_log_dirs_io_max_bytes_per_second: int | None = None

    @classmethod
    def of(cls, config: Settings) -> Self:
        values: dict[str, Any] = {name: config.value(name.replace("_", ".")) for name in cls._fields}
        return cls(**values)
