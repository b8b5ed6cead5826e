"""Brokers register, send heartbeats, shut down and disappear, and what that changes in their partitions."""

from __future__ import annotations

import asyncio

import pytest

from pessoa.base.ids import Uuid
from pessoa.metadata.image import PartitionImage
from pessoa.metadata.supported_features import FEATURES
from pessoa.wire.api.broker_registration import Feature
from pessoa.wire.api.create_topics import CreateTopicsResponse
from pessoa.wire.api.delete_topics import DeleteTopicsResponse
from pessoa.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from pessoa.wire.api.update_features import UpdateFeaturesResponse
from pessoa.wire.errors import ErrorCode
from tests.support.admin_script import create, delete, feature, topic
from tests.unit.controller.conftest import Cluster

SESSION_MS = 9_000
FEATURES_WITHOUT_GROUPS = [Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)]
FEATURES_OF_TOMORROW = [
    *(
        Feature(name=one.name, min_supported_version=one.min_level, max_supported_version=one.max_level)
        for one in FEATURES
    ),
    Feature(name="unheard.of.version", min_supported_version=1, max_supported_version=1),
]


def create_topic(cluster: Cluster, name: str, assignments: dict[int, list[int]], **configs: str) -> None:
    settings: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
    request = create(topic(name, -1, -1, assignments, settings))
    assert cluster.ask(request, CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE


def partition(cluster: Cluster, name: str = "t", index: int = 0) -> PartitionImage:
    return cluster.image.topics.by_name[name].partitions[index]


def fenced(cluster: Cluster) -> list[int]:
    return [broker.id for broker in cluster.image.cluster.brokers.values() if broker.fenced]


def test_a_broker_is_fenced_until_it_has_caught_up_with_its_own_registration(cluster: Cluster) -> None:
    cluster.register(2)
    assert cluster.image.cluster.brokers[2].fenced
    behind = cluster.heartbeat(2, current_metadata_offset=cluster.epochs[2] - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    there = cluster.heartbeat(2)
    assert (there.is_caught_up, there.is_fenced) == (True, False)
    assert not cluster.image.cluster.brokers[2].fenced


def test_the_epoch_of_a_broker_is_the_offset_of_its_registration(cluster: Cluster) -> None:
    expected = cluster.quorum.log_end_offset
    assert cluster.register(2).broker_epoch == expected


def test_the_same_incarnation_keeps_its_epoch_and_may_change_its_address(cluster: Cluster) -> None:
    before = cluster.image.cluster.brokers[1]
    again = cluster.registration(1)
    again.listeners[0].port = 7777
    cluster.ask(again, type(cluster.register(1)))
    after = cluster.image.cluster.brokers[1]
    assert (after.epoch, after.fenced) == (before.epoch, False)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [Uuid.of(900), Uuid.of(900)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [Uuid.of(5001)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [Uuid.of(2)]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        ({"features": FEATURES_WITHOUT_GROUPS}, ErrorCode.UNSUPPORTED_VERSION),
        ({"features": FEATURES_OF_TOMORROW}, ErrorCode.UNSUPPORTED_VERSION),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_a_malformed_broker_registration_is_refused(
    cluster: Cluster, change: dict[str, object], code: ErrorCode
) -> None:
    assert ErrorCode.of(cluster.register(2, 1, **change).error_code) is code
    assert 2 not in cluster.image.cluster.brokers


def test_a_second_process_with_the_same_broker_id_must_wait_for_the_session_timeout_of_the_first(
    cluster: Cluster,
) -> None:
    assert cluster.register(1, incarnation=2).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.clock.advance_ms(SESSION_MS + 1)
    assert cluster.register(1, incarnation=2).error_code == ErrorCode.NONE


def test_a_registration_without_a_heartbeat_does_not_block_a_second_process(cluster: Cluster) -> None:
    """The answer to it may be lost with the process that asked."""
    cluster.register(2)
    assert cluster.register(2, incarnation=2).error_code == ErrorCode.NONE
    cluster.heartbeat(2)
    assert cluster.register(2, incarnation=3).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_heartbeat_with_an_old_broker_epoch_or_of_an_unknown_broker_is_refused(cluster: Cluster) -> None:
    assert cluster.heartbeat(1, broker_epoch=1).error_code == ErrorCode.STALE_BROKER_EPOCH
    cluster.epochs[9] = 1
    assert cluster.heartbeat(9).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_silent_broker_is_fenced_after_its_session_timeout_and_other_replicas_are_elected(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1, 2, 3]})
    trio.clock.advance_ms(SESSION_MS)
    trio.heartbeat(2)
    trio.heartbeat(3)
    trio.tick()
    assert fenced(trio) == [], "not before the session is over"
    trio.clock.advance_ms(1)
    trio.tick()
    assert fenced(trio) == [1]
    one = partition(trio)
    assert (one.leader, one.leader_epoch, one.isr) == (2, 1, (2, 3))
    trio.heartbeat(1)
    assert partition(trio) == one, "a broker that is back is a follower until it is in sync"


def test_the_last_in_sync_replica_becomes_eligible_leader_replica_while_it_is_fenced(cluster: Cluster) -> None:
    create_topic(cluster, "t", {0: [1]})
    cluster.heartbeat(1, want_fence=True)
    one = partition(cluster)
    assert (one.leader, one.isr, one.elr, one.last_known_elr) == (-1, (), (1,), (1,))
    cluster.heartbeat(1)
    one = partition(cluster)
    assert (one.leader, one.isr, one.elr, one.last_known_elr) == (1, (1,), (), ())
    assert one.leader_recovery_state == 0


def test_a_controlled_shutdown_moves_leaders_first_and_waits_until_the_other_brokers_know(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1, 2]})
    asked = trio.heartbeat(1, want_shut_down=True)
    assert (asked.should_shut_down, asked.is_fenced) == (False, False)
    assert partition(trio).leader == 2
    assert partition(trio).isr == (2,)
    behind = trio.quorum.log_end_offset - 3
    trio.heartbeat(2, current_metadata_offset=behind)
    assert not trio.heartbeat(1, want_shut_down=True).should_shut_down
    trio.heartbeat(2)
    assert not trio.heartbeat(1, want_shut_down=True).should_shut_down, "broker 3 does not know"
    trio.heartbeat(3)
    done = trio.heartbeat(1, want_shut_down=True)
    assert (done.should_shut_down, done.is_fenced) == (True, True)
    assert trio.image.cluster.brokers[1].fenced


