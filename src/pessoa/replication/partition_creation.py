"""Creating the partitions that the metadata gives to this broker: in slices, or at once when a request needs one.

    schedule ──▶ pending ──the turn of its slice, or `ensure`──▶ created

A topic may have ten thousand partitions, and creating each takes a moment. If all were created in one go, the broker
would answer no request meanwhile: no heartbeat, no fetch, not even which broker leads them. So the first slice is
created at once, which is all of most topics, and the others in slices between which the event loop is free.

A request for a pending partition does not wait for its slice: a look-up that finds nothing calls `ensure`. What a
partition becomes is decided by the image of the moment in which it is created: of a topic that is deleted before that,
nothing is created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from pessoa.base.ids import Uuid

if TYPE_CHECKING:
    from pessoa.metadata.topics_image import TopicImage
    from pessoa.replication.partition import Partition

# A few milliseconds of work.
_SLICE = 25

# Creates a partition and puts it into its table; None if the image does not give it to this broker any more.
Create = Callable[[Uuid, int], "Partition | None"]


class _PendingTopic(NamedTuple):
    """The partitions of one topic that are still to be created."""

    topic: str
    # In the order in which they are created.
    indexes: dict[int, None]


class PartitionCreation:
    """`on_complete` is called with the id and the name of a topic of which no partition is pending any more."""

    def __init__(self, create: Create, on_complete: Callable[[Uuid, str], None]) -> None:
        self._create = create
        self._on_complete = on_complete
        self._pending: dict[Uuid, _PendingTopic] = {}
        self._next_slice: asyncio.Handle | None = None

    def __repr__(self) -> str:
        return f"<PartitionCreation: {sum(len(one.indexes) for one in self._pending.values())} partitions are pending>"

    def schedule(self, topic: TopicImage, indexes: Iterable[int]) -> None:
        """Add partitions to those that are pending. `create_slice` must follow."""
        pending = self._pending.setdefault(topic.id, _PendingTopic(topic.name, {}))
        pending.indexes.update(dict.fromkeys(indexes))

    def is_pending(self, topic_id: Uuid) -> bool:
        """Whether any partition of this topic is pending."""
        return topic_id in self._pending

    def ensure(self, topic_id: Uuid, index: int) -> Partition | None:
        """Create a partition now if it is pending; None if it is not, or if it belongs to this broker no longer."""
        pending = self._pending.get(topic_id)
        if pending is None or index not in pending.indexes:
            return None
        del pending.indexes[index]
        return self._create(topic_id, index)

    def cancel(self, topic_id: Uuid) -> None:
        """Remove the pending partitions of a deleted topic."""
        pending = self._pending.get(topic_id)
        if pending is not None:
            pending.indexes.clear()
            self._complete(topic_id)

    def create_slice(self) -> None:
        """Create a few partitions now, and schedule the next slice if more are pending."""
        left = _SLICE
        while left and self._pending:
            topic_id, pending = next(iter(self._pending.items()))
            while left and pending.indexes:
                self.ensure(topic_id, next(iter(pending.indexes)))
                left -= 1
            if not pending.indexes:
                self._complete(topic_id)
        if self._pending and self._next_slice is None:
            self._next_slice = asyncio.get_running_loop().call_soon(self._create_next_slice)

    def create_all(self) -> None:
        while self._pending:
            topic_id, pending = next(iter(self._pending.items()))
            while pending.indexes:
                self.ensure(topic_id, next(iter(pending.indexes)))
            self._complete(topic_id)

    def close(self) -> None:
        if self._next_slice is not None:
            self._next_slice.cancel()

    def _create_next_slice(self) -> None:
        self._next_slice = None
        self.create_slice()

    def _complete(self, topic_id: Uuid) -> None:
        topic = self._pending.pop(topic_id).topic
        self._on_complete(topic_id, topic)
