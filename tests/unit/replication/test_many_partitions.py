"""A topic of many partitions: a requested one is created at once, the others in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
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
from pessoa.replication.local_replicas import LocalReplicas
from tests.simulation.loop import new_loop
from tests.support.batches import NOW_MS, plain
from tests.support.partition_logs import PRODUCE_VERSION
from tests.support.replication_stage import StageClock

if TYPE_CHECKING:
    from pessoa.replication.partition import Partition

MANY = 200
TOPIC, TOPIC_ID = "orders", Uuid.of(1000)
STATE = PartitionImage(
    replicas=(1,), directories=(DIRECTORY_UNASSIGNED,), isr=(1,), removing_replicas=(), adding_replicas=(), elr=(),
    last_known_elr=(), leader=1, leader_epoch=0, partition_epoch=0, leader_recovery_state=0,
)  # fmt: skip
Scene = Callable[["Rig"], Coroutine[Any, Any, None]]


def image_of(offset: int, *topics: TopicImage) -> MetadataImage:
    by_name, by_id = {one.name: one for one in topics}, {one.id: one for one in topics}
    return replace(MetadataImage.EMPTY, offset=offset, topics=TopicsImage(by_name, by_id))


def topic_of(topic_id: Uuid = TOPIC_ID, state: PartitionImage = STATE) -> TopicImage:
    return TopicImage(TOPIC, topic_id, dict.fromkeys(range(MANY), state))


class Rig:
    """One broker with one disk, over several restarts."""

    def __init__(self) -> None:
        self.loop = new_loop()
        self.loop.worker_delay = lambda: 0.001
        self.clock = StageClock(self.loop)
        self.disk = SimulatedDisk(now_ms=lambda: NOW_MS)
        self.created: list[Uuid] = []
        self.led: list[Partition] = []

    def start(self) -> None:
        self.directory = LogDirectory(self.disk, "/data")
        self.directory.open(lambda _: LogConfig(), NOW_MS)
        flusher = Flusher()
        self.replicas = LocalReplicas(
            1, [self.directory], Upkeep(self.disk, [self.directory], self.clock, flusher), lambda _: LogConfig(),
            partial(new_uuid, SeededEntropy(1)), clock=self.clock, flusher=flusher,
        )  # fmt: skip
        self.replicas.on_created.append(self.created.append)
        self.replicas.on_leadership.append(self.led.append)

    async def until_created(self) -> None:
        while not self.created:  # noqa: ASYNC110  the loop is simulated
            await asyncio.sleep(0)

    def produce(self, index: int) -> None:
        partition = self.replicas.ensure(TOPIC, index)
        assert partition is not None
        partition.append(plain(), NOW_MS, PRODUCE_VERSION)

    def ends(self) -> dict[int, int]:
        return {
            index: one.log_end_offset for (_, index), one in self.directory.partitions.items() if one.log_end_offset
        }


def play(scene: Scene) -> None:
    rig = Rig()
    rig.start()
    try:
        rig.loop.run_until_complete(scene(rig), max_steps=2_000_000)
        assert not rig.loop.problems, rig.loop.problems
    finally:
        rig.loop.bury()


def test_every_partition_can_be_written_to_as_soon_as_the_metadata_names_it() -> None:
    async def scene(rig: Rig) -> None:
        rig.replicas.apply(image_of(1, topic_of()), [TOPIC_ID], ())
        assert len(rig.directory.partitions) < MANY
        rig.produce(MANY - 1)
        assert (asked := rig.replicas.ensure_by_id(TOPIC_ID, MANY - 2)) is not None
        assert asked.is_leader
        assert rig.replicas.ensure(TOPIC, MANY) is None
        await rig.until_created()
        table = rig.replicas.by_name[TOPIC]
        assert (type(table), sorted(table)) == (dict, list(range(MANY)))
        assert rig.replicas.by_id[TOPIC_ID] is table
        assert len(rig.led) == len({partition.index for partition in rig.led}) == MANY
        assert rig.ends() == {MANY - 1: 1}

    play(scene)


def test_a_pending_partition_is_created_in_the_state_of_the_latest_image() -> None:
    async def scene(rig: Rig) -> None:
        rig.replicas.apply(image_of(1, topic_of()), [TOPIC_ID], ())
        later = STATE._replace(leader_epoch=7, partition_epoch=7)
        rig.replicas.apply(image_of(2, topic_of(state=later)), [TOPIC_ID], ())
        await rig.until_created()
        assert {partition.leader_epoch for partition in rig.replicas.all()} == {7}

    play(scene)


def test_a_topic_that_is_deleted_and_created_anew_meanwhile_leaves_nothing_of_the_old_one() -> None:
    async def scene(rig: Rig) -> None:
        rig.replicas.apply(image_of(1, topic_of()), [TOPIC_ID], ())
        rig.produce(0)
        rig.produce(MANY - 1)
        other = Uuid.of(2000)
        rig.replicas.apply(image_of(2, topic_of(other)), [other], [TOPIC_ID])
        assert TOPIC_ID not in rig.replicas.by_id
        assert rig.ends() == {}
        rig.created.clear()
        await rig.until_created()
        assert {partition.topic_id for partition in rig.replicas.all()} == {other}
        assert len(list(rig.replicas.all())) == MANY
        assert sum(name.endswith("-delete") for name in rig.disk.list("/data")) == 2
        rig.replicas.apply(image_of(3), (), [other])
        assert (rig.replicas.by_id, rig.replicas.by_name, rig.directory.partitions) == ({}, {}, {})

    play(scene)


def test_a_restart_finds_all_partitions_and_their_records() -> None:
    async def scene(rig: Rig) -> None:
        rig.replicas.apply(image_of(1, topic_of()), [TOPIC_ID], ())
        await rig.until_created()
        rig.produce(3)
        rig.disk.crash_process()
        rig.start()
        assert len(rig.directory.partitions) == MANY
        image = image_of(1, topic_of())
        rig.replicas.apply(image, [TOPIC_ID], ())
        # Removing strays has to know all partitions.
        rig.replicas.remove_strays(image)
        assert len(list(rig.replicas.all())) == MANY
        assert rig.ends() == {3: 1}
        assert not any(name.endswith(("-delete", "-stray")) for name in rig.disk.list("/data"))

    play(scene)
