"""Elections, reassignments and ISR changes."""

from __future__ import annotations

import pytest

from pessoa.base.java_order import timeline_order, uuid_hash
from pessoa.metadata.image import PartitionImage
from pessoa.wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
    PartitionData,
    TopicData,
)
from pessoa.wire.api.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from pessoa.wire.api.create_topics import CreateTopicsResponse
from pessoa.wire.api.elect_leaders import ElectLeadersResponse
from pessoa.wire.api.incremental_alter_configs import IncrementalAlterConfigsResponse
from pessoa.wire.api.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pessoa.wire.errors import ErrorCode
from tests.support.admin_script import SET, TOPIC, alter, create, elect, reassign, topic
from tests.unit.controller.conftest import Cluster


@pytest.fixture
def moving(trio: Cluster) -> Cluster:
    """Return a cluster of three brokers with a topic on the first two."""
    trio.ask(create(topic("t", -1, -1, {0: [1, 2]})), CreateTopicsResponse)
    return trio


def partition(cluster: Cluster) -> PartitionImage:
    return cluster.image.topics.by_name["t"].partitions[0]


def set_isr(
    cluster: Cluster, *isr: int, leader: int | None = None, **changes: int
) -> AlterPartitionResponsePartitionData:
    one = partition(cluster)
    leader = one.leader if leader is None else leader
    data = PartitionData(
        partition_index=0,
        leader_epoch=one.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=member, broker_epoch=cluster.epochs[member]) for member in isr],
        partition_epoch=one.partition_epoch,
    )
    for name, value in changes.items():
        setattr(data, name, value)
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=cluster.epochs[leader],
        topics=[TopicData(topic_id=cluster.image.topics.by_name["t"].id, partitions=[data])],
    )
    return cluster.ask(request, AlterPartitionResponse).topics[0].partitions[0]


# ---- ISR ----


def test_the_isr_shrinks_and_grows_by_alter_partition(moving: Cluster) -> None:
    result = set_isr(moving, 1)
    assert (result.error_code, result.isr, result.partition_epoch) == (ErrorCode.NONE, [1], 1)
    assert partition(moving).leader_epoch == 0, "the leader stays, and its epoch with it"
    assert set_isr(moving, 1, 2).isr == [1, 2]


def test_an_alter_partition_with_an_old_epoch_or_an_impossible_isr_is_refused(moving: Cluster) -> None:
    set_isr(moving, 1)
    refusals = {
        ErrorCode.NOT_CONTROLLER: set_isr(moving, 1, 2, leader_epoch=9),
        ErrorCode.INVALID_UPDATE_VERSION: set_isr(moving, 1, 2, partition_epoch=0),
        ErrorCode.FENCED_LEADER_EPOCH: set_isr(moving, 1, 2, leader_epoch=-1),
        ErrorCode.INVALID_REQUEST: set_isr(moving, 1, 2, leader=2),
    }
    for code, result in refusals.items():
        assert ErrorCode.of(result.error_code) is code
    assert set_isr(moving, 2).error_code == ErrorCode.INVALID_REQUEST, "the leader is in its own ISR"
    assert set_isr(moving, 1, 3).error_code == ErrorCode.INVALID_REQUEST, "3 is no replica"
    assert set_isr(moving, 1, 2, 2).error_code == ErrorCode.INVALID_REQUEST, "2 is there twice"
    assert set_isr(moving, 1, leader_recovery_state=7).error_code == ErrorCode.INVALID_REQUEST
    moving.heartbeat(2, want_fence=True)
    assert set_isr(moving, 1, 2).error_code == ErrorCode.INELIGIBLE_REPLICA
    moving.heartbeat(2)
    moving.epochs[2] += 1
    assert set_isr(moving, 1, 2).error_code == ErrorCode.INELIGIBLE_REPLICA, "it was seen in another life"
    assert partition(moving).isr == (1,)


def test_a_recovering_leader_reports_the_end_of_its_recovery_by_alter_partition(cluster: Cluster) -> None:
    cluster.ask(create(topic("t")), CreateTopicsResponse)
    cluster.clock.advance_ms(9_001)
    cluster.start_broker(1, incarnation=2)
    assert partition(cluster).leader_recovery_state == 1
    assert set_isr(cluster, 1, leader_recovery_state=0).error_code == ErrorCode.NONE
    assert partition(cluster).leader_recovery_state == 0
    assert set_isr(cluster, 1, leader_recovery_state=1).error_code == ErrorCode.INVALID_REQUEST


