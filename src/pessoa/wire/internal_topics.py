"""The topics in which coordinators keep their state: their names are Kafka's, and clients may not write to them."""

from __future__ import annotations

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC})


def is_internal(topic: str) -> bool:
    return topic in INTERNAL_TOPICS