def test_a_broker_that_leads_no_partition_may_shut_down_at_once(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1, 2]})
    done = trio.heartbeat(2, want_shut_down=True)
    assert (done.should_shut_down, done.is_fenced) == (True, True)
    assert (partition(trio).leader, partition(trio).isr) == (1, (1,))
    assert trio.image.cluster.brokers[2].in_controlled_shutdown, (
        "it is known to have stopped, not to have fallen silent"
    )


def test_brokers_that_shut_down_together_do_not_wait_for_each_other(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1, 3], 1: [2, 3]})
    for broker_id in (1, 2):
        assert not trio.heartbeat(broker_id, want_shut_down=True).should_shut_down
    trio.heartbeat(2, want_shut_down=True, current_metadata_offset=0)
    trio.heartbeat(3)
    assert trio.heartbeat(1, want_shut_down=True).should_shut_down, "broker 2 serves no client that would have to know"


def test_a_new_controller_waits_again_until_every_broker_knows_of_a_controlled_shutdown(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1, 2]})
    trio.heartbeat(1, want_shut_down=True)
    asyncio.run(trio._activate())
    for broker_id in (2, 3):
        trio.heartbeat(broker_id)
    assert not trio.heartbeat(1, want_shut_down=True).should_shut_down
    for broker_id in (2, 3):
        trio.heartbeat(broker_id)
    assert trio.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_late_heartbeat_does_not_unfence_a_broker_that_has_shut_down(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1]})
    trio.heartbeat(1, want_shut_down=True)
    for broker_id in (2, 3):
        trio.heartbeat(broker_id)
    assert trio.heartbeat(1, want_shut_down=True).should_shut_down
    assert trio.heartbeat(1).is_fenced
    assert partition(trio).leader == -1


def test_a_broker_that_shut_down_cleanly_leads_again_without_recovery(cluster: Cluster) -> None:
    create_topic(cluster, "t", {0: [1]})
    while not cluster.heartbeat(1, want_shut_down=True).should_shut_down:
        pass
    cluster.start_broker(1, incarnation=2, previous_broker_epoch=cluster.epochs[1])
    one = partition(cluster)
    assert (one.leader, one.isr, one.leader_recovery_state) == (1, (1,), 0)


