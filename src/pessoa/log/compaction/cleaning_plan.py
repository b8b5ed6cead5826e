"""What passes between the thread of a log and the worker that cleans it: a plan one way, steps and numbers the other.

All of it is plain values, so that it can go to another process. A plan says everything that the worker may know about
the log: it never touches a `PartitionLog`, only the files of segments that no longer change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.log.aborted_transactions import AbortedTransaction
    from pessoa.log.log_config import LogConfig


class SourceSegment(NamedTuple):
    """A segment to clean, with the sizes of its files; it does not grow any more."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int
    modified_ms: int


class LastOfProducer(NamedTuple):
    """The batch from which a producer's sequence numbers can be read: the last offset of its last committed data batch,
    or None if a marker is the last that it wrote in this epoch. If not `is_known`, any of its batches may be that
    one."""

    last_data_offset: int | None
    epoch: int
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """One pass over one log.

    `segments` are all below `first_uncleanable_offset`, from the first of the log on, under their final names. Aborted
    transactions are all that overlap them, wherever their markers are.
    """

    directory: str
    config: LogConfig
    now_ms: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    segments: tuple[SourceSegment, ...]
    aborted: tuple[AbortedTransaction, ...]
    producers: Mapping[int, LastOfProducer]
    map_bytes: int
    max_bytes_per_second: float


@dataclass(slots=True)
class CleanerStats:
    """What a pass did. Reading counts the dirty part twice: once for the map, once to write it."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    batches_copied: int = 0
    batches_rewritten: int = 0
    map_keys: int = 0
    map_seconds: float = 0.0
    seconds: float = 0.0
    throttled_seconds: float = 0.0

    def __repr__(self) -> str:
        rate = self.bytes_read / self.seconds / 1e6 if self.seconds else 0.0
        return (
            f"<CleanerStats: kept {self.records_kept} of {self.records_read} records "
            f"({self.records_without_key} had no key), read {self.bytes_read} bytes, wrote {self.bytes_written}, "
            f"copied {self.batches_copied} batches and rewrote {self.batches_rewritten}, {self.map_keys} keys, "
            f"{self.seconds:.3f} s ({self.map_seconds:.3f} for the map, {self.throttled_seconds:.3f} throttled), "
            f"{rate:.0f} MB/s>"
        )


class Pause(NamedTuple):
    """A step at which the worker may be stopped, and how long it waits there: mostly 0."""

    seconds: float


class SwapReady(NamedTuple):
    """A group of segments is cleaned: its `.swap` files are complete and durable, and can replace the originals."""

    base_offset: int
    replaced: tuple[int, ...]


class Finished(NamedTuple):
    """The last step of a pass. The log is clean below `end_offset` once every swap is done."""

    end_offset: int
    stats: CleanerStats


Step = Pause | SwapReady | Finished
