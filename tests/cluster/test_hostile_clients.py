"""Three brokers, and a hostile client that can reach all their listeners.

Clients are not authenticated in these clusters, as in Apache Kafka without an authorizer; so a client that knows the
epoch of a broker is taken for that broker. Nevertheless: a guessed epoch is refused, an invalid request gets a
response, floods are limited, and the cluster serves other clients and keeps all replicas in sync.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from pessoa.base.ids import Uuid
from pessoa.broker.api_table import controller_rows
from pessoa.broker.envelope_format import seal
from pessoa.broker.fetch_sessions import DEFAULT_SLOTS
from pessoa.raft.machine import MAX_EPOCH_LEAP
from pessoa.testing import Cluster
from pessoa.wire.api import alter_partition, assign_replicas_to_dirs, begin_quorum_epoch, fetch_snapshot, vote
from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from pessoa.wire.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from pessoa.wire.api.envelope import EnvelopeResponse
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from tests.cluster.conftest import QUIET, TIMEOUT_S, create_topic, until
from tests.support.batches import plain
from tests.support.controller_listeners import bootstrap_controllers
from tests.support.crash_wire import (
    FETCH_VERSION,
    Canary,
    Closed,
    Vocabulary,
    Wire,
    fetch_request,
    framed,
    hostile_message,
    now_ms,
    produce_request,
)
from tests.support.wire_values import random_message

PATIENCE_S = 120
METADATA_TOPIC = "__cluster_metadata"
LAST_EPOCH = (1 << 31) - 1
# On a busy machine no broker is to be fenced for a pause: what is looked at here is what strangers can do.
SETTINGS = {"broker.session.timeout.ms": "60000", "group.consumer.heartbeat.interval.ms": "5000"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as running:
        create_topic(running, "canary")
        # Its leader may have heard of it and not have opened it.
        until(lambda: _is_served(running), "that a record can be written and read", PATIENCE_S)
        yield running


@pytest.fixture(autouse=True)
def whole_afterwards(cluster: Cluster) -> Iterator[None]:
    """Check after each test that other clients can write and read, and that every replica is in sync."""
    yield
    until(lambda: _is_served(cluster), "that a record can be written and read", PATIENCE_S)
    cluster.wait_until_in_sync(PATIENCE_S)


def _is_served(cluster: Cluster) -> bool:
    try:
        with Canary(cluster[cluster.leader_of("canary", 0)].port, "canary") as canary:
            canary.check_round_trip()
    except (AssertionError, Closed, OSError):
        # Under load another may lead by now.
        return False
    return True


def controller_port(cluster: Cluster, node_id: int | None = None) -> int:
    node_id = cluster.controller() if node_id is None else node_id
    address: str = cluster[node_id].inspect(bootstrap_controllers)
    return int(address.rpartition(":")[2])


def image(cluster: Cluster) -> Any:
    return cluster[cluster.controller()].inspect(lambda broker: broker.services.image)


def quorum_epoch(cluster: Cluster) -> int:
    return int(cluster[1].inspect(lambda broker: broker.services.quorum.epoch))


# Guesses.


def requests_of_brokers(cluster: Cluster) -> list[tuple[Any, type[Any], int, ErrorCode]]:
    """Return requests that only members of the cluster send, with a broker epoch that is not theirs, and the
    expected errors."""
    now = image(cluster)
    topic = now.topics.by_name["canary"]
    leader = topic.partitions[0].leader
    stale = now.cluster.brokers[leader].epoch + 1_000
    shrunk = alter_partition.PartitionData(
        partition_index=0,
        leader_epoch=topic.partitions[0].leader_epoch,
        new_isr_with_epochs=[alter_partition.BrokerState(broker_id=leader)],
        partition_epoch=topic.partitions[0].partition_epoch,
    )
    directory = assign_replicas_to_dirs.DirectoryData(id=Uuid(bytes(15) + b"\x99"), topics=[])
    stranger = BrokerRegistrationRequest(
        broker_id=leader,
        cluster_id=cluster[1].inspect(lambda broker: broker.services.cluster_id),
        incarnation_id=Uuid(bytes(range(16))),
        listeners=[],
        features=[],
        rack=None,
        log_dirs=[Uuid(bytes(range(16, 32)))],
    )
    return [
        (
            alter_partition.AlterPartitionRequest(
                broker_id=leader,
                broker_epoch=stale,
                topics=[alter_partition.TopicData(topic_id=topic.id, partitions=[shrunk])],
            ),
            alter_partition.AlterPartitionResponse,
            3,
            ErrorCode.STALE_BROKER_EPOCH,
        ),
        (
            BrokerHeartbeatRequest(
                broker_id=leader, broker_epoch=stale, current_metadata_offset=0, want_fence=True, want_shut_down=True
            ),
            BrokerHeartbeatResponse,
            1,
            ErrorCode.STALE_BROKER_EPOCH,
        ),
        (
            assign_replicas_to_dirs.AssignReplicasToDirsRequest(
                broker_id=leader, broker_epoch=stale, directories=[directory]
            ),
            assign_replicas_to_dirs.AssignReplicasToDirsResponse,
            0,
            ErrorCode.STALE_BROKER_EPOCH,
        ),
        (
            AllocateProducerIdsRequest(broker_id=leader, broker_epoch=stale),
            AllocateProducerIdsResponse,
            0,
            ErrorCode.STALE_BROKER_EPOCH,
        ),
        (stranger, BrokerRegistrationResponse, 4, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        (
            vote.VoteRequest(cluster_id="another", topics=[]),
            vote.VoteResponse,
            2,
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        ),
        (
            fetch_snapshot.FetchSnapshotRequest(cluster_id="another", topics=[]),
            fetch_snapshot.FetchSnapshotResponse,
            1,
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        ),
        (
            seal(produce_request("canary", plain(timestamp=now_ms())), 12, None, "User:root", "127.0.0.1"),
            EnvelopeResponse,
            0,
            ErrorCode.INVALID_REQUEST,
        ),
    ]


def test_a_request_with_a_guessed_broker_epoch_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    before = image(cluster)
    for request, response, version, expected in requests_of_brokers(cluster):
        with Wire(controller_port(cluster)) as wire:
            assert wire.ask(request, response, version).error_code == expected, request
    after = image(cluster)
    assert {one.id: (one.epoch, one.fenced) for one in after.cluster.brokers.values()} == {
        one.id: (one.epoch, one.fenced) for one in before.cluster.brokers.values()
    }

    def in_sync() -> set[int]:
        return set(image(cluster).topics.by_name["canary"].partitions[0].isr)

    # Under load a follower may fall behind for a moment.
    until(lambda: in_sync() == {1, 2, 3}, lambda: f"all three are in sync, not only {in_sync()}", PATIENCE_S)


def test_broker_requests_to_controllers_are_not_served_on_client_listeners(cluster: Cluster) -> None:
    for request, _, version, _ in requests_of_brokers(cluster):
        with Wire(cluster[1].port) as wire:
            wire.write(request, version)
            assert wire.is_closed(), request


def _watched(broker: Any) -> set[int]:
    """Return the ids of the brokers whose heartbeats come through a connection."""
    return set(broker.controller._heartbeats.values())


def test_closing_a_connection_that_sent_a_guessed_broker_epoch_makes_no_broker_suspect(cluster: Cluster) -> None:
    """A broker whose connection breaks is soon missed. That of the controller's own node has none."""
    active = cluster.controller()
    with Wire(controller_port(cluster, active)) as wire:
        for number in cluster:
            request = BrokerHeartbeatRequest(
                broker_id=number, broker_epoch=0, current_metadata_offset=0, want_fence=False, want_shut_down=False
            )
            answer = wire.ask(request, BrokerHeartbeatResponse, 1)
            assert answer.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER)
        assert active not in cluster[active].inspect(_watched)


