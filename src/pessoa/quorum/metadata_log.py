"""The log of `__cluster_metadata` on the disk: a partition's log, the snapshots beside it, and the voters they name.

    snapshot (offset 4711) ── log from at most 4711 on ──▶ …

The cluster's image is the latest snapshot and the batches behind it. The log begins at 0, or where a snapshot
ends: what retention takes away is what a later snapshot has too. If the disk has lost the end of the log, so that it
would end before the latest snapshot, the log goes on from there, since a snapshot has only what was committed.

It is the `RaftLogView` that `pessoa.raft` looks at. Epochs begin with 1, so 0 is the epoch of an empty log.

A disk may change what no CRC covers. This log was never compacted, so a batch is damaged that does not begin where the
one before it ends. So is an epoch above that of `quorum-state`, which is on the disk before anything of its epoch is
written, or another one than the checkpoint of the epochs has for what was synced: believed, it could win an election
against those who have more. `pessoa.quorum.voter_memory` decides what becomes of that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pessoa.base.ids import Uuid
from pessoa.log.leader_epoch_cache import UNDEFINED_EPOCH
from pessoa.log.log_config import UNLIMITED, LogConfig
from pessoa.log.log_loader import DAMAGED_SUFFIX, load_partition, read_epochs
from pessoa.log.meta_properties import PARTITION_METADATA_FILE, render_partition_metadata
from pessoa.log.partition_log import ReadUpTo
from pessoa.log.segment import LOG_SUFFIX
from pessoa.quorum.batches import VersionedRecord, encode_batch
from pessoa.quorum.durable_offset_file import DurableOffsetFile
from pessoa.quorum.snapshot_file import (
    PART_SUFFIX,
    SnapshotReader,
    read_snapshot,
    snapshot_name,
    snapshots_among,
)
from pessoa.raft.messages import OffsetAndEpoch
from pessoa.raft.voters import VoterHistory, VoterSet, voters_of
from pessoa.records.batch import RecordBatch, batches
from pessoa.records.control_records import QuorumMessage, build_quorum_batch, control_records
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.stored.control_record_bodies import KRaftVersionRecord, VotersRecord

if TYPE_CHECKING:
    from pessoa.log.files import Disk
    from pessoa.log.leader_epoch_cache import LeaderEpochCache
    from pessoa.log.partition_log import PartitionLog
    from pessoa.quorum.quorum_settings import QuorumSettings
    from pessoa.raft.messages import ReplicaKey

log = logging.getLogger("pessoa.quorum")

METADATA_TOPIC = "__cluster_metadata"
# KIP-595: the topic that must exist before topics have ids.
METADATA_TOPIC_ID = Uuid.of(1)
METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"
_READ_BYTES = 1 << 20


class CorruptMetadataLog(Exception):
    """Records that were synced are lost or changed, and no other voter can be asked for them."""


class MetadataLog:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        settings: QuorumSettings,
        static: VoterSet,
        now_ms: int,
        latest_epoch: int | None = None,
    ) -> None:
        """Open the log, or create it. Everything in it is on the disk then. `latest_epoch` is that of
        `quorum-state`."""
        self.directory = directory
        self.history = VoterHistory(static)
        self._disk = disk
        self._settings = settings
        disk.make_directory(directory)
        _write_partition_metadata(disk, directory)
        names = disk.list(directory)
        for name in names:
            if name.endswith(PART_SUFFIX):
                disk.remove(f"{directory}/{name}")
        # Oldest first.
        self.snapshots = snapshots_among(names)
        config = LogConfig(
            retention_ms=UNLIMITED,
            segment_bytes=settings.metadata_log_segment_bytes,
            segment_ms=settings.metadata_log_segment_ms,
        )
        self.durable_offset_file = DurableOffsetFile(disk, directory)
        said = read_epochs(disk, directory, names)
        # The log is read whole in any case, so checking it on the way costs little more.
        start = self._start_offset(names, said)
        self.partition: PartitionLog = load_partition(
            disk,
            directory,
            config,
            now_ms,
            was_clean=False,
            log_start_offset=start,
            synced_to=self.durable_offset_file.offset,
        )
        latest = self.latest_snapshot
        if latest is not None and latest.offset > self.log_end_offset:
            log.warning("%s ends at %s; it goes on after the snapshot %s", directory, self.log_end_offset, latest)
            self.partition.restart_at(latest.offset, now_ms)
        # Less is there than was once synced: see `durable_offset_file`. From here on the damage cannot be seen.
        self.has_forgotten = self.log_end_offset < self.durable_offset_file.offset
        if self.has_forgotten:
            synced_to = self.durable_offset_file.offset
            log.warning("%s ends at %s, and had been synced up to %s", directory, self.log_end_offset, synced_to)
            self.durable_offset_file.sync()
        # From here on offsets or epochs are not what they were.
        self.damaged_from, self.is_displaced = self._first_damage(said, latest_epoch)
        self.partition.flush()
        self._learn_voters()

    def __repr__(self) -> str:
        return f"<MetadataLog {self.partition!r}, {len(self.snapshots)} snapshots>"

    def _start_offset(self, names: Sequence[str], said: LeaderEpochCache | None) -> int:
        """Return where the log starts: at 0, or at a snapshot. A start in the middle of a segment is known from the
        first entry of the leader epoch checkpoint, which is truncated with the log; otherwise it is the first snapshot
        that is left."""
        earliest = said.earliest_entry if said is not None else None
        if earliest is not None and any(snapshot.offset == earliest.start_offset for snapshot in self.snapshots):
            return earliest.start_offset
        first = min((int(name.removesuffix(LOG_SUFFIX)) for name in names if name.endswith(LOG_SUFFIX)), default=None)
        if first == 0 or not self.snapshots:
            return 0
        return self.snapshots[-1].offset if first is None else self.snapshots[0].offset

    def _first_damage(self, said: LeaderEpochCache | None, latest_epoch: int | None) -> tuple[int | None, bool]:
        """Return the offset of the first damaged batch, None if there is none; and whether that batch is displaced.

        A displaced batch does not begin where the one before it ends. The other kind of damage is an impossible epoch.
        """
        for segment in self.partition.segments:
            next_offset = segment.base_offset
            for place in segment.places():
                if place.base_offset != next_offset:
                    return next_offset, True
                epoch = place.partition_leader_epoch
                if latest_epoch is not None and epoch > latest_epoch:
                    return next_offset, False
                is_synced = next_offset < self.durable_offset_file.offset
                known = said.epoch_for_offset(next_offset) if said and is_synced else None
                if known is not None and epoch != known:
                    return next_offset, False
                next_offset = place.last_offset + 1
        return None, False

    def forget_damage(self, now_ms: int) -> None:
        """Truncate the log at its first damage, although it was committed: the other voters have those records."""
        offset = self.damaged_from
        assert offset is not None
        log.warning("%s is damaged at %s: it is cut there", self.directory, offset)
        # Where a batch is displaced, so is the end.
        self.durable_offset_file.sync(offset + 1 if self.is_displaced else self.log_end_offset)
        latest = self.latest_snapshot
        if latest is not None and latest.offset > offset:
            offset = latest.offset
            self.partition.restart_at(offset, now_ms)
        else:
            self.partition.truncate_to(offset, now_ms)
        self.partition.flush()
        self.history.truncate_to(offset)
        self.damaged_from, self.has_forgotten = None, True

    def damaged_copies(self) -> list[str]:
        """Return the file names of the copies of segments that recovery made before it truncated synced records of
        them."""
        return [name for name in self._disk.list(self.directory) if name.endswith(DAMAGED_SUFFIX)]

    def remove_damaged_copies(self) -> None:
        for name in self.damaged_copies():
            self._disk.remove(f"{self.directory}/{name}")

    def _learn_voters(self) -> None:
        latest, start = self.latest_snapshot, self.log_start_offset
        if latest is not None:
            reader = self._read_stored_snapshot(latest)
            self.history.restart(latest.offset, reader.voters, reader.kraft_version)
            start = latest.offset
        for segment in self.partition.segments:
            for _, batch in segment.batches():
                if batch.base_offset >= start:
                    self._learn_from_control_batch(batch)

    def _read_stored_snapshot(self, snapshot: OffsetAndEpoch) -> SnapshotReader:
        """Return a reader of the snapshot. Raises CorruptMetadataLog if it is damaged or incomplete: only a whole file
        ever got that name."""
        try:
            reader = self.read_snapshot(snapshot)
        except InvalidBatch as damage:
            problem = str(damage)
        else:
            if reader.is_complete:
                return reader
            problem = "its end is missing"
        raise CorruptMetadataLog(
            f"{self.directory}/{snapshot_name(snapshot)} is damaged: {problem}. Restore it from a copy; or give the "
            "node an empty directory, so that it gets the metadata from the other controllers"
        )

    def _learn_from_control_batch(self, batch: RecordBatch) -> None:
        if not batch.is_control:
            return
        for control in control_records(batch):
            if isinstance(control.message, VotersRecord):
                self.history.add_voters(control.offset, voters_of(control.message))
            elif isinstance(control.message, KRaftVersionRecord):
                self.history.add_version(control.offset, control.message.kraft_version)

    # What raft wants to know.

    @property
    def log_start_offset(self) -> int:
        return self.partition.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.partition.log_end_offset

    @property
    def durable_end_offset(self) -> int:
        return min(self.partition.recovery_point, self.partition.log_end_offset)

    @property
    def last_epoch(self) -> int:
        epoch = self.partition.epochs.latest_epoch
        if epoch is not None:
            return epoch
        return self.snapshots[-1].epoch if self.snapshots else 0

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshots[-1] if self.snapshots else None

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        epochs = self.partition.epochs
        first, start = epochs.earliest_entry, self.log_start_offset
        if start > 0 and (first is None or epoch < first.epoch):
            return self._end_before_start(epoch)
        found = epochs.end_offset_for(epoch, self.log_end_offset)
        if found.epoch == UNDEFINED_EPOCH:
            return OffsetAndEpoch(self.log_end_offset, self.last_epoch)
        return OffsetAndEpoch(found.end_offset, found.epoch)

    def is_leaving(self, key: ReplicaKey, high_watermark: int) -> bool:
        return self.history.is_leaving(key, high_watermark)

    def _end_before_start(self, epoch: int) -> OffsetAndEpoch:
        """Return the end of an epoch of which the log has no record: known only from the snapshot at the log's start.
        For an epoch before the snapshot's, return an offset before the start, which no fetch can continue from."""
        start = self.log_start_offset
        known = next((snapshot for snapshot in self.snapshots if snapshot.offset == start), None)
        if known is not None and epoch >= known.epoch:
            return known
        return OffsetAndEpoch(start - 1, epoch)

    # Writing.

    def append(self, versioned: Sequence[VersionedRecord], epoch: int, now_ms: int) -> int:
        """Append one batch of records; return the offset of the last of them."""
        return self.partition.append_own(memoryview(encode_batch(versioned, now_ms)), epoch, now_ms).last_offset

    def append_control(self, messages: Sequence[QuorumMessage], epoch: int, now_ms: int) -> int:
        data = memoryview(build_quorum_batch(messages, timestamp=now_ms))
        last_offset = self.partition.append_own(data, epoch, now_ms).last_offset
        self._learn_from_control_batch(RecordBatch(data))
        return last_offset

    def append_fetched(self, data: memoryview, epoch: int, now_ms: int) -> None:
        """Append the batches that the leader of that epoch has sent. Raises InvalidBatch if they are damaged."""
        self.partition.append_as_follower(data, now_ms, epoch)
        for batch in batches(data):
            if batch.next_offset <= self.log_end_offset:
                self._learn_from_control_batch(batch)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        self.durable_offset_file.lower_to(offset)
        self.partition.truncate_to(offset, now_ms)
        self.history.truncate_to(offset)

    # Reading.

    def read(self, offset: int, max_bytes: int) -> memoryview:
        """Return the records from `offset` on for a follower: whole batches, and perhaps a part of the last one."""
        found = self.partition.read(offset, max_bytes, ReadUpTo.LOG_END).data
        return memoryview(found.read() if found is not None else b"")

    def committed_from(self, offset: int) -> Iterator[RecordBatch]:
        """Yield the batches from `offset` up to the high watermark; each is read when it is asked for."""
        while offset < self.partition.high_watermark:
            found = self.partition.read(offset, _READ_BYTES, ReadUpTo.HIGH_WATERMARK).data
            if found is None or not found.size:
                return
            for batch in batches(found.read()):
                if batch.base_offset >= offset:
                    offset = batch.next_offset
                    yield batch

    # Snapshots.

    def read_snapshot(self, snapshot: OffsetAndEpoch) -> SnapshotReader:
        return read_snapshot(self._disk, self.directory, snapshot)

    def snapshot_taken(self, snapshot: OffsetAndEpoch) -> None:
        """Add a snapshot whose file has been written."""
        if snapshot not in self.snapshots:
            self.snapshots = sorted([*self.snapshots, snapshot])

    def restart_at(self, snapshot: OffsetAndEpoch, now_ms: int) -> SnapshotReader:
        """Replace the whole log by a snapshot that was downloaded from the leader; return its reader."""
        reader = self.read_snapshot(snapshot)
        self.snapshot_taken(snapshot)
        self.durable_offset_file.lower_to(snapshot.offset)
        self.partition.restart_at(snapshot.offset, now_ms)
        self.partition.flush()
        self._remove_snapshots([one for one in self.snapshots if one < snapshot])
        self.history.restart(snapshot.offset, reader.voters, reader.kraft_version)
        return reader

    def clean(self, now_ms: int) -> None:
        """Remove segments and snapshots that a later snapshot makes superfluous, by size and by age."""
        while len(self.snapshots) > 1 and self._is_too_much(now_ms):
            oldest, following = self.snapshots[:2]
            # The log first: with the file gone and the log not cut, nothing would explain where it starts.
            self.partition.delete_records_before(following.offset)
            segments = self.partition.segments
            count = sum(later.base_offset <= following.offset for later in segments[1:])
            if count:
                self.partition.drop_segments(count, now_ms)
            self._remove_snapshots([oldest])

    def _is_too_much(self, now_ms: int) -> bool:
        if self._settings.metadata_max_retention_bytes >= 0:
            sizes = (self._disk.size(f"{self.directory}/{snapshot_name(one)}") for one in self.snapshots)
            if self.partition.size + sum(sizes) > self._settings.metadata_max_retention_bytes:
                return True
        if self._settings.metadata_max_retention_ms < 0:
            return False
        try:
            last_ms = self.read_snapshot(self.snapshots[0]).last_timestamp_ms
        except InvalidBatch as damage:
            log.warning("%s/%s is damaged, and goes: %s", self.directory, snapshot_name(self.snapshots[0]), damage)
            return True
        return now_ms - last_ms > self._settings.metadata_max_retention_ms

    def _remove_snapshots(self, snapshots: Sequence[OffsetAndEpoch]) -> None:
        for snapshot in snapshots:
            self.snapshots.remove(snapshot)
            self._disk.remove(f"{self.directory}/{snapshot_name(snapshot)}", missing_ok=True)

    def close(self) -> None:
        self.partition.close()


def _write_partition_metadata(disk: Disk, directory: str) -> None:
    path = f"{directory}/{PARTITION_METADATA_FILE}"
    if not disk.exists(path):
        disk.write_file(path, render_partition_metadata(METADATA_TOPIC_ID).encode())
