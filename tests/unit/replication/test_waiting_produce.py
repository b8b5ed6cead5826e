"""A produce with acks=all that waits for the in-sync replicas: its cost, and how it ends."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any

from pessoa.broker.apis import produce
from pessoa.broker.apis.produce import WaitingProduce
from pessoa.log.flusher import Flusher
from pessoa.log.log_config import LogConfig
from pessoa.net.pending import PendingTask
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from tests.support.batches import plain
from tests.support.replication_stage import LISTENER, SETTINGS, TOPIC, Node, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pessoa.log.partition_log import PartitionLog
    from pessoa.replication.partition import Partition
    from pessoa.replication.replication_settings import ReplicationSettings


# Isolated followers stay in sync for longer than any scene takes.
PATIENT = SETTINGS._replace(replica_lag_time_max_ms=600_000)


def play(
    scene: Callable[[Stage], Coroutine[Any, Any, None]],
    settings: ReplicationSettings = SETTINGS,
    config: LogConfig | None = None,
) -> None:
    with Stage(Random(1), settings=settings, config=config) as stage:
        stage.run(scene(stage))


async def waiting_produce(stage: Stage, timeout_ms: int = 30_000) -> tuple[Node, Partition, WaitingProduce]:
    """Return a produce that the leader, node 1, has appended, and that no follower has fetched yet."""
    await stage.start()
    leader = stage.nodes[1]
    partition = leader.partition
    assert partition is not None
    data = PartitionProduceData(index=0, records=plain(3))
    request = ProduceRequest(
        acks=-1, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
    )
    pending = produce.handle(leader.services, RequestContext(0, 9, 1, "test", "test", 1, LISTENER), request)
    assert isinstance(pending, WaitingProduce)
    return leader, partition, pending


async def waiting_produce_of_two(stage: Stage) -> tuple[Partition, Partition, WaitingProduce]:
    """Return a produce to two partitions that node 1 leads, while both followers are isolated."""
    await stage.start()
    leader, controller = stage.nodes[1], stage.controller
    controller.others[1] = controller.partition
    controller.publish()
    await stage.until(lambda: leader.services.replicas.ensure(TOPIC, 1) is not None)
    first, second = leader.partition, leader.services.replicas.ensure(TOPIC, 1)
    assert first is not None
    assert second is not None
    stage.isolate(2)
    stage.isolate(3)
    data = [PartitionProduceData(index=index, records=plain(3)) for index in (0, 1)]
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)])
    pending = produce.handle(leader.services, RequestContext(0, 9, 1, "test", "test", 1, LISTENER), request)
    assert isinstance(pending, WaitingProduce)
    return first, second, pending


def errors_of(pending: WaitingProduce) -> list[int]:
    return [one.error_code for one in pending.response().responses[0].partition_responses]


def error_of(pending: WaitingProduce) -> int:
    response = pending.response()
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code


def test_a_produce_that_waits_for_replicas_creates_no_task_and_allows_the_next_request() -> None:
    async def scene(stage: Stage) -> None:
        before = len(asyncio.all_tasks())
        _, _, pending = await waiting_produce(stage)
        tasks = len(asyncio.all_tasks())
        pending.when_ready(lambda: None)
        assert len(asyncio.all_tasks()) == tasks >= before
        assert pending.lets_next_in
        assert not pending.is_ready

    play(scene)


def test_a_produce_is_ready_in_the_very_call_that_moves_the_high_watermark() -> None:
    async def scene(stage: Stage) -> None:
        _, partition, pending = await waiting_produce(stage)
        seen: list[int] = []
        pending.when_ready(lambda: seen.append(partition.log.high_watermark))
        await stage.until(lambda: partition.log.high_watermark == 3)
        assert seen == [3]
        assert error_of(pending) == ErrorCode.NONE

    play(scene)


def test_a_produce_that_times_out_is_answered_request_timed_out_though_its_batch_may_be_replicated_later() -> None:
    async def scene(stage: Stage) -> None:
        stage.isolate(2)
        stage.isolate(3)
        # Far less than the time after which the followers are out of sync.
        _, partition, pending = await waiting_produce(stage, timeout_ms=100)
        await stage.until(lambda: pending.is_ready)
        assert partition.log.high_watermark == 0
        assert error_of(pending) == ErrorCode.REQUEST_TIMED_OUT
        stage.heal()
        await stage.until(lambda: partition.log.high_watermark == 3)

    play(scene)


def test_a_produce_whose_connection_has_ended_leaves_the_purgatory_without_a_callback() -> None:
    async def scene(stage: Stage) -> None:
        _, partition, pending = await waiting_produce(stage)
        called: list[object] = []
        pending.when_ready(lambda: called.append(pending))
        pending.cancel()
        await stage.until(lambda: partition.log.high_watermark == 3)
        assert called == []
        assert not pending.is_ready, "it has left the partition's purgatory"

    play(scene)


def test_a_produce_waits_for_one_partition_when_another_of_its_partitions_has_lost_its_leader() -> None:
    async def scene(stage: Stage) -> None:
        first, second, pending = await waiting_produce_of_two(stage)
        stage.controller.elect(2)
        await stage.until(lambda: not first.is_leader)
        assert not pending.is_ready
        stage.heal()
        await stage.until(lambda: pending.is_ready)
        assert second.log.high_watermark == 3
        assert errors_of(pending) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]

    play(scene, PATIENT)


def test_a_produce_whose_leader_has_lost_and_regained_a_partition_does_not_acknowledge_its_batch() -> None:
    async def scene(stage: Stage) -> None:
        first, second, pending = await waiting_produce_of_two(stage)
        # Meanwhile the batch may have been truncated, and the offset belong to another one.
        stage.controller.elect(2)
        await stage.until(lambda: not first.is_leader)
        stage.controller.elect(1)
        await stage.until(lambda: first.is_leader)
        stage.heal()
        await stage.until(lambda: first.log.high_watermark == second.log.high_watermark == 3)
        assert errors_of(pending) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]

    play(scene, PATIENT)


class HeldFlusher(Flusher):
    """A flusher that makes requests wait until the test releases them."""

    def __init__(self) -> None:
        super().__init__()
        self.is_done = asyncio.Event()

    async def wait_until_durable(self, log: PartitionLog, offset: int) -> bool:
        await self.is_done.wait()
        return True


def test_a_produce_that_waits_for_its_disk_while_its_leader_loses_and_regains_the_partition_is_not_acknowledged() -> (
    None
):
    async def scene(stage: Stage) -> None:
        await stage.start()
        leader, partition = stage.nodes[1], stage.nodes[1].partition
        assert partition is not None
        flusher = leader.services.flusher = HeldFlusher()
        stage.isolate(2)
        stage.isolate(3)
        data = PartitionProduceData(index=0, records=plain(3))
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        pending = produce.handle(leader.services, RequestContext(0, 9, 1, "test", "test", 1, LISTENER), request)
        assert isinstance(pending, PendingTask)
        pending.when_ready(lambda: None)
        # Meanwhile the batch may have been truncated, and the offset belong to another one.
        stage.controller.elect(2)
        await stage.until(lambda: not partition.is_leader)
        stage.controller.elect(1)
        await stage.until(lambda: partition.is_leader)
        stage.heal()
        await stage.until(lambda: partition.log.high_watermark == 3)
        flusher.is_done.set()
        await stage.until(lambda: pending.is_ready)
        response = pending.response()
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    play(scene, PATIENT, LogConfig(flush_messages=1))


def test_a_produce_that_waits_for_its_disk_leaves_nothing_behind_when_its_connection_ends() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        leader, partition = stage.nodes[1], stage.nodes[1].partition
        assert partition is not None
        leader.services.flusher = HeldFlusher()
        data = PartitionProduceData(index=0, records=plain(3))
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        pending = produce.handle(leader.services, RequestContext(0, 9, 1, "test", "test", 1, LISTENER), request)
        assert isinstance(pending, PendingTask)
        pending.when_ready(lambda: None)
        # Its first step, as `ServerProtocol.connection_lost` waits for it.
        await asyncio.sleep(0)
        [(_, waiter)] = partition._commits.waiting
        assert not waiter.is_over
        pending.cancel()
        await stage.until(lambda: waiter.is_over)

    play(scene, PATIENT, LogConfig(flush_messages=1))


def test_a_produce_for_two_partitions_is_ready_when_its_broker_stops() -> None:
    async def scene(stage: Stage) -> None:
        first, second, pending = await waiting_produce_of_two(stage)
        first.wake_all()
        assert not pending.is_ready
        second.wake_all()
        assert pending.is_ready

    play(scene, PATIENT)
