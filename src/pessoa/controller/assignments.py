"""Replica assignments that a person wrote, and the record of a new partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pessoa.metadata.topics_image import DIRECTORY_LOST, DIRECTORY_UNASSIGNED
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.metadata_records import PartitionRecord

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.metadata.image import ClusterImage


def check_assignment(cluster: ClusterImage, replicas: Sequence[int], expected_count: int | None = None) -> None:
    """Raise a Refusal if a partition cannot have these replicas."""
    if not replicas:
        raise _refusal("a partition has an empty list of replicas")
    unknown = sorted(set(replicas) - set(cluster.brokers))
    if unknown:
        raise _refusal(f"broker {unknown[0]} is not registered")
    twice = sorted({replica for replica in replicas if list(replicas).count(replica) > 1})
    if twice:
        raise _refusal(f"broker {twice[0]} is named more than once for one partition")
    if expected_count is not None and len(replicas) != expected_count:
        raise _refusal(f"a partition has {len(replicas)} replica(s), and the others have {expected_count}")


def is_active(cluster: ClusterImage, broker_id: int) -> bool:
    """Return whether the broker may lead and be in an ISR: it is registered, and neither fenced nor shutting down."""
    broker = cluster.brokers.get(broker_id)
    return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


def is_directory_online(cluster: ClusterImage, broker_id: int, directory: Uuid) -> bool:
    """Return whether the broker's registration lists the directory; one that is not known yet counts as online."""
    if directory == DIRECTORY_LOST:
        return False
    return is_reserved(directory) or directory in cluster.brokers[broker_id].directories


def is_reserved(directory: Uuid) -> bool:
    """Return whether a directory id is a reserved one, such as UNASSIGNED or LOST, and so the id of no directory
    (KIP-858)."""
    return int.from_bytes(directory, "big") < _RESERVED_UUIDS


def default_directory(cluster: ClusterImage, broker_id: int) -> Uuid:
    """Return the directory of a new replica: the broker's only one. With several it is UNASSIGNED: the broker chooses,
    and reports it with AssignReplicasToDirs."""
    broker = cluster.brokers.get(broker_id)
    if broker is not None and len(broker.directories) == 1:
        return broker.directories[0]
    return DIRECTORY_UNASSIGNED


def new_partition(cluster: ClusterImage, topic_id: Uuid, index: int, replicas: Sequence[int]) -> PartitionRecord | None:
    """Return the record that creates a partition; None if none of its replicas is active."""
    isr = [replica for replica in replicas if is_active(cluster, replica)]
    if not isr:
        return None
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=isr,
        removing_replicas=[],
        adding_replicas=[],
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[default_directory(cluster, replica) for replica in replicas],
    )


def _refusal(what: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The replica assignment cannot be used: {what}.")


# The first hundred.
_RESERVED_UUIDS = 100
