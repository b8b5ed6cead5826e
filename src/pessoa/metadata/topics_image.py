"""Topics and their partitions, as the metadata log defines them.

A partition has two counters. `leader_epoch` moves when a leader is elected (also the same one anew): a request with an
older one speaks to a leader that is no more. `partition_epoch` moves with every change, and is what a leader names
when it asks the controller to change the in-sync replicas.

    replicas ⊇ isr          the in-sync ones may lead
    adding, removing        a reassignment is going on: replicas = the old and the new ones together
    elr                     out of sync, but known to hold everything below the high watermark (KIP-966)
    directories             beside each replica: the log directory of that broker which holds it (KIP-858)

`TopicsDelta` gathers the changes of some records and then makes the next `TopicsImage` in one go. It copies the tables
of topics once, and of partitions only those of topics that changed. Partitions that are created together share what is
the same in them: a thousand on three brokers have six different lists of replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

from pessoa.base.ids import Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.wire.stored.metadata_records import (
        ClearElrRecord,
        PartitionChangeRecord,
        PartitionRecord,
        RemoveTopicRecord,
        TopicRecord,
    )

T = TypeVar("T")

NO_LEADER = -1
# In a change record: the leader does not change.
NO_LEADER_CHANGE = -2

RECOVERED = 0
RECOVERING = 1
_RECOVERY_UNCHANGED = -1

# What stands in the place of a directory id that is not known (KIP-858).
DIRECTORY_MIGRATING = Uuid.of(0)
DIRECTORY_UNASSIGNED = Uuid.of(1)
DIRECTORY_LOST = Uuid.of(2)


class PartitionImage(NamedTuple):
    replicas: tuple[int, ...]
    # As many as there are replicas.
    directories: tuple[Uuid, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    # -1 while there is none.
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    def directory_of(self, replica: int) -> Uuid:
        """Return the id of the log directory in which a broker has its replica."""
        return self.directories[self.replicas.index(replica)]


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    id: Uuid
    # Numbered from 0 without gaps.
    partitions: Mapping[int, PartitionImage]


@dataclass(frozen=True, slots=True)
class TopicsImage:
    by_name: Mapping[str, TopicImage]
    by_id: Mapping[Uuid, TopicImage]

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.by_name.get(topic)
        return None if found is None else found.partitions.get(index)

    def name_of(self, topic_id: Uuid) -> str | None:
        found = self.by_id.get(topic_id)
        return None if found is None else found.name


NO_TOPICS = TopicsImage({}, {})


def changed_partition(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Return the partition after a change: a list that is null stays as it was, a record that names a leader begins
    a new leader epoch."""
    replicas = partition.replicas if record.replicas is None else tuple(record.replicas)
    if record.directories is None:
        directories = partition.directories
    else:
        directories = tuple(record.directories)
    if len(directories) != len(replicas):
        # Only a controller that does not support directories changes the replicas without their directories.
        directories = (DIRECTORY_MIGRATING,) * len(replicas)
    leader, leader_epoch = partition.leader, partition.leader_epoch
    if record.leader != NO_LEADER_CHANGE:
        leader, leader_epoch = record.leader, leader_epoch + 1
    recovery = record.leader_recovery_state
    return PartitionImage(
        replicas=replicas,
        directories=directories,
        isr=_or_unchanged(record.isr, partition.isr),
        removing_replicas=_or_unchanged(record.removing_replicas, partition.removing_replicas),
        adding_replicas=_or_unchanged(record.adding_replicas, partition.adding_replicas),
        elr=_or_unchanged(record.eligible_leader_replicas, partition.elr),
        last_known_elr=_or_unchanged(record.last_known_elr, partition.last_known_elr),
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=partition.leader_recovery_state if recovery == _RECOVERY_UNCHANGED else recovery,
    )


def _or_unchanged(changed: list[int] | None, present: tuple[int, ...]) -> tuple[int, ...]:
    return present if changed is None else tuple(changed)


class TopicsDelta:
    """The changes of topics since an image. `changed` holds the partitions of every topic that was created or
    changed."""

    def __init__(self, image: TopicsImage) -> None:
        self.image = image
        self.names: dict[Uuid, str] = {}
        self.changed: dict[Uuid, dict[int, PartitionImage]] = {}
        # Deleted topics of the old image, with their names.
        self.deleted: dict[Uuid, str] = {}
        self._interned: dict[tuple[object, ...], tuple[object, ...]] = {}

    def replay_topic(self, record: TopicRecord) -> None:
        self.names[record.topic_id] = record.name
        self.changed[record.topic_id] = {}

    def replay_partition(self, record: PartitionRecord) -> None:
        self._changed_partitions(record.topic_id)[record.partition_id] = self._partition_image(record)

    def replay_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._changed_partitions(record.topic_id)
        partitions[record.partition_id] = changed_partition(partitions[record.partition_id], record)

    def replay_remove(self, record: RemoveTopicRecord) -> str:
        """Remove a topic, and return its name."""
        topic_id = record.topic_id
        self.changed.pop(topic_id, None)
        created = self.names.pop(topic_id, None)
        if created is not None:
            return created
        name = self.image.by_id[topic_id].name
        self.deleted[topic_id] = name
        return name

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        """Clear the ELR and last known ELR of all partitions of one topic, or of all topics if none is named."""
        for topic_id in self._topic_ids(record.topic_name):
            partitions = self.changed.get(topic_id)
            if partitions is None:
                partitions = dict(self.image.by_id[topic_id].partitions)
            affected = {
                index: partition._replace(elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1)
                for index, partition in partitions.items()
                if partition.elr or partition.last_known_elr
            }
            if affected:
                self._changed_partitions(topic_id).update(affected)

    def finish(self) -> TopicsImage:
        if not self.changed and not self.deleted:
            return self.image
        by_name, by_id = dict(self.image.by_name), dict(self.image.by_id)
        for topic_id, name in self.deleted.items():
            del by_id[topic_id]
            del by_name[name]
        for topic_id, partitions in self.changed.items():
            name = self.names.get(topic_id) or self.image.by_id[topic_id].name
            ordered = dict(sorted(partitions.items()))
            assert list(ordered) == list(range(len(ordered))), f"{name} has the partitions {list(ordered)}"
            by_name[name] = by_id[topic_id] = TopicImage(name, topic_id, ordered)
        return TopicsImage(by_name, by_id)

    def _changed_partitions(self, topic_id: Uuid) -> dict[int, PartitionImage]:
        partitions = self.changed.get(topic_id)
        if partitions is None:
            partitions = self.changed[topic_id] = dict(self.image.by_id[topic_id].partitions)
        return partitions

    def _partition_image(self, record: PartitionRecord) -> PartitionImage:
        replicas = self._intern(tuple(record.replicas))
        return PartitionImage(
            replicas=replicas,
            directories=self._intern(tuple(record.directories) or (DIRECTORY_MIGRATING,) * len(replicas)),
            isr=self._intern(tuple(record.isr)),
            removing_replicas=tuple(record.removing_replicas),
            adding_replicas=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            leader_recovery_state=record.leader_recovery_state,
        )

    def _intern(self, values: tuple[T, ...]) -> tuple[T, ...]:
        return cast("tuple[T, ...]", self._interned.setdefault(values, values))

    def _topic_ids(self, name: str) -> list[Uuid]:
        present = {topic_id: topic.name for topic_id, topic in self.image.by_id.items() if topic_id not in self.deleted}
        present.update(self.names)
        return [topic_id for topic_id, known in present.items() if not name or known == name]
