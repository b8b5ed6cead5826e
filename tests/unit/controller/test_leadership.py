"""Change of the active controller and passing of time: waiting requests, and what the controller does by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pessoa.base.ids import Uuid
from pessoa.broker.api_table import row_of
from pessoa.controller.controller import Controller
from pessoa.controller.decision import MAX_RECORDS, NotController
from pessoa.metadata.image import MetadataImage, PartitionImage
from pessoa.metadata.supported_features import bootstrap_records
from pessoa.wire.api.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from pessoa.wire.api.create_topics import CreateTopicsResponse
from pessoa.wire.api.incremental_alter_configs import IncrementalAlterConfigsResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.support.admin_script import SET, TOPIC, alter, create, topic
from tests.unit.controller.conftest import Client, Cluster

SESSION_MS = 9_000


def make_topic(cluster: Cluster, name: str, replicas: list[int], count: int = 1, **configs: str) -> None:
    settings: dict[str, str | None] = {key.replace("_", "."): value for key, value in configs.items()}
    request = create(topic(name, -1, -1, dict.fromkeys(range(count), replicas), settings))
    assert cluster.ask(request, CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE


def partition(cluster: Cluster, name: str = "t", index: int = 0) -> PartitionImage:
    return cluster.image.topics.by_name[name].partitions[index]


def in_sync(cluster: Cluster, *isr: int) -> None:
    """Send AlterPartition of the leader of the first partition with these in-sync replicas."""
    one = partition(cluster)
    data = PartitionData(
        partition_index=0,
        leader_epoch=one.leader_epoch,
        partition_epoch=one.partition_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=member, broker_epoch=cluster.epochs[member]) for member in isr],
    )
    request = AlterPartitionRequest(
        broker_id=one.leader,
        broker_epoch=cluster.epochs[one.leader],
        topics=[TopicData(topic_id=cluster.image.topics.by_name["t"].id, partitions=[data])],
    )
    cluster.ask(request, Message)
    assert partition(cluster).isr == isr


# ---- Leading, and no longer leading ----


def test_an_active_controller_fences_a_silent_broker_by_its_clock_alone(cluster: Cluster) -> None:
    async def leading() -> None:
        cluster.controller.close()
        cluster.controller.follow_leadership(cluster.quorum.loader, bootstrap_records)
        # Nothing but the clock moves: the timer rings, and is set again.
        for _ in range(2 * SESSION_MS // 500):
            cluster.clock.advance_ms(500)
        assert cluster.image.cluster.brokers[1].fenced
        cluster.controller.close()
        before = len(cluster.quorum.batches)
        cluster.clock.advance_ms(SESSION_MS)
        assert len(cluster.quorum.batches) == before, "a standby has no timer"

    asyncio.run(leading())


def test_a_standby_controller_refuses_requests(cluster: Cluster) -> None:
    cluster.controller.deactivate()
    before = len(cluster.quorum.batches)
    with pytest.raises(NotController):
        cluster.ask(create(topic("t")), CreateTopicsResponse)
    assert cluster.tick() is None
    assert len(cluster.quorum.batches) == before
    assert cluster.controller.image is MetadataImage.EMPTY


def test_a_controller_whose_quorum_has_another_leader_refuses_requests_before_it_is_notified(cluster: Cluster) -> None:
    cluster.quorum.leader_id = 8
    assert not cluster.controller.is_active
    with pytest.raises(NotController):
        cluster.ask(create(topic("t")), CreateTopicsResponse)
    assert cluster.tick() is None


def test_requests_that_wait_for_a_commit_are_answered_when_leadership_is_lost(cluster: Cluster) -> None:
    async def losing() -> list[object]:
        slow_down(cluster)
        asked = [cluster.controller.decide(create(topic(name)), Client()) for name in ("t", "t", "u")]
        waiting = [asyncio.ensure_future(one) for one in asked]
        await asyncio.sleep(0)
        cluster.controller.deactivate()
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    assert [type(outcome) for outcome in asyncio.run(losing())] == [NotController] * 3


def test_an_append_that_fails_because_leadership_was_lost_is_answered_not_controller(cluster: Cluster) -> None:
    class NoLongerLeader(Exception):
        pass

    async def losing() -> None:
        (appended,) = slow_down(cluster, 1)
        waiting = asyncio.ensure_future(cluster.controller.decide(create(topic("t")), Client()))
        await asyncio.sleep(0)
        cluster.quorum.leader_id = 8
        appended.set_exception(NoLongerLeader())
        with pytest.raises(NotController):
            await waiting

    asyncio.run(losing())


def test_an_append_that_fails_raises_the_error_of_the_log(cluster: Cluster) -> None:
    async def failing() -> None:
        (appended,) = slow_down(cluster, 1)
        waiting = asyncio.ensure_future(cluster.controller.decide(create(topic("t")), Client()))
        await asyncio.sleep(0)
        appended.set_exception(OSError("the disk is gone"))
        with pytest.raises(OSError, match="the disk is gone"):
            await waiting

    asyncio.run(failing())


def slow_down(cluster: Cluster, count: int = 9) -> list[asyncio.Future[int]]:
    """Make the test decide from now on when appends are committed; return their futures."""
    futures: list[asyncio.Future[int]] = [asyncio.get_running_loop().create_future() for _ in range(count)]
    coming = iter(futures)

    def append(records: Sequence[tuple[Message, int]]) -> asyncio.Future[int]:
        assert records
        return next(coming)

    cluster.quorum.append = append  # type: ignore[method-assign]
    return futures


def test_uncommitted_records_are_dropped_when_leadership_is_lost(cluster: Cluster) -> None:
    async def losing_and_leading_again() -> None:
        append = cluster.quorum.append
        slow_down(cluster)
        lost = asyncio.ensure_future(cluster.controller.decide(create(topic("t")), Client()))
        await asyncio.sleep(0)
        assert "t" in cluster.controller.image.topics.by_name
        cluster.controller.deactivate()
        cluster.quorum.append = append  # type: ignore[method-assign]
        cluster.quorum.epoch += 1
        await cluster.controller.activate(cluster.quorum.loader, [])
        with pytest.raises(NotController):
            await lost

    asyncio.run(losing_and_leading_again())
    assert "t" not in cluster.image.topics.by_name
    assert cluster.ask(create(topic("t")), CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE


def test_a_new_controller_gives_every_broker_a_full_session_timeout(trio: Cluster) -> None:
    trio.clock.advance_ms(SESSION_MS - 1)
    fail_over(trio)
    trio.clock.advance_ms(SESSION_MS)
    trio.tick()
    assert not any(broker.fenced for broker in trio.image.cluster.brokers.values())
    trio.clock.advance_ms(1)
    trio.tick()
    assert all(broker.fenced for broker in trio.image.cluster.brokers.values())


def fail_over(cluster: Cluster, incarnation_id: Uuid | None = None) -> None:
    """Make another controller, on the node of broker 1, active with the committed records."""
    old = cluster.controller
    old.deactivate()
    cluster.quorum.epoch += 1
    cluster.quorum.leader_id = 1
    cluster.controller = Controller(
        1,
        "the-cluster",
        cluster.quorum,
        cluster.config,
        cluster.clock,
        lambda: Uuid.of(1 << 90),
        lambda _: 0,
        row_of,
        incarnation_id=incarnation_id or cluster.image_of_log.cluster.brokers[1].incarnation_id,
    )

    async def leading() -> None:
        await cluster.controller.activate(cluster.quorum.loader, [])

    asyncio.run(leading())


def test_the_broker_on_the_node_of_a_new_controller_keeps_its_session(trio: Cluster) -> None:
    fail_over(trio)
    trio.tick()
    assert not trio.image.cluster.brokers[1].fenced


def test_a_restarted_active_controller_does_not_wait_for_the_session_of_its_own_broker(trio: Cluster) -> None:
    fail_over(trio, incarnation_id=trio.registration(1, incarnation=2).incarnation_id)
    assert trio.register(2, incarnation=2).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert trio.register(1, incarnation=3).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert trio.register(1, incarnation=2).error_code == ErrorCode.NONE


# ---- What is due by time ----


def test_the_next_deadline_is_the_end_of_the_first_broker_session(trio: Cluster) -> None:
    start = trio.clock.monotonic_ms()
    assert trio.tick() == start + SESSION_MS + 1
    trio.clock.advance_ms(500)
    for broker_id in (1, 2, 3):
        trio.heartbeat(broker_id)
    assert trio.tick() == start + 500 + SESSION_MS + 1
    for broker_id in (1, 2, 3):
        trio.heartbeat(broker_id, want_fence=True)
    assert trio.tick() == start + 300_000, "no broker is unfenced, so no session can end before the next elections"


def test_several_silent_brokers_are_fenced_together_without_electing_one_of_them(trio: Cluster) -> None:
    make_topic(trio, "t", [1, 2, 3])
    trio.clock.advance_ms(SESSION_MS + 1)
    trio.heartbeat(3)
    trio.tick()
    one = partition(trio)
    assert (one.leader, one.leader_epoch, one.isr) == (3, 1, (3,)), "1 does not hand over to 2"
    assert sum(broker.fenced for broker in trio.image.cluster.brokers.values()) == 2


def test_a_replica_that_is_fenced_with_the_last_in_sync_replica_is_not_elected_uncleanly(trio: Cluster) -> None:
    make_topic(trio, "t", [1, 2], unclean_leader_election_enable="true")
    in_sync(trio, 1)
    trio.clock.advance_ms(SESSION_MS + 1)
    trio.heartbeat(3)
    trio.tick()
    one = partition(trio)
    assert (one.leader, one.elr, one.leader_recovery_state) == (-1, (1,), 0)


def test_a_broker_whose_connection_broke_is_fenced_unless_it_sends_a_heartbeat_within_half_a_second(
    trio: Cluster,
) -> None:
    make_topic(trio, "t", [1, 2])
    for broker_id in (1, 2):
        trio.controller.suspect(broker_id)
    trio.clock.advance_ms(400)
    trio.heartbeat(2)
    assert trio.tick() == trio.clock.monotonic_ms() + 101
    trio.clock.advance_ms(101)
    trio.tick()
    assert [broker.id for broker in trio.image.cluster.brokers.values() if broker.fenced] == [1]
    assert partition(trio).leader == 2


def test_a_suspicion_never_prolongs_a_session_and_ignores_unknown_brokers(trio: Cluster) -> None:
    trio.clock.advance_ms(SESSION_MS)
    trio.controller.suspect(1)
    trio.controller.suspect(77)
    trio.clock.advance_ms(1)
    trio.tick()
    assert trio.image.cluster.brokers[1].fenced


def test_preferred_leaders_are_elected_again_at_the_imbalance_check_interval(trio: Cluster) -> None:
    make_topic(trio, "t", [1, 2])
    trio.heartbeat(1, want_fence=True)
    trio.heartbeat(1)
    in_sync(trio, 2, 1)
    pass_time(trio, 299_000)
    assert partition(trio).leader == 2
    pass_time(trio, 2_000)
    one = partition(trio)
    assert (one.leader, one.isr) == (1, (2, 1))


def pass_time(cluster: Cluster, total_ms: int) -> None:
    """Advance the clock by seconds; every unfenced broker sends its heartbeats."""
    for _ in range(total_ms // 1_000):
        cluster.clock.advance_ms(1_000)
        for broker in cluster.image.cluster.brokers.values():
            if not broker.fenced:
                cluster.heartbeat(broker.id)
        cluster.tick()


def test_leaders_are_not_rebalanced_if_auto_leader_rebalance_is_off(trio: Cluster) -> None:
    trio.config.values["auto.leader.rebalance.enable"] = "false"
    fail_over(trio)
    make_topic(trio, "t", [1, 2])
    trio.heartbeat(1, want_fence=True)
    trio.heartbeat(1)
    in_sync(trio, 2, 1)
    pass_time(trio, 302_000)
    assert partition(trio).leader == 2


def test_at_most_a_thousand_preferred_leaders_are_elected_at_a_time(trio: Cluster) -> None:
    make_topic(trio, "t", [1, 2], count=1_005)
    trio.config.values["leader.imbalance.check.interval.seconds"] = "1"
    trio.heartbeat(1, want_shut_down=True)
    for broker_id in (2, 3):
        trio.heartbeat(broker_id)
    while not trio.heartbeat(1, want_shut_down=True).should_shut_down:
        pass
    trio.start_broker(1, incarnation=2, previous_broker_epoch=trio.epochs[1])
    all_in_sync(trio, 2, [2, 1])
    fail_over(trio)
    trio.clock.advance_ms(1_000)
    assert trio.tick() == trio.clock.monotonic_ms() + 10, "there are more"
    assert len(trio.last_batch) == 1_000
    trio.clock.advance_ms(10)
    trio.tick()
    assert len(trio.last_batch) == 5
    assert {one.leader for one in trio.image.topics.by_name["t"].partitions.values()} == {1}


def all_in_sync(cluster: Cluster, leader: int, isr: list[int]) -> None:
    made = cluster.image.topics.by_name["t"]
    partitions = [
        PartitionData(
            partition_index=index,
            leader_epoch=one.leader_epoch,
            partition_epoch=one.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=cluster.epochs[each]) for each in isr],
        )
        for index, one in made.partitions.items()
    ]
    topics = [TopicData(topic_id=made.id, partitions=partitions)]
    cluster.ask(AlterPartitionRequest(broker_id=leader, broker_epoch=cluster.epochs[leader], topics=topics), Message)


def test_an_unclean_leader_is_elected_periodically_where_it_is_allowed(trio: Cluster) -> None:
    make_topic(trio, "t", [1, 2])
    in_sync(trio, 1)
    trio.heartbeat(1, want_fence=True)
    trio.tick()
    assert partition(trio).leader == -1
    request = alter(TOPIC, "t", ("unclean.leader.election.enable", SET, "true"))
    trio.ask(request, IncrementalAlterConfigsResponse)
    pass_time(trio, 301_000)
    one = partition(trio)
    assert (one.leader, one.isr, one.leader_recovery_state) == (2, (2,), 1)


def test_more_partition_changes_than_one_batch_holds_are_written_in_several(trio: Cluster) -> None:
    for name in ("t", "u"):
        make_topic(trio, name, [1, 2], count=6_000)
    before = len(trio.quorum.batches)
    trio.heartbeat(1, want_fence=True)
    sizes = [len(batch) for batch in trio.quorum.batches[before:]]
    assert sizes == [MAX_RECORDS, 2_001]
    assert trio.image.cluster.brokers[1].fenced
