"""What the broker's settings say of the topics in which coordinators keep their state: one row each.

A topic is created with it at the first request that needs its coordinator (`topic_requests`), and its partitions are
loaded with it (`internal_topic_log`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.wire.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pessoa.broker.config import BrokerConfig


class CoordinatorTopic(NamedTuple):
    partition_count: int
    replication_factor: int
    # How much of a partition is read at a time when its state is loaded.
    load_buffer_bytes: int
    configs: Mapping[str, str]


def coordinator_topic(name: str, config: BrokerConfig) -> CoordinatorTopic | None:
    """Return the row of a topic; None if no coordinator keeps its state in it."""
    row = _ROWS.get(name)
    return None if row is None else row(config)


def _group_topic(config: BrokerConfig) -> CoordinatorTopic:
    return CoordinatorTopic(
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        config.offsets_load_buffer_size,
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
    )


def _transaction_topic(config: BrokerConfig) -> CoordinatorTopic:
    return CoordinatorTopic(
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        config.transaction_state_log_load_buffer_size,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
        },
    )


def _share_topic(config: BrokerConfig) -> CoordinatorTopic:
    return CoordinatorTopic(
        config.share_coordinator_state_topic_num_partitions,
        config.share_coordinator_state_topic_replication_factor,
        config.share_coordinator_load_buffer_size,
        {
            # Not compacted: the share coordinator deletes what it does not need any more by itself.
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            "retention.ms": "-1",
            "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
        },
    )


_ROWS: dict[str, Callable[[BrokerConfig], CoordinatorTopic]] = {
    GROUP_TOPIC: _group_topic,
    TRANSACTION_TOPIC: _transaction_topic,
    SHARE_TOPIC: _share_topic,
}