def test_a_broker_that_crashed_leaves_the_isr_and_the_elr_with_its_new_registration(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1, 2]}, min_insync_replicas="2")
    trio.heartbeat(2, want_fence=True)
    assert partition(trio).elr == (2,)
    trio.clock.advance_ms(SESSION_MS + 1)
    trio.register(2, incarnation=2, previous_broker_epoch=-1)
    one = partition(trio)
    assert (one.leader, one.isr, one.elr) == (1, (1,), ())


def test_a_broker_that_registers_again_after_it_was_unregistered_leaves_the_elr(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1, 2]}, min_insync_replicas="2")
    trio.heartbeat(2, want_fence=True)
    trio.ask(UnregisterBrokerRequest(broker_id=2), UnregisterBrokerResponse)
    assert partition(trio).elr == (2,)
    trio.register(2, incarnation=2, previous_broker_epoch=trio.epochs[2])
    assert partition(trio).elr == (), "the registration under which it was eligible is gone"


def test_without_elr_the_last_in_sync_replica_stays_in_the_isr(trio: Cluster) -> None:
    trio.ask(feature("eligible.leader.replicas.version", 0, 2), UpdateFeaturesResponse)
    create_topic(trio, "t", {0: [1, 2]})
    for broker_id in (2, 1):
        trio.heartbeat(broker_id, want_fence=True)
    one = partition(trio)
    assert (one.leader, one.isr, one.elr, one.last_known_elr) == (-1, (1,), (), ())
    trio.heartbeat(2)
    assert partition(trio).leader == -1, "2 may lack what 1 has"
    trio.heartbeat(1)
    assert (partition(trio).leader, partition(trio).leader_recovery_state) == (1, 0)


def test_the_only_replica_leads_again_after_a_crash_and_is_marked_as_recovering(cluster: Cluster) -> None:
    create_topic(cluster, "t", {0: [1]})
    epoch = partition(cluster).leader_epoch
    cluster.clock.advance_ms(SESSION_MS + 1)
    cluster.register(1, incarnation=2)
    one = partition(cluster)
    assert (one.leader, one.isr, one.elr, one.last_known_elr) == (-1, (), (), (1,))
    cluster.heartbeat(1)
    one = partition(cluster)
    assert (one.leader, one.isr, one.leader_recovery_state, one.leader_epoch) == (1, (1,), 1, epoch + 2)


def test_a_broker_that_restarts_before_it_was_fenced_gets_new_leader_epochs(cluster: Cluster) -> None:
    create_topic(cluster, "t", {0: [1]})
    epoch, previous = partition(cluster).leader_epoch, cluster.epochs[1]
    cluster.clock.advance_ms(SESSION_MS + 1)
    cluster.start_broker(1, incarnation=2, previous_broker_epoch=previous)
    assert partition(cluster).leader == 1
    assert partition(cluster).leader_epoch > epoch


def test_unclean_elections_happen_only_where_they_are_allowed(trio: Cluster) -> None:
    for name, allowed in (("safe", "false"), ("risky", "true")):
        create_topic(trio, name, {0: [1, 2]}, unclean_leader_election_enable=allowed)
    trio.heartbeat(2, want_fence=True)
    trio.heartbeat(1, want_fence=True)
    trio.heartbeat(2)
    assert partition(trio, "safe").leader == -1
    risky = partition(trio, "risky")
    assert (risky.leader, risky.isr, risky.leader_recovery_state) == (2, (2,), 1)


def test_a_failed_log_directory_affects_only_the_replicas_on_it(trio: Cluster) -> None:
    first, second = Uuid.of(8001), Uuid.of(8002)
    trio.start_broker(4, log_dirs=[first, second])
    create_topic(trio, "t", {0: [4, 1], 1: [4, 2]})
    assert {one.directories[0] for one in trio.image.topics.by_name["t"].partitions.values()} == {Uuid.of(1)}
    _assign(trio, 4, {first: 0, second: 1})
    trio.heartbeat(4, offline_log_dirs=[first])
    assert trio.image.cluster.brokers[4].directories == (second,)
    assert (partition(trio, index=0).leader, partition(trio, index=0).isr) == (1, (1,))
    assert (partition(trio, index=1).leader, partition(trio, index=1).isr) == (4, (4, 2))


