"""The features that a cluster agrees on, and what their levels mean for us.

A feature is a number that all nodes must be able to handle before it is raised (KIP-584). `metadata.version` says which
records a controller may write, and in which versions; the others switch on protocols. This is the table of Apache
Kafka 4.3: what a node supports, and what a newly formatted cluster starts with (KIP-1022).
"""

from __future__ import annotations

from typing import NamedTuple

from pessoa.metadata.table_images import KRAFT_VERSION, METADATA_VERSION
from pessoa.wire.schema import Message
from pessoa.wire.stored.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
TRANSACTION_VERSION = "transaction.version"

# Levels of metadata.version from which on something may be written.
METADATA_3_3_IV3 = 7
METADATA_3_4_IV0 = 8
METADATA_3_7_IV2 = 17
METADATA_4_0_IV1 = 23
METADATA_4_3_IV0 = 30
# Those that brought a record, or a field of one, which the level before cannot hold.
LEVELS_WITH_NEW_RECORDS = frozenset((8, 11, 13, 14, 15, 17, 23, 30))


class Feature(NamedTuple):
    name: str
    min_level: int
    max_level: int
    # The level at which a new cluster starts; None if no metadata record sets it.
    initial_level: int | None


# In the order in which Kafka's formatter writes them.
FEATURES = (
    Feature(METADATA_VERSION, METADATA_3_3_IV3, METADATA_4_3_IV0, METADATA_4_3_IV0),
    Feature(ELIGIBLE_LEADER_REPLICAS, 0, 1, 1),
    Feature(GROUP_VERSION, 0, 1, 1),
    Feature(SHARE_VERSION, 0, 1, 1),
    Feature(STREAMS_VERSION, 0, 1, 1),
    Feature(TRANSACTION_VERSION, 0, 2, 2),
    Feature(KRAFT_VERSION, 0, 1, None),
)
# (feature, level) → what else has to be finalized, at the least.
DEPENDENCIES = {(ELIGIBLE_LEADER_REPLICAS, 1): (METADATA_VERSION, METADATA_4_0_IV1)}
BY_NAME = {feature.name: feature for feature in FEATURES}


def bootstrap_records() -> list[Message]:
    """Return the records that a new cluster's metadata log begins with."""
    return [
        FeatureLevelRecord(name=feature.name, feature_level=feature.initial_level)
        for feature in FEATURES
        if feature.initial_level is not None
    ]


def record_version(record: Message, metadata_version: int) -> int:
    """Return the version in which a controller of that metadata.version writes a record."""
    if isinstance(record, PartitionRecord | PartitionChangeRecord):
        if metadata_version >= METADATA_4_0_IV1:
            return 2
        return 1 if metadata_version >= METADATA_3_7_IV2 else 0
    if isinstance(record, RegisterBrokerRecord):
        if metadata_version >= METADATA_4_3_IV0:
            return 4
        if metadata_version >= METADATA_3_7_IV2:
            return 3
        return 2 if metadata_version >= METADATA_3_4_IV0 else 1
    if isinstance(record, BrokerRegistrationChangeRecord):
        # Kafka takes the lowest version that has the field which changes.
        if record.cordoned_log_dirs is not None:
            return 3
        if record.log_dirs:
            return 2
        return 1 if record.in_controlled_shutdown else 0
    return 0
