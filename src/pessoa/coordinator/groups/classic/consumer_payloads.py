"""What consumers put into JoinGroup and SyncGroup: opaque to the classic protocol, yet read in three places.

    bytes   int16 version, then a ConsumerProtocolSubscription or ConsumerProtocolAssignment of that version

The coordinator reads subscriptions to know whose offsets may expire, and both when a group moves between the
protocols. A version newer than any that is declared is read as the newest that is, because later versions only append
fields; for the same reason bytes that are left over are no error. What cannot be read is a `ProtocolViolation`: other
protocol types and foreign assignors may put anything there.
"""

from __future__ import annotations

from collections.abc import Iterable

from pessoa.wire.errors import ProtocolViolation
from pessoa.wire.stored.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

# The protocol type of groups of consumers, whichever assignor they use.
CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_BYTES = 2


def embedded_version(data: bytes) -> int:
    if len(data) < _VERSION_BYTES:
        raise ProtocolViolation(f"{len(data)} bytes are too few for the version of a consumer's subscription")
    return int.from_bytes(data[:_VERSION_BYTES], "big", signed=True)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    version = min(_check_version(embedded_version(data)), ConsumerProtocolSubscription.versions.last)
    return ConsumerProtocolSubscription.decoder(version)(data, _VERSION_BYTES, len(data))[0]  # type: ignore[no-any-return]


def subscribed_topics(data: bytes) -> list[str]:
    """Return the topics of a subscription, which stand first in every version of it."""
    embedded_version(data)
    return ConsumerProtocolSubscription.decoder(0)(data, _VERSION_BYTES, len(data))[0].topics  # type: ignore[no-any-return]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    version = min(_check_version(embedded_version(data)), ConsumerProtocolAssignment.versions.last)
    return ConsumerProtocolAssignment.decoder(version)(data, _VERSION_BYTES, len(data))[0]  # type: ignore[no-any-return]


def write_assignment(partitions: Iterable[tuple[str, Iterable[int]]], version: int) -> bytes:
    """Return an assignment in the version of the member's subscription."""
    version = min(_check_version(version), ConsumerProtocolAssignment.versions.last)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=list(indexes))
            for topic, indexes in partitions
        ]
    )
    return version.to_bytes(_VERSION_BYTES, "big") + assignment.encode(version)


def _check_version(version: int) -> int:
    if version < 0:
        raise ProtocolViolation(f"a consumer's subscription has version {version}")
    return version
