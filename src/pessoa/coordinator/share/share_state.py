"""The state of one share partition as the share coordinator stores it, and the records that it is stored in.

    ShareSnapshot    the whole state; a null value is the end of the share partition
    ShareUpdate      what a write has changed, to be merged into the state before it

Epochs: the *state epoch* is the group's, from when it gave the partition its start offset; the *leader epoch* that of
the partition's leader which read the state last. A request of an older epoch is fenced. The *snapshot epoch* counts
snapshots, and an update names the one that it follows.

**Merging.** Writes of a leader may arrive out of order, so a merge must not depend on it (Kafka 4.4's rules): the start
offset is the greater one, the number of records that are done behind it goes with it, and the batches are combined by
their ranks (`pessoa.share.state_batches`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pessoa.base.ids import Uuid
from pessoa.coordinator.shard import CoordinatorRecord
from pessoa.share.state_batches import DeliveryState, StateBatch, combine
from pessoa.wire.stored import share_state_records as stored
from pessoa.wire.stored.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    ShareUpdateValueStateBatch,
)

# A start offset that share.auto.offset.reset has still to decide.
NO_OFFSET = -1
NO_COUNT = -1


class ShareKey(NamedTuple):
    group_id: str
    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        """Return the key for FindCoordinator, whose hash decides which partition of the topic keeps the state."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> ShareKey:
        """Return the key that `text` shows. Raises ValueError. It is parsed from the right, since a group id may have
        colons."""
        group_id, topic_id, partition = text.rsplit(":", 2)
        if not group_id:
            raise ValueError("the group id is empty")
        return cls(group_id, Uuid.parse(topic_id), int(partition))


class Update(NamedTuple):
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: list[StateBatch]


class ShareState(NamedTuple):
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_ms: int
    # When the last snapshot was written.
    write_ms: int
    batches: tuple[StateBatch, ...] = ()
    # Since the last snapshot.
    update_count: int = 0
    # Where the last snapshot stands in the log: nothing before it is needed for this share partition.
    snapshot_offset: int = 0

    def merge(self, update: Update) -> ShareState:
        leader_epoch, start_offset, count, batches = update
        if start_offset == self.start_offset:
            count = max(self.delivery_complete_count, count)
        elif start_offset < self.start_offset:
            start_offset, count = self.start_offset, self.delivery_complete_count
        return self._replace(
            leader_epoch=max(self.leader_epoch, leader_epoch),
            start_offset=start_offset,
            delivery_complete_count=count,
            batches=tuple(combine(self.batches, batches, start_offset)),
        )


class WireBatch(Protocol):
    """A state batch as it stands in a WriteShareGroupState request, or in a record of `__share_group_state`."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def from_wire(batches: Sequence[WireBatch]) -> list[StateBatch]:
    """Return the state batches of a message. Raises ValueError for a delivery state that does not exist."""
    return [
        StateBatch(batch.first_offset, batch.last_offset, DeliveryState(batch.delivery_state), batch.delivery_count)
        for batch in batches
    ]


def state_of(value: ShareSnapshotValue, offset: int) -> ShareState:
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp,
        value.write_timestamp,
        tuple(from_wire(value.state_batches)),
        snapshot_offset=offset,
    )


def snapshot_record(key: ShareKey, state: ShareState) -> CoordinatorRecord:
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_ms,
        write_timestamp=state.write_ms,
        state_batches=[
            stored.StateBatch(first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count)
            for first, last, delivery_state, count in state.batches
        ],
    )
    return CoordinatorRecord(_snapshot_key(key), value)


def tombstone(key: ShareKey) -> CoordinatorRecord:
    return CoordinatorRecord(_snapshot_key(key), None)


def update_record(key: ShareKey, snapshot_epoch: int, update: Update) -> CoordinatorRecord:
    value = ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=[
            ShareUpdateValueStateBatch(
                first_offset=first, last_offset=last, delivery_state=delivery_state, delivery_count=count
            )
            for first, last, delivery_state, count in update.batches
        ],
    )
    update_key = ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return CoordinatorRecord(update_key, value)


def update_of(value: ShareUpdateValue) -> Update:
    return Update(value.leader_epoch, value.start_offset, value.delivery_complete_count, from_wire(value.state_batches))


def _snapshot_key(key: ShareKey) -> ShareSnapshotKey:
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
