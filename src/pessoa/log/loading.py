"""From the files of a directory to a `PartitionLog`, after a clean stop or after a crash.

    1. half-done work   `.deleted` and `.cleaned` files go; a complete `.swap` takes the place of what it replaces
    2. segments         one per `.log`; an index that is missing or cannot be true is rebuilt from its log
    3. recovery         only after a crash: every batch from the recovery point's segment on is checked and learnt from
                        anew; at the first that is torn or damaged the log is cut, and segments behind the cut go too
    4. offsets          the log end from the last batch; the log start from its checkpoint, or the first segment
    5. epochs           the checkpoint, without what lies outside the log
    6. producers        the latest good snapshot, and the batches behind it

After a clean stop (the caller knows it from `.kafka_cleanshutdown`) step 3 is left out, and 6 finds a snapshot at the
very end of the log: opening costs a few small reads, whatever the size of the log.

What a crash may have left behind, and why the result is right all the same: bytes are appended to `.log` before
anything else speaks of them, so indexes, epochs and snapshots can be behind the log or damaged, and each of them is
either checked (CRC, order, bounds) or rebuilt. Everything below the recovery point was synced before the checkpoint
said so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.log.checkpoints import CorruptCheckpoint
from pessoa.log.leader_epochs import LEADER_EPOCH_FILE, LeaderEpochs
from pessoa.log.partition_log import (
    PRODUCER_EXPIRATION_MS,
    PartitionLog,
    note_epoch,
    note_producer,
    replay_producers,
)
from pessoa.log.producer_state import ProducerState
from pessoa.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
)
from pessoa.log.snapshots import SNAPSHOT_SUFFIX, ProducerSnapshots

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pessoa.log.config import LogConfig
    from pessoa.log.files import Disk

log = logging.getLogger("pessoa.log")

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
_INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
_TEMPORARY_SUFFIX = ".tmp"


def load_partition(
    disk: Disk,
    directory: str,
    config: LogConfig,
    now_ms: int,
    *,
    was_clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    high_watermark: int = 0,
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS,
) -> PartitionLog:
    """Open the log in `directory`, or begin one there. The three offsets are what the directory's checkpoints say."""
    return _Loader(disk, directory, config, now_ms, producer_expiration_ms).load(
        was_clean, recovery_point, log_start_offset, high_watermark
    )


