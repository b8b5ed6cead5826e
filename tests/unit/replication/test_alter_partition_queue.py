"""The queue of AlterPartition requests: ISR changes on their way to the controller."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from pessoa.base.clock import SystemClock
from pessoa.base.ids import Uuid
from pessoa.replication.alter_partition_queue import AlterPartitionQueue
from pessoa.replication.isr import IsrChange
from pessoa.wire.api.alter_partition import (
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    TopicData,
)

TOPIC = Uuid.of(1)
COUNT = 5_000


class _Proposing:
    """The parts of a partition that `AlterPartitionQueue` uses."""

    def __init__(self, index: int, change: IsrChange) -> None:
        self.topic, self.topic_id, self.index = "t", TOPIC, index
        self.in_sync: Any = SimpleNamespace(pending=change)
        self.answers = 0

    def apply_isr_answer(self, change: IsrChange, _answer: object) -> bool:
        assert change is self.in_sync.pending
        self.answers += 1
        return False


def test_many_isr_changes_are_sent_in_several_requests_and_each_once() -> None:
    sizes: list[int] = []
    all_answered = asyncio.Event()

    async def alter_partition(topics: list[TopicData]) -> AlterPartitionResponse:
        [topic] = topics
        sizes.append(len(topic.partitions))
        if sum(sizes) >= COUNT:
            all_answered.set()
        answers = [
            AlterPartitionResponsePartitionData(
                partition_index=one.partition_index,
                error_code=0,
                leader_id=1,
                leader_epoch=1,
                isr=[1],
                partition_epoch=2,
            )
            for one in topic.partitions
        ]
        return AlterPartitionResponse(
            throttle_time_ms=0,
            error_code=0,
            topics=[AlterPartitionResponseTopicData(topic_id=TOPIC, partitions=answers)],
        )

    async def scene() -> list[_Proposing]:
        changes = AlterPartitionQueue(alter_partition, SystemClock())
        change = IsrChange(leader_epoch=1, partition_epoch=1, isr=(1,), broker_epochs=(5,))
        partitions = [_Proposing(index, change) for index in range(COUNT)]
        for one in partitions:
            changes.propose(one, change)  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            await all_answered.wait()
        await changes.close()
        return partitions

    partitions = asyncio.run(scene())
    assert sum(sizes) == len(partitions)
    assert max(sizes) < len(partitions)
    assert {one.answers for one in partitions} == {1}
