"""Three brokers in one process, and clients that continue through failures of brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from pessoa.testing import Cluster
from tests.cluster.conftest import QUIET, TIMEOUT_S, check_nothing_lost, create_topic, producing, read_all, until


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as running:
        yield running


def test_every_broker_lists_all_brokers_and_leaders_are_spread() -> None:
    # No broker is fenced, and no replica leaves the ISR, because the machine is busy.
    with Cluster(3, {"broker.session.timeout.ms": "120000", "replica.lag.time.max.ms": "120000"}) as cluster:
        create_topic(cluster, "t", partitions=3)
        for broker_id in cluster:
            admin = AdminClient({"bootstrap.servers": cluster[broker_id].bootstrap_servers, **QUIET})
            metadata = admin.list_topics("t", timeout=TIMEOUT_S)
            assert sorted(metadata.brokers) == [1, 2, 3]
            partitions = metadata.topics["t"].partitions
            assert sorted(one.leader for one in partitions.values()) == [1, 2, 3]
            assert all(sorted(one.isrs) == [1, 2, 3] for one in partitions.values())


def test_acknowledged_records_survive_the_death_of_the_leader(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    with producing(cluster, "t") as producer:
        producer.wait_for(50)
        leader = cluster.leader_of("t", 0)
        cluster.kill(leader)
        producer.wait_for(50)
        assert cluster.leader_of("t", 0) != leader
        cluster.start(leader)
        cluster.wait_until_in_sync()
        producer.wait_for(50)
    check_nothing_lost(producer, read_all(cluster, "t", 1))


def test_the_partitions_of_a_dead_broker_are_led_by_others_while_metadata_still_lists_it() -> None:
    """librdkafka drops what it was about to ask again if the broker that it had asked is named no more."""
    with Cluster(3, {"broker.session.timeout.ms": "120000"}) as cluster:
        create_topic(cluster, "t")
        dead = cluster.leader_of("t", 0)
        cluster.kill(dead)
        until(lambda: cluster.leader_of("t", 0) != dead, "another leader")
        for broker_id in cluster.running:
            servers = {"bootstrap.servers": cluster[broker_id].bootstrap_servers}
            metadata = AdminClient({**servers, **QUIET}).list_topics("t", timeout=TIMEOUT_S)
            assert sorted(metadata.brokers) == [1, 2, 3]
            assert metadata.topics["t"].partitions[0].leader in cluster.running


def test_acknowledged_records_survive_the_death_of_the_controller(cluster: Cluster) -> None:
    create_topic(cluster, "t", partitions=3)
    with producing(cluster, "t") as producer:
        producer.wait_for(50)
        controller = cluster.controller()
        cluster.kill(controller)
        producer.wait_for(50)
        assert cluster.controller() != controller
        create_topic(cluster, "made-meanwhile")
        cluster.start(controller)
        cluster.wait_until_in_sync()
        producer.wait_for(50)
    check_nothing_lost(producer, read_all(cluster, "t", 3))


def test_a_rolling_restart_loses_nothing_and_moves_leaders_before_each_stop(cluster: Cluster) -> None:
    create_topic(cluster, "t", partitions=3)
    with producing(cluster, "t") as producer:
        for broker_id in cluster:
            producer.wait_for(30)
            cluster.restart(broker_id)
            cluster.wait_until_in_sync()
        producer.wait_for(30)
    check_nothing_lost(producer, read_all(cluster, "t", 3))


def test_a_leader_that_was_paused_is_replaced(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    with producing(cluster, "t") as producer:
        producer.wait_for(50)
        leader = cluster.leader_of("t", 0)
        cluster.pause(leader)
        until(lambda: cluster.leader_of("t", 0) != leader, "another leader")
        producer.wait_for(50)
        cluster.resume(leader)
        cluster.wait_until_in_sync()
        producer.wait_for(50)
    check_nothing_lost(producer, read_all(cluster, "t", 1))


def test_an_isolated_leader_acknowledges_no_record_that_the_others_lack(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    with producing(cluster, "t") as producer:
        producer.wait_for(50)
        leader = cluster.leader_of("t", 0)
        cluster.isolate(leader)
        others = [broker for broker in cluster if broker != leader]
        until(lambda: cluster.leader_of("t", 0) in others, "another leader")
        cluster.heal()
        cluster.wait_until_in_sync()
        producer.wait_for(50)
    check_nothing_lost(producer, read_all(cluster, "t", 1))


def test_all_brokers_may_die_at_once_and_restart_with_every_acknowledged_record(cluster: Cluster) -> None:
    create_topic(cluster, "t", partitions=3)
    with producing(cluster, "t") as producer:
        producer.wait_for(100)
        for broker_id in cluster:
            cluster.kill(broker_id)
        cluster.start()
        cluster.wait_until_in_sync()
        producer.wait_for(50)
    check_nothing_lost(producer, read_all(cluster, "t", 3))


def test_acknowledged_records_survive_a_power_loss_of_one_broker(cluster: Cluster) -> None:
    create_topic(cluster, "t")
    with producing(cluster, "t") as producer:
        producer.wait_for(50)
        leader = cluster.leader_of("t", 0)
        cluster.kill(leader, power_loss=True)
        producer.wait_for(50)
        cluster.start(leader)
        cluster.wait_until_in_sync()
        producer.wait_for(20)
    check_nothing_lost(producer, read_all(cluster, "t", 1))