def test_an_alter_partition_with_a_wrong_broker_epoch_changes_no_isr(moving: Cluster) -> None:
    for broker_id, epoch in ((1, moving.epochs[1] + 1), (9, 0)):
        request = AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, topics=[])
        assert moving.ask(request, AlterPartitionResponse).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_replica_that_is_shutting_down_does_not_rejoin_the_isr(moving: Cluster) -> None:
    moving.ask(create(topic("u", -1, -1, {0: [2]})), CreateTopicsResponse)
    moving.heartbeat(2, want_shut_down=True)
    assert moving.image.cluster.brokers[2].in_controlled_shutdown
    assert set_isr(moving, 1, 2).error_code == ErrorCode.INELIGIBLE_REPLICA


# ---- Eligible leaders ----


@pytest.fixture
def strict(trio: Cluster) -> Cluster:
    """Return a cluster of three brokers with a topic on all of them and min.insync.replicas 2."""
    request = create(topic("t", -1, -1, {0: [1, 2, 3]}, {"min.insync.replicas": "2"}))
    trio.ask(request, CreateTopicsResponse)
    return trio


def test_a_replica_that_leaves_the_isr_below_min_isr_stays_in_the_elr_until_min_isr_is_reached(strict: Cluster) -> None:
    strict.heartbeat(3, want_fence=True)
    assert (partition(strict).isr, partition(strict).elr) == ((1, 2), ()), "enough are in sync, so 3 falls behind"
    set_isr(strict, 1)
    assert (partition(strict).isr, partition(strict).elr) == ((1,), (2,))
    strict.heartbeat(3)
    set_isr(strict, 1, 3)
    assert (partition(strict).isr, partition(strict).elr) == ((1, 3), ())


def test_a_replica_of_the_elr_is_elected_cleanly_when_the_isr_is_empty(strict: Cluster) -> None:
    strict.heartbeat(3, want_fence=True)
    strict.heartbeat(2, want_fence=True)
    strict.heartbeat(1, want_fence=True)
    one = partition(strict)
    assert (one.leader, one.isr, one.elr, one.last_known_elr) == (-1, (), (1, 2), (1,))
    strict.heartbeat(3)
    assert partition(strict).leader == -1, "3 may lack what 1 and 2 have"
    strict.heartbeat(2)
    one = partition(strict)
    assert (one.leader, one.isr, one.elr, one.last_known_elr) == (2, (2,), (1,), ())
    assert one.leader_recovery_state == 0


def test_the_elr_is_cleared_when_the_isr_reaches_a_lowered_min_isr(strict: Cluster) -> None:
    for broker_id in (3, 2, 1):
        strict.heartbeat(broker_id, want_fence=True)
    request = alter(TOPIC, "t", ("min.insync.replicas", SET, "1"))
    strict.ask(request, IncrementalAlterConfigsResponse)
    strict.heartbeat(2)
    one = partition(strict)
    assert (one.leader, one.isr, one.elr) == (2, (2,), ()), "1 falls behind with the first record that 2 takes"


def test_the_last_known_leader_is_elected_uncleanly_only_if_the_elr_is_empty(
    strict: Cluster,
) -> None:
    for broker_id in (3, 2, 1):
        strict.heartbeat(broker_id, want_fence=True)
    strict.clock.advance_ms(9_001)
    for broker_id in (2, 1):
        strict.register(broker_id, incarnation=2)
    one = partition(strict)
    assert (one.leader, one.isr, one.elr, one.last_known_elr) == (-1, (), (), (1,))
    strict.heartbeat(2)
    strict.heartbeat(3)
    assert partition(strict).leader == -1
    strict.heartbeat(1)
    one = partition(strict)
    assert (one.leader, one.isr, one.last_known_elr, one.leader_recovery_state) == (1, (1,), (), 1)


# ---- Elections ----


