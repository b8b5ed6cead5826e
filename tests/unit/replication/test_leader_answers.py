"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and racks, with followers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from pessoa.broker.apis import delete_records, fetch, list_offsets
from pessoa.metadata.cluster_image import ClusterImage
from pessoa.replication.replica_selector import RACK_AWARE
from pessoa.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from pessoa.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from pessoa.wire.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import RequestContext
from tests.support.replication_stage import LISTENER, TOPIC, TOPIC_ID, Node, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

LATEST, EARLIEST = -1, -2


def play(scene: Callable[[Stage], Coroutine[Any, Any, None]]) -> None:
    with Stage(Random(1)) as stage:
        stage.run(scene(stage))


def context(version: int) -> RequestContext:
    return RequestContext(0, version, 1, "test", "test", 1, LISTENER)


def list_one(node: Node, timestamp: int, *, replica: int = -1, version: int = 11) -> tuple[int, int]:
    """Send ListOffsets for one partition; return error code and offset."""
    request = ListOffsetsRequest(
        replica_id=replica,
        topics=[
            ListOffsetsTopic(name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
        ],
    )
    response = list_offsets.handle(node.services, context(version), request)
    assert isinstance(response, ListOffsetsResponse)
    [topic] = response.topics
    [answer] = topic.partitions
    return answer.error_code, answer.offset


def test_a_new_leader_does_not_answer_list_offsets_latest_before_its_high_watermark_has_reached_its_epoch() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        assert (await stage.produce(stage.nodes[1], 3))[0] == ErrorCode.NONE
        # The others have the records, and have not heard that they are committed.
        second = stage.nodes[2].partition
        assert second is not None
        assert second.log.high_watermark == 0
        stage.isolate(3)
        stage.controller.elect(2)
        await stage.until(lambda: stage.leader() is stage.nodes[2])
        assert list_one(stage.nodes[2], LATEST) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert list_one(stage.nodes[2], LATEST, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert list_one(stage.nodes[2], EARLIEST) == (ErrorCode.NONE, 0)
        assert list_one(stage.nodes[2], LATEST, replica=3) == (ErrorCode.NONE, 3)
        stage.heal()
        await stage.until(stage.is_quiet)
        assert list_one(stage.nodes[2], LATEST) == (ErrorCode.NONE, 3)

    play(scene)


def test_the_end_offset_of_an_epoch_without_records_is_the_log_end() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        assert (await stage.produce(stage.nodes[1], 3))[0] == ErrorCode.NONE
        for leader in (2, 1, 3):
            stage.controller.elect(leader)
            await stage.until(lambda leader=leader: stage.leader() is stage.nodes[leader])  # type: ignore[misc]
            await stage.until(stage.is_quiet)
        partition = stage.nodes[3].partition
        assert partition is not None
        epoch = partition.leader_epoch
        assert partition.end_offset_for(epoch) == (epoch, 3)
        # The epochs in between wrote nothing anywhere: what they end is the last that did.
        assert partition.end_offset_for(epoch - 1) == (1, 3)
        assert partition.end_offset_for(1) == (1, 3)
        assert partition.end_offset_for(epoch + 1) == (-1, -1)

    play(scene)


def delete(node: Node, offset: int, timeout_ms: int = 2000) -> Any:
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])],
        timeout_ms=timeout_ms,
    )
    return delete_records.handle(node.services, context(2), request)


def test_deleting_records_waits_until_no_live_replica_has_them() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        assert (await stage.produce(stage.nodes[1], 5))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        begun = stage.loop.now_s
        response = await delete(stage.nodes[1], 4)
        [result] = response.topics[0].partitions
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 4)
        # No request had to wait for the end of an idle fetch.
        assert stage.loop.now_s - begun < 0.1
        for node in stage.running():
            assert node.partition is not None
            assert node.partition.log.log_start_offset == 4

    play(scene)


def test_deleting_records_times_out_while_a_live_replica_cannot_be_reached() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        assert (await stage.produce(stage.nodes[1], 5))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        stage.isolate(3)
        response = await delete(stage.nodes[1], 4, timeout_ms=300)
        [result] = response.topics[0].partitions
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        # A dead one is not waited for.
        stage.controller.fence(3)
        await asyncio.sleep(0.1)
        response = delete(stage.nodes[1], 5)
        response = await response if asyncio.iscoroutine(response) else response
        [result] = response.topics[0].partitions
        assert (result.error_code, result.low_watermark) == (ErrorCode.NONE, 5)

    play(scene)


@pytest.mark.parametrize(
    ("selector", "rack", "expected"),
    [
        (RACK_AWARE, "east", -1),  # the leader's own
        (RACK_AWARE, "west", 3),
        (RACK_AWARE, "moon", -1),
        (None, "west", -1),
    ],
)
def test_a_consumer_is_sent_to_a_replica_in_its_rack(selector: str | None, rack: str, expected: int) -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        assert (await stage.produce(stage.nodes[1], 5))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        services = stage.nodes[1].services
        racks = {1: "east", 2: "east", 3: "west"}
        brokers = {number: replace(one, rack=racks[number]) for number, one in services.image.cluster.brokers.items()}
        services.image = replace(services.image, cluster=ClusterImage(brokers, {}))
        services.config.value = {"replica.selector.class": selector}.get
        partition = FetchPartition(partition=0, fetch_offset=2, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            rack_id=rack,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])],
        )
        response: Any = fetch.handle(services, context(18), request)
        [answer] = response.responses[0].partitions
        assert answer.preferred_read_replica == expected
        assert bool(answer.records) == (expected < 0)

    play(scene)


def test_a_consumer_that_reads_from_a_follower_is_sent_to_the_leader_when_the_follower_stops() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        assert (await stage.produce(stage.nodes[1], 5))[0] == ErrorCode.NONE
        await stage.until(stage.is_quiet)
        follower = stage.nodes[2]
        assert follower.partition is not None
        partition = FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=1000)
        request = FetchRequest(
            max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[partition])]
        )
        waiting: Any = fetch.handle(follower.services, context(18), request)
        assert isinstance(waiting, fetch.WaitingFetch)
        follower.services.is_leaving = True
        follower.partition.wake_all()
        assert waiting.is_ready
        later: Any = fetch.handle(follower.services, context(18), request)
        for response in (waiting.response(), later):
            [answer] = response.responses[0].partitions
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert answer.current_leader is not None
            assert answer.current_leader.leader_id == 1

    play(scene)
