"""One log directory: the partitions on it, their checkpoints, and what happens when its disk fails.

    meta.properties                    whose directory this is: cluster, node, directory id
    .lock                              held while a process has the directory open
    .kafka_cleanshutdown               it was closed in order; removed as soon as it is opened again
    recovery-point-offset-checkpoint   per partition: where recovery starts after a crash
    replication-offset-checkpoint      per partition: the high watermark
    log-start-offset-checkpoint        per partition: the log start offset, where it is not the first segment's
    cleaner-offset-checkpoint          per partition: up to where compaction has come, where it has
    orders-0/                          a partition
    orders-1.3f0c…-delete/             a partition that was deleted and waits to be removed
    orders-2.9a41…-future/             a copy of a partition that moves here from another directory (`future_log`)
    orders-3.77b2…-stray/              a partition of another topic of that name, or one that is in a neighbour as well;
                                       it is neither read nor removed

Crash order: what a checkpoint says must be true before it says it. A recovery point moves only after its bytes are
synced, the marker of a clean stop is written last and removed first. A partition that is gone may not stay in a
checkpoint: one that is created under its name later would be taken for it.

Checkpoints are rendered on the event loop, where offsets belong together, and written there or in a worker thread. A
lock keeps two writers apart, and a number keeps an older text from taking the place of a newer one.

A disk that fails takes the directory offline: the first `DiskError` that reaches `fail` is kept, everything here
refuses from then on, and nothing is written any more. Other directories of the broker do not notice. There is no way
back but a restart, since what a disk kept that refused a write or a sync is not known. Which directory that is, the
path of the error tells: a log may have moved to another directory while its sync was waited for.
"""

from __future__ import annotations

import json
import logging
from contextlib import closing
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.checkpoints import (
    CLEANER_OFFSET_FILE,
    LOG_START_OFFSET_FILE,
    RECOVERY_POINT_FILE,
    REPLICATION_OFFSET_FILE,
    CorruptCheckpoint,
    TopicPartition,
    parse_offsets,
    render_offsets,
)
from pessoa.log.durable_log import LogState
from pessoa.log.files import DiskError, create_file, replace_file
from pessoa.log.future_log import DELETED_DIRECTORY_SUFFIX, FUTURE_SUFFIX, FutureLog, future_of, marked_name
from pessoa.log.lazy_segment import empty_log
from pessoa.log.log_loader import load_partition
from pessoa.log.meta_properties import (
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    CorruptProperties,
    MetaProperties,
    parse_meta_properties,
    parse_partition_metadata,
    render_meta_properties,
    render_partition_metadata,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pessoa.base.ids import Uuid
    from pessoa.log.files import Disk
    from pessoa.log.log_config import LogConfig
    from pessoa.log.partition_log import PartitionLog

log = logging.getLogger("pessoa.log")

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
# A partition that is another topic's, or that another directory has as well, and more of it.
STRAY_SUFFIX = "-stray"
_OTHER_DIRECTORY_SUFFIXES = (FUTURE_SUFFIX, STRAY_SUFFIX)
# The metadata log has its own owner, the quorum.
_METADATA_TOPIC = "__cluster_metadata"


class DirectoryOffline(Exception):
    """The disk of this log directory has failed; the cause is the `DiskError` that showed it."""


class RenderedCheckpoints(NamedTuple):
    """The texts of some checkpoints at one moment; later ones have a higher number."""

    number: int
    texts: dict[str, str]


class _FoundCheckpoints(NamedTuple):
    """The checkpoints of a directory when it is opened; no recovery points if their file is missing or damaged."""

    recovery_points: Mapping[TopicPartition, int] | None
    high_watermarks: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]

    def recovery_point(self, partition: TopicPartition) -> int:
        # A partition that the checkpoint does not know is newer than it.
        return 0 if self.recovery_points is None else self.recovery_points.get(partition, 0)

    def partitions(self) -> set[TopicPartition]:
        return {*(self.recovery_points or ()), *self.high_watermarks, *self.log_starts}