def test_elect_leaders_elects_the_preferred_leader(moving: Cluster) -> None:
    moving.heartbeat(1, want_fence=True)
    moving.heartbeat(1)
    assert partition(moving).leader == 2
    request = elect(0, ("t", 0))
    assert _election(moving, request) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE], "it is not in sync"
    set_isr(moving, 2, 1)
    assert _election(moving, request) == [ErrorCode.NONE]
    assert partition(moving).leader == 1
    assert _election(moving, request) == [ErrorCode.ELECTION_NOT_NEEDED]
    assert _election(moving, elect(0)) == [], "asking for all, one hears of what was done"


def test_an_unclean_election_needs_an_unfenced_replica(moving: Cluster) -> None:
    set_isr(moving, 1)
    moving.heartbeat(1, want_fence=True)
    assert partition(moving).leader == -1
    assert _election(moving, elect(1, ("t", 0))) == [ErrorCode.NONE]
    one = partition(moving)
    assert (one.leader, one.isr, one.elr, one.leader_recovery_state) == (2, (2,), (), 1)
    assert _election(moving, elect(1, ("t", 0))) == [ErrorCode.ELECTION_NOT_NEEDED]


def test_an_election_of_an_unknown_type_is_refused(moving: Cluster) -> None:
    response = moving.ask(elect(7, ("t", 0)), ElectLeadersResponse)
    assert response.error_code == ErrorCode.INVALID_REQUEST


def _election(cluster: Cluster, request: object) -> list[ErrorCode]:
    from pessoa.wire.api.elect_leaders import ElectLeadersRequest

    assert isinstance(request, ElectLeadersRequest)
    response = cluster.ask(request, ElectLeadersResponse)
    return [ErrorCode.of(one.error_code) for each in response.replica_election_results for one in each.partition_result]


# ---- Reassignments ----


def move(cluster: Cluster, replicas: list[int] | None, allow: bool = True) -> ErrorCode:
    response = cluster.ask(reassign("t", 0, replicas, allow), AlterPartitionReassignmentsResponse)
    return ErrorCode.of(response.responses[0].partitions[0].error_code)


def test_a_reassignment_ends_when_its_new_replicas_are_in_sync(moving: Cluster) -> None:
    assert move(moving, [3, 1]) is ErrorCode.NONE
    one = partition(moving)
    assert (one.replicas, one.adding_replicas, one.removing_replicas) == ((3, 1, 2), (3,), (2,))
    assert one.leader == 1
    set_isr(moving, 1, 2, 3)
    one = partition(moving)
    assert (one.replicas, one.isr, one.adding_replicas, one.removing_replicas) == ((3, 1), (1, 3), (), ())
    assert one.leader_epoch == 1, "a replica is gone, so the leader begins an epoch that it does not know"
    assert len(one.directories) == 2


def test_a_reassignment_that_removes_the_leader_elects_another_and_the_old_one_gets_new_leader_elected(
    moving: Cluster,
) -> None:
    move(moving, [3])
    result = set_isr(moving, 1, 2, 3)
    assert result.error_code == ErrorCode.NEW_LEADER_ELECTED
    one = partition(moving)
    assert (one.replicas, one.leader, one.isr) == ((3,), 3, (3,))


def test_a_reassignment_that_only_removes_replicas_ends_at_once(moving: Cluster) -> None:
    assert move(moving, [2]) is ErrorCode.NONE
    one = partition(moving)
    assert (one.replicas, one.isr, one.leader, one.is_reassigning) == ((2,), (2,), 2, False)


def test_a_reassignment_that_removes_more_replicas_than_it_adds_waits_for_all_that_stay(strict: Cluster) -> None:
    strict.start_broker(4)
    set_isr(strict, 1, 2)
    assert move(strict, [3, 4]) is ErrorCode.NONE
    assert partition(strict).replicas == (3, 4, 1, 2)
    set_isr(strict, 1, 2, 4)
    one = partition(strict)
    assert (one.isr, one.is_reassigning) == ((1, 2, 4), True), "with 4 alone in sync less would be left than there is"
    set_isr(strict, 1, 2, 4, 3)
    one = partition(strict)
    assert (one.replicas, one.isr, one.is_reassigning) == ((3, 4), (4, 3), False)


