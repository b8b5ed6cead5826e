"""What an operator can set about the share coordinator, under the names of Kafka's keys, with the defaults of 4.3."""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class ShareCoordinatorConfig:
    # So many updates stand between two snapshots of a share partition.
    share_coordinator_snapshot_update_records_per_snapshot: int = 500
    share_coordinator_cold_partition_snapshot_interval_ms: int = 5 * _MINUTE_MS
    share_coordinator_write_timeout_ms: int = 5_000