class LogDirectory:
    """One log directory; `partitions` are the logs on it. Opening loads every partition; after a clean `close` the next
    opening is quick."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.meta: MetaProperties | None = None
        self.partitions: dict[TopicPartition, PartitionLog] = {}
        self.topic_ids: dict[TopicPartition, Uuid] = {}
        # Copies of partitions in other directories. None of them is in `partitions`.
        self.futures: list[FutureLog] = []
        self.offline: DiskError | None = None
        # All directories of the broker.
        self.neighbours: Sequence[LogDirectory] = (self,)
        # Called once, with the error, when the directory goes offline.
        self.on_offline: Callable[[DiskError], None] = lambda _: None
        # Logs whose files were created and not synced, for the upkeep to sync; `on_materialised` tells it of each.
        self.unsynced_creations: list[PartitionLog] = []
        self.on_materialised: Callable[[PartitionLog], None] = lambda _: None
        # Deleted partitions, for the upkeep to remove when their time has come.
        self.unwanted: list[str] = []
        self.was_clean = False
        # The broker epoch of the last clean shutdown; -1 if it was none, or did not say.
        self.previous_broker_epoch = -1
        self._disk = disk
        self._unlock: Callable[[], None] | None = None
        self.is_open = False
        self._checkpoint_lock = Lock()
        self._rendered_count = 0
        # What the cleaner's checkpoint says, or will say after a write that was rendered: it hardly ever changes.
        self._cleaner_checkpoint: Mapping[TopicPartition, int] = {}
        # For each file the number of what it says.
        self._written: dict[str, int] = {}
        # One of each for all logs: there may be thousands.
        self._on_materialise = self._prepare_first_segment
        self._write_log_starts = partial(self._write_checkpoint, LOG_START_OFFSET_FILE)
        self._write_recovery_points = partial(self._write_checkpoint, RECOVERY_POINT_FILE, CLEANER_OFFSET_FILE)

    def __repr__(self) -> str:
        state = f"offline ({self.offline})" if self.offline is not None else "online"
        return f"<LogDirectory {self.path}: {len(self.partitions)} partitions, {state}>"

    # Opening and closing.

    def claim(self) -> None:
        """Lock the directory against other processes until `release`. Must come before anything is written to it."""
        if self._unlock is None:
            self._disk.make_directory(self.path)
            self._unlock = self._disk.lock(self.path)

    def open(self, config_of: Callable[[str], LogConfig], now_ms: int) -> None:
        """Load every partition. DiskError and CorruptProperties pass: a directory that raises them stays closed."""
        self.claim()
        names = self._disk.list(self.path)
        if META_PROPERTIES_FILE in names:
            self.meta = parse_meta_properties(self._read_text(META_PROPERTIES_FILE), self._in(META_PROPERTIES_FILE))
        self.was_clean = CLEAN_SHUTDOWN_FILE in names
        if self.was_clean:
            self.previous_broker_epoch = _broker_epoch(self._read_text(CLEAN_SHUTDOWN_FILE))
            # From the first append on it would be wrong.
            self._disk.remove(self._in(CLEAN_SHUTDOWN_FILE))
        # A process that died may have renamed a checkpoint without syncing that; what is read now has to last.
        self._disk.sync_directory(self.path)
        found = _FoundCheckpoints(
            self._offsets(RECOVERY_POINT_FILE, names),
            self._offsets(REPLICATION_OFFSET_FILE, names) or {},
            self._offsets(LOG_START_OFFSET_FILE, names) or {},
        )
        self._cleaner_checkpoint = self._offsets(CLEANER_OFFSET_FILE, names) or {}
        # Recovery of a log has ended below its recovery point. A later recovery that used the old one would take
        # what a loss of power takes from the batches that follow now for a gap that compaction has left.
        is_any_lowered = False
        for name in names:
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                self.unwanted.append(name)
                continue
            future = future_of(name)
            partition = future or partition_of(name)
            if partition is None or partition[0] == _METADATA_TOPIC:
                continue
            config = config_of(partition[0])
            if future is None and not found.log_starts.get(partition, 0) and not self._disk.list(self._in(name)):
                self._register_log(
                    partition, empty_log(self._disk, self._in(name), config, now_ms, self._on_materialise)
                )
            else:
                loaded = self._load(name, partition, future, config, found, now_ms)
                is_any_lowered |= loaded.recovery_point < found.recovery_point(partition)
        is_any_gone = not found.partitions() <= {*self.partitions, *(one.key for one in self.futures)}
        must_write = found.recovery_points is None or is_any_gone or is_any_lowered
        if must_write or self._cleaner_checkpoint != self.checkpoints()[CLEANER_OFFSET_FILE]:
            self.write_checkpoints()
        self.is_open = True

    def _load(
        self,
        name: str,
        partition: TopicPartition,
        future: TopicPartition | None,
        config: LogConfig,
        found: _FoundCheckpoints,
        now_ms: int,
    ) -> PartitionLog:
        """Load the log of one directory, and keep it as a partition or as a copy (`future`)."""
        path = self._in(name)
        recovery_point = found.recovery_point(partition)
        loaded = load_partition(
            self._disk,
            path,
            config,
            now_ms,
            was_clean=self.was_clean,
            recovery_point=None if found.recovery_points is None else recovery_point,
            log_start_offset=found.log_starts.get(partition, 0),
            cleaned_to=self._cleaner_checkpoint.get(partition, 0),
            high_watermark=found.high_watermarks.get(partition, 0),
        )
        if loaded.has_lost_end and future is None:
            # The controller must not take it to have what it had.
            self.previous_broker_epoch = -1
        is_new = not self.was_clean and recovery_point <= loaded.segments[0].base_offset
        if is_new:
            # Nothing of it was ever flushed: the process that died may not have synced that there is such a log.
            loaded.sync_creation = partial(self.sync_creations, (loaded,))
        if future is not None:
            self._register_future_log(FutureLog(*future, self._topic_id_in(path), name, loaded, self))
            return loaded
        if partition in self._cleaner_checkpoint:
            # What recovery has truncated was clean, and what follows is not.
            loaded.cleaned_to = min(self._cleaner_checkpoint[partition], loaded.log_end_offset)
        if is_new:
            self.unsynced_creations.append(loaded)
        self._register_log(partition, loaded)
        return loaded

    def format(self, meta: MetaProperties, now_ms: int) -> None:
        """Write the `meta.properties` of an empty directory."""
        assert self.meta is None, f"{self.path} belongs to {self.meta}"
        self._disk.make_directory(self.path)
        self._disk.write_file(self._in(META_PROPERTIES_FILE), render_meta_properties(meta, now_ms).encode())
        self.meta = meta

    def close(self, broker_epoch: int = -1) -> None:
        """Shut down cleanly: everything is synced, the checkpoints are exact, and `.kafka_cleanshutdown` says so."""
        self._check_online()
        try:
            for partition_log in (*self.partitions.values(), *(one.log for one in self.futures)):
                partition_log.close()
            self.write_checkpoints()
            marker = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
            self._disk.write_file(self._in(CLEAN_SHUTDOWN_FILE), marker.encode())
            self.is_open = False
            self.release()
        except DiskError as error:
            self.fail(error)
            raise DirectoryOffline(self.path) from error

    def release(self) -> None:
        """Unlock the directory for other processes. Nothing is written: call it after `close`, or if it was never
        opened."""
        if self._unlock is not None:
            self._unlock()
            self._unlock = None

    # Partitions.

    def create(self, topic: str, partition: int, topic_id: Uuid, config: LogConfig, now_ms: int) -> PartitionLog:
        """Create the log of a partition; its files come with its first batch (`lazy_segment`)."""
        self._check_online()
        key = (topic, partition)
        assert key not in self.partitions, f"{topic}-{partition} is in {self.path}"
        path = self._in(f"{topic}-{partition}")
        if self._make_directory(path):
            created = empty_log(self._disk, path, config, now_ms, self._on_materialise)
        else:
            created = self._create_with_files(path, topic_id, config, now_ms, is_empty=False)
            self.unsynced_creations.append(created)
        self.topic_ids[key] = topic_id
        self._register_log(key, created)
        return created

    def _make_directory(self, path: str) -> bool:
        """Create the directory of a log; return whether it is empty. Files that are found in it cannot be trusted."""
        try:
            return self._disk.make_directory(path, durable=False) or not self._disk.list(path)
        except DiskError as error:
            self.fail(error)
            raise DirectoryOffline(self.path) from error

    def _create_with_files(
        self, path: str, topic_id: Uuid, config: LogConfig, now_ms: int, *, is_empty: bool
    ) -> PartitionLog:
        """Create a log with all its files, in a directory that may have others."""
        try:
            write = create_file if is_empty else replace_file
            write(self._disk, f"{path}/{PARTITION_METADATA_FILE}", render_partition_metadata(topic_id).encode())
            created = load_partition(self._disk, path, config, now_ms, was_clean=is_empty, is_new=is_empty)
        except DiskError as error:
            self.fail(error)
            raise DirectoryOffline(self.path) from error
        created.sync_creation = partial(self.sync_creations, (created,))
        return created

    def _prepare_first_segment(self, empty: PartitionLog) -> None:
        """Write `partition.metadata` before the first segment of an empty log, and have its creation synced."""
        key = partition_of(empty.directory.rpartition("/")[2])
        topic_id = None if key is None else self.topic_ids.get(key)
        if topic_id is not None:
            metadata = render_partition_metadata(topic_id).encode()
            create_file(self._disk, f"{empty.directory}/{PARTITION_METADATA_FILE}", metadata)
        empty.sync_creation = partial(self.sync_creations, (empty,))
        self.unsynced_creations.append(empty)
        self.on_materialised(empty)

    def sync_creations(self, created: Sequence[PartitionLog]) -> None:
        """Sync the names of new logs, so that they survive a loss of power; for a worker thread, since it waits for the
        disk."""
        for one in created:
            metadata = f"{one.directory}/{PARTITION_METADATA_FILE}"
            try:
                if self._disk.exists(metadata):
                    with closing(self._disk.open(metadata, pooled=False)) as file:
                        file.sync()
                self._disk.sync_directory(one.directory)
            except DiskError as error:
                # The directory of a partition that was deleted meanwhile has another name, and need not be durable.
                if not (error.is_missing and one.is_released):
                    raise
        self._disk.sync_directory(self.path)

    def adopt(self, topic: str, partition: int, topic_id: Uuid) -> bool:
        """Return whether the log here is, or may be, of that topic. If `partition.metadata` is missing it is written,
        so that another topic of that name does not get the log after the next start; a log without files gets it
        later."""
        key = (topic, partition)
        if key in self.topic_ids:
            return self.topic_ids[key] == topic_id
        self.topic_ids[key] = topic_id
        adopted = self.partitions[key]
        if adopted.state is LogState.OPEN and self.offline is None:
            try:
                metadata = render_partition_metadata(topic_id).encode()
                self._disk.write_file(f"{adopted.directory}/{PARTITION_METADATA_FILE}", metadata)
            except DiskError as error:
                self.fail(error)
        return True

    def remove(self, topic: str, partition: int, unique: Uuid) -> None:
        """Rename a partition for removal; the upkeep removes its files. `unique` makes the name unique."""
        self.remove_all([(topic, partition)], lambda: unique)

    def remove_all(self, keys: Iterable[TopicPartition], new_uuid: Callable[[], Uuid]) -> None:
        """Remove many partitions, with as many syncs as for one."""
        self._check_online()
        names = []
        must_sync = False
        try:
            for topic, partition in keys:
                has_files = self.partitions[topic, partition].state is not LogState.EMPTY
                removed = self._take_out(topic, partition)
                if not has_files:
                    # It has no files that a loss of power could bring back, and every checkpoint says 0 of it. But
                    # where another directory may get the next partition of that name, its directory must not come back.
                    self._disk.remove_tree(removed.directory, missing_ok=True)
                    must_sync |= len(self.neighbours) > 1
                else:
                    names.append(marked_name(topic, partition, new_uuid().hex(), DELETED_DIRECTORY_SUFFIX))
                    self._disk.rename(removed.directory, self._in(names[-1]))
            if names or must_sync:
                self._disk.sync_directory(self.path)
            if names:
                self.write_checkpoints()
        except DiskError as error:
            self.fail(error)
            raise DirectoryOffline(self.path) from error
        self.unwanted += names

    def set_aside(self, topic: str, partition: int, unique: Uuid) -> None:
        """Rename a partition to a stray and keep its files, as Kafka does: perhaps only its topic id is wrong."""
        if self.partitions[topic, partition].state is LogState.EMPTY:
            self.remove(topic, partition, unique)
            return
        name = marked_name(topic, partition, unique.hex(), STRAY_SUFFIX)
        log.warning("%s-%s in %s is not the one that is wanted and is kept as %s", topic, partition, self.path, name)
        self.retire(topic, partition, name)

    def retire(self, topic: str, partition: int, name: str) -> None:
        """Rename the directory of a partition, which does not belong to this log directory any more."""
        self._check_online()
        self._put_away(self._take_out(topic, partition), name)

    def _take_out(self, topic: str, partition: int) -> PartitionLog:
        removed = self.partitions.pop((topic, partition))
        self.topic_ids.pop((topic, partition), None)
        removed.release()
        return removed

    def _put_away(self, removed: PartitionLog, name: str) -> None:
        try:
            self._disk.rename(removed.directory, self._in(name))
            self._disk.sync_directory(self.path)
            self.write_checkpoints()
        except DiskError as error:
            self.fail(error)
            raise DirectoryOffline(self.path) from error

    def remove_unwanted(self) -> None:
        """Remove the files of deleted partitions. Slow where there are many: for a worker thread."""
        while self.unwanted:
            self._disk.remove_tree(self._in(self.unwanted[0]), missing_ok=True)
            self.unwanted.pop(0)

    def _register_log(self, key: TopicPartition, loaded: PartitionLog) -> None:
        self.partitions[key] = loaded
        loaded.on_log_start_moved = self._write_log_starts
        loaded.on_recovery_point_lowered = self._write_recovery_points
        if key not in self.topic_ids and (topic_id := self._topic_id_in(loaded.directory)) is not None:
            self.topic_ids[key] = topic_id

    def _topic_id_in(self, directory: str) -> Uuid | None:
        path = f"{directory}/{PARTITION_METADATA_FILE}"
        if not self._disk.exists(path):
            return None
        try:
            return parse_partition_metadata(self._disk.read_file(path).decode("ascii", "replace"), path)
        except CorruptProperties as problem:
            # As if there were none: the cluster's metadata says whose partition it is.
            log.warning("%s; the topic id is not known", problem)
            return None

    # Copies of partitions that move here.

    def create_future(
        self, topic: str, partition: int, topic_id: Uuid, unique: Uuid, config: LogConfig, now_ms: int
    ) -> FutureLog:
        """Create the copy of a partition that moves here. Its creation is not synced."""
        self._check_online()
        name = marked_name(topic, partition, unique.hex(), FUTURE_SUFFIX)
        path = self._in(name)
        copy = self._create_with_files(path, topic_id, config, now_ms, is_empty=self._make_directory(path))
        created = FutureLog(topic, partition, topic_id, name, copy, self)
        self._register_future_log(created)
        return created

    def _register_future_log(self, future: FutureLog) -> None:
        self.futures.append(future)
        future.log.on_recovery_point_lowered = self._write_recovery_points

    def remove_future(self, future: FutureLog) -> None:
        """Remove the copy of a partition that moves no longer."""
        self._check_online()
        self.futures.remove(future)
        future.log.release()
        self._put_away(future.log, future.retired_name)
        self.unwanted.append(future.retired_name)

    def promote(self, topic: str, future: FutureLog) -> None:
        """Make the copy the partition: its original has been renamed for removal."""
        self._check_online()
        key = (topic, future.partition)
        assert key not in self.partitions, f"{key} is in {self.path}"
        if future.topic_id is not None:
            self.topic_ids[key] = future.topic_id
        path = self._in(f"{topic}-{future.partition}")
        try:
            self._disk.rename(future.log.directory, path)
            self.futures.remove(future)
            future.log.relocate(path)
            self._disk.sync_directory(self.path)
            self._register_log(key, future.log)
            self.write_checkpoints()
        except DiskError as error:
            self.fail(error)
            raise DirectoryOffline(self.path) from error

    # Checkpoints.

    def write_checkpoints(self) -> None:
        self.write_rendered(self.render_checkpoints())

    def render_checkpoints(self, *names: str) -> RenderedCheckpoints:
        """Return the present texts of the named checkpoint files, or of all of them."""
        self._rendered_count += 1
        wanted = {name: offsets for name, offsets in self.checkpoints().items() if name in names or not names}
        if CLEANER_OFFSET_FILE in wanted:
            if wanted[CLEANER_OFFSET_FILE] == self._cleaner_checkpoint:
                del wanted[CLEANER_OFFSET_FILE]
            else:
                self._cleaner_checkpoint = wanted[CLEANER_OFFSET_FILE]
        texts = {name: render_offsets(offsets) for name, offsets in wanted.items()}
        return RenderedCheckpoints(self._rendered_count, texts)

    def write_rendered(self, rendered: RenderedCheckpoints) -> None:
        """Write rendered checkpoints, unless newer ones were written already; from any thread."""
        with self._checkpoint_lock:
            for name, text in rendered.texts.items():
                if self._written.get(name, 0) < rendered.number:
                    self._disk.write_file(self._in(name), text.encode())
                    self._written[name] = rendered.number

    def checkpoints(self) -> dict[str, Mapping[TopicPartition, int]]:
        """Return the present offsets of each checkpoint file."""
        # A copy stands here under the name of its original, as in Kafka: one of them is in this directory, never both.
        logs = {**{one.key: one.log for one in self.futures}, **self.partitions}
        return {
            RECOVERY_POINT_FILE: {key: one.recovery_point for key, one in logs.items()},
            REPLICATION_OFFSET_FILE: {key: one.durable_high_watermark for key, one in logs.items()},
            LOG_START_OFFSET_FILE: {
                key: one.log_start_offset
                for key, one in logs.items()
                if one.log_start_offset > one.segments[0].base_offset
            },
            # Copies are not cleaned.
            CLEANER_OFFSET_FILE: {
                key: one.cleaned_to for key, one in self.partitions.items() if one.cleaned_to is not None
            },
        }

    def _write_checkpoint(self, *names: str) -> None:
        """Write some checkpoints now: for DeleteRecords and truncations, which are rare."""
        if self.offline is None:
            self.write_rendered(self.render_checkpoints(*names))

    def _offsets(self, name: str, names: list[str]) -> dict[TopicPartition, int] | None:
        """The offsets of a checkpoint file; None if it is missing or damaged."""
        if name not in names:
            return None
        try:
            text = self._read_text(name)
            if text:
                return parse_offsets(text, self._in(name))
        except CorruptCheckpoint as problem:
            # Each of them may be too low without harm: recovery then scans more, a high watermark is found again.
            log.warning("%s; it is taken for none", problem)
        return None

    # Failing.

    def fail(self, error: DiskError) -> None:
        """Take the log directory offline that holds the path of the error; it may be another than this. The first error
        stays the reason."""
        home_of(self.neighbours, error.path, self)._go_offline(error)

    def _go_offline(self, error: DiskError) -> None:
        if self.offline is None:
            self.offline = error
            log.error("the log directory %s goes offline: %s", self.path, error)
            self.on_offline(error)

    def _check_online(self) -> None:
        if self.offline is not None:
            raise DirectoryOffline(self.path) from self.offline

    def _in(self, name: str) -> str:
        return f"{self.path}/{name}"

    def _read_text(self, name: str) -> str:
        return self._disk.read_file(self._in(name)).decode("utf-8", "replace")


def home_of(directories: Sequence[LogDirectory], path: str, default: LogDirectory | None = None) -> LogDirectory:
    """Return the log directory that holds a path, the innermost where one is within another; `default` if none does."""
    holding = [one for one in directories if path == one.path or path.startswith(f"{one.path}/")]
    if not holding and default is not None:
        return default
    return max(holding, key=lambda one: len(one.path))


def _broker_epoch(marker: str) -> int:
    """The broker epoch in `.kafka_cleanshutdown`; Kafka wrote nothing into it before 3.9."""
    try:
        epoch = json.loads(marker)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return -1
    return epoch if isinstance(epoch, int) else -1


def partition_of(name: str) -> TopicPartition | None:
    """The topic and partition that a directory is named by: `my-topic-3`."""
    topic, dash, number = name.rpartition("-")
    if not (dash and topic and number.isascii() and number.isdigit()) or name.endswith(_OTHER_DIRECTORY_SUFFIXES):
        return None
    return topic, int(number)
