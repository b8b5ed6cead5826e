"""ShareFetch and ShareAcknowledge at a broker that does not lead the partition: the response names the leader.

Three brokers; the replicas of every topic are on brokers 1 and 2, and broker 1 leads it at first. So broker 2 is a
follower, and broker 3 has the partition only in its metadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from pessoa.base.ids import Uuid
from pessoa.broker.share.state_persister import StatePersister
from pessoa.coordinator.share.share_state import ShareKey
from pessoa.coordinator.share.state_messages import WRITE
from pessoa.testing import Cluster
from pessoa.wire.api import read_share_group_state as read_state
from pessoa.wire.errors import ErrorCode
from tests.cluster.test_share_partitions import LONG_MS, SETTINGS, acquired
from tests.differential.session_data import produce
from tests.differential.session_stage import Player
from tests.differential.share_script import ACCEPT, GROUP_CONFIG, acknowledge, fetch, heartbeat
from tests.support.admin_script import SET, alter, create, elect, reassign, topic
from tests.support.batches import plain
from tests.support.clients import unique, until

LEADER, FOLLOWER, STRANGER = 1, 2, 3
PREFERRED = 0
SHARE_KEY = 2
RECORDS = 10
NOT_CHANGED = (14, 15, 16)


class Told(NamedTuple):
    """The result of a response for its only partition, and the broker endpoints that it names."""

    code: ErrorCode
    leader_id: int
    leader_epoch: int
    endpoints: list[tuple[int, str, int]]


def told(response: Any) -> Told:
    assert response.error_code == ErrorCode.NONE, response
    [partition] = [one for each in response.responses for one in each.partitions]
    return Told(
        ErrorCode.of(partition.error_code),
        partition.current_leader.leader_id,
        partition.current_leader.leader_epoch,
        [(node.node_id, node.host, node.port) for node in response.node_endpoints],
    )


class Shared:
    """A topic with ten records and a share group with a member that has its partition."""

    def __init__(self, cluster: Cluster, player: Player, records: int = RECORDS) -> None:
        self.cluster, self.player = cluster, player
        self.name, self.topic, self.member = unique("g"), unique("t"), unique("m")
        player.look(create(topic(self.topic, -1, -1, assignments={0: [LEADER, FOLLOWER]})))
        player.look(alter(GROUP_CONFIG, self.name, ("share.auto.offset.reset", SET, "earliest")))
        player.wait_until_applied()
        if records:
            player.look(produce(self.topic, plain(records)), 12, to=LEADER)
        self.id: Uuid = player.topic_id(self.topic)
        self._join()

    def _join(self) -> None:
        epoch = 0

        def beat() -> bool:
            nonlocal epoch
            request = heartbeat(self.name, self.member, epoch, self.topic)
            answer = self.player.look(request, to=self.player.coordinator(self.name))
            if answer.error_code in NOT_CHANGED:
                return False
            assert answer.error_code == ErrorCode.NONE, answer
            epoch = answer.member_epoch
            return answer.assignment is not None and bool(answer.assignment.topic_partitions)

        self.player.wait_for("the partition of the group's member", beat)

    @property
    def leader_epoch(self) -> int:
        leader = self.cluster.leader_of(self.topic, 0)

        def look(broker: Any) -> int:
            epoch: int = broker.services.image.topics.by_name[self.topic].partitions[0].leader_epoch
            return epoch

        return self.cluster[leader].inspect(look)

    def not_leader(self, leader: int) -> Told:
        """Return the expected response of a broker that does not lead the partition."""
        endpoint = (leader, "127.0.0.1", self.cluster[leader].port)
        return Told(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader, self.leader_epoch, [endpoint])

    def fetch(self, to: int, epoch: int = 0, **settings: Any) -> Any:
        request = fetch(self.name, self.member, epoch, [(self.id, 0)], **{"max_wait_ms": LONG_MS, **settings})
        return self.player.look(request, to=to, actor=self.member)

    def acknowledge(self, to: int, epoch: int, first: int = 0, last: int = RECORDS - 1) -> Any:
        return self.player.look(self.accepting(epoch, first, last), to=to, actor=self.member)

    def accepting(self, epoch: int, first: int = 0, last: int = RECORDS - 1) -> Any:
        return acknowledge(self.name, self.member, epoch, {(self.id, 0): [(first, last, [ACCEPT])]})

    def move_leader(self) -> None:
        """Make broker 2 the leader, and wait until every broker's image has that."""
        player = self.player
        player.look(reassign(self.topic, 0, [FOLLOWER, LEADER]))

        def elects() -> bool:
            player.look(elect(PREFERRED, (self.topic, 0)))
            return player.leader(self.topic) == FOLLOWER

        player.wait_for(f"broker {FOLLOWER} leads {self.topic}", elects)
        player.wait_until_applied()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def player(cluster: Cluster) -> Iterator[Player]:
    with closing(Player({one: cluster[one].port for one in cluster})) as player:
        player.open()
        yield player


@pytest.fixture
def shared(cluster: Cluster, player: Player) -> Shared:
    return Shared(cluster, player)


@pytest.mark.parametrize("asked", [FOLLOWER, STRANGER], ids=["follower", "without a replica"])
def test_a_share_fetch_at_another_broker_gets_the_leader_and_its_address(shared: Shared, asked: int) -> None:
    assert told(shared.fetch(asked)) == shared.not_leader(LEADER)
    # Nothing was acquired there.
    assert acquired(shared.fetch(LEADER)) == [(0, RECORDS - 1, 1)]