class _Loader:
    def __init__(self, disk: Disk, directory: str, config: LogConfig, now_ms: int, producer_expiration_ms: int) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.now_ms = now_ms
        self.producer_expiration_ms = producer_expiration_ms
        self.producers = ProducerState()
        # The first segment whose aborted transactions are unknown: only its batches can tell them.
        self.damaged_from: int | None = None

    def load(self, was_clean: bool, recovery_point: int, log_start_offset: int, high_watermark: int) -> PartitionLog:
        self.disk.make_directory(self.directory)
        names = self._finish_swaps(self.disk.list(self.directory))
        self.epochs = self._load_epochs(names)
        self.snapshots = ProducerSnapshots(self.disk, self.directory, _offsets(names, SNAPSHOT_SUFFIX))
        self.segments = self._open_segments(names, log_start_offset)
        if not was_clean:
            damaged_from = recovery_point if self.damaged_from is None else self.damaged_from
            self._recover(min(recovery_point, damaged_from))
        elif self.damaged_from is not None:
            self._recover(self.damaged_from)
        end = self.segments[-1].next_offset()
        if end < log_start_offset:
            # Everything below the log start was deleted; a crash lost what came behind it.
            log.warning("%s ends at %s; it goes on at its log start %s", self.directory, end, log_start_offset)
            self._restart(log_start_offset)
            end = log_start_offset
        start = max(log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_from_end(end)
        self.epochs.truncate_from_start(start)
        self.snapshots.remove(lambda offset: offset > end)
        replay_producers(self.producers, self.snapshots, self.segments, end, self.now_ms, self.producer_expiration_ms)
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
            recovery_point=min(recovery_point, end) if not was_clean else end,
            producer_expiration_ms=self.producer_expiration_ms,
        )
        loaded.update_high_watermark(max(high_watermark, start))
        return loaded

    # 1. Half-done work.

    def _finish_swaps(self, names: list[str]) -> list[str]:
        """Complete or undo what the cleaner and the remover were at; the names that are there afterwards."""
        unfinished = [_offset_of(name) for name in names if name.endswith(CLEANED_SUFFIX)]
        # While a `.cleaned` is there, the renames of its pass were not all done: its `.swap`s are not complete either.
        incomplete_from = min(unfinished) if unfinished else None
        gone = {name for name in names if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, _TEMPORARY_SUFFIX))}
        swaps = []
        for name in names:
            if name.endswith(SWAP_SUFFIX):
                if incomplete_from is not None and _offset_of(name) >= incomplete_from:
                    gone.add(name)
                else:
                    swaps.append(name)
        for name in sorted(gone):
            self.disk.remove(f"{self.directory}/{name}")
        kept = [name for name in names if name not in gone]
        for name in swaps:
            if name.endswith(LOG_SUFFIX + SWAP_SUFFIX):
                kept = self._remove_replaced(kept, _offset_of(name))
        for name in swaps:
            final = name.removesuffix(SWAP_SUFFIX)
            self.disk.rename(f"{self.directory}/{name}", f"{self.directory}/{final}")
            kept.remove(name)
            if final not in kept:
                kept.append(final)
        if gone or swaps:
            self.disk.sync_directory(self.directory)
        return sorted(kept)

    def _remove_replaced(self, names: list[str], swap_offset: int) -> list[str]:
        """Remove the segments whose records a complete `.swap` holds."""
        swap = Segment(self.disk, self.directory, swap_offset, self.config, self.now_ms, suffix=SWAP_SUFFIX)
        end = swap.next_offset()
        swap.close()
        end = max(end, swap_offset + 1)
        replaced = [
            name
            for name in names
            if name.endswith((LOG_SUFFIX, *_INDEX_SUFFIXES)) and swap_offset <= _offset_of(name) < end
        ]
        for name in replaced:
            self.disk.remove(f"{self.directory}/{name}")
        return [name for name in names if name not in replaced]

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
            self.damaged_from = offset if self.damaged_from is None else min(offset, self.damaged_from)
        return segment

    def _new_segment(self, offset: int) -> Segment:
        return Segment(self.disk, self.directory, offset, self.config, self.now_ms, create=True)

    # 3. Recovery.

    def _recover(self, recovery_point: int) -> None:
        first = 0
        for number, segment in enumerate(self.segments):
            if segment.base_offset <= recovery_point:
                first = number
        start = self.segments[first].base_offset
        replay_producers(self.producers, self.snapshots, self.segments, start, self.now_ms, self.producer_expiration_ms)
        # What a batch says about epochs is learnt again; what the checkpoint said beyond it may never have happened.
        self.epochs.truncate_from_end(start)
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            size = segment.size
            for batch in segment.recover():
                note_epoch(self.epochs, batch)
                note_producer(self.producers, batch, segment)
            if segment.size < size:
                log.warning("%r was cut by %s bytes: its end was torn or damaged", segment, size - segment.size)
                self._remove_segments_behind(number)
                break
        end = self.segments[-1].next_offset()
        self.snapshots.remove(lambda offset: start < offset <= end and offset not in self._base_offsets())
        self.disk.write_file(f"{self.directory}/{LEADER_EPOCH_FILE}", self.epochs.render().encode(), durable=False)

    def _remove_segments_behind(self, number: int) -> None:
        for segment in self.segments[number + 1 :]:
            log.warning("%r lies behind the cut and is removed", segment)
            segment.remove_files()
        del self.segments[number + 1 :]

    def _base_offsets(self) -> set[int]:
        return {segment.base_offset for segment in self.segments}

    def _restart(self, offset: int) -> None:
        for segment in self.segments:
            segment.remove_files()
        self.segments = [self._new_segment(offset)]
        self.epochs.clear()
        self.snapshots.remove(lambda _: True)

    # 5. Epochs.

    def _load_epochs(self, names: Iterable[str]) -> LeaderEpochs:
        if LEADER_EPOCH_FILE not in names:
            return LeaderEpochs()
        path = f"{self.directory}/{LEADER_EPOCH_FILE}"
        try:
            return LeaderEpochs.parse(self.disk.read_file(path).decode("ascii", "replace"), path)
        except CorruptCheckpoint as problem:
            log.warning("%s; the epochs are learnt again from the batches", problem)
            return self._epochs_from_batches(names)

    def _epochs_from_batches(self, names: Iterable[str]) -> LeaderEpochs:
        epochs = LeaderEpochs()
        for offset in _offsets(names, LOG_SUFFIX):
            segment = Segment(self.disk, self.directory, offset, self.config, self.now_ms)
            for place in segment.places():
                if place.partition_leader_epoch >= 0:
                    epochs.assign(place.partition_leader_epoch, place.base_offset)
            segment.close()
        return epochs


def _offset_of(name: str) -> int:
    """The offset that a file is named by; -1 if it is not."""
    digits = name.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdigit() else -1


def _offsets(names: Iterable[str], suffix: str) -> list[int]:
    return sorted(_offset_of(name) for name in names if name.endswith(suffix) and _offset_of(name) >= 0)
