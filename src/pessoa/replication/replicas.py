"""All replicas of this broker, by topic name and by topic id, kept in step with the metadata image.

An image says which partitions this broker should have, who leads them and in which epoch. `apply` makes it so: logs are
created and removed, leadership is taken and given up, changed topic configurations reach the logs. It works through the
topics that a change names, not through all.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.log.directory import DirectoryOffline
from pessoa.log.files import DiskError
from pessoa.replication.partition import Partition
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pessoa.base.ids import Uuid
    from pessoa.log.config import LogConfig
    from pessoa.log.directory import LogDirectory
    from pessoa.log.upkeep import Upkeep
    from pessoa.metadata.image import MetadataImage
    from pessoa.metadata.topics import PartitionImage, TopicImage

log = logging.getLogger("pessoa.replication")


class Replicas:
    def __init__(
        self,
        node_id: int,
        directories: Sequence[LogDirectory],
        upkeep: Upkeep,
        config_of: Callable[[str], LogConfig],
        new_uuid: Callable[[], Uuid],
    ) -> None:
        """`config_of` gives the configuration of a topic as it is now."""
        self.node_id = node_id
        self.directories = directories
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[Uuid, dict[int, Partition]] = {}
        # Told about every partition whose leadership came, changed or went: the coordinators listen.
        self.on_leadership: list[Callable[[Partition], None]] = []
        self._upkeep = upkeep
        self._config_of = config_of
        self._new_uuid = new_uuid

    def __repr__(self) -> str:
        count = sum(map(len, self.by_name.values()))
        return f"<Replicas of broker {self.node_id}: {count} partitions of {len(self.by_name)} topics>"

    # Finding.

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self.by_name.get(topic)
        return None if partitions is None else partitions.get(index)

    def all(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def why_missing(self, image: MetadataImage, topic: str, index: int) -> ErrorCode:
        """The error for a partition that is not here: it is elsewhere, or nowhere."""
        known = image.topics.by_name.get(topic)
        if known is None or index not in known.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # Following the image.

    def apply(self, image: MetadataImage, changed: Iterable[Uuid], deleted: Iterable[Uuid], now_ms: int) -> None:
        for topic_id in deleted:
            self._remove(topic_id)
        for topic_id in changed:
            topic = image.topics.by_id.get(topic_id)
            if topic is not None:
                self._update(topic, now_ms)

    def reconfigure(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for partition in self.by_name.get(topic, {}).values():
                partition.log.configure(self._config_of(topic))

    def _update(self, topic: TopicImage, now_ms: int) -> None:
        for index, wanted in topic.partitions.items():
            if self.node_id not in wanted.replicas:
                continue
            partition = self.by_id.get(topic.id, {}).get(index)
            if partition is None:
                partition = self._create(topic, index, now_ms)
                if partition is None:
                    continue
            self._lead_or_follow(partition, wanted)

    def _lead_or_follow(self, partition: Partition, wanted: PartitionImage) -> None:
        if wanted.partition_epoch == partition.partition_epoch and wanted.leader_epoch == partition.leader_epoch:
            return
        if wanted.leader == self.node_id:
            partition.lead(self.node_id, wanted.leader_epoch, wanted.partition_epoch, tuple(wanted.isr))
        else:
            partition.resign(wanted.leader, wanted.leader_epoch, wanted.partition_epoch, tuple(wanted.isr))
        for listener in self.on_leadership:
            listener(partition)

    def _create(self, topic: TopicImage, index: int, now_ms: int) -> Partition | None:
        """Find the log among those that were loaded, or create it in the directory that has the fewest."""
        key = (topic.name, index)
        for directory in self.directories:
            found = directory.partitions.get(key)
            if found is None:
                continue
            if directory.topic_ids.get(key, topic.id) == topic.id:
                found.configure(self._config_of(topic.name))
                return self._keep(Partition(topic.name, topic.id, index, found, directory))
            # A topic of that name was deleted and created anew while we were away.
            directory.remove(topic.name, index, self._new_uuid())
        online = [directory for directory in self.directories if directory.offline is None]
        if not online:
            log.error("no log directory is left for %s-%s", topic.name, index)
            return None
        directory = min(online, key=lambda one: len(one.partitions))
        try:
            created = directory.create(topic.name, index, topic.id, self._config_of(topic.name), now_ms)
        except DirectoryOffline:
            return self._create(topic, index, now_ms)
        return self._keep(Partition(topic.name, topic.id, index, created, directory))

    def _keep(self, partition: Partition) -> Partition:
        self._upkeep.look_after(partition.directory, partition.log)
        self.by_id.setdefault(partition.topic_id, {})[partition.index] = partition
        self.by_name.setdefault(partition.topic, {})[partition.index] = partition
        return partition

    def _remove(self, topic_id: Uuid) -> None:
        for index, partition in self.by_id.pop(topic_id, {}).items():
            self.by_name.pop(partition.topic, None)
            partition.resign(-1, partition.leader_epoch, partition.partition_epoch, ())
            for listener in self.on_leadership:
                listener(partition)
            try:
                partition.directory.remove(partition.topic, index, self._new_uuid())
            except (DirectoryOffline, DiskError) as error:
                log.warning("%s-%s could not be removed from its disk: %s", partition.topic, index, error)