@pytest.mark.parametrize("epoch", [0, LAST_EPOCH])
def test_a_quorum_request_with_an_old_or_implausible_epoch_changes_no_leader(epoch: int, cluster: Cluster) -> None:
    cluster_id = cluster[1].inspect(lambda broker: broker.services.cluster_id)
    asked = vote.PartitionData(
        partition_index=0, replica_epoch=epoch, replica_id=2, last_offset_epoch=epoch, last_offset=1 << 40
    )
    begun = begin_quorum_epoch.PartitionData(partition_index=0, leader_id=2, leader_epoch=epoch)
    expected = ErrorCode.FENCED_LEADER_EPOCH if epoch == 0 else ErrorCode.INVALID_REQUEST
    for node_id in cluster:
        with Wire(controller_port(cluster, node_id)) as wire:
            votes = wire.ask(
                vote.VoteRequest(
                    cluster_id=cluster_id, topics=[vote.TopicData(topic_name=METADATA_TOPIC, partitions=[asked])]
                ),
                vote.VoteResponse,
                0,
            )
            assert votes.topics[0].partitions[0].error_code == expected
            assert not votes.topics[0].partitions[0].vote_granted
            answer = wire.ask(
                begin_quorum_epoch.BeginQuorumEpochRequest(
                    cluster_id=cluster_id,
                    topics=[begin_quorum_epoch.TopicData(topic_name=METADATA_TOPIC, partitions=[begun])],
                ),
                begin_quorum_epoch.BeginQuorumEpochResponse,
                0,
            )
            assert answer.topics[0].partitions[0].error_code == expected
    assert quorum_epoch(cluster) < MAX_EPOCH_LEAP


