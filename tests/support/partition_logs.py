"""Opening a partition's log in a test, filling it, and reading all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.log_config import LogConfig
from pessoa.log.log_loader import load_partition
from pessoa.log.partition_log import ReadUpTo
from tests.support.batches import NOW_MS, offsets, plain

if TYPE_CHECKING:
    from pessoa.log.files import Disk
    from pessoa.log.partition_log import Appended, PartitionLog

# Every batch but the first of a segment gets an entry in the indexes.
EVERY_BATCH = LogConfig(index_interval_bytes=0)
PRODUCE_VERSION = 12


class Home(NamedTuple):
    """A disk and the directory of a partition on it."""

    disk: Disk
    directory: str

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.disk.list(self.directory) if name.endswith(suffix)]

    def open(
        self,
        config: LogConfig = EVERY_BATCH,
        *,
        was_clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        now_ms: int = NOW_MS,
    ) -> PartitionLog:
        return load_partition(
            self.disk,
            self.directory,
            config,
            now_ms,
            was_clean=was_clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
        )

    def reopen_clean(self, log: PartitionLog, config: LogConfig | None = None) -> PartitionLog:
        """Close the log as a clean shutdown does, and open it with the values that the checkpoints would have."""
        log.close()
        return self.open(
            config or log.config,
            was_clean=True,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
        )

    def reopen_after_crash(self, log: PartitionLog, config: LogConfig | None = None) -> PartitionLog:
        """Open the log as after a crash right after the checkpoints were written."""
        return self.open(
            config or log.config,
            recovery_point=log.recovery_point,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
        )


def produce(log: PartitionLog, data: memoryview, *, epoch: int = 0, now_ms: int = NOW_MS) -> Appended:
    return log.append_as_leader(data, epoch, now_ms, PRODUCE_VERSION)


def fill(log: PartitionLog, batches: int, *, records: int = 1, size: int | None = None, epoch: int = 0) -> None:
    """Append plain batches, and raise the high watermark to the log end."""
    for _ in range(batches):
        produce(log, plain(records, size=size), epoch=epoch)
    log.update_high_watermark(log.log_end_offset)


def read_bytes(log: PartitionLog, offset: int | None = None, up_to: ReadUpTo = ReadUpTo.LOG_END) -> bytes:
    """Return the bytes of all batches from an offset on, read as a consumer reads them: fetch after fetch."""
    offset = log.log_start_offset if offset is None else offset
    found = bytearray()
    while offset < log.log_end_offset:
        fetched = log.read(offset, 1 << 20, up_to)
        if fetched.data is None:
            break
        data = fetched.data.read()
        found += data
        last = offsets(data)[-1][1]
        assert last >= offset, f"a read at {offset} came back with batches up to {last}"
        offset = last + 1
    return bytes(found)


def read_offsets(
    log: PartitionLog, offset: int | None = None, up_to: ReadUpTo = ReadUpTo.LOG_END
) -> list[tuple[int, int]]:
    """Return first and last offset of every batch that a consumer reads."""
    return offsets(read_bytes(log, offset, up_to))


def base_offsets(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]