def test_replicas_that_a_reassignment_removed_are_not_in_the_elr(strict: Cluster) -> None:
    set_isr(strict, 1, 2)
    move(strict, [3])
    result = set_isr(strict, 1, 2, 3)
    assert result.error_code == ErrorCode.NEW_LEADER_ELECTED
    one = partition(strict)
    assert (one.replicas, one.isr, one.elr, one.leader) == ((3,), (3,), (), 3)


def test_a_reassignment_that_only_changes_the_order_changes_the_preferred_leader_and_nothing_else(
    moving: Cluster,
) -> None:
    assert move(moving, [2, 1]) is ErrorCode.NONE
    one = partition(moving)
    assert (one.replicas, one.leader, one.leader_epoch, one.is_reassigning) == ((2, 1), 1, 0, False)


def test_a_reassignment_can_be_cancelled(moving: Cluster) -> None:
    before = partition(moving)
    move(moving, [3])
    assert move(moving, None) is ErrorCode.NONE
    after = partition(moving)
    assert after.replicas == before.replicas
    assert not after.is_reassigning
    assert move(moving, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_whose_cancellation_would_lose_data_cannot_be_cancelled(moving: Cluster) -> None:
    move(moving, [3])
    one = partition(moving)
    assert one.replicas == (3, 1, 2)
    # The old replicas fall out of sync before the move is over.
    for broker_id in (2, 1):
        moving.heartbeat(broker_id, want_fence=True)
    assert partition(moving).isr == ()
    assert move(moving, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_cancelled_reassignment_without_an_in_sync_replica_needs_an_unclean_leader(moving: Cluster) -> None:
    request = alter(TOPIC, "t", ("unclean.leader.election.enable", SET, "true"))
    moving.ask(request, IncrementalAlterConfigsResponse)
    move(moving, [3])
    for broker_id in (2, 1):
        moving.heartbeat(broker_id, want_fence=True)
    assert (partition(moving).leader, partition(moving).isr) == (3, (3,)), "the new one leads, uncleanly"
    assert move(moving, None) is ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no original replica can lead"
    moving.heartbeat(2)
    assert move(moving, None) is ErrorCode.NONE
    one = partition(moving)
    assert (one.replicas, one.leader, one.isr, one.leader_recovery_state) == ((1, 2), 2, (2,), 1)


def test_the_replication_factor_is_changed_only_if_the_request_allows_it(moving: Cluster) -> None:
    assert move(moving, [1, 2, 3], allow=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert move(moving, [3, 1], allow=False) is ErrorCode.NONE
    assert move(moving, [1, 2, 3], allow=False) is ErrorCode.INVALID_REPLICATION_FACTOR, "two when it has arrived"
    assert move(moving, [2, 3], allow=False) is ErrorCode.NONE


def test_a_reassignment_is_listed_until_it_has_ended(moving: Cluster) -> None:
    everything = ListPartitionReassignmentsRequest(topics=None)
    assert moving.ask(everything, ListPartitionReassignmentsResponse, 0).topics == []
    move(moving, [3, 1])
    (listed,) = moving.ask(everything, ListPartitionReassignmentsResponse, 0).topics
    assert listed.name == "t"
    (one,) = listed.partitions
    assert (one.replicas, one.adding_replicas, one.removing_replicas) == ([3, 1, 2], [3], [2])
    set_isr(moving, 1, 2, 3)
    assert moving.ask(everything, ListPartitionReassignmentsResponse, 0).topics == []


def test_reassigned_topics_are_listed_in_the_order_of_apaches_table_of_topic_ids(trio: Cluster) -> None:
    names = [f"t{number}" for number in range(9)]
    for name in names:
        trio.ask(create(topic(name, -1, -1, {0: [1, 2]})), CreateTopicsResponse)
        trio.ask(reassign(name, 0, [1, 3]), AlterPartitionReassignmentsResponse)
    ids = {trio.image.topics.by_name[name].id: name for name in names}
    wanted = [ids[topic_id] for topic_id in timeline_order(ids, uuid_hash, are_put_again=True)]
    everything = ListPartitionReassignmentsRequest(topics=None)
    assert [one.name for one in trio.ask(everything, ListPartitionReassignmentsResponse, 0).topics] == wanted
