"""The group coordinator's settings, from the broker's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.coordinator.groups.group_config import GroupCoordinatorConfig, MigrationPolicy
from pessoa.coordinator.groups.share.share_group_config import ShareGroupConfig
from pessoa.coordinator.groups.streams.streams_group_config import StreamsGroupConfig

if TYPE_CHECKING:
    from pessoa.broker.config import BrokerConfig


def group_config(config: BrokerConfig) -> GroupCoordinatorConfig:
    return GroupCoordinatorConfig(
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        group_coordinator_rebalance_protocols=config.group_coordinator_rebalance_protocols,
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        group_consumer_max_size=config.group_consumer_max_size,
        group_consumer_assignors=config.group_consumer_assignors,
        group_consumer_assignment_interval_ms=config.group_consumer_assignment_interval_ms,
        group_consumer_migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
        group_consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
    )


def share_group_config(config: BrokerConfig) -> ShareGroupConfig:
    return ShareGroupConfig(
        group_share_session_timeout_ms=config.group_share_session_timeout_ms,
        group_share_min_session_timeout_ms=config.group_share_min_session_timeout_ms,
        group_share_max_session_timeout_ms=config.group_share_max_session_timeout_ms,
        group_share_heartbeat_interval_ms=config.group_share_heartbeat_interval_ms,
        group_share_min_heartbeat_interval_ms=config.group_share_min_heartbeat_interval_ms,
        group_share_max_heartbeat_interval_ms=config.group_share_max_heartbeat_interval_ms,
        group_share_assignment_interval_ms=config.group_share_assignment_interval_ms,
        group_share_min_assignment_interval_ms=config.group_share_min_assignment_interval_ms,
        group_share_max_assignment_interval_ms=config.group_share_max_assignment_interval_ms,
        group_share_max_size=config.group_share_max_size,
        group_share_initialize_retry_interval_ms=config.group_share_initialize_retry_interval_ms,
    )


def streams_group_config(config: BrokerConfig) -> StreamsGroupConfig:
    return StreamsGroupConfig(
        group_streams_session_timeout_ms=config.group_streams_session_timeout_ms,
        group_streams_min_session_timeout_ms=config.group_streams_min_session_timeout_ms,
        group_streams_max_session_timeout_ms=config.group_streams_max_session_timeout_ms,
        group_streams_heartbeat_interval_ms=config.group_streams_heartbeat_interval_ms,
        group_streams_min_heartbeat_interval_ms=config.group_streams_min_heartbeat_interval_ms,
        group_streams_max_heartbeat_interval_ms=config.group_streams_max_heartbeat_interval_ms,
        group_streams_assignment_interval_ms=config.group_streams_assignment_interval_ms,
        group_streams_min_assignment_interval_ms=config.group_streams_min_assignment_interval_ms,
        group_streams_max_assignment_interval_ms=config.group_streams_max_assignment_interval_ms,
        group_streams_initial_rebalance_delay_ms=config.group_streams_initial_rebalance_delay_ms,
        group_streams_max_size=config.group_streams_max_size,
        group_streams_num_standby_replicas=config.group_streams_num_standby_replicas,
        group_streams_max_standby_replicas=config.group_streams_max_standby_replicas,
    )
