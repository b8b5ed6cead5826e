"""Elections of leaders: on request, because a broker came, went, or lost a disk, or because it is time to.

From time to time the controller elects preferred leaders, and elects uncleanly where a partition has no leader and may
have one: its topic may allow unclean elections only since the leader is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from pessoa.controller.assignments import is_active
from pessoa.controller.decision import Decision, check_record_count
from pessoa.controller.partition_change import Election, allows_unclean_election, change_of
from pessoa.wire.api.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.controller.decision import Situation
    from pessoa.metadata.image import PartitionImage, TopicImage
    from pessoa.wire.schema import Message

NO_BROKER = -1
_PREFERRED, _UNCLEAN = 0, 1


# Elections on request (KIP-460).


def elect_leaders(situation: Situation, request: ElectLeadersRequest) -> Decision:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        return Decision(
            [],
            ElectLeadersResponse(throttle_time_ms=0, error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[]),
        )
    records: list[Message] = []
    results: list[ReplicaElectionResult] = []
    election = Election.PREFERRED if request.election_type == _PREFERRED else Election.UNCLEAN
    for topic, indexes in _partitions_to_elect(situation, request):
        of_topic: list[PartitionResult] = []
        for index in indexes:
            result = PartitionResult(partition_id=index, error_code=ErrorCode.NONE, error_message=None)
            try:
                records.append(_elect(situation, topic, index, election))
            except Refusal as refusal:
                if request.topic_partitions is None and refusal.code is ErrorCode.ELECTION_NOT_NEEDED:
                    # A request for all partitions is answered with those that were elected, or could not be.
                    continue
                result.error_code, result.error_message = refusal.code, refusal.text
            of_topic.append(result)
        results.append(ReplicaElectionResult(topic=topic, partition_result=of_topic))
    check_record_count(records)
    response = ElectLeadersResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, replica_election_results=results)
    return Decision(records, response)


def _partitions_to_elect(situation: Situation, request: ElectLeadersRequest) -> Iterator[tuple[str, Iterable[int]]]:
    if request.topic_partitions is None:
        for topic in situation.image.topics.by_name.values():
            yield topic.name, topic.partitions
    else:
        for wanted in request.topic_partitions:
            yield wanted.topic, wanted.partitions


def _elect(situation: Situation, topic: str, index: int, election: Election) -> Message:
    known = situation.image.topics.by_name.get(topic)
    if known is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {topic!r}.")
    partition = known.partitions.get(index)
    if partition is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic {topic!r} has no partition {index}.")
    if election is Election.PREFERRED and partition.leader == partition.preferred_leader:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED)
    if election is Election.UNCLEAN and partition.has_leader:
        raise Refusal(ErrorCode.ELECTION_NOT_NEEDED)
    record = _election_record(situation, known, index, partition, election)
    if record is None:
        if election is Election.PREFERRED:
            raise Refusal(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        raise Refusal(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return record


# Elections that follow from what happens to a broker.


def after_departure(
    situation: Situation,
    broker_id: int,
    only: Collection[tuple[Uuid, int]] | None = None,
    absent: Collection[int] = (),
) -> Iterator[Message]:
    """Return the records that remove a broker, which is fenced or shuts down, from every ISR (or those of `only`) and
    elect other leaders.

    Brokers in `absent` are about to be fenced as well, though no record says so: none of them is elected.
    """
    return _updates(
        situation, lambda partition: broker_id in partition.isr, leaving=broker_id, only=only, absent=absent
    )


def after_arrival(
    situation: Situation, broker_id: int = NO_BROKER, only: Collection[tuple[Uuid, int]] | None = None
) -> Iterator[Message]:
    """Return the records that elect leaders for leaderless partitions of a broker that is unfenced, or whose replicas
    have a directory again."""
    return _updates(situation, lambda partition: not partition.has_leader, arriving=broker_id, only=only)


def after_unclean_shutdown(situation: Situation, broker_id: int) -> Iterator[Message]:
    """Return the records that remove a broker from all ISRs and ELRs: it restarted after an unclean shutdown and may
    have lost acknowledged records."""
    return _updates(
        situation,
        lambda partition: broker_id in partition.isr or broker_id in partition.elr,
        leaving=broker_id,
        unclean=broker_id,
    )


def after_disk_failure(situation: Situation, broker_id: int, lost: Collection[Uuid]) -> Iterator[Message]:
    """Return the records that remove a broker from the ISRs of the replicas in its failed log directories."""
    return _updates(
        situation,
        lambda partition: broker_id in partition.isr and partition.directory_of(broker_id) in lost,
        leaving=broker_id,
    )


def _updates(
    situation: Situation,
    is_affected: Callable[[PartitionImage], bool],
    *,
    leaving: int = NO_BROKER,
    arriving: int = NO_BROKER,
    unclean: int = NO_BROKER,
    only: Collection[tuple[Uuid, int]] | None = None,
    absent: Collection[int] = (),
) -> Iterator[Message]:
    cluster = situation.image.cluster

    def can_lead(broker: int) -> bool:
        # A broker that is being unfenced counts as up before the record that says so is written.
        is_up = broker == arriving or is_active(cluster, broker)
        return is_up and broker != leaving and broker not in absent

    for topic, index, partition in _partitions(situation):
        if not is_affected(partition) or (only is not None and (topic.id, index) not in only):
            continue
        change = change_of(situation, topic.name, topic.id, index, partition, can_lead)
        if allows_unclean_election(situation, topic.name):
            change.election = Election.UNCLEAN
        if unclean != NO_BROKER:
            change.unclean_shutdown = (unclean,)
        change.isr = tuple(replica for replica in partition.isr if replica not in (leaving, unclean))
        record = change.record()
        if record is not None:
            yield record


# Elections whose time has come.


def toward_preferred(situation: Situation, limit: int) -> list[Message]:
    """Return the records that elect preferred leaders that are in sync, for at most `limit` partitions."""
    changes = (
        _election_record(situation, topic, index, partition, Election.PREFERRED)
        for topic, index, partition in _partitions(situation)
        if partition.leader != partition.preferred_leader
    )
    return list(islice(filter(None, changes), limit))


def out_of_trouble(situation: Situation, limit: int) -> list[Message]:
    """Return the records that elect leaders of leaderless partitions with unclean elections, for at most `limit`
    partitions."""
    changes = (
        _election_record(situation, topic, index, partition, Election.UNCLEAN)
        for topic, index, partition in _partitions(situation)
        if not partition.has_leader and allows_unclean_election(situation, topic.name)
    )
    return list(islice(filter(None, changes), limit))


def _election_record(
    situation: Situation, topic: TopicImage, index: int, partition: PartitionImage, election: Election
) -> Message | None:
    change = change_of(situation, topic.name, topic.id, index, partition)
    change.election = election
    return change.record()


def _partitions(situation: Situation) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    for topic in situation.image.topics.by_name.values():
        for index, partition in topic.partitions.items():
            yield topic, index, partition
