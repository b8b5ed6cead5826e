"""New partitions in slices: the loop is free in between, and whoever asks for one does not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from pessoa.base.ids import Uuid
from pessoa.metadata.topics import TopicImage
from pessoa.replication.arrivals import Arrivals, ComingPartitions

COUNT = 100
TOPIC = TopicImage("orders", Uuid.of(1000), {})


class Stand:
    """Makes numbers where a broker would make partitions."""

    def __init__(self, makes: Callable[[int], bool] = lambda _: True) -> None:
        self.made: list[int] = []
        self.completed: list[ComingPartitions] = []
        self.makes = makes
        self.arrivals = Arrivals(self.make, self.completed.append)
        self.table = self.arrivals.expect(TOPIC, {}, range(COUNT))

    def make(self, topic_id: Uuid, index: int) -> Any:
        assert topic_id == TOPIC.id
        self.made.append(index)
        if self.makes(index):
            self.table[index] = cast("Any", f"partition {index}")
            return self.table[index]
        return None


def play(scene: Callable[[], Any]) -> None:
    asyncio.run(scene())


def test_the_loop_is_free_between_two_slices() -> None:
    async def scene() -> None:
        stand = Stand()
        stand.arrivals.make_some()
        seen = []
        while not stand.completed:
            seen.append(len(stand.made))
            await asyncio.sleep(0)
        assert stand.made == list(range(COUNT))
        assert stand.completed == [stand.table]
        assert len(seen) > 2
        assert seen[0] < COUNT // 2

    play(scene)


def test_whoever_asks_for_a_partition_has_it_made_out_of_turn_and_once() -> None:
    async def scene() -> None:
        stand = Stand()
        assert cast("Any", stand.table.get(77)) == "partition 77"
        assert cast("Any", stand.table[88]) == "partition 88"
        assert stand.made == [77, 88]
        assert stand.table.get(COUNT) is None
        stand.arrivals.make_all()
        assert sorted(stand.made) == list(range(COUNT))
        assert stand.completed == [stand.table]

    play(scene)


def test_what_does_not_belong_here_any_more_is_passed_over() -> None:
    async def scene() -> None:
        stand = Stand(lambda index: index % 2 == 0)
        assert stand.table.get(3) is None
        stand.arrivals.make_all()
        assert set(stand.table) == set(range(0, COUNT, 2))
        assert not stand.arrivals.is_expected(TOPIC.id)

    play(scene)


def test_a_topic_that_is_deleted_before_its_partitions_are_made_is_given_up() -> None:
    async def scene() -> None:
        stand = Stand()
        stand.arrivals.make_some()
        before = list(stand.made)
        stand.arrivals.give_up(TOPIC.id)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert stand.made == before
        assert stand.table.get(COUNT - 1) is None
        assert stand.completed == [stand.table]

    play(scene)
