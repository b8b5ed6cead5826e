"""How the partitions that a broker follows are spread over the fetchers from one leader."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pessoa.base.entropy import SeededEntropy, new_uuid
from pessoa.base.ids import Uuid
from pessoa.log.config import LogConfig
from pessoa.log.directory import LogDirectory
from pessoa.log.flushing import Flusher
from pessoa.log.simulated_disk import SimulatedDisk
from pessoa.log.upkeep import Upkeep
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.topics import DIRECTORY_UNASSIGNED, PartitionImage, TopicImage, TopicsImage
from pessoa.net.channel import ChannelFailed
from pessoa.replication.replicas import Replicas
from pessoa.replication.settings import ReplicationSettings
from tests.simulation.loop import new_loop
from tests.support.replication_stage import StageClock

if TYPE_CHECKING:
    from pessoa.wire.api.fetch import FetchRequest

TOPIC_ID = Uuid.of(1000)
STATE = PartitionImage(
    replicas=(2, 1), directories=(DIRECTORY_UNASSIGNED,) * 2, isr=(2,), removing_replicas=(), adding_replicas=(),
    elr=(), last_known_elr=(), leader=2, leader_epoch=1, partition_epoch=1, leader_recovery_state=0,
)  # fmt: skip
TOPIC = TopicImage("orders", TOPIC_ID, dict.fromkeys(range(6), STATE))
IMAGE = replace(MetadataImage.EMPTY, offset=1, topics=TopicsImage({"orders": TOPIC}, {TOPIC_ID: TOPIC}))


class SilentLeader:
    """Keeps what each channel that is open was asked for, and never answers."""

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
    replicas = Replicas(
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
