"""Fetch of followers and consumers: which records each may read, and what the leader learns from a fetch."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from pessoa.base.ids import Uuid
from pessoa.broker.apis import fetch
from pessoa.metadata.table_images import Acl
from pessoa.security import acl
from pessoa.security.authorizer import Authorizer
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from tests.support.batches import plain
from tests.support.replication_stage import LISTENER, TOPIC, TOPIC_ID, Node, Stage

if TYPE_CHECKING:
    from pessoa.replication.partition import Partition

VERSION = 18


def request(
    *,
    replica: int = -1,
    epoch: int = -1,
    offset: int = 0,
    wait_ms: int = 0,
    last_epoch: int = -1,
    leader_epoch: int = -1,
) -> FetchRequest:
    state = ReplicaState(replica_id=replica, replica_epoch=epoch) if replica >= 0 else None
    partition = FetchPartition(
        partition=0,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=0 if replica >= 0 else -1,
        partition_max_bytes=1 << 20,
    )
    return FetchRequest(
        replica_state=state,
        max_wait_ms=wait_ms,
        min_bytes=1,
        topics=[FetchTopic(topic_id=TOPIC_ID, topic=TOPIC, partitions=[partition])],
    )


def context(version: int = VERSION, listener: str = LISTENER) -> RequestContext:
    return RequestContext(1, version, 1, "test", "test", 1, listener)


def answer(response: Any) -> PartitionData:
    assert isinstance(response, FetchResponse)
    assert response.error_code == ErrorCode.NONE
    return response.responses[0].partitions[0]


def ask(node: Node, wanted: FetchRequest, version: int = VERSION) -> PartitionData:
    return answer(fetch.handle(node.services, context(version), wanted))


def append_one(stage: Stage, partition: Partition) -> None:
    partition.append(plain(), stage.clock.now_ms(), 12)


async def alone(stage: Stage) -> Node:
    """Return the leader, whose followers are unreachable and out of sync."""
    await stage.start()
    stage.isolate(2)
    stage.isolate(3)
    await stage.until(lambda: stage.controller.partition.leader == 1)
    leader = stage.nodes[1]
    assert leader.partition is not None
    return leader


def test_a_fetch_that_begins_to_wait_sees_what_was_appended_since_its_read() -> None:
    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        partition = leader.partition
        assert partition is not None
        waiting: Any = fetch.handle(
            leader.services, context(), request(replica=2, epoch=stage.nodes[2].epoch, wait_ms=500, leader_epoch=1)
        )
        partition.append(plain(), stage.clock.now_ms(), 12)
        before = stage.loop.now_s
        data = answer(await waiting)
        assert data.records
        assert stage.loop.now_s == before

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def test_an_append_wakes_a_waiting_follower_and_the_high_watermark_a_waiting_consumer() -> None:
    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        partition = leader.partition
        assert partition is not None

        async def serve(wanted: FetchRequest) -> tuple[PartitionData, float]:
            reply: Any = fetch.handle(leader.services, context(), wanted)
            data = answer(await reply)
            return data, stage.loop.now_s

        loop = stage.loop
        follower = loop.create_task(
            serve(request(replica=2, epoch=stage.nodes[2].epoch, wait_ms=900, leader_epoch=partition.leader_epoch))
        )
        consumer = loop.create_task(serve(request(wait_ms=900)))
        begun = loop.now_s
        stage.later(0.1, partial(append_one, stage, partition))
        data, at_s = await follower
        assert data.records
        assert at_s == pytest.approx(begun + 0.1)
        # The consumer hears nothing until both followers have it.
        for replica in (2, 3):
            assert not consumer.done()
            ask(leader, request(replica=replica, epoch=stage.nodes[replica].epoch, offset=1, leader_epoch=1))
        data, at_s = await consumer
        assert data.records
        assert at_s == pytest.approx(begun + 0.1)

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def test_a_consumer_never_reads_above_the_high_watermark() -> None:
    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        partition = leader.partition
        assert partition is not None
        partition.append(plain(3), stage.clock.now_ms(), 12)
        assert not ask(leader, request()).records
        assert ask(leader, request(replica=2, epoch=stage.nodes[2].epoch, leader_epoch=1)).records

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def test_a_fetch_as_replica_is_refused_on_a_listener_of_clients() -> None:
    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        response = fetch.handle(leader.services, context(listener="EXTERNAL"), request(replica=2, epoch=1))
        assert isinstance(response, FetchResponse)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def test_a_client_without_the_cluster_action_right_gets_no_follower_fetch_session() -> None:
    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        authorizer = Authorizer()
        authorizer.load({})
        leader.services.authorizer, sessions = authorizer, leader.services.fetch_sessions
        before = len(sessions)
        wanted = request(replica=7, epoch=1)
        wanted.session_epoch = 0
        response: Any = fetch.handle(leader.services, context(), wanted)
        assert answer(response).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert (response.session_id, len(sessions)) == (0, before)

        right = Acl(acl.CLUSTER, acl.CLUSTER_NAME, acl.LITERAL, context().principal, "*", acl.CLUSTER_ACTION, acl.ALLOW)
        authorizer.load({Uuid(bytes(16)): right})
        allowed: Any = fetch.handle(leader.services, context(), wanted)
        assert (allowed.session_id > 0, len(sessions)) == (True, before + 1)

        # The right is gone again: the follower is to begin anew, and then hears for each partition what it lacks.
        authorizer.load({})
        wanted.session_id, wanted.session_epoch = allowed.session_id, 1
        later: Any = fetch.handle(leader.services, context(), wanted)
        assert later.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def test_a_fetch_by_a_non_replica_or_with_a_stale_broker_epoch_does_not_move_the_high_watermark() -> None:
    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        partition = leader.partition
        assert partition is not None
        assert partition.in_sync is not None
        stranger = ask(leader, request(replica=9, epoch=1, leader_epoch=1))
        assert stranger.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        now = stage.nodes[2].epoch
        assert ask(leader, request(replica=2, epoch=now, leader_epoch=1)).error_code == ErrorCode.NONE
        earlier = ask(leader, request(replica=2, epoch=now - 1, offset=0, leader_epoch=1))
        assert earlier.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert partition.in_sync.followers[2].broker_epoch == now

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def test_a_fetch_with_an_older_or_newer_leader_epoch_is_refused() -> None:
    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        assert ask(leader, request(leader_epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert ask(leader, request(leader_epoch=2)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def test_a_fetch_of_a_diverging_log_is_answered_with_the_diverging_epoch() -> None:
    async def scene(stage: Stage) -> None:
        leader = await alone(stage)
        partition = leader.partition
        assert partition is not None
        partition.append(plain(3), stage.clock.now_ms(), 12)
        epoch = stage.nodes[2].epoch
        data = ask(leader, request(replica=2, epoch=epoch, offset=7, last_epoch=1, leader_epoch=1))
        assert data.diverging_epoch is not None
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (1, 3)
        assert partition.in_sync is not None
        # A fetch from another history says nothing about how far the follower is in ours.
        assert partition.in_sync.followers[2].log_end_offset < 7

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def test_consumers_read_from_a_follower_up_to_the_high_watermark_that_it_knows() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        assert (await stage.produce(stage.nodes[1], 3))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        assert ask(stage.nodes[2], request()).records
        assert ask(stage.nodes[2], request(), version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert ask(stage.nodes[2], request(offset=4)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    with Stage(Random(1)) as stage:
        stage.run(scene(stage))
