"""New partitions of this broker: made a few at a time, and at once if somebody asks for one.

    metadata names them ──▶ coming ──their turn, or the first who asks──▶ here

A topic may have ten thousand partitions, and making each takes a moment. If all were made in one go, a broker would
answer nobody meanwhile: no heartbeat, no fetch, not even who leads them. So a slice is made at once, which is all of
most topics, and the others in slices between which the loop is free.

Nobody sees the difference, because the table of a topic makes what it is asked for. When everything is there, a plain
`dict` takes its place, and finding a partition costs what it always does. What a partition becomes is decided by the
image of the moment in which it is made: a topic that is deleted before that never was here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar, overload

from pessoa.base.ids import Uuid

if TYPE_CHECKING:
    from pessoa.metadata.topics import TopicImage
    from pessoa.replication.partition import Partition

T = TypeVar("T")

# A few milliseconds of work.
_SLICE = 25

# Makes a partition and puts it into its table, or finds that it does not belong here any more.
Make = Callable[[Uuid, int], "Partition | None"]


class ComingPartitions(dict[int, "Partition"]):
    """The partitions of one topic: those that are here, and on demand those that are due."""

    __slots__ = ("_make", "due", "topic", "topic_id")

    def __init__(self, present: dict[int, Partition], topic: str, topic_id: Uuid, make: Make) -> None:
        super().__init__(present)
        self.topic = topic
        self.topic_id = topic_id
        # In the order in which they are made.
        self.due: dict[int, None] = {}
        self._make = make

    def __missing__(self, index: int) -> Partition:
        made = self.make(index)
        if made is None:
            raise KeyError(index)
        return made

    @overload
    def get(self, index: int, default: None = None, /) -> Partition | None: ...

    @overload
    def get(self, index: int, default: Partition, /) -> Partition: ...

    @overload
    def get(self, index: int, default: T, /) -> Partition | T: ...

    def get(self, index: int, default: object = None, /) -> object:
        found = super().get(index) or self.make(index)
        return default if found is None else found

    def make(self, index: int) -> Partition | None:
        if index not in self.due:
            return None
        del self.due[index]
        return self._make(self.topic_id, index)


class Arrivals:
    """`on_complete` is told of a table when nothing of it is due any more."""

    def __init__(self, make: Make, on_complete: Callable[[ComingPartitions], None]) -> None:
        self._make = make
        self._on_complete = on_complete
        self._coming: dict[Uuid, ComingPartitions] = {}
        self._next: asyncio.Handle | None = None

    def __repr__(self) -> str:
        return f"<Arrivals: {sum(len(table.due) for table in self._coming.values())} partitions are due>"

    def expect(self, topic: TopicImage, present: dict[int, Partition], indexes: Iterable[int]) -> ComingPartitions:
        """These are due as well; the table that makes them. `make_some` must follow."""
        table = self._coming.get(topic.id)
        if table is None:
            table = self._coming[topic.id] = ComingPartitions(present, topic.name, topic.id, self._make)
        table.due.update(dict.fromkeys(indexes))
        return table

    def is_expected(self, topic_id: Uuid) -> bool:
        """Whether something of this topic is due."""
        return topic_id in self._coming

    def give_up(self, topic_id: Uuid) -> None:
        """The topic is gone."""
        table = self._coming.get(topic_id)
        if table is not None:
            table.due.clear()
            self._complete(table)

    def make_some(self) -> None:
        """A slice now, and the next one soon."""
        left = _SLICE
        while left and self._coming:
            table = next(iter(self._coming.values()))
            while left and table.due:
                table.make(next(iter(table.due)))
                left -= 1
            if not table.due:
                self._complete(table)
        if self._coming and self._next is None:
            self._next = asyncio.get_running_loop().call_soon(self._go_on)

    def make_all(self) -> None:
        while self._coming:
            table = next(iter(self._coming.values()))
            while table.due:
                table.make(next(iter(table.due)))
            self._complete(table)

    def close(self) -> None:
        if self._next is not None:
            self._next.cancel()

    def _go_on(self) -> None:
        self._next = None
        self.make_some()

    def _complete(self, table: ComingPartitions) -> None:
        del self._coming[table.topic_id]
        self._on_complete(table)