def test_a_broker_without_any_online_log_directory_is_fenced(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1, 2]})
    directories = list(trio.image.cluster.brokers[1].directories)
    assert trio.heartbeat(1, offline_log_dirs=directories).is_fenced
    assert (partition(trio).leader, partition(trio).isr) == (2, (2,))
    before = len(trio.quorum.batches)
    assert trio.heartbeat(1, offline_log_dirs=directories).is_fenced
    assert len(trio.quorum.batches) == before, "there is nothing new to say"


def test_a_replica_assigned_to_a_failed_log_directory_leaves_the_isr(trio: Cluster) -> None:
    first, second = Uuid.of(8001), Uuid.of(8002)
    trio.start_broker(4, log_dirs=[first, second])
    create_topic(trio, "t", {0: [4, 1]})
    trio.heartbeat(4, offline_log_dirs=[first])
    assert partition(trio).leader == 4, "the controller does not know the replica's directory"
    _assign(trio, 4, {first: 0})
    one = partition(trio)
    assert (one.leader, one.isr, one.directories[0]) == (1, (1,), first)
    _assign(trio, 4, {second: 0})
    assert partition(trio).directories[0] == second


def test_cordoned_log_directories_are_those_that_the_broker_reports_and_get_no_new_replicas(trio: Cluster) -> None:
    (only,) = trio.image.cluster.brokers[3].directories
    trio.heartbeat(3, cordoned_log_dirs=[only])
    assert trio.image.cluster.brokers[3].cordoned_directories == (only,)
    before = len(trio.quorum.batches)
    trio.heartbeat(3, cordoned_log_dirs=[only])
    trio.heartbeat(3, cordoned_log_dirs=None)
    assert len(trio.quorum.batches) == before
    trio.ask(create(topic("u", 6, 2)), CreateTopicsResponse)
    used = {replica for one in trio.image.topics.by_name["u"].partitions.values() for replica in one.replicas}
    assert used == {1, 2}
    too_many = trio.ask(create(topic("v", 1, 3)), CreateTopicsResponse).topics[0]
    assert too_many.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def _assign(cluster: Cluster, broker_id: int, directories: dict[Uuid, int]) -> None:
    from pessoa.wire.api.assign_replicas_to_dirs import (
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
        DirectoryData,
        PartitionData,
        TopicData,
    )

    topic_id = cluster.image.topics.by_name["t"].id
    request = AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=cluster.epochs[broker_id],
        directories=[
            DirectoryData(
                id=directory, topics=[TopicData(topic_id=topic_id, partitions=[PartitionData(partition_index=index)])]
            )
            for directory, index in directories.items()
        ],
    )
    response = cluster.ask(request, AssignReplicasToDirsResponse)
    codes = [one.error_code for part in response.directories for of in part.topics for one in of.partitions]
    assert codes == [ErrorCode.NONE] * len(directories)


def test_an_unregistered_broker_is_removed_and_leads_no_partition(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1, 2]})
    response = trio.ask(UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse)
    assert response.error_code == ErrorCode.NONE
    assert 1 not in trio.image.cluster.brokers
    assert partition(trio).leader == 2


def test_the_only_broker_can_be_unregistered_and_register_again(cluster: Cluster) -> None:
    create_topic(cluster, "t", {0: [1]})
    response = cluster.ask(UnregisterBrokerRequest(broker_id=1), UnregisterBrokerResponse)
    assert response.error_code == ErrorCode.NONE
    assert not cluster.image.cluster.brokers
    assert cluster.heartbeat(1).error_code == ErrorCode.STALE_BROKER_EPOCH
    cluster.start_broker(1, incarnation=2)
    assert (partition(cluster).leader, partition(cluster).leader_recovery_state) == (1, 1)
    unknown = cluster.ask(UnregisterBrokerRequest(broker_id=9), UnregisterBrokerResponse)
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_topic_can_be_deleted_while_its_brokers_are_fenced(trio: Cluster) -> None:
    create_topic(trio, "t", {0: [1, 2]})
    for broker_id in (1, 2):
        trio.heartbeat(broker_id, want_fence=True)
    trio.ask(delete("t"), DeleteTopicsResponse)
    assert not trio.image.topics.by_name
    trio.heartbeat(1)
    assert not trio.image.topics.by_id
