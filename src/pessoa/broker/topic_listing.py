"""What Metadata, DescribeTopicPartitions and their like say about topics, in one place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pessoa.metadata.topics_image import NO_LEADER
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.topics_image import PartitionImage

_VALID_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_valid_topic_name(name: str) -> bool:
    return _VALID_NAME.fullmatch(name) is not None and name not in (".", "..")


def partition_error(image: MetadataImage, partition: PartitionImage) -> ErrorCode:
    return ErrorCode.NONE if _is_live(image, partition.leader) else ErrorCode.LEADER_NOT_AVAILABLE


def live_leader(image: MetadataImage, partition: PartitionImage) -> int:
    """Return the leader of a partition; -1 if there is none that a client could reach."""
    return partition.leader if _is_live(image, partition.leader) else NO_LEADER


def offline_replicas(image: MetadataImage, partition: PartitionImage) -> list[int]:
    return [replica for replica in partition.replicas if not _is_live(image, replica)]


def _is_live(image: MetadataImage, node_id: int) -> bool:
    broker = image.cluster.brokers.get(node_id)
    return broker is not None and not broker.fenced
