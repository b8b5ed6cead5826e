"""The replicas of a broker follow the metadata: creation, deletion, and failure of a log directory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from pessoa.base.ids import Uuid
from pessoa.log.files import DiskError
from pessoa.metadata.image import MetadataImage
from pessoa.metadata.topics_image import TopicImage, TopicsImage
from pessoa.wire.errors import ErrorCode
from tests.support.partition_logs import read_offsets
from tests.support.replication_stage import DIRECTORY, TOPIC, TOPIC_ID, Node, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pessoa.replication.partition import Partition


def play(scene: Callable[[Stage], Coroutine[Any, Any, None]], **settings: Any) -> None:
    with Stage(Random(1), **settings) as stage:
        stage.run(scene(stage))


def on_disk(node: Node) -> list[str]:
    return [name for name in node.disk.list(DIRECTORY) if name.startswith(TOPIC)]


def image_of(stage: Stage, topic: TopicImage | None) -> MetadataImage:
    topics = TopicsImage({}, {}) if topic is None else TopicsImage({topic.name: topic}, {topic.id: topic})
    return replace(stage.controller.image, offset=stage.controller.image.offset + 1, topics=topics)


def test_a_replica_that_is_moved_to_other_brokers_is_removed_from_the_disk_and_followed_no_more() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        third = stage.nodes[3]
        assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        await stage.until(lambda: third.partition is not None and third.partition.log.log_end_offset > 0)
        now = stage.controller.partition
        stage.controller.partition = now._replace(
            replicas=(1, 2), isr=(1, 2), directories=now.directories[:2], partition_epoch=now.partition_epoch + 1
        )
        stage.controller.publish()
        await stage.until(lambda: third.partition is None)
        assert [name.endswith("-delete") for name in on_disk(third)] == [True]
        leader = stage.nodes[1].partition
        assert leader is not None
        await stage.until(lambda: leader.isr == (1, 2))
        assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE

    play(scene)


def test_a_log_of_another_topic_with_that_name_is_renamed_to_a_stray_and_kept() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        node = stage.nodes[2]
        assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        await stage.until(lambda: node.partition is not None and node.partition.log.log_end_offset > 0)
        node.crash()
        node.start()
        replicas = node.services.replicas
        mine = TopicImage(TOPIC, TOPIC_ID, {0: stage.controller.partition})
        replicas.remove_strays(image_of(stage, mine))
        assert on_disk(node) == [f"{TOPIC}-0"]
        # The same name, but the topic was deleted and created anew; or a bit of its id has changed on the disk.
        replicas.remove_strays(image_of(stage, replace(mine, id=Uuid.of(2000))))
        (name,) = on_disk(node)
        assert name.endswith("-stray")
        node.crash()
        node.start()
        assert on_disk(node) == [name]
        assert node.disk.exists(f"{DIRECTORY}/{name}/00000000000000000000.log")

    play(scene)


def test_a_replica_of_a_deleted_topic_is_removed_as_a_stray() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        node = stage.nodes[2]
        assert (await stage.produce(stage.nodes[1]))[0] == ErrorCode.NONE
        await stage.until(lambda: node.partition is not None and node.partition.log.log_end_offset > 0)
        node.crash()
        node.start()
        node.services.replicas.remove_strays(image_of(stage, None))
        assert [name.endswith("-delete") for name in on_disk(node)] == [True]

    play(scene)


def test_an_image_that_is_older_than_the_controllers_answer_is_ignored() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        partition = stage.nodes[1].partition
        assert partition is not None
        await stage.until(lambda: partition.partition_epoch == stage.controller.partition.partition_epoch)
        old = stage.controller.partition._replace(partition_epoch=partition.partition_epoch - 1, isr=(1,), leader=2)
        topic = TopicImage(TOPIC, TOPIC_ID, {0: old})
        stage.nodes[1].services.replicas.apply(image_of(stage, topic), [TOPIC_ID], [])
        assert partition.is_leader
        assert partition.isr == (1, 2, 3)

    play(scene)


def test_a_changed_min_insync_replicas_counts_at_once() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        leader = stage.nodes[1]
        partition = leader.partition
        assert partition is not None
        stage.controller.fence(2)
        stage.controller.fence(3)
        stage.isolate(2)
        stage.isolate(3)
        await stage.until(lambda: partition.isr == (1,))
        assert await stage.produce(leader) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
        assert (await stage.produce(leader, acks=1))[0] == ErrorCode.NONE
        assert partition.log.high_watermark == 0
        stage.configs[2, TOPIC] = {"min.insync.replicas": "1"}
        leader.services.replicas.reconfigure([TOPIC])
        assert partition.log.high_watermark == 1
        assert (await stage.produce(leader))[0] == ErrorCode.NONE

    play(scene, min_insync_replicas=2)


def test_a_failed_disk_ends_leadership_wakes_waiting_requests_and_calls_the_listeners() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        leader = stage.nodes[1]
        partition = leader.partition
        assert partition is not None
        told: list[Partition] = []
        leader.services.replicas.on_leadership.append(told.append)
        stage.isolate(2)
        waiting = stage.loop.create_task(stage.produce(leader))
        await asyncio.sleep(0.01)
        leader.directory.fail(DiskError("write", DIRECTORY, "the disk is gone"))
        assert await waiting == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert not partition.is_leader
        assert told == [partition]
        assert await stage.produce(leader) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)

    play(scene)


def test_a_disk_error_of_a_follower_stops_only_that_follower() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        third = stage.nodes[3]
        await stage.until(lambda: third.partition is not None)
        third.disk.fail("write", "*.log", times=None)
        # The controller takes it out of the in-sync replicas, as the leader asks for after a while.
        error, _ = await stage.produce(stage.nodes[1], timeout_ms=5000)
        assert error == ErrorCode.NONE
        assert third.directory.offline is not None
        second = stage.nodes[2].partition
        assert second is not None
        assert read_offsets(second.log) == [(0, 0)]

    play(scene)


def test_a_follower_that_missed_deleted_records_restarts_at_the_leaders_log_start() -> None:
    async def scene(stage: Stage) -> None:
        await stage.start()
        stage.nodes[3].crash()
        stage.controller.fence(3)
        leader = stage.nodes[1]
        assert leader.partition is not None
        for _ in range(4):
            assert (await stage.produce(leader, 5))[0] == ErrorCode.NONE
        leader.partition.log.roll(stage.clock.now_ms())
        leader.partition.log.drop_segments(1, stage.clock.now_ms())
        assert leader.partition.log.log_start_offset == 20
        stage.nodes[3].start()
        await stage.until(stage.is_quiet)
        third = stage.nodes[3].partition
        assert third is not None
        assert (third.log.log_start_offset, third.log.log_end_offset) == (20, 20)
        assert await stage.produce(leader) == (ErrorCode.NONE, 20)

    play(scene)
