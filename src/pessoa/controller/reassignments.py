"""Moving partitions to other brokers (KIP-455): AlterPartitionReassignments and ListPartitionReassignments.

While a partition moves it has the old and the new replicas together, `adding` says which are new and `removing` which
are to go. When all new ones are in sync the old ones go, with the change that brings that about (`partition_change`).
Cancelling takes the new ones away again. A reassignment that asks for the replicas there are in another order only
changes who is preferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.base.java_order import timeline_order, uuid_hash
from pessoa.controller.assignments import check_assignment
from pessoa.controller.decision import Decision
from pessoa.controller.partition_change import Election, allows_unclean_election, change_of
from pessoa.metadata.topics_image import NO_LEADER
from pessoa.wire.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from pessoa.wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.controller.decision import Situation
    from pessoa.controller.partition_change import PartitionChange
    from pessoa.metadata.image import MetadataImage, PartitionImage
    from pessoa.wire.schema import Message


def alter_partition_reassignments(situation: Situation, request: AlterPartitionReassignmentsRequest) -> Decision:
    records: list[Message] = []
    topics: list[ReassignableTopicResponse] = []
    for topic in request.topics:
        partitions: list[ReassignablePartitionResponse] = []
        for target in topic.partitions:
            result = ReassignablePartitionResponse(
                partition_index=target.partition_index, error_code=ErrorCode.NONE, error_message=None
            )
            partitions.append(result)
            try:
                record = _alter(situation, topic.name, target, request.allow_replication_factor_change)
                if record is not None:
                    records.append(record)
            except Refusal as refusal:
                result.error_code, result.error_message = refusal.code, refusal.text
        topics.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    response = AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=topics,
    )
    return Decision(records, response)


def _alter(situation: Situation, topic: str, target: ReassignablePartition, allow_change: bool) -> Message | None:
    known = situation.image.topics.by_name.get(topic)
    partition = known.partitions.get(target.partition_index) if known is not None else None
    if known is None or partition is None:
        raise Refusal(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {target.partition_index} of {topic!r}."
        )
    change = change_of(situation, topic, known.id, target.partition_index, partition)
    if target.replicas is None:
        return _cancel(situation, topic, partition, change)
    check_assignment(situation.image.cluster, target.replicas)
    # A partition that moves has the number that it will have when it has arrived.
    present = [replica for replica in partition.replicas if replica not in partition.removing_replicas]
    if not allow_change and len(target.replicas) != len(present):
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The partition has {len(present)} replica(s), and the request does not allow another number.",
        )
    wanted = tuple(target.replicas)
    change.removing = tuple(sorted(set(partition.replicas) - set(wanted)))
    change.adding = tuple(sorted(set(wanted) - set(partition.replicas)))
    change.replicas = wanted + change.removing
    return change.record()


def _cancel(situation: Situation, topic: str, partition: PartitionImage, change: PartitionChange) -> Message | None:
    if not partition.is_reassigning:
        raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    adding = partition.adding_replicas
    change.replicas = tuple(replica for replica in partition.replicas if replica not in adding)
    change.isr = tuple(replica for replica in partition.isr if replica not in adding)
    change.removing, change.adding = (), ()
    allows_unclean = allows_unclean_election(situation, topic)
    if allows_unclean:
        change.election = Election.UNCLEAN
    record = change.record()
    if not change.isr and (not allows_unclean or record is None or record.leader == NO_LEADER):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The move cannot be cancelled: no old replica is in sync, and none may lead uncleanly.",
        )
    return record


def list_partition_reassignments(situation: Situation, request: ListPartitionReassignmentsRequest) -> Decision:
    """Return the reassignments that are under way: of all partitions, or of those that the request names. The
    controller decides it, so that a client that has just begun one finds it, whichever broker it asks."""
    image = situation.image
    topics = []
    if request.topics is None:
        wanted: Iterable[tuple[str, Iterable[int]]] = _moving_topics(image)
    else:
        wanted = ((topic.name, topic.partition_indexes) for topic in request.topics)
    for name, indexes in wanted:
        partitions = [
            OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding_replicas),
                removing_replicas=list(partition.removing_replicas),
            )
            for index in indexes
            if (partition := image.topics.partition(name, index)) is not None and partition.is_reassigning
        ]
        if partitions:
            topics.append(OngoingTopicReassignment(name=name, partitions=partitions))
    response = ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, topics=topics
    )
    return Decision([], response)


def _moving_topics(image: MetadataImage) -> list[tuple[str, Iterable[int]]]:
    """Return the topics with reassignments, in the order in which Apache Kafka's hash table of topic ids iterates."""
    moving = [
        topic_id
        for topic_id, topic in image.topics.by_id.items()
        if any(partition.is_reassigning for partition in topic.partitions.values())
    ]
    topics = map(image.topics.by_id.__getitem__, timeline_order(moving, uuid_hash, are_put_again=True))
    return [(topic.name, topic.partitions) for topic in topics]
