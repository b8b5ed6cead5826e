"""What an operator can set about groups.

`GroupCoordinatorConfig` holds the broker's settings under the names of Kafka's keys, with the defaults of Kafka 4.3.
A consumer group may override three of them with its own dynamic configuration (resource type GROUP); the broker's
bounds hold for those too, and were checked when the configuration was set. They are looked up at each use, since
they may change under a living group.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

_MINUTE_MS = 60 * 1000
_INT32_MAX = (1 << 31) - 1


class MigrationPolicy(Enum):
    """`group.consumer.migration.policy`: which way a group with members may move between the protocols."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def allows_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def allows_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


class GroupCoordinatorConfig(NamedTuple):
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    offsets_retention_check_interval_ms: int = 10 * _MINUTE_MS

    group_coordinator_rebalance_protocols: tuple[str, ...] = ("classic", "consumer", "streams")

    # Classic groups.
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 30 * _MINUTE_MS
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = _INT32_MAX

    # Consumer groups.
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = _INT32_MAX
    # The first is the default of members that name none.
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_regex_refresh_interval_ms: int = 10 * _MINUTE_MS

    def session_timeout_ms(self, overrides: Mapping[str, str]) -> int:
        return int(overrides.get("consumer.session.timeout.ms", self.group_consumer_session_timeout_ms))

    def heartbeat_interval_ms(self, overrides: Mapping[str, str]) -> int:
        return int(overrides.get("consumer.heartbeat.interval.ms", self.group_consumer_heartbeat_interval_ms))

    def assignment_interval_ms(self, overrides: Mapping[str, str]) -> int:
        return int(overrides.get("consumer.assignment.interval.ms", self.group_consumer_assignment_interval_ms))


# The resource type of group configurations in the metadata image.
GROUP_RESOURCE = 32

# A member of a classic group that waits for its first generation must not fall out of it, however long its session;
# and a client that vanished while it waited must not be kept for ever. Kafka's constant, which no key sets.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * _MINUTE_MS

# How often a consumer group looks whether its topics have changed, if no change of the metadata came. Kafka's constant.
METADATA_REFRESH_INTERVAL_MS = _INT32_MAX
# Regular expressions of a group are not resolved again within this time. Kafka's constant.
REGEX_REFRESH_MIN_INTERVAL_MS = 10_000


def within(override: str | None, default: int, least: int, most: int) -> int:
    """Return the group's own setting, clipped to the broker's bounds, which may have been narrowed since; without one,
    the broker's."""
    return default if override is None else min(max(int(override), least), most)


def is_within_interval(since_ms: int, interval_ms: int, now_ms: int) -> bool:
    """Return True until the interval has passed. A time in the future counts as passed: the clock has been set back
    since, or was another coordinator's, and to wait for it could take hours."""
    return since_ms <= now_ms < since_ms + interval_ms
