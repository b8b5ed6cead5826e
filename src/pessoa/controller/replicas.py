"""What a broker reports about its replicas: the ISR of what it leads (AlterPartition), and where its logs are
(AssignReplicasToDirs).

AlterPartition is a compare-and-set: the leader names the leader epoch and the partition epoch that it knows, and
anything else than the present ones is refused, so that two changes cannot cross (KIP-497). No replica enters the
ISR whose broker is fenced, shutting down, or has another broker epoch than the leader names (KIP-841, KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.controller.assignments import is_directory_online
from pessoa.controller.decision import Decision
from pessoa.controller.elections import after_arrival, after_departure
from pessoa.controller.partition_change import Election, allows_unclean_election, change_of
from pessoa.metadata.topics_image import NO_LEADER_CHANGE, RECOVERED, RECOVERING, changed_partition
from pessoa.wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    PartitionData,
)
from pessoa.wire.api.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.metadata_records import PartitionChangeRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.base.ids import Uuid
    from pessoa.controller.decision import Situation
    from pessoa.metadata.image import PartitionImage, TopicImage
    from pessoa.wire.schema import Message

_ANY_EPOCH = -1


def check_broker_epoch(situation: Situation, broker_id: int, broker_epoch: int) -> None:
    """Raise a Refusal for a broker that is not registered with this broker epoch: it has to register again."""
    broker = situation.image.cluster.brokers.get(broker_id)
    if broker is None or broker.epoch != broker_epoch:
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH)


# ---- AlterPartition ----


def alter_partition(situation: Situation, request: AlterPartitionRequest) -> Decision:
    try:
        check_broker_epoch(situation, request.broker_id, request.broker_epoch)
    except Refusal as refusal:
        return Decision([], AlterPartitionResponse(throttle_time_ms=0, error_code=refusal.code, topics=[]))
    records: list[Message] = []
    topics = []
    for topic_data in request.topics:
        topic = situation.image.topics.by_id.get(topic_data.topic_id)
        partitions = []
        for data in topic_data.partitions:
            try:
                record, result = _alter(situation, request.broker_id, topic, data)
                if record is not None:
                    records.append(record)
            except Refusal as refusal:
                result = _partition_error(data.partition_index, refusal.code)
            partitions.append(result)
        topics.append(AlterPartitionResponseTopicData(topic_id=topic_data.topic_id, partitions=partitions))
    return Decision(records, AlterPartitionResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, topics=topics))


def _alter(
    situation: Situation, broker_id: int, topic: TopicImage | None, data: PartitionData
) -> tuple[PartitionChangeRecord | None, AlterPartitionResponsePartitionData]:
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(data.partition_index)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Before version 3 a leader does not name the broker epochs of its followers.
    members = [(one.broker_id, one.broker_epoch) for one in data.new_isr_with_epochs]
    if not members:
        members = [(replica, _ANY_EPOCH) for replica in data.new_isr]
    _check(situation, broker_id, partition, data, members)
    change = change_of(situation, topic.name, topic.id, data.partition_index, partition)
    change.isr = tuple(replica for replica, _ in members)
    change.leader_recovery_state = data.leader_recovery_state
    if allows_unclean_election(situation, topic.name):
        change.election = Election.UNCLEAN
    record = change.record()
    after = partition if record is None else changed_partition(partition, record)
    if record is not None and record.leader not in (NO_LEADER_CHANGE, broker_id):
        # The change completed a move to other brokers, and one of them leads: the response has to say that.
        return record, _partition_error(data.partition_index, ErrorCode.NEW_LEADER_ELECTED)
    result = AlterPartitionResponsePartitionData(
        partition_index=data.partition_index,
        error_code=ErrorCode.NONE,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )
    return record, result


def _check(
    situation: Situation,
    broker_id: int,
    partition: PartitionImage,
    data: PartitionData,
    members: Sequence[tuple[int, int]],
) -> None:
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        # The broker knows more than we do, so another controller must have told it.
        raise Refusal(ErrorCode.NOT_CONTROLLER)
    if data.leader_epoch < partition.leader_epoch:
        raise Refusal(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    if data.partition_epoch < partition.partition_epoch:
        raise Refusal(ErrorCode.INVALID_UPDATE_VERSION)
    isr = [replica for replica, _ in members]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        raise Refusal(ErrorCode.INVALID_REQUEST)
    if data.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise Refusal(ErrorCode.INVALID_REQUEST)
    wants_recovering = data.leader_recovery_state == RECOVERING
    if wants_recovering and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        raise Refusal(ErrorCode.INVALID_REQUEST)
    for replica, epoch in members:
        broker = situation.image.cluster.brokers.get(replica)
        if broker is None or broker.fenced or broker.in_controlled_shutdown or epoch not in (_ANY_EPOCH, broker.epoch):
            raise Refusal(ErrorCode.INELIGIBLE_REPLICA)


def _partition_error(index: int, code: ErrorCode) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=index, error_code=code, leader_id=0, leader_epoch=0, isr=[], partition_epoch=0
    )


# ---- AssignReplicasToDirs (KIP-858) ----


def assign_replicas_to_dirs(situation: Situation, request: AssignReplicasToDirsRequest) -> Decision:
    try:
        check_broker_epoch(situation, request.broker_id, request.broker_epoch)
    except Refusal as refusal:
        response = AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=refusal.code, directories=[])
        return Decision([], response)
    records: list[Message] = []
    directories = []
    for directory in request.directories:
        topics = []
        for topic in directory.topics:
            partitions = []
            for data in topic.partitions:
                code = ErrorCode.NONE
                try:
                    records += _assign(situation, request.broker_id, directory.id, topic.topic_id, data.partition_index)
                except Refusal as refusal:
                    code = refusal.code
                partitions.append(
                    AssignReplicasToDirsResponsePartitionData(partition_index=data.partition_index, error_code=code)
                )
            topics.append(AssignReplicasToDirsResponseTopicData(topic_id=topic.topic_id, partitions=partitions))
        directories.append(AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=topics))
    response = AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, directories=directories)
    return Decision(records, response)


def _assign(situation: Situation, broker_id: int, directory: Uuid, topic_id: Uuid, index: int) -> list[Message]:
    topic = situation.image.topics.by_id.get(topic_id)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    change = change_of(situation, topic.name, topic_id, index, partition)
    change.directories[broker_id] = directory
    record = change.record()
    records: list[Message] = [] if record is None else [record]
    moved, here = situation.after(records), {(topic_id, index)}
    if not is_directory_online(situation.image.cluster, broker_id, directory):
        # It went to a directory that has failed meanwhile: the replica is not there any more.
        records += after_departure(moved, broker_id, here)
    elif not partition.has_leader:
        # It may have been waiting for a disk that works.
        records += after_arrival(moved, only=here)
    return records