@pytest.mark.parametrize("asked", [FOLLOWER, STRANGER], ids=["follower", "without a replica"])
def test_a_share_acknowledgement_at_another_broker_is_refused_and_the_records_stay_acquired(
    shared: Shared, asked: int
) -> None:
    assert acquired(shared.fetch(LEADER)) == [(0, RECORDS - 1, 1)]
    assert told(shared.fetch(asked)) == shared.not_leader(LEADER)
    # As Apache Kafka: a broker that has nothing of the share partition does not look who leads.
    assert told(shared.acknowledge(asked, 1)) == Told(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0, [])
    assert told(shared.acknowledge(LEADER, 1)).code is ErrorCode.NONE


@pytest.mark.parametrize("asked", [FOLLOWER, STRANGER], ids=["follower", "without a replica"])
def test_a_share_fetch_with_acknowledgements_at_another_broker_gets_an_error_for_both(
    shared: Shared, asked: int
) -> None:
    assert told(shared.fetch(asked)) == shared.not_leader(LEADER)
    request = fetch(shared.name, shared.member, 1, [], {(shared.id, 0): [(0, 9, [ACCEPT])]}, max_wait_ms=LONG_MS)
    response = shared.player.look(request, to=asked, actor=shared.member)
    assert told(response) == shared.not_leader(LEADER)
    assert response.responses[0].partitions[0].acknowledge_error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_after_a_leader_change_the_old_share_leader_refuses_and_the_new_one_redelivers(shared: Shared) -> None:
    assert acquired(shared.fetch(LEADER)) == [(0, RECORDS - 1, 1)]
    assert told(shared.acknowledge(LEADER, 1, 0, 3)).code is ErrorCode.NONE
    shared.move_leader()
    assert told(shared.acknowledge(LEADER, 2, 4)) == Told(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0, [])
    assert told(shared.fetch(LEADER, 3)) == shared.not_leader(FOLLOWER)
    # What was accepted before is done with; a delivery that was not acknowledged is not stored.
    assert acquired(shared.fetch(FOLLOWER)) == [(4, RECORDS - 1, 1)]
    assert told(shared.acknowledge(FOLLOWER, 1, 4)).code is ErrorCode.NONE


def test_a_waiting_share_fetch_gets_the_new_leader_at_once(cluster: Cluster, player: Player) -> None:
    shared = Shared(cluster, player, records=0)
    request = fetch(shared.name, shared.member, 0, [(shared.id, 0)], max_wait_ms=LONG_MS)
    waiting = player.begin("waits", request, to=LEADER, actor=shared.member)
    key = ShareKey(shared.name, shared.id, 0)
    until(
        lambda: cluster[LEADER].inspect(lambda node: node.services.coordinators.share_partitions.get(key) is not None),
        bool,
        "the share partition of the fetch that waits",
    )
    shared.move_leader()
    assert told(player.finish(waiting)) == shared.not_leader(FOLLOWER)


def test_an_acknowledgement_in_progress_during_a_leader_change_gets_the_new_leader(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = StatePersister.ask
    held: list[asyncio.Future[None]] = []

    async def ask_later(persister: StatePersister, api: Any, request: Any) -> Any:
        if api is WRITE and request.group_id == shared.name:
            held.append(asyncio.get_running_loop().create_future())
            await held[-1]
        return await ask(persister, api, request)

    assert acquired(shared.fetch(LEADER)) == [(0, RECORDS - 1, 1)]
    with monkeypatch.context() as patch:
        patch.setattr(StatePersister, "ask", ask_later)
        waiting = shared.player.begin("is stored", shared.accepting(1), to=LEADER, actor=shared.member)
        until(lambda: bool(held), bool, "the write of the acknowledgement")
        shared.move_leader()
        assert told(shared.player.finish(waiting)) == shared.not_leader(FOLLOWER)
    # The new leader delivers the records again, and the old leader's write, which comes too late, takes none of them.
    assert acquired(shared.fetch(FOLLOWER)) == [(0, RECORDS - 1, 1)]
    shared.cluster[LEADER].inspect(lambda _: held[0].set_result(None))
    assert told(shared.acknowledge(FOLLOWER, 1)).code is ErrorCode.NONE


def test_a_leader_that_the_share_coordinator_has_fenced_answers_not_leader(shared: Shared) -> None:
    assert acquired(shared.fetch(LEADER)) == [(0, RECORDS - 1, 1)]
    # As a leader of a later epoch would, which this one has not heard of.
    later = read_state.PartitionData(partition=0, leader_epoch=shared.leader_epoch + 1)
    read = read_state.ReadStateData(topic_id=shared.id, partitions=[later])
    coordinator = shared.player.coordinator(str(ShareKey(shared.name, shared.id, 0)), SHARE_KEY)
    answer = shared.player.look(
        read_state.ReadShareGroupStateRequest(group_id=shared.name, topics=[read]), to=coordinator
    )
    assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
    assert told(shared.acknowledge(LEADER, 1)) == shared.not_leader(LEADER)
    assert told(shared.fetch(LEADER, 2)) == shared.not_leader(LEADER)
