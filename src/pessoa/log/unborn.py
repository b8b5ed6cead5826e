"""A log that nothing was ever written to: a directory with nothing in it.

    created ──▶ unborn ──the first append──▶ born: partition.metadata, .log, .index, .timeindex

A topic of a thousand partitions would otherwise begin with five thousand empty files on each of its brokers, which cost
them more than everything else about it. The directory is there, so that a restart finds the replica where it was.
As in Kafka, what says whose log it is comes before the first batch; so Kafka takes a directory without it for one that
nothing was ever written to, sets it aside and makes its own.

Nothing else in the log knows: there is one segment, it is empty and has room for nothing, so an append begins another
one, as it does whenever a segment is full. `PartitionLog.roll` is where the log is born.

A loss of power may take away a directory whose log is unborn. Nothing was in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, cast

from pessoa.log.leader_epochs import LeaderEpochs
from pessoa.log.partition_log import PartitionLog
from pessoa.log.producer_state import ProducerState
from pessoa.log.segment import Segment
from pessoa.log.snapshots import ProducerSnapshots

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.config import LogConfig
    from pessoa.log.files import Bytes, Disk, File


def unborn_log(
    disk: Disk, directory: str, config: LogConfig, now_ms: int, bear: Callable[[PartitionLog], None]
) -> PartitionLog:
    """`bear` makes what a log consists of besides its segments."""
    created = PartitionLog(
        disk,
        directory,
        config,
        [UnbornSegment(cast("Disk", _NOWHERE), directory, 0, config, now_ms)],
        ProducerState(),
        ProducerSnapshots(disk, directory, []),
        LeaderEpochs(),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        synced_base_offset=0,
        is_durable=True,
    )
    created.bear = bear
    return created


class UnbornSegment(Segment):
    """A segment without files."""

    __slots__ = ()

    def has_room_for(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        return False


class _NoFile:
    """What there is to read and to sync of a file that is not there: nothing."""

    __slots__ = ()

    path = ""
    size = 0

    def append(self, data: Bytes) -> NoReturn:
        raise AssertionError("nothing can be written to a log that was not born")

    def read(self, position: int, size: int) -> bytes:
        return b""

    def trim(self) -> None:
        """There is nothing behind its end either."""

    def close(self) -> None:
        """It never was open."""


class _Nowhere:
    """The disk that those files are on."""

    __slots__ = ("_file",)

    def __init__(self) -> None:
        self._file = cast("File", _NoFile())

    def open(self, path: str, *, create: bool = False) -> File:
        return self._file

    def exists(self, path: str) -> bool:
        return False


_NOWHERE = _Nowhere()
