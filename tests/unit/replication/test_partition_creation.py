"""Creation of partitions in slices: the event loop runs in between, and a request gets its partition at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from pessoa.base.ids import Uuid
from pessoa.metadata.topics_image import TopicImage
from pessoa.replication.partition_creation import PartitionCreation

COUNT = 100
TOPIC = TopicImage("orders", Uuid.of(1000), {})


class Stand:
    """A fake that creates names instead of partitions."""

    def __init__(self, is_ours: Callable[[int], bool] = lambda _: True) -> None:
        self.asked_for: list[int] = []
        self.table: dict[int, str] = {}
        self.completed: list[tuple[Uuid, str]] = []
        self.is_ours = is_ours
        self.creation = PartitionCreation(self.create, lambda topic_id, topic: self.completed.append((topic_id, topic)))
        self.creation.schedule(TOPIC, range(COUNT))

    def create(self, topic_id: Uuid, index: int) -> Any:
        assert topic_id == TOPIC.id
        self.asked_for.append(index)
        if self.is_ours(index):
            self.table[index] = f"partition {index}"
            return self.table[index]
        return None

    def ensure(self, index: int, topic_id: Uuid = TOPIC.id) -> str | None:
        return cast("str | None", self.creation.ensure(topic_id, index))


def play(scene: Callable[[], Any]) -> None:
    asyncio.run(scene())


def test_the_event_loop_is_free_between_two_slices() -> None:
    async def scene() -> None:
        stand = Stand()
        stand.creation.create_slice()
        seen = []
        while not stand.completed:
            seen.append(len(stand.asked_for))
            await asyncio.sleep(0)
        assert stand.asked_for == list(range(COUNT))
        assert stand.completed == [(TOPIC.id, TOPIC.name)]
        assert len(seen) > 2
        assert seen[0] < COUNT // 2

    play(scene)


def test_ensure_creates_a_pending_partition_out_of_turn_and_once() -> None:
    async def scene() -> None:
        stand = Stand()
        assert stand.ensure(77) == "partition 77"
        assert stand.ensure(88) == "partition 88"
        assert stand.asked_for == [77, 88]
        assert stand.ensure(77) is None
        assert stand.ensure(COUNT) is None
        assert stand.ensure(0, Uuid.of(1)) is None
        stand.creation.create_all()
        assert sorted(stand.asked_for) == list(range(COUNT))
        assert stand.completed == [(TOPIC.id, TOPIC.name)]

    play(scene)


def test_a_partition_that_was_moved_to_another_broker_meanwhile_is_not_created() -> None:
    async def scene() -> None:
        stand = Stand(lambda index: index % 2 == 0)
        assert stand.ensure(3) is None
        stand.creation.create_all()
        assert set(stand.table) == set(range(0, COUNT, 2))
        assert not stand.creation.is_pending(TOPIC.id)

    play(scene)


def test_a_topic_that_is_deleted_before_its_partitions_are_created_is_cancelled() -> None:
    async def scene() -> None:
        stand = Stand()
        stand.creation.create_slice()
        before = list(stand.asked_for)
        stand.creation.cancel(TOPIC.id)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stand.asked_for == before
        assert stand.ensure(COUNT - 1) is None
        assert stand.completed == [(TOPIC.id, TOPIC.name)]

    play(scene)