@pytest.mark.parametrize(("replica_id", "replica_epoch"), [(4, 7), (1 << 30, -1), (None, 0)])
def test_a_fetch_of_an_unknown_replica_or_with_an_old_broker_epoch_does_not_move_the_high_watermark(
    replica_id: int | None, replica_epoch: int, cluster: Cluster
) -> None:
    now = image(cluster)
    topic = now.topics.by_name["canary"]
    leader = topic.partitions[0].leader
    follower = next(one for one in topic.partitions[0].replicas if one != leader)
    wanted = FetchPartition(partition=0, fetch_offset=1 << 40, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_state=ReplicaState(
            replica_id=follower if replica_id is None else replica_id, replica_epoch=replica_epoch
        ),
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic.id, partitions=[wanted])],
    )
    with Wire(cluster[leader].port) as wire:
        answer = wire.ask(request, FetchResponse, 17)
    refused = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH)
    assert answer.responses[0].partitions[0].error_code in refused


def test_a_fetch_with_an_invented_broker_epoch_does_not_shut_out_the_follower(cluster: Cluster) -> None:
    now = image(cluster)
    topic = now.topics.by_name["canary"]
    leader = topic.partitions[0].leader
    follower = next(one for one in topic.partitions[0].replicas if one != leader)

    def known_epoch() -> int:
        def of(inside: Any) -> int:
            in_sync = inside.services.replicas.ensure("canary", 0).in_sync
            return -1 if in_sync is None else int(in_sync.followers[follower].broker_epoch)

        return cluster[leader].inspect(of)

    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=follower, replica_epoch=1 << 60),
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic.id, partitions=[wanted])],
    )
    with Wire(cluster[leader].port) as wire:
        assert wire.ask(request, FetchResponse, 17).responses[0].partitions[0].error_code == 0
    # The broker's own heartbeats count again.
    until(lambda: known_epoch() == now.cluster.brokers[follower].epoch, "that the follower is heard", PATIENCE_S)


