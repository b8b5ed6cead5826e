"""The log of a new partition: a directory without files, until the first append creates them.

    created ──▶ EMPTY ──the first append: `PartitionLog.materialise`──▶ OPEN: partition.metadata, .log, .index, …

A topic of a thousand partitions would otherwise begin with five thousand empty files on each of its brokers, which cost
them more than everything else about it. The directory exists, so that a restart finds the replica where it was.
As in Kafka, `partition.metadata` is written before the first batch; so Kafka takes a directory without it for one that
nothing was ever written to, renames it to a stray and creates its own.

The only segment of an empty log is a `LazySegment`: it has no files and room for no batch, so the first append rolls,
as an append does whenever the active segment is full, and `PartitionLog.roll` materialises the log.

A loss of power may take away the directory of an empty log. Nothing was in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, cast

from pessoa.log.durable_log import LogState
from pessoa.log.leader_epoch_cache import LeaderEpochCache
from pessoa.log.partition_log import PartitionLog
from pessoa.log.producer_snapshot_files import ProducerSnapshots
from pessoa.log.producer_state import ProducerState
from pessoa.log.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.files import Bytes, Disk, File
    from pessoa.log.log_config import LogConfig


def empty_log(
    disk: Disk, directory: str, config: LogConfig, now_ms: int, on_materialise: Callable[[PartitionLog], None]
) -> PartitionLog:
    """Return the log of a directory without files. `on_materialise` writes what must be there before the first
    segment."""
    created = PartitionLog(
        disk,
        directory,
        config,
        [LazySegment(cast("Disk", _NO_DISK), directory, 0, config, now_ms)],
        ProducerState(),
        ProducerSnapshots(disk, directory, []),
        LeaderEpochCache(),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        synced_base_offset=0,
        is_durable=True,
    )
    created.state = LogState.EMPTY
    created.on_materialise = on_materialise
    return created


class LazySegment(Segment):
    """The only segment of an empty log. It has no files and is always full: the first append rolls and creates them."""

    __slots__ = ()

    def has_room_for(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        return False


class _NoFile:
    """A file that does not exist: it reads as empty and takes no bytes."""

    __slots__ = ()

    path = ""
    size = 0

    def append(self, data: Bytes) -> NoReturn:
        raise AssertionError("a batch was appended to a log whose files do not exist")

    def read(self, position: int, size: int) -> bytes:
        return b""

    def trim(self) -> None:
        """Do nothing: no space is reserved."""

    def close(self) -> None:
        """Do nothing: there is no open file."""


class _NoDisk:
    """The disk of a `LazySegment`: every file that is opened on it is the one that does not exist."""

    __slots__ = ("_file",)

    def __init__(self) -> None:
        self._file = cast("File", _NoFile())

    def open(self, path: str, *, create: bool = False) -> File:
        return self._file

    def exists(self, path: str) -> bool:
        return False


_NO_DISK = _NoDisk()
