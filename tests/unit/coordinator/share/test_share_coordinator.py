"""Requests for many share partitions, through the shards of several partitions of `__share_group_state`."""

from __future__ import annotations

import asyncio

from pessoa.base.clock import SystemClock
from pessoa.coordinator.share.share_config import ShareCoordinatorConfig
from pessoa.coordinator.share.share_coordinator import ShareCoordinator
from pessoa.coordinator.share.share_state import ShareKey
from pessoa.wire.api import initialize_share_group_state as initialize_api
from pessoa.wire.api import read_share_group_state as read_api
from pessoa.wire.errors import ErrorCode
from pessoa.wire.request_context import Answer, OwnRequest
from pessoa.wire.schema import Message
from tests.support.memory_coordinator_log import MemoryLog
from tests.unit.coordinator.images import image, topic_id

CALLER = OwnRequest(0)
TOPICS = {"orders": 4, "others": 2}


def initialize(group: str = "g") -> initialize_api.InitializeShareGroupStateRequest:
    return initialize_api.InitializeShareGroupStateRequest(
        group_id=group,
        topics=[
            initialize_api.InitializeStateData(
                topic_id=topic_id(name),
                partitions=[
                    initialize_api.PartitionData(partition=partition, state_epoch=1, start_offset=partition * 10)
                    for partition in range(count)
                ],
            )
            for name, count in TOPICS.items()
        ],
    )


def read(group: str = "g") -> read_api.ReadShareGroupStateRequest:
    return read_api.ReadShareGroupStateRequest(
        group_id=group,
        topics=[
            read_api.ReadStateData(
                topic_id=topic_id(name),
                partitions=[read_api.PartitionData(partition=partition, leader_epoch=0) for partition in range(count)],
            )
            for name, count in TOPICS.items()
        ],
    )


async def answered(answer: Answer[Message]) -> Message:
    return answer if isinstance(answer, Message) else await answer


def codes(response: Message) -> list[tuple[bytes, int, int]]:
    return [
        (topic.topic_id, result.partition, result.error_code)
        for topic in response.results  # type: ignore[attr-defined]
        for result in topic.partitions
    ]


def all_with(code: ErrorCode) -> list[tuple[bytes, int, int]]:
    return [(topic_id(name), partition, code) for name, count in TOPICS.items() for partition in range(count)]


def coordinator(log: MemoryLog) -> ShareCoordinator:
    return ShareCoordinator(ShareCoordinatorConfig(), log, SystemClock(), image(**TOPICS))


def test_a_request_is_routed_to_the_shards_of_its_share_partitions_and_a_new_coordinator_reads_their_state() -> None:
    async def run() -> None:
        log = MemoryLog(partitions=8)
        first = coordinator(log)
        for partition in range(8):
            task = first.elect(partition, 0)
            assert task is not None
            await task
        assert codes(await answered(first.initialize(initialize(), CALLER))) == all_with(ErrorCode.NONE)
        assert len(log.batches) > 1, "all keys have the same partition"
        first.close()
        second = coordinator(log)
        for partition in range(8):
            task = second.elect(partition, 1)
            assert task is not None
            await task
        response = await answered(second.read(read(), CALLER))
        assert codes(response) == all_with(ErrorCode.NONE)
        offsets = [result.start_offset for topic in response.results for result in topic.partitions]  # type: ignore[attr-defined]
        assert offsets == [0, 10, 20, 30, 0, 10]
        second.close()

    asyncio.run(run())


def test_share_partitions_of_shards_on_other_brokers_get_an_error_and_the_others_none() -> None:
    async def run() -> None:
        log = MemoryLog(partitions=8)
        share = coordinator(log)
        here = share.runtime.partition_for(str(ShareKey("g", topic_id("orders"), 2)))
        task = share.elect(here, 0)
        assert task is not None
        await task
        found = {
            (topic, partition): code
            for topic, partition, code in codes(await answered(share.initialize(initialize(), CALLER)))
        }
        for (topic, partition), code in found.items():
            is_here = any(
                share.runtime.partition_for(str(ShareKey("g", topic_id(name), partition))) == here
                for name in TOPICS
                if topic_id(name) == topic
            )
            assert code == (ErrorCode.NONE if is_here else ErrorCode.NOT_COORDINATOR)
        assert ErrorCode.NONE in found.values()
        share.close()

    asyncio.run(run())


def test_a_share_coordinator_response_waits_for_the_replicas_and_an_unknown_topic_gets_an_error() -> None:
    async def run() -> None:
        log = MemoryLog(holds_back=True)
        share = ShareCoordinator(ShareCoordinatorConfig(), log, SystemClock(), image(orders=1))
        task = share.elect(0, 0)
        assert task is not None
        await task
        answer = share.initialize(initialize(), CALLER)
        assert not isinstance(answer, Message)
        log.commit()
        found = {(topic, partition): code for topic, partition, code in codes(await answer)}
        assert found.pop((topic_id("orders"), 0)) == ErrorCode.NONE
        assert set(found.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        share.close()

    asyncio.run(run())


def test_a_request_without_a_group_is_invalid() -> None:
    async def run() -> None:
        share = coordinator(MemoryLog())
        assert codes(await answered(share.initialize(initialize(""), CALLER))) == all_with(ErrorCode.INVALID_REQUEST)

    asyncio.run(run())