def test_the_id_of_a_deleted_topic_finds_no_topic_of_the_same_name(cluster: Cluster) -> None:
    create_topic(cluster, "again")
    old = image(cluster).topics.by_name["again"].id
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET})
    admin.delete_topics(["again"])["again"].result(TIMEOUT_S)
    until(
        lambda: all(
            "again" not in cluster[one].inspect(lambda broker: broker.services.image).topics.by_name for one in cluster
        ),
        "that the topic is gone",
    )
    create_topic(cluster, "again")
    batch = PartitionProduceData(index=0, records=memoryview(plain(timestamp=now_ms())))
    produced = ProduceRequest(
        acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(topic_id=old, partition_data=[batch])]
    )
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetched = FetchRequest(
        max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[FetchTopic(topic_id=old, partitions=[wanted])]
    )
    with Wire(cluster[cluster.leader_of("again", 0)].port) as wire:
        answer = wire.ask(produced, ProduceResponse, 13)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        answer = wire.ask(fetched, FetchResponse, 13)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        now = wire.ask(fetch_request("again", 0), FetchResponse, FETCH_VERSION)
        assert now.responses[0].partitions[0].high_watermark == 0


# Nonsense.

# Requests that are carried out for any client, and those that make a new leader of the quorum, are not nonsense.
ORDERS = {
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.ELECT_LEADERS,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.ENVELOPE,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.UPDATE_FEATURES,
    ApiKey.VOTE,
}
NONSENSE = 12


def test_controllers_answer_every_well_formed_request(cluster: Cluster) -> None:
    rng = Random(20)
    words = Vocabulary({METADATA_TOPIC: image(cluster).topics.by_name["canary"].id}, ["group"], ["transaction"])
    ports = [controller_port(cluster), *(controller_port(cluster, node_id) for node_id in cluster)]
    for row in controller_rows():
        if row.key in ORDERS:
            continue
        for version in row.versions.each():
            for number in range(NONSENSE):
                if number % 3 == 2:
                    request = random_message(row.key.request, version, rng, unknown_tags=True)
                else:
                    request = hostile_message(row.key.request, version, rng, words)
                with Wire(rng.choice(ports), PATIENCE_S) as wire:
                    wire.ask(request, row.key.response, version)


def test_incomplete_frames_and_noise_at_every_listener_do_not_disturb_other_clients(cluster: Cluster) -> None:
    rng = Random(21)
    ports = [cluster[one].port for one in cluster] + [controller_port(cluster, one) for one in cluster]
    epoch = quorum_epoch(cluster)
    with ExitStack() as stack:
        for number in range(300):
            wire = stack.enter_context(Wire(ports[number % len(ports)]))
            if number % 3 == 0:
                wire.send(framed(rng.randbytes(100))[: rng.randrange(1, 104)])
            elif number % 3 == 1:
                wire.send((100 * 1024 * 1024).to_bytes(4, "big") + bytes(10_000))
        until(lambda: _is_served(cluster), "that a record can be written and read meanwhile", PATIENCE_S)
    assert quorum_epoch(cluster) <= epoch + 10


# Floods.


def test_a_flood_of_fetch_sessions_evicts_none_of_the_followers(cluster: Cluster) -> None:
    leader = cluster.leader_of("canary", 0)
    request = fetch_request("canary", 0)
    request.session_id, request.session_epoch = 0, 0
    with Wire(cluster[leader].port) as wire:
        for _ in range(DEFAULT_SLOTS + 200):
            correlation_id = wire.write(request, FETCH_VERSION)
            wire.read(FetchResponse, FETCH_VERSION, correlation_id)
    sessions = cluster[leader].inspect(lambda broker: broker.services.fetch_sessions)
    assert len(sessions) <= DEFAULT_SLOTS

    def followers() -> set[int]:
        return cluster[leader].inspect(
            lambda broker: {
                one.replica_id for one in broker.services.fetch_sessions._sessions.values() if one.is_follower
            }
        )

    until(lambda: followers() == set(cluster) - {leader}, lambda: f"sessions of both, not {followers()}", PATIENCE_S)


