"""How the partitions that a broker follows are distributed over its fetchers from one leader."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pessoa.base.entropy import SeededEntropy, new_uuid
from pessoa.base.ids import Uuid
from pessoa.log.directory import LogDirectory
from pessoa.log.flusher import Flusher
from pessoa.log.log_config import LogConfig
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.log.upkeep import Upkeep
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.topics_image import DIRECTORY_UNASSIGNED, PartitionImage, TopicImage, TopicsImage
from pessoa.net.channel import ChannelFailed
from pessoa.replication.local_replicas import LocalReplicas
from pessoa.replication.replication_settings import ReplicationSettings
from pessoa.wire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from pessoa.wire.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pessoa.wire.errors import ErrorCode
from tests.simulation.loop import new_loop
from tests.support.replication_stage import StageClock

if TYPE_CHECKING:
    from pessoa.wire.schema import Message

TOPIC_ID = Uuid.of(1000)
STATE = PartitionImage(
    replicas=(2, 1), directories=(DIRECTORY_UNASSIGNED,) * 2, isr=(2,), removing_replicas=(), adding_replicas=(),
    elr=(), last_known_elr=(), leader=2, leader_epoch=1, partition_epoch=1, leader_recovery_state=0,
)  # fmt: skip
TOPIC = TopicImage("orders", TOPIC_ID, dict.fromkeys(range(6), STATE))
IMAGE = replace(MetadataImage.EMPTY, offset=1, topics=TopicsImage({"orders": TOPIC}, {TOPIC_ID: TOPIC}))


class SilentLeader:
    """A leader that records the requests of each open channel, and never answers."""

    def __init__(self) -> None:
        self.asked: dict[Any, list[int]] = {}

    def channel_to(self, _: int) -> Any:
        return SilentChannel(self)

    def shares(self) -> list[list[int]]:
        return sorted(sorted(indexes) for indexes in self.asked.values())


class SilentChannel:
    def __init__(self, leader: SilentLeader) -> None:
        self._leader = leader
        self._answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def send(self, request: FetchRequest, _version: int, _timeout_ms: int) -> None:
        self._leader.asked[self] = [one.partition for topic in request.topics for one in topic.partitions]
        await self._answer

    def close(self) -> None:
        self._leader.asked.pop(self, None)
        if not self._answer.done():
            self._answer.set_exception(ChannelFailed("closed"))


def test_the_partitions_of_a_leader_are_shared_out_to_as_many_fetchers_as_the_configuration_says() -> None:
    loop = new_loop()
    disk, clock, leader, flusher = SimulatedDisk(), StageClock(loop), SilentLeader(), Flusher()
    directory = LogDirectory(disk, "/a")
    directory.open(lambda _: LogConfig(), clock.now_ms())
    replicas = LocalReplicas(
        1, [directory], Upkeep(disk, [directory], clock, flusher), lambda _: LogConfig(),
        partial(new_uuid, SeededEntropy(1)), clock=clock, flusher=flusher,
        settings=ReplicationSettings(num_replica_fetchers=3), channel_to=leader.channel_to,
    )  # fmt: skip

    async def scene() -> None:
        replicas.apply(IMAGE, [TOPIC_ID], ())
        await asyncio.sleep(1)
        assert leader.shares() == [[0, 3], [1, 4], [2, 5]]
        replicas.configure(ReplicationSettings(num_replica_fetchers=2))
        await asyncio.sleep(1)
        assert leader.shares() == [[0, 2, 4], [1, 3, 5]]
        replicas.configure(ReplicationSettings())
        await asyncio.sleep(1)
        assert leader.shares() == [[0, 1, 2, 3, 4, 5]]
        await replicas.close()

    try:
        loop.run_until_complete(scene())
        assert not loop.problems, loop.problems
    finally:
        loop.bury()


class ForgetfulLeader:
    """A leader that has deleted all records below offset 100, and answers slowly."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self._fetches = 0

    async def send(self, request: Message, _version: int, _timeout_ms: int) -> Message:
        if isinstance(request, ListOffsetsRequest):
            self.is_asked.set()
            await self.may_answer.wait()
            offset = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=100)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[offset])])
        assert isinstance(request, FetchRequest)
        self._fetches += 1
        if self._fetches > 1:
            raise ChannelFailed("that was enough")
        data = PartitionData(
            partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1, aborted_transactions=None,
            records=None,
        )  # fmt: skip
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])
        return FetchResponse(throttle_time_ms=0, responses=[topic])

    def close(self) -> None:
        """Do nothing: no fetch waits here for long."""


def test_a_follower_ignores_a_fetch_response_for_an_earlier_replica_of_the_partition() -> None:
    loop = new_loop()
    disk, clock, flusher = SimulatedDisk(), StageClock(loop), Flusher()
    directory = LogDirectory(disk, "/a")
    directory.open(lambda _: LogConfig(), clock.now_ms())

    def image_of(replicas: tuple[int, ...], number: int) -> MetadataImage:
        state = STATE._replace(replicas=replicas, partition_epoch=number)
        # The other one stays, and the fetcher with it.
        topic = TopicImage("orders", TOPIC_ID, {0: state, 1: STATE})
        return replace(MetadataImage.EMPTY, offset=number, topics=TopicsImage({"orders": topic}, {TOPIC_ID: topic}))

    async def scene() -> None:
        leader = ForgetfulLeader()
        replicas = LocalReplicas(
            1, [directory], Upkeep(disk, [directory], clock, flusher), lambda _: LogConfig(),
            partial(new_uuid, SeededEntropy(1)), clock=clock, flusher=flusher,
            settings=ReplicationSettings(), channel_to=lambda _: leader,  # type: ignore[arg-type,return-value]
        )  # fmt: skip
        replicas.apply(image_of((2, 1), 1), [TOPIC_ID], ())
        before = replicas.ensure("orders", 0)
        await leader.is_asked.wait()
        replicas.apply(image_of((2,), 2), [TOPIC_ID], ())
        replicas.apply(image_of((2, 1), 3), [TOPIC_ID], ())
        leader.may_answer.set()
        await asyncio.sleep(1)
        now = replicas.ensure("orders", 0)
        assert now is not None
        assert now is not before
        assert now.log.log_end_offset == 0
        assert disk.list("/a/orders-0") == []
        await replicas.close()

    try:
        loop.run_until_complete(scene())
        assert not loop.problems, loop.problems
    finally:
        loop.bury()
