"""Loading a `PartitionLog` from the files of its directory, after a clean shutdown or after a crash.

    1. half-done work   `.deleted` and `.cleaned` files go; a complete `.swap` takes the place of what it replaces
    2. segments         one per `.log`; an index that is missing or cannot be true is rebuilt from its log
    3. recovery         only after a crash, or where damage is seen: every batch from the recovery point's segment on is
                        checked and replayed; at the first that is torn or damaged the log is truncated, and segments
                        behind it are removed. What is kept beyond the recovery point is written again: the process
                        before may have ended because a sync failed, and then no later sync would write it
    4. offsets          the log end from the last batch; the log start from its checkpoint, or the first segment
    5. epochs           the checkpoint, without what lies outside the log
    6. producers        the latest good snapshot, and the batches behind it

After a clean shutdown (the caller knows it from `.kafka_cleanshutdown`) step 3 is left out, and 6 finds a snapshot at
the very end of the log: opening costs a few small reads, however large the log is. That the last batch is whole is
seen all the same.

What a crash may have left behind, and why the result is right all the same: bytes are appended to `.log` before
anything else speaks of them, so indexes, epochs and snapshots can be behind the log or damaged, and each of them is
either checked (CRC, order, bounds) or rebuilt. Everything below the recovery point was synced before the checkpoint
said so. A snapshot behind the recovery point is taken anew, because the one at hand may be of a history that was
truncated, and come back with a lost removal.

No CRC covers the leader epoch of a batch, so a disk may change it unnoticed. In what was synced such an epoch costs no
record here; the partition that follows or leads with the log sees that it cannot be
(`Partition.resolve_impossible_epochs`).
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from pessoa.log.checkpoints import CorruptCheckpoint
from pessoa.log.files import create_file
from pessoa.log.index import MAX_RELATIVE_OFFSET
from pessoa.log.leader_epoch_cache import LEADER_EPOCH_FILE, UNDEFINED_EPOCH, LeaderEpochCache
from pessoa.log.log_config import NEVER
from pessoa.log.partition_log import PartitionLog
from pessoa.log.producer_snapshot_files import SNAPSHOT_SUFFIX, ProducerSnapshots
from pessoa.log.producer_state import ProducerState
from pessoa.log.replay import note_epoch, note_producer, replay_producers
from pessoa.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    segment_name,
)
from pessoa.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.log.files import Disk
    from pessoa.log.log_config import LogConfig

log = logging.getLogger("pessoa.log")

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
# A copy of a segment of which recovery has truncated what was synced.
DAMAGED_SUFFIX = ".damaged"
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_TEMPORARY_SUFFIX = ".tmp"


def load_partition(
    disk: Disk,
    directory: str,
    config: LogConfig,
    now_ms: int,
    *,
    was_clean: bool,
    is_new: bool = False,
    recovery_point: int | None = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    cleaned_to: int = 0,
    synced_to: int | None = None,
) -> PartitionLog:
    """Open the log in `directory`, or begin one there. The four offsets are what the directory's checkpoints say.

    A recovery point of None is not known: everything is checked, nothing is taken for lost, and all of it is synced.
    A log that `is_new`, in an empty directory, need not survive a loss of power before its first flush. Up to where a
    log was certainly synced, the recovery point tells, unless the caller knows better and has all of it checked.
    """
    loader = _Loader(disk, directory, config, now_ms)
    loader.is_new = is_new
    loader.synced_to = synced_to
    if recovery_point is not None:
        loader.gaps_up_to = max(recovery_point, cleaned_to)
        return loader.load(was_clean, recovery_point, log_start_offset, high_watermark)
    loaded = loader.load(was_clean, 0, log_start_offset, high_watermark)
    loaded.flush()
    return loaded


class _Loader:
    def __init__(self, disk: Disk, directory: str, config: LogConfig, now_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.producers = ProducerState()
        # The first segment that only a scan of its batches can put right.
        self.damaged_from: int | None = None
        # Compaction leaves gaps between segments, up to where it has come; ours stays below the recovery point. A gap
        # beyond both means a loss.
        self.gaps_up_to = NEVER
        self.is_new = False
        self.synced_to: int | None = None
        # A batch below it has another base offset than the one before it leads to.
        self.is_displaced = False
        # The segment that recovery began with, if there was any; and whether it has truncated or removed any.
        self.recovered_from: int | None = None
        self.has_truncated = False
        self.impossible_from: int | None = None

    def load(self, was_clean: bool, recovery_point: int, log_start_offset: int, high_watermark: int) -> PartitionLog:
        names: list[str] = []
        if not self.is_new:
            self.disk.make_directory(self.directory)
            names = self._finish_swaps(self.disk.list(self.directory))
        found_epochs = read_epochs(self.disk, self.directory, names)
        self.epochs = found_epochs or LeaderEpochCache()
        self.snapshots = ProducerSnapshots(self.disk, self.directory, _offsets(names, SNAPSHOT_SUFFIX))
        self.segments = self._open_segments(names, log_start_offset)
        if was_clean:
            recovery_point = NEVER
            end = self._find_log_end_offset()
        first = len(self.segments) if was_clean else self._segment_before(recovery_point)
        if self.damaged_from is not None:
            first = min(first, self._segment_before(self.damaged_from + 1))
        if not found_epochs:
            self._learn_epochs(self.segments[:first])
            if len(self.epochs) or found_epochs is None:
                self._write_epochs(durable=len(self.epochs) > 0)
        if first < len(self.segments):
            self._recover(first, recovery_point)
            end = self.segments[-1].next_offset()
        if end < log_start_offset and was_clean and self.recovered_from is None:
            # No log that is closed in order starts behind its end, so it is the checkpoint that has changed.
            log.warning("%s ends at %s, and cannot start at %s", self.directory, end, log_start_offset)
            log_start_offset = self.segments[0].base_offset
        if end < log_start_offset:
            # Everything below the log start was deleted; a crash lost what came behind it.
            log.warning("%s ends at %s; it goes on at its log start %s", self.directory, end, log_start_offset)
            self._restart(log_start_offset)
            end = log_start_offset
        start = max(log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(start)
        self._remove_stray_snapshots(end)
        if self.recovered_from is None:
            self._replay_producers(end)
        self.producers.end_offset = end
        recovered_from = self.segments[-1].base_offset if self.recovered_from is None else self.recovered_from
        loaded = PartitionLog(
            self.disk,
            self.directory,
            self.config,
            self.segments,
            self.producers,
            self.snapshots,
            self.epochs,
            log_start_offset=start,
            log_end_offset=end,
            recovery_point=end if self.recovered_from is None else min(recovery_point, end),
            synced_base_offset=recovered_from,
            is_durable=self.recovered_from is None,
            unsynced_truncation=self._unsynced_truncation(min(max(high_watermark, start), end)),
        )
        loaded.has_lost_end = was_clean and self.has_truncated
        loaded.impossible_from = self.impossible_from
        loaded.update_high_watermark(max(high_watermark, start))
        self.producers.on_high_watermark_updated(loaded.high_watermark)
        return loaded

    def _unsynced_truncation(self, high_watermark: int) -> int | None:
        """Return the offset from which records may be back that were truncated before an unclean shutdown, since the
        truncation may not have been synced; None after a clean one.

        That is the high watermark of the checkpoint: no log is truncated below it
        (`PartitionLog.durable_high_watermark`).
        """
        return None if self.is_new or self.recovered_from is None else high_watermark

    # 1. Half-done work.

    def _finish_swaps(self, names: list[str]) -> list[str]:
        """Complete or undo what the cleaner and the remover were at; the names that are there afterwards.

        Power may be lost here too, and with it removals and renames that were not synced. So what decides goes last: a
        `.cleaned` after the `.swap`s that it makes void, and no `.swap` gets its name before what it replaces is gone.
        """
        unfinished = [_offset_of(name) for name in names if name.endswith(CLEANED_SUFFIX)]
        # While a `.cleaned` is there, the renames of its pass were not all done: its `.swap`s are not complete either.
        incomplete_from = min(unfinished) if unfinished else None
        swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
        void = [name for name in swaps if incomplete_from is not None and _offset_of(name) >= incomplete_from]
        whole = [name for name in swaps if name not in void]
        replaced = [
            old for name in whole if name.endswith(LOG_SUFFIX + SWAP_SUFFIX) for old in self._replaced_by(name, names)
        ]
        gone = [name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, _TEMPORARY_SUFFIX))]
        self._remove_for_good([*void, *replaced])
        self._remove_for_good(gone)
        for name in whole:
            self.disk.rename(f"{self.directory}/{name}", f"{self.directory}/{name.removesuffix(SWAP_SUFFIX)}")
        if whole:
            self.disk.sync_directory(self.directory)
        removed = {*void, *replaced, *gone}
        return sorted({name.removesuffix(SWAP_SUFFIX) for name in names if name not in removed})

    def _remove_for_good(self, names: list[str]) -> None:
        for name in names:
            self.disk.remove(f"{self.directory}/{name}", missing_ok=True)
        if names:
            self.disk.sync_directory(self.directory)

    def _replaced_by(self, swap: str, names: list[str]) -> list[str]:
        """The files of the segments whose records a complete `.log.swap` holds.

        None at its own offset: an old file goes when the `.swap` takes its name, and a kind that has no `.swap` has got
        its name already, because the cleaner writes all four.
        """
        start, end = _offset_of(swap), self._end_of(swap)
        kinds = (LOG_SUFFIX, *_INDEX_SUFFIXES)
        return [name for name in names if name.endswith(kinds) and start < _offset_of(name) < end]

    def _end_of(self, name: str) -> int:
        """Return the offset after the last batch of a file. A `Segment` is not used, since it would create missing
        indexes."""
        end = _offset_of(name)
        with closing(self.disk.open(f"{self.directory}/{name}", pooled=False, read_only=True)) as file:
            position = 0
            while position + HEADER_SIZE <= file.size:
                base_offset, length, _, _, _, _, last_offset_delta, *_ = HEADER.unpack(file.read(position, HEADER_SIZE))
                size = length + LOG_OVERHEAD
                if size < HEADER_SIZE:
                    break
                end = base_offset + last_offset_delta + 1
                position += size
        return end

    # 2. Segments.

    def _open_segments(self, names: list[str], log_start_offset: int) -> list[Segment]:
        offsets = _offsets(names, LOG_SUFFIX)
        for name in names:
            if name.endswith(_INDEX_SUFFIXES) and _offset_of(name) not in offsets:
                log.warning("%s/%s has no log and is removed", self.directory, name)
                self.disk.remove(f"{self.directory}/{name}")
        known = set(names)
        segments = [self._open_segment(offset, known) for offset in offsets]
        if not segments:
            segments = [self._new_segment(log_start_offset)]
        return segments

    def _open_segment(self, offset: int, names: set[str]) -> Segment:
        segment = Segment(self.disk, self.directory, offset, self.config, self.now_ms)
        has_indexes = {f"{offset:020d}{suffix}" for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)} <= names
        if not (has_indexes and segment.indexes_are_plausible()):
            log.warning("an index of %r is missing or cannot be true: both are rebuilt", segment)
            segment.rebuild_indexes()
        if f"{offset:020d}{TRANSACTION_INDEX_SUFFIX}" in names and not segment.transactions_are_plausible():
            log.warning("the transaction index of %r cannot be true: it is rebuilt", segment)
            self._note_damage(offset)
        return segment

    def _new_segment(self, offset: int) -> Segment:
        segment = Segment(self.disk, self.directory, offset, self.config, self.now_ms, create=True)
        if not self.is_new:
            # A log whose first segment a power loss can take away would begin wherever the next one does.
            self.disk.sync_directory(self.directory)
        return segment

    # 3. Recovery.

    def _segment_before(self, offset: int) -> int:
        """The number of the last segment that begins before `offset`.

        Not the one that begins there: where a log has rolled right at its recovery point, the indexes of the segment
        before may never have been synced.
        """
        return max((number for number, one in enumerate(self.segments) if one.base_offset < offset), default=0)

    def _find_log_end_offset(self) -> int:
        """Return the log end offset of a log that was closed cleanly. Damage at its end is noted: a batch that is
        appended after a torn one would leave the damage in the middle of the log."""
        last = self.segments[-1]
        end, position = last.walk_to_end()
        # No CRC covers the base offset of a batch, and a wrong one would put the end before the log, or far away.
        is_possible = 0 <= end - last.base_offset <= MAX_RELATIVE_OFFSET + 1
        if position != last.size or not is_possible:
            log.warning("%r does not end with a whole batch, though it was closed in order", last)
            self._note_damage(last.base_offset)
        return end

    def _note_damage(self, base_offset: int) -> None:
        self.damaged_from = base_offset if self.damaged_from is None else min(base_offset, self.damaged_from)

    def _replay_producers(self, end: int) -> None:
        """Keep every producer, however old: how long producers are remembered may have changed while the broker ran,
        which it does not know before it has read the metadata log. Then the broker lets them expire
        (`Upkeep.expire_producers`)."""
        replay_producers(self.producers, self.snapshots, self.segments, end, self.now_ms, NEVER)

    def _recover(self, first: int, recovery_point: int) -> None:
        self.recovered_from = start = self.segments[first].base_offset
        self.snapshots.remove(lambda offset: offset > start)
        self._replay_producers(start)
        # What a batch says about epochs is learnt again; what the checkpoint said beyond it may never have happened.
        self.epochs.truncate_from_end(start)
        synced_to = recovery_point if self.synced_to is None else self.synced_to
        least_epoch = UNDEFINED_EPOCH
        expected = start
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            if number > first:
                if self._is_behind_a_loss(number):
                    self.has_truncated = True
                    self._remove_segments_behind(number - 1)
                    break
                self.snapshots.take(segment.base_offset, self.producers)
            size = segment.size
            for batch in segment.recover(least_epoch, synced_to, self._keep_synced):
                if batch.base_offset != expected and expected < synced_to:
                    self.is_displaced = True
                expected = batch.next_offset
                if batch.base_offset >= synced_to:
                    least_epoch = max(least_epoch, batch.partition_leader_epoch)
                    if batch.partition_leader_epoch > UNDEFINED_EPOCH:
                        # Those that a disk has made up; or this batch would contradict the true ones along with them.
                        impossible = self.epochs.truncate_above(batch.partition_leader_epoch)
                        if impossible is not None and impossible >= start and self.impossible_from is None:
                            self.impossible_from = impossible
                    note_epoch(self.epochs, batch)
                elif batch.partition_leader_epoch > (self.epochs.latest_epoch or UNDEFINED_EPOCH):
                    note_epoch(self.epochs, batch)
                note_producer(self.producers, batch, segment)
            if segment.size < size:
                self.has_truncated = True
                log.warning("%r was truncated by %s bytes: its end was torn or damaged", segment, size - segment.size)
                self._remove_segments_behind(number)
                break
        self._write_epochs(durable=False)

    def _is_behind_a_loss(self, number: int) -> bool:
        """Whether the segment does not begin where the one before it ends, which is what every log does above its
        recovery point: see `PartitionLog.roll`. Cleaned segments may be shorter than their range, and never longer."""
        base_offset = self.segments[number].base_offset
        gap = base_offset - self.segments[number - 1].next_offset()
        if gap < 0:
            return True
        return 0 < gap <= MAX_RELATIVE_OFFSET and base_offset > self.gaps_up_to

    def _remove_segments_behind(self, number: int) -> None:
        for segment in self.segments[number + 1 :]:
            log.warning("%r lies behind the truncation and is removed", segment)
            self._keep_synced(segment, segment.base_offset)
            segment.remove_files()
        del self.segments[number + 1 :]

    def _keep_synced(self, segment: Segment, end_offset: int) -> None:
        """Copy a segment that is about to lose what was synced, where the caller has said up to where that is: the only
        voter of a quorum has no other voter to fetch it from again. `DAMAGED_SUFFIX` is the suffix of the copy."""
        if self.synced_to is None or not (self.is_displaced or end_offset < self.synced_to):
            return
        kept = f"{self.directory}/{segment_name(segment.base_offset)}{LOG_SUFFIX}{DAMAGED_SUFFIX}"
        log.warning("%s had been synced up to %s: %r is kept as %s", self.directory, self.synced_to, segment, kept)
        self.disk.write_file(kept, segment.file.read(0, segment.size))

    def _remove_stray_snapshots(self, end: int) -> None:
        """Remove all producer snapshots but those at the start of a segment, and the last one, which a clean shutdown
        has written."""
        wanted = {segment.base_offset for segment in self.segments}
        wanted.update(self.snapshots.offsets[-1:])
        self.snapshots.remove(lambda offset: offset > end or offset not in wanted)

    def _restart(self, offset: int) -> None:
        for segment in self.segments:
            segment.remove_files()
        self.segments = [self._new_segment(offset)]
        self.recovered_from = offset
        self.epochs.clear()
        self.producers.clear(offset)
        self.snapshots.remove(lambda _: True)

    # 5. Epochs.

    def _write_epochs(self, *, durable: bool) -> None:
        path, data = f"{self.directory}/{LEADER_EPOCH_FILE}", self.epochs.render().encode()
        if self.is_new:
            create_file(self.disk, path, data)
        else:
            self.disk.write_file(path, data, durable=durable)

    def _learn_epochs(self, segments: Iterable[Segment]) -> None:
        latest = UNDEFINED_EPOCH
        for segment in segments:
            for place in segment.places():
                if place.partition_leader_epoch > latest:
                    latest = place.partition_leader_epoch
                    self.epochs.assign(latest, place.base_offset)


def read_epochs(disk: Disk, directory: str, names: Iterable[str]) -> LeaderEpochCache | None:
    """Return the leader epochs of the checkpoint; None if the file is missing, empty after a power loss, or damaged:
    then they are read from the batches."""
    if LEADER_EPOCH_FILE not in names:
        return None
    path = f"{directory}/{LEADER_EPOCH_FILE}"
    try:
        text = disk.read_file(path).decode("ascii", "replace")
        # The file is not synced before it gets its name, and an offset that a power loss has cut short is one too.
        return LeaderEpochCache.parse(text, path) if text.endswith("\n") else None
    except CorruptCheckpoint as problem:
        log.warning("%s; the epochs are learnt again from the batches", problem)
        return None


def _offset_of(name: str) -> int:
    """Return the offset in the name of a file; -1 if there is none."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def _offsets(names: Iterable[str], suffix: str) -> list[int]:
    return sorted(_offset_of(name) for name in names if name.endswith(suffix) and _offset_of(name) >= 0)
