"""All replicas of this broker, by topic name and by topic id, kept in step with the metadata image.

An image says which partitions this broker should have, which broker leads them and in which epoch. `apply` makes it so:
logs are created and removed, leadership is taken and given up, fetchers follow the leaders elsewhere, changed topic
configurations reach the logs. It works through the topics that a change names, not through all. Where these have many
new partitions, it does so in slices (`partition_creation`).

An image may be older than what a leader knows: the controller's answer to AlterPartition comes before the metadata
does. The partition epoch tells which is newer, and the older state is ignored.

A broker whose partitions have no replicas elsewhere runs none of the tasks here.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from pessoa.base.clock import SystemClock
from pessoa.log.checkpoints import REPLICATION_OFFSET_FILE
from pessoa.log.directory import DirectoryOffline
from pessoa.log.durable_log import LogState
from pessoa.log.files import DiskError
from pessoa.log.flusher import Flusher
from pessoa.log.topic_config import topic_value
from pessoa.metadata.image import ConfigResource, MetadataImage
from pessoa.replication.directory_moves import DirectoryMoves
from pessoa.replication.partition import NO_LEADER, LocalBroker, Partition
from pessoa.replication.partition_creation import PartitionCreation
from pessoa.replication.replication_settings import ReplicationSettings
from pessoa.replication.replication_throttle import names_replica
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence

    from pessoa.base.clock import Clock
    from pessoa.base.ids import Uuid
    from pessoa.log.directory import LogDirectory
    from pessoa.log.log_config import LogConfig
    from pessoa.log.upkeep import Upkeep
    from pessoa.metadata.topics_image import PartitionImage, TopicImage
    from pessoa.net.channel import Channel
    from pessoa.replication.alter_partition_queue import AlterPartition, AlterPartitionQueue
    from pessoa.replication.isr import IsrChange
    from pessoa.replication.replica_fetcher import ReplicaFetchers

log = logging.getLogger("pessoa.replication")

_MIN_INSYNC_REPLICAS = "min.insync.replicas"
_LEADER_THROTTLED = "leader.replication.throttled.replicas"
_FOLLOWER_THROTTLED = "follower.replication.throttled.replicas"
_NO_PARTITIONS: Mapping[int, Partition] = {}


class LocalReplicas:
    def __init__(
        self,
        node_id: int,
        directories: Sequence[LogDirectory],
        upkeep: Upkeep,
        config_of: Callable[[str], LogConfig],
        new_uuid: Callable[[], Uuid],
        *,
        clock: Clock | None = None,
        flusher: Flusher | None = None,
        settings: ReplicationSettings | None = None,
        broker_epoch: Callable[[], int] = lambda: -1,
        channel_to: Callable[[int], Channel | None] = lambda _: None,
        alter_partition: AlterPartition | None = None,
    ) -> None:
        """`config_of` gives the present configuration of a topic; `channel_to` opens a channel to a broker that is not
        shared, or None while the address of that broker is not known."""
        self.node_id = node_id
        self.directories = directories
        self.by_name: dict[str, dict[int, Partition]] = {}
        self.by_id: dict[Uuid, dict[int, Partition]] = {}
        # Called with every partition whose leadership came, changed or went: the coordinators listen.
        self.on_leadership: list[Callable[[Partition], None]] = []
        # Called with the id of every topic that has got new partitions, when all of them are created.
        self.on_created: list[Callable[[Uuid], None]] = []
        self._creation = PartitionCreation(self._create_if_ours, self._all_created)
        # The configuration of the topic whose partitions are being created.
        self._config: tuple[str, LogConfig] | None = None
        self._upkeep = upkeep
        self._config_of = config_of
        self._new_uuid = new_uuid
        self._clock = clock or SystemClock()
        self._flusher = flusher or Flusher()
        self._channel_to = channel_to
        self._alter_partition = alter_partition
        self._broker = LocalBroker(
            node_id, self._clock, settings or ReplicationSettings(), MetadataImage.EMPTY, broker_epoch
        )
        self.moves = DirectoryMoves(self._broker, directories, upkeep, self._flusher, new_uuid)
        self._broker.propose = self._propose
        self._broker.flush = self._flush_soon
        # Called with every log directory that fails, after its partitions have stopped to lead and follow.
        self.on_directory_offline: list[Callable[[LogDirectory], None]] = []
        for directory in directories:
            directory.on_offline = partial(self._directory_failed, directory)
            directory.on_materialised = partial(upkeep.look_after, directory)
            directory.neighbours = directories
        self._flushing: dict[Partition, asyncio.Task[None]] = {}
        self._fetchers: ReplicaFetchers | None = None
        self._alter_partition_queue: AlterPartitionQueue | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def __repr__(self) -> str:
        count = sum(map(len, self.by_name.values()))
        return f"<LocalReplicas of broker {self.node_id}: {count} partitions of {len(self.by_name)} topics>"

    # Finding.

    @property
    def fetched_bytes(self) -> int:
        """Bytes of records that followers on this broker have fetched."""
        return self._broker.fetched_bytes

    def max_lag(self) -> int:
        """The largest lag of the followers on this broker: how many committed offsets one lacks."""
        return 0 if self._fetchers is None else self._fetchers.max_lag()

    def ensure(self, topic: str, index: int) -> Partition | None:
        """Return this broker's replica of a partition, or None. One that is pending is created now."""
        found = self.by_name.get(topic, _NO_PARTITIONS).get(index)
        return self.create_pending(topic, index) if found is None else found

    def ensure_by_id(self, topic_id: Uuid, index: int) -> Partition | None:
        """Return this broker's replica of a partition by the id of its topic, or None. One that is pending is created
        now."""
        found = self.by_id.get(topic_id, _NO_PARTITIONS).get(index)
        return self._creation.ensure(topic_id, index) if found is None else found

    def create_pending(self, topic: str, index: int) -> Partition | None:
        """Create a partition that the metadata gives to this broker and that is pending; None if it is not pending."""
        known = self._broker.image.topics.by_name.get(topic)
        return None if known is None else self._creation.ensure(known.id, index)

    def all(self) -> Iterator[Partition]:
        for partitions in self.by_name.values():
            yield from partitions.values()

    def why_missing(self, image: MetadataImage, topic: str, index: int) -> ErrorCode:
        """Return the error for a partition that this broker has no replica of: it exists on other brokers, or not at
        all."""
        known = image.topics.by_name.get(topic)
        if known is None or index not in known.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def leader_elsewhere(self, image: MetadataImage, topic: str, index: int) -> tuple[int, int]:
        """Return the leader and the leader epoch, by the metadata, of a partition that this broker has no replica of.
        Both are -1 for a partition that does not exist."""
        known = image.topics.by_name.get(topic)
        partition = None if known is None else known.partitions.get(index)
        return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)

    # Following the image.

    def apply(self, image: MetadataImage, changed: Iterable[Uuid], deleted: Iterable[Uuid]) -> None:
        """Take over a new image. Call it also for changes that name no topic: which followers may join the ISR depends
        on the brokers in the image."""
        self._broker.image = image
        self._config = None
        for topic_id in deleted:
            self._creation.cancel(topic_id)
            self._remove_all(list(self.by_id.get(topic_id, {}).values()))
        for topic_id in changed:
            topic = image.topics.by_id.get(topic_id)
            if topic is not None:
                self._update(topic)
        self._creation.create_slice()

    def configure(self, settings: ReplicationSettings) -> None:
        """Take over a changed configuration of the broker."""
        had = self._broker.settings.num_replica_fetchers
        self._broker.configure(settings)
        if self._fetchers is not None and settings.num_replica_fetchers != had:
            self._fetchers.spread()
        self._configure_replication(self.by_name)

    def reconfigure(self, topics: Iterable[str]) -> None:
        """Give the changed configuration of these topics to their logs and partitions."""
        names = list(topics)
        self._config = None
        for topic in names:
            config = self._config_of(topic)
            for partition in self.by_name.get(topic, {}).values():
                partition.log.configure(config)
                if partition.future is not None:
                    partition.future.log.configure(config)
        self._configure_replication(names)

    def _configure_replication(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for partition in self.by_name.get(topic, {}).values():
                self._configure_partition(partition)
                if partition.is_leader:
                    partition.maybe_advance_high_watermark()

    def _configure_partition(self, partition: Partition) -> None:
        """Apply what a topic's configuration says about its replicas, besides their logs."""
        own = self._broker.image.configs.of(ConfigResource.TOPIC, partition.topic)
        partition.min_insync_replicas = self._broker.settings.min_insync_replicas
        if _MIN_INSYNC_REPLICAS in own:
            value = topic_value(_MIN_INSYNC_REPLICAS, own)
            assert isinstance(value, int)
            partition.min_insync_replicas = value
        partition.is_leader_throttled = self._is_throttled(own, _LEADER_THROTTLED, partition.index)
        partition.is_follower_throttled = self._is_throttled(own, _FOLLOWER_THROTTLED, partition.index)

    def _is_throttled(self, own: Mapping[str, str], name: str, index: int) -> bool:
        if name not in own:
            return False
        replicas = topic_value(name, own)
        assert isinstance(replicas, tuple)
        return names_replica(replicas, index, self.node_id)

    def _update(self, topic: TopicImage) -> None:
        table = self.by_id.get(topic.id, {})
        missing, moved = [], []
        for index, wanted in topic.partitions.items():
            # A partition that is pending takes the change from the image when it is created.
            partition = table.get(index)
            if self.node_id not in wanted.replicas:
                if partition is not None:
                    # It was moved to other brokers.
                    moved.append(partition)
            elif partition is None:
                missing.append(index)
            else:
                self._lead_or_follow(partition, wanted)
        self._remove_all(moved)
        if missing:
            self._creation.schedule(topic, missing)
            self.by_id[topic.id] = self.by_name[topic.name] = table

    def _create_if_ours(self, topic_id: Uuid, index: int) -> Partition | None:
        """Create a partition, if the image still gives it to this broker."""
        topic = self._broker.image.topics.by_id.get(topic_id)
        wanted = None if topic is None else topic.partitions.get(index)
        if topic is None or wanted is None or self.node_id not in wanted.replicas:
            return None
        if self._config is None or self._config[0] != topic.name:
            # Worked out once for a topic of a thousand partitions.
            self._config = (topic.name, self._config_of(topic.name))
        partition = self._create(topic, index, self._config[1])
        if partition is not None:
            self._lead_or_follow(partition, wanted)
        return partition

    def _all_created(self, topic_id: Uuid, topic: str) -> None:
        if not self.by_id[topic_id]:
            self._drop_table(topic, topic_id)
        for listener in self.on_created:
            listener(topic_id)

    def _drop_table(self, topic: str, topic_id: Uuid) -> None:
        table = self.by_id.pop(topic_id)
        # Another topic may have the name by now.
        if self.by_name.get(topic) is table:
            del self.by_name[topic]

    def _lead_or_follow(self, partition: Partition, wanted: PartitionImage) -> None:
        if wanted.partition_epoch <= partition.partition_epoch or partition.is_offline:
            return
        before = (partition.is_leader, partition.leader_id, partition.leader_epoch)
        if wanted.leader == self.node_id:
            if self._fetchers is not None:
                self._fetchers.unfollow(partition)
            partition.lead(wanted)
            if partition.in_sync is not None:
                self._watch()
        else:
            partition.follow(wanted)
        if (partition.is_leader, partition.leader_id, partition.leader_epoch) != before:
            if not partition.is_leader:
                self._fetch(partition)
            for listener in self.on_leadership:
                listener(partition)

    def _fetch(self, partition: Partition) -> None:
        if partition.leader_id == NO_LEADER:
            if self._fetchers is not None:
                self._fetchers.unfollow(partition)
            return
        if self._fetchers is None:
            from pessoa.replication.replica_fetcher import ReplicaFetchers

            self._fetchers = ReplicaFetchers(self._broker, self._channel_to, self._flusher)
            self._watch()
        self._fetchers.follow(partition)

    def _create(self, topic: TopicImage, index: int, config: LogConfig) -> Partition | None:
        """Return the partition with the log that was loaded, or a new one: in the directory that AlterReplicaLogDirs
        has named, or in the one with the fewest partitions."""
        key = (topic.name, index)
        if not self.moves.recover(topic.name, topic.id, index):
            return None
        directory = self._find(topic, index)
        if directory is not None:
            found = directory.partitions[key]
            found.configure(config)
            partition = self._register(Partition(topic.name, topic.id, index, found, directory, self._broker))
            self.moves.resume(partition)
            return partition
        online = [directory for directory in self.directories if directory.offline is None]
        if not online:
            log.error("no log directory is left for %s-%s", topic.name, index)
            return None
        directory = self.moves.take_requested_directory(*key)
        if directory is None:
            directory = min(online, key=lambda one: len(one.partitions) + len(one.futures))
        try:
            created = directory.create(topic.name, index, topic.id, config, self._clock.now_ms())
        except DirectoryOffline:
            return self._create(topic, index, config)
        return self._register(Partition(topic.name, topic.id, index, created, directory, self._broker))

    def _find(self, topic: TopicImage, index: int) -> LogDirectory | None:
        """Return the directory that has the log. If several have one of its name, all but the best are renamed to
        strays: a loss of power, or an operator who copied files, may have left an empty directory before the one with
        the data."""
        key = (topic.name, index)
        holding = [directory for directory in self.directories if key in directory.partitions]
        # A topic of that name may have been deleted and created anew while we were away.
        ours = [one for one in holding if one.topic_ids.get(key, topic.id) == topic.id]
        best = max(ours, key=lambda one: _precedence(one, key), default=None)
        for directory in holding:
            if directory is best:
                continue
            if best is not None and directory in ours and directory.partitions[key].state is LogState.OPEN:
                log.error(
                    "%s-%s is in %s and in %s; the former is served, it has %r and the latter %r",
                    *key, best.path, directory.path, best.partitions[key], directory.partitions[key],
                )  # fmt: skip
            self._remove_log(directory, topic.name, index, keeps_bytes=True)
        if best is not None:
            best.adopt(topic.name, index, topic.id)
        return best

    def _register(self, partition: Partition) -> Partition:
        self._configure_partition(partition)
        self._upkeep.look_after(partition.directory, partition.log)
        self.by_id[partition.topic_id][partition.index] = partition
        return partition

    def _remove_all(self, partitions: Iterable[Partition]) -> None:
        by_directory: dict[LogDirectory, list[tuple[str, int]]] = {}
        for partition in partitions:
            self._stop_serving(partition)
            by_directory.setdefault(partition.directory, []).append((partition.topic, partition.index))
        for directory, keys in by_directory.items():
            try:
                directory.remove_all(keys, self._new_uuid)
            except DirectoryOffline as error:
                log.warning("%s partitions could not be removed from their disk: %s", len(keys), error)

    def _stop_serving(self, partition: Partition) -> None:
        if self._fetchers is not None:
            self._fetchers.unfollow(partition)
        self._forget(partition)
        partition.leave()
        for listener in self.on_leadership:
            listener(partition)
        self.moves.cancel(partition)

    def _forget(self, partition: Partition) -> None:
        table = self.by_id[partition.topic_id]
        del table[partition.index]
        if not table and not self._creation.is_pending(partition.topic_id):
            self._drop_table(partition.topic, partition.topic_id)

    def _remove_log(self, directory: LogDirectory, topic: str, index: int, *, keeps_bytes: bool = False) -> None:
        remove = directory.set_aside if keeps_bytes else directory.remove
        try:
            remove(topic, index, self._new_uuid())
        except (DirectoryOffline, DiskError) as error:
            log.warning("%s-%s could not be removed from its disk: %s", topic, index, error)

    def remove_strays(self, image: MetadataImage) -> None:
        """Remove the logs that the image does not give to this broker: of topics that were deleted, and of replicas
        that were moved, while it was down. The image must be up to date."""
        self._creation.create_all()
        for directory in self.directories:
            if directory.offline is not None:
                continue
            for topic, index in list(directory.partitions):
                wanted = image.topics.partition(topic, index)
                known = image.topics.by_name.get(topic)
                is_ours = (
                    wanted is not None
                    and known is not None
                    and self.node_id in wanted.replicas
                    and directory.topic_ids.get((topic, index), known.id) == known.id
                )
                if not is_ours:
                    log.info("%s-%s in %s belongs to no topic of this broker any more", topic, index, directory.path)
                    is_renamed = known is not None and directory.topic_ids.get((topic, index), known.id) != known.id
                    self._remove_log(directory, topic, index, keeps_bytes=is_renamed)
        self.moves.remove_strays(list(self.all()))

    def _directory_failed(self, directory: LogDirectory, _: DiskError) -> None:
        """Stop leading and following the partitions of a directory that is offline, until a restart."""
        lost = [partition for partition in self.all() if partition.directory is directory]
        for partition in lost:
            if self._fetchers is not None:
                self._fetchers.unfollow(partition)
            partition.leave()
        # The caller that met the failure may be a coordinator in the middle of a write.
        asyncio.get_running_loop().call_soon(self._announce_failure, directory, lost)

    def _announce_failure(self, directory: LogDirectory, lost: list[Partition]) -> None:
        for partition in lost:
            for listener in self.on_leadership:
                listener(partition)
        for told in self.on_directory_offline:
            told(directory)

    # Background tasks.

    def _flush_soon(self, partition: Partition) -> None:
        if partition not in self._flushing and not partition.is_offline:
            task = asyncio.get_running_loop().create_task(self._flush(partition))
            self._flushing[partition] = task
            task.add_done_callback(_report)

    async def _flush(self, partition: Partition) -> None:
        directory = partition.directory
        try:
            await self._flusher.wait_until_durable(partition.log, partition.log.log_end_offset)
        except DiskError as error:
            directory.fail(error)
            return
        finally:
            del self._flushing[partition]
        if partition.is_leader:
            # If more has come meanwhile, that begins the next flush.
            partition.maybe_advance_high_watermark()

    def _propose(self, partition: Partition, change: IsrChange) -> None:
        if self._alter_partition is None:
            return
        if self._alter_partition_queue is None:
            from pessoa.replication.alter_partition_queue import AlterPartitionQueue

            self._alter_partition_queue = AlterPartitionQueue(self._alter_partition, self._clock)
        self._alter_partition_queue.propose(partition, change)

    def _watch(self) -> None:
        """Start the tasks for partitions that have replicas on other brokers, unless they run."""
        if not self._tasks:
            for work in (self._watch_followers(), self._write_high_watermarks()):
                self._start(work)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_report)
        self._tasks.append(task)

    async def _watch_followers(self) -> None:
        """Shrink the ISR by followers that lag: within one and a half times `replica.lag.time.max.ms`."""
        while True:
            await self._clock.wait_ms(max(1, self._broker.settings.replica_lag_time_max_ms // 2))
            for partition in list(self.all()):
                partition.maybe_shrink_isr()

    async def _write_high_watermarks(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._clock.wait_ms(self._broker.settings.replica_high_watermark_checkpoint_interval_ms)
            for directory in self.directories:
                if directory.offline is None:
                    rendered = directory.render_checkpoints(REPLICATION_OFFSET_FILE)
                    try:
                        await loop.run_in_executor(None, directory.write_rendered, rendered)
                    except DiskError as error:
                        directory.fail(error)

    async def close(self) -> None:
        """Stop fetching, and wake the requests that wait."""
        self._creation.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._alter_partition_queue is not None:
            await self._alter_partition_queue.close()
        if self._fetchers is not None:
            await self._fetchers.close()
        await self.moves.close()
        await asyncio.gather(*self._flushing.values(), return_exceptions=True)
        for partition in self.all():
            partition.wake_all()


def _precedence(directory: LogDirectory, key: tuple[str, int]) -> tuple[bool, bool, int, int]:
    """Return the sort key among several logs of one partition: with files before without, with a topic id before
    without, then by the latest leader epoch, then by the log end. A log of an older epoch may be longer by records that
    were never committed."""
    found = directory.partitions[key]
    epoch = found.epochs.latest_epoch
    return (
        found.state is LogState.OPEN,
        key in directory.topic_ids,
        -1 if epoch is None else epoch,
        found.log_end_offset,
    )


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        task.get_loop().call_exception_handler(
            {"message": "a background task of the replicas failed", "exception": error, "task": task}
        )
