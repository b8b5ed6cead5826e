"""A log on its way to another directory of the same broker (KIP-113): a copy that takes the place of the original.

    /a/orders-0                      the original: it is read from and written to until the copy has caught up
    /b/orders-0.3f0c…-future         the copy
    ── caught up ──▶
    /a/orders-0.3f0c…-delete         the original, which waits to be removed
    /b/orders-0                      the copy

Two renames on two disks cannot be one step, so the first of them decides. The original gets the copy's own mark with
its name: a start that finds a copy whose original is marked so follows a crash between the two, and does the second. A
copy whose original is where it was goes on; one without an original is incomplete, and is removed.

Batches are copied as they are, offsets and epochs and all, as a follower does. A truncation of the original truncates
the copy in the same step. After a start, the two are compared before the copy goes on: a loss of power may have taken
from each what the other kept. Two logs that have the same batch at an offset have the same batches before it, so the
last one is enough; where it differs, the copy begins anew.

What the copy does not get from batches it takes over at the end: see `PartitionLog.take_over`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pessoa.log.partition_log import OffsetOutOfRange, ReadUpTo
from pessoa.records.batch import RecordBatch
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.log.checkpoints import TopicPartition
    from pessoa.log.directory import LogDirectory
    from pessoa.log.partition_log import PartitionLog

FUTURE_SUFFIX = "-future"
DELETED_DIRECTORY_SUFFIX = "-delete"
# A directory name has room for 255 bytes, and a topic name for 249.
_MAX_NAME = 255
_FUTURE_NAME = re.compile(r"(.+)-([0-9]+)\.([^.]+)-future")


def marked_name(topic: str, partition: int, mark: str, suffix: str) -> str:
    """Return the directory name of a copy or of a removed partition. A long topic name is shortened, never the
    partition: Kafka reads these names too."""
    tail = f"-{partition}.{mark}{suffix}"
    return topic[: _MAX_NAME - len(tail)] + tail


def future_of(name: str) -> TopicPartition | None:
    """Return the topic, which may be shortened, and the partition in the directory name of a copy; None for other
    names."""
    found = _FUTURE_NAME.fullmatch(name)
    return (found[1], int(found[2])) if found is not None else None


class FutureLog:
    """The copy of a partition that moves to another log directory. `topic` is what the name of its directory says;
    `topic_id` is None if its `partition.metadata` is damaged."""

    __slots__ = ("directory", "log", "name", "partition", "topic", "topic_id")

    def __init__(
        self, topic: str, partition: int, topic_id: Uuid | None, name: str, log: PartitionLog, directory: LogDirectory
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        # Of its directory.
        self.name = name
        self.log = log
        self.directory = directory

    def __repr__(self) -> str:
        return f"<FutureLog {self.directory.path}/{self.name}: {self.log!r}>"

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def retired_name(self) -> str:
        """The name that the directory of the original gets when this copy has replaced it."""
        return self.name.removesuffix(FUTURE_SUFFIX) + DELETED_DIRECTORY_SUFFIX

    def is_of(self, topic: str, topic_id: Uuid, partition: int) -> bool:
        if self.partition != partition:
            return False
        return self.topic_id == topic_id if self.topic_id is not None else self.topic == topic

    def copy_from(self, original: PartitionLog, max_bytes: int, now_ms: int) -> int:
        """Append more of the original; return the number of bytes, 0 if nothing is left. Raises DiskError and
        InvalidBatch."""
        log = self.log
        if log.log_end_offset < original.log_start_offset:
            # Retention was faster.
            self._begin(original, now_ms)
        if log.log_end_offset >= original.log_end_offset:
            assert log.log_end_offset == original.log_end_offset, f"{self!r} is ahead of {original!r}"
            return 0
        # The original may start in the middle of the batch that comes next.
        found = original.read(max(log.log_end_offset, original.log_start_offset), max_bytes, ReadUpTo.LOG_END).data
        if found is None:
            # The last batches were compacted away.
            log.skip_to(original.log_end_offset, now_ms)
            return 0
        data = found.read()
        if not log.append_as_follower(data, now_ms):
            raise InvalidBatch(
                ErrorCode.CORRUPT_MESSAGE, f"no batch follows offset {log.log_end_offset} in {original!r}"
            )
        return len(data)

    def resume(self, original: PartitionLog, now_ms: int) -> None:
        """Truncate the copy to what both logs have, or begin it again; after a start, or for a copy that was just
        created."""
        if self.log.log_end_offset > original.log_end_offset:
            self.truncate_to(original.log_end_offset, now_ms)
        if not self._ends_like(original):
            self._begin(original, now_ms)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        # What is damaged can be copied again.
        self.log.truncate_to(offset, now_ms, drops_damaged=True)

    def _begin(self, original: PartitionLog, now_ms: int) -> None:
        """Empty the copy and let it start where the original starts, or at the base offset of the batch that holds that
        offset."""
        start = original.log_start_offset
        found = original.read(start, 1, ReadUpTo.LOG_END).data
        if found is not None:
            start = min(start, RecordBatch(found.read()).base_offset)
        if (self.log.log_end_offset, self.log.log_start_offset) != (start, start):
            self.log.restart_at(start, now_ms)

    def _ends_like(self, original: PartitionLog) -> bool:
        """Whether the original has the last batch of the copy."""
        last_offset = self.log.log_end_offset - 1
        try:
            ours = self.log.read(last_offset, 1, ReadUpTo.LOG_END).data
            theirs = original.read(last_offset, 1, ReadUpTo.LOG_END).data
        except (OffsetOutOfRange, InvalidBatch):
            return False
        return ours is not None and theirs is not None and ours.read() == theirs.read()
