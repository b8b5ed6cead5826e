"""Produce and Fetch at a broker that does not lead the partition: the response names the leader (KIP-951).

Three brokers; the replicas of the topic are on brokers 1 and 2, and broker 1 leads it. So broker 2 is a follower, and
broker 3 has the partition only in its metadata.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from pessoa.testing import Cluster
from pessoa.wire.errors import ErrorCode
from tests.differential.session_data import fetch, produce, produce_by_id
from tests.differential.session_stage import Player
from tests.support.admin_script import create, elect, reassign, topic
from tests.support.batches import plain
from tests.support.clients import unique

LEADER, FOLLOWER, STRANGER = 1, 2, 3
PREFERRED = 0
TIMEOUT_S = 60.0
OTHERS = pytest.mark.parametrize("asked", [FOLLOWER, STRANGER], ids=["follower", "without a replica"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def player(cluster: Cluster) -> Iterator[Player]:
    with closing(Player({one: cluster[one].port for one in cluster})) as player:
        player.open()
        yield player


@pytest.fixture(scope="module")
def name(player: Player) -> str:
    name = unique("t")
    player.look(create(topic(name, -1, -1, assignments={0: [LEADER, FOLLOWER]})))
    player.wait_until_applied()
    return name


@OTHERS
@pytest.mark.parametrize("version", [9, 10, 12, 13])
def test_a_not_leader_error_of_produce_at_another_broker_names_the_leader(
    player: Player, name: str, asked: int, version: int
) -> None:
    request = produce_by_id(player.topic_id(name), plain(1)) if version >= 13 else produce(name, plain(1))
    answer = player.look(request, version, to=asked)
    [partition] = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version < 10:
        return
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (LEADER, 0)
    assert [node.node_id for node in answer.node_endpoints] == [LEADER]


@OTHERS
def test_a_not_leader_error_of_fetch_at_another_broker_names_the_leader(player: Player, name: str, asked: int) -> None:
    request = fetch(player.topic_id(name), 0, epoch=0)
    answer = player.look(request, 17, to=asked)
    [partition] = answer.responses[0].partitions
    if asked == FOLLOWER:
        # A follower serves consumers (KIP-392).
        assert partition.error_code == ErrorCode.NONE
        return
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (LEADER, 0)
    assert [node.node_id for node in answer.node_endpoints] == [LEADER]


def test_a_produce_that_waits_for_replicas_during_a_leader_change_gets_the_new_leader(
    cluster: Cluster, player: Player
) -> None:
    name = unique("t")
    player.look(create(topic(name, -1, -1, assignments={0: [LEADER, FOLLOWER, STRANGER]})))
    player.wait_until_applied()
    cluster[FOLLOWER].pause()
    with closing(Player({LEADER: cluster[LEADER].port})) as producer, ThreadPoolExecutor(1) as thread:
        producer.open()
        waiting = thread.submit(producer.look, produce(name, plain(1)), 12, to=LEADER)
        cluster.wait_for(lambda: _end_offset(cluster, name) == 1 or None, "the record is appended", TIMEOUT_S)
        player.look(reassign(name, 0, [STRANGER, LEADER, FOLLOWER]), to=LEADER)
        player.look(elect(PREFERRED, (name, 0)), to=LEADER)
        answer = waiting.result(TIMEOUT_S)
    cluster[FOLLOWER].resume()
    [partition] = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.current_leader.leader_id == STRANGER
    assert partition.current_leader.leader_epoch > 0
    assert [node.node_id for node in answer.node_endpoints] == [STRANGER]


def _end_offset(cluster: Cluster, name: str) -> int:
    return cluster[LEADER].inspect(lambda broker: broker.services.replicas.by_name[name][0].log.log_end_offset)


@OTHERS
def test_a_partition_that_does_not_exist_has_no_leader(player: Player, name: str, asked: int) -> None:
    answer = player.look(produce(name, plain(1), partition=7), 12, to=asked)
    [partition] = answer.responses[0].partition_responses
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not answer.node_endpoints
