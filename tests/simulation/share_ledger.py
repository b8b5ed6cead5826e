"""The acknowledgements and deliveries of a share group, the check that they are consistent, and the stored share state.

`ShareLedger` has the acknowledgements that members of the share group have sent, and the responses:

    accepted, rejected, gap: answered with success   the record is final, and never delivered again
    the same, unanswered or answered with an error   it may be final or not
    delivered, and not acknowledged                  it is delivered again, up to the delivery limit

`StoredShare` is a second and simple implementation of the state that a share coordinator keeps, with one entry for
every offset. It gets the records of `__share_group_state` as they become committed, and checks them: start offset and
epochs only grow, and so does the (delivery count, state) of every record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pessoa.share.acknowledgement import AcknowledgeType
from pessoa.share.state_batches import DeliveryState
from pessoa.wire.stored.share_state_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from tests.simulation.history import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pessoa.coordinator.share.share_state import ShareState
    from pessoa.wire.schema import Message
    from tests.simulation.history import TopicPartition

FINAL = frozenset((AcknowledgeType.GAP, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT))
_NOT_BEGUN = -1


class Answered(NamedTuple):
    member: str
    type: AcknowledgeType


@dataclass(slots=True)
class _Records:
    """The records of one partition."""

    # Offsets whose final acknowledgement was confirmed.
    done: dict[int, Answered] = field(default_factory=dict)
    # Offsets for which a final acknowledgement was sent, whatever the response.
    asked: set[int] = field(default_factory=set)
    # Offset → how often it was delivered
    deliveries: Counter[int] = field(default_factory=Counter)


class ShareLedger:
    def __init__(self, partitions: Sequence[TopicPartition], delivery_limit: int) -> None:
        self.delivery_limit = delivery_limit
        self._records = {partition: _Records() for partition in partitions}

    def __repr__(self) -> str:
        return f"<ShareLedger: {self.done_count} done of {self.delivery_count} deliveries>"

    @property
    def done_count(self) -> int:
        return sum(len(one.done) for one in self._records.values())

    @property
    def delivery_count(self) -> int:
        return sum(one.deliveries.total() for one in self._records.values())

    def deliver(self, member: str, partition: TopicPartition, offset: int, count: int) -> None:
        if not 1 <= count <= self.delivery_limit:
            raise Violation(
                f"{member} gets {partition}@{offset} as delivery {count}, and the limit is {self.delivery_limit}"
            )
        self._records[partition].deliveries[offset] += 1

    def ask(self, partition: TopicPartition, types: Mapping[int, AcknowledgeType]) -> None:
        self._records[partition].asked.update(offset for offset, kind in types.items() if kind in FINAL)

    def answer(self, member: str, partition: TopicPartition, types: Mapping[int, AcknowledgeType]) -> None:
        """Note that the broker has answered this acknowledgement with success."""
        for offset, kind in types.items():
            if kind in FINAL:
                self._records[partition].done.setdefault(offset, Answered(member, kind))

    def done(self, partition: TopicPartition) -> Mapping[int, Answered]:
        return self._records[partition].done

    def check_complete(
        self,
        partition: TopicPartition,
        offsets: Iterable[int],
        given_up: set[int],
        loads: Sequence[Mapping[int, int]],
    ) -> None:
        """Check that every record is final or has reached the delivery limit. `offsets` are the records that the group
        could get, `given_up` those that were seen at the delivery limit, `loads` the delivery counts by offset that
        each leader loaded.

        A leader counts on from the counts that it loaded. It may have delivered more often than it could store: a
        leader that does not reach the share coordinator delivers a record again when its lock expires.
        """
        records = self._records[partition]
        for offset in offsets:
            if offset not in records.asked and offset not in given_up:
                raise Violation(
                    f"lost: no member of the share group is done with {partition}@{offset}, "
                    f"which was delivered {records.deliveries[offset]} times"
                )
        for offset, count in records.deliveries.items():
            loaded = [load.get(offset, 0) for load in loads]
            if count > sum(self.delivery_limit - one for one in loaded):
                raise Violation(
                    f"{partition}@{offset} was delivered {count} times, with a limit of {self.delivery_limit} "
                    f"and leaders that loaded {loaded}"
                )


class StoredShare:
    """The state of one share partition according to the committed records of `__share_group_state`."""

    def __init__(self, name: object) -> None:
        self.name = name
        self.start_offset = _NOT_BEGUN
        self.state_epoch = 0
        self.leader_epoch = 0
        self.marks: dict[int, tuple[int, DeliveryState]] = {}

    def __repr__(self) -> str:
        return f"<StoredShare {self.name} from {self.start_offset}, leader epoch {self.leader_epoch}, {self.marks}>"

    def is_done(self, offset: int) -> bool:
        return offset < self.start_offset or (offset in self.marks and self.marks[offset][1].is_terminal)

    def update(self, value: ShareUpdateValue) -> None:
        self._merge(value)

    def replace(self, value: ShareSnapshotValue) -> None:
        """Apply a ShareSnapshot, which contains everything that was stored before it."""
        if value.state_epoch < self.state_epoch:
            raise Violation(f"the state epoch of {self.name} went back from {self.state_epoch} to {value.state_epoch}")
        if value.state_epoch > self.state_epoch:
            self.start_offset, self.leader_epoch, self.marks = _NOT_BEGUN, 0, {}
        self.state_epoch = value.state_epoch
        stored = {
            offset: (batch.delivery_count, DeliveryState(batch.delivery_state))
            for batch in value.state_batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        for offset, mark in self.marks.items():
            if offset >= value.start_offset and stored.get(offset, (-1, DeliveryState.AVAILABLE)) < mark:
                raise Violation(f"a snapshot of {self.name} forgets that {offset} was {mark}")
        if value.start_offset < self.start_offset:
            raise Violation(
                f"a snapshot took the start offset of {self.name} back from {self.start_offset} to {value.start_offset}"
            )
        self._merge(value)

    def _merge(self, value: ShareUpdateValue | ShareSnapshotValue) -> None:
        if value.leader_epoch < self.leader_epoch:
            raise Violation(
                f"the leader epoch of {self.name} went back from {self.leader_epoch} to {value.leader_epoch}"
            )
        self.leader_epoch = value.leader_epoch
        self.start_offset = max(self.start_offset, value.start_offset)
        for batch in value.state_batches:
            mark = (batch.delivery_count, DeliveryState(batch.delivery_state))
            for offset in range(batch.first_offset, batch.last_offset + 1):
                self.marks[offset] = max(mark, self.marks.get(offset, mark))
        self.marks = {offset: mark for offset, mark in self.marks.items() if offset >= self.start_offset}

    def check_memory(self, state: ShareState) -> None:
        """Check that the coordinator has the same state in memory, once everything is committed."""
        marks = {
            offset: (batch.delivery_count, batch.state)
            for batch in state.batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        ours = (self.start_offset, self.state_epoch, self.leader_epoch, self.marks)
        if (state.start_offset, state.state_epoch, state.leader_epoch, marks) != ours:
            raise Violation(f"the share coordinator has {state}, and its log says {self!r}")


class StoredShares:
    def __init__(self) -> None:
        self.by_key: dict[tuple[str, int], StoredShare] = {}

    def __repr__(self) -> str:
        return f"<StoredShares: {list(self.by_key.values())}>"

    def get(self, group_id: str, index: int) -> StoredShare | None:
        return self.by_key.get((group_id, index))

    def commit(self, key: Message, value: Message | None) -> None:
        """Apply a committed record of `__share_group_state`."""
        assert isinstance(key, (ShareSnapshotKey, ShareUpdateKey))
        if value is None:
            raise Violation(f"the state of {key.group_id} was deleted")
        name = (key.group_id, key.partition)
        stored = self.by_key.get(name)
        if stored is None:
            if isinstance(key, ShareUpdateKey):
                raise Violation(f"an update of {name}, of which there is no snapshot")
            stored = self.by_key[name] = StoredShare(f"{key.group_id}:{key.partition}")
        if isinstance(value, ShareSnapshotValue):
            stored.replace(value)
        else:
            assert isinstance(value, ShareUpdateValue)
            stored.update(value)
