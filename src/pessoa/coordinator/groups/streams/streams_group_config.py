"""What an operator can set about streams groups, with the defaults of Kafka 4.3.

A group may override five of them with its own dynamic configuration. The broker's bounds hold for those too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pessoa.coordinator.groups.group_config import within
from pessoa.wire.primitives import MAX_INT32

NUM_STANDBY_REPLICAS = "num.standby.replicas"


class StreamsGroupConfig(NamedTuple):
    group_streams_session_timeout_ms: int = 45_000
    group_streams_min_session_timeout_ms: int = 45_000
    group_streams_max_session_timeout_ms: int = 60_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_min_heartbeat_interval_ms: int = 5_000
    group_streams_max_heartbeat_interval_ms: int = 15_000
    group_streams_assignment_interval_ms: int = 1_000
    group_streams_min_assignment_interval_ms: int = 0
    group_streams_max_assignment_interval_ms: int = 15_000
    group_streams_initial_rebalance_delay_ms: int = 3_000
    group_streams_max_size: int = MAX_INT32
    group_streams_num_standby_replicas: int = 0
    group_streams_max_standby_replicas: int = 2

    def session_timeout_ms(self, overrides: Mapping[str, str]) -> int:
        return within(
            overrides.get("streams.session.timeout.ms"),
            self.group_streams_session_timeout_ms,
            self.group_streams_min_session_timeout_ms,
            self.group_streams_max_session_timeout_ms,
        )

    def heartbeat_interval_ms(self, overrides: Mapping[str, str]) -> int:
        return within(
            overrides.get("streams.heartbeat.interval.ms"),
            self.group_streams_heartbeat_interval_ms,
            self.group_streams_min_heartbeat_interval_ms,
            self.group_streams_max_heartbeat_interval_ms,
        )

    def assignment_interval_ms(self, overrides: Mapping[str, str]) -> int:
        return within(
            overrides.get("streams.assignment.interval.ms"),
            self.group_streams_assignment_interval_ms,
            self.group_streams_min_assignment_interval_ms,
            self.group_streams_max_assignment_interval_ms,
        )

    def initial_rebalance_delay_ms(self, overrides: Mapping[str, str]) -> int:
        override = overrides.get("streams.initial.rebalance.delay.ms")
        return self.group_streams_initial_rebalance_delay_ms if override is None else int(override)

    def standby_replicas(self, overrides: Mapping[str, str]) -> int:
        return within(
            overrides.get("streams.num.standby.replicas"),
            self.group_streams_num_standby_replicas,
            0,
            self.group_streams_max_standby_replicas,
        )


DEFAULT_STREAMS_CONFIG = StreamsGroupConfig()