def test_very_many_producer_ids_are_distinct_and_leave_no_memory_in_use(cluster: Cluster) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    ids: list[int] = []
    with Wire(cluster[1].port, PATIENCE_S) as wire:

        def ask() -> bool:
            answer = wire.ask(request, InitProducerIdResponse, 4)
            # The next thousand may be on their way.
            assert answer.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            ids.extend([answer.producer_id] if answer.error_code == ErrorCode.NONE else [])
            return bool(answer.error_code == ErrorCode.NONE)

        for _ in range(2_500):
            until(ask, "a producer id", PATIENCE_S)
    assert len(set(ids)) == len(ids)
    known = cluster[1].inspect(
        lambda broker: sum(
            len(list(one.log.producers.entries()))
            for parts in broker.services.replicas.by_name.values()
            for one in parts.values()
        )
    )
    assert known < 100


def coordinator(cluster: Cluster, group: str) -> int:
    def ask() -> Any:
        with Wire(cluster[1].port, PATIENCE_S) as wire:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
            return wire.ask(request, FindCoordinatorResponse, 4).coordinators[0]

    until(lambda: ask().error_code == ErrorCode.NONE, "a coordinator", PATIENCE_S)
    return int(ask().port)


def test_members_that_never_join_and_catastrophic_regexes_do_not_delay_other_clients(cluster: Cluster) -> None:
    port = coordinator(cluster, "flood")
    knock = JoinGroupRequest(
        group_id="flood",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )

    def is_refused() -> bool:
        with Wire(port, PATIENCE_S) as wire:
            return bool(wire.ask(knock, JoinGroupResponse, 5).error_code == ErrorCode.MEMBER_ID_REQUIRED)

    until(is_refused, "that the coordinator has loaded", PATIENCE_S)
    with Wire(port, PATIENCE_S) as wire:
        members = {wire.ask(knock, JoinGroupResponse, 5).member_id for _ in range(500)}
        assert len(members) == 500
        for number, pattern in enumerate(("(a*)*b" * 2_000, "(((((.*)*)*)*)*)*c", "[a-z]{1,1000}" * 20, "(" * 10_000)):
            heartbeat = ConsumerGroupHeartbeatRequest(
                group_id=f"regex-{number}",
                member_id="",
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_regex=pattern,
                topic_partitions=[],
            )
            # There is an answer, be it an error.
            wire.ask(heartbeat, ConsumerGroupHeartbeatResponse, 1)


def test_connections_that_are_aborted_during_any_request_leave_no_state(cluster: Cluster) -> None:
    leader = cluster.leader_of("canary", 0)

    def fetches() -> list[Any]:
        return cluster[leader].inspect(lambda broker: list(broker.services.replicas.by_name["canary"][0].fetch_waiters))

    end_offset = cluster[leader].inspect(
        lambda broker: broker.services.replicas.by_name["canary"][0].log.log_end_offset
    )
    waiting = fetch_request("canary", end_offset)
    waiting.max_wait_ms, waiting.min_bytes = 600_000, 1
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(Wire(cluster[leader].port)).write(waiting, FETCH_VERSION)
        # A broker that leads no longer has no waiting fetches.
        until(
            lambda: len(fetches()) == 100 or cluster.leader_of("canary", 0) != leader,
            lambda: f"all of them wait, {len(fetches())}",
            PATIENCE_S,
        )
        for _ in range(100):
            for port in (cluster[leader].port, controller_port(cluster, leader)):
                with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as one:
                    one.sendall(framed(bytes(50))[:30])
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def strangers() -> int:
        return cluster[leader].inspect(lambda broker: sum(len(held.listener.connections) for held in broker.listeners))

    until(
        lambda: strangers() < 50,
        lambda: f"only brokers and the clients of this test are connected, {strangers()}",
        PATIENCE_S,
    )
    until(lambda: not fetches(), lambda: f"no fetch of a closed connection waits, {len(fetches())}", PATIENCE_S)
