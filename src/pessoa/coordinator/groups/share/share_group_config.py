"""What an operator can set about share groups in the group coordinator, with the defaults of Kafka 4.3.

A group may override three of them with its own dynamic configuration. The broker's bounds hold for those too: a stored
value outside of bounds that were narrowed later counts as the bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pessoa.coordinator.groups.group_config import within


class ShareGroupConfig(NamedTuple):
    group_share_session_timeout_ms: int = 45_000
    group_share_min_session_timeout_ms: int = 45_000
    group_share_max_session_timeout_ms: int = 60_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_min_heartbeat_interval_ms: int = 5_000
    group_share_max_heartbeat_interval_ms: int = 15_000
    group_share_assignment_interval_ms: int = 1_000
    group_share_min_assignment_interval_ms: int = 0
    group_share_max_assignment_interval_ms: int = 15_000
    group_share_max_size: int = 200
    group_share_initialize_retry_interval_ms: int = 30_000

    def session_timeout_ms(self, overrides: Mapping[str, str]) -> int:
        return within(
            overrides.get("share.session.timeout.ms"),
            self.group_share_session_timeout_ms,
            self.group_share_min_session_timeout_ms,
            self.group_share_max_session_timeout_ms,
        )

    def heartbeat_interval_ms(self, overrides: Mapping[str, str]) -> int:
        return within(
            overrides.get("share.heartbeat.interval.ms"),
            self.group_share_heartbeat_interval_ms,
            self.group_share_min_heartbeat_interval_ms,
            self.group_share_max_heartbeat_interval_ms,
        )

    def assignment_interval_ms(self, overrides: Mapping[str, str]) -> int:
        return within(
            overrides.get("share.assignment.interval.ms"),
            self.group_share_assignment_interval_ms,
            self.group_share_min_assignment_interval_ms,
            self.group_share_max_assignment_interval_ms,
        )


DEFAULT_SHARE_CONFIG = ShareGroupConfig()
