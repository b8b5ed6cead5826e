"""The `.snapshot` files of a partition: its producers as they were at an offset.

A snapshot named 00000000000000368769.snapshot says what every batch below offset 368769 means for the producers. One
is taken whenever a segment begins, and at a clean stop; after a crash the producers are what the latest good snapshot
says, plus the batches behind it. A damaged snapshot is removed: an older one, or the log itself, tells the same at
more length.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pessoa.log.producer_snapshot_format import CorruptSnapshot, decode_snapshot, encode_snapshot
from pessoa.log.segment import segment_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.files import Disk
    from pessoa.log.producer_entry import ProducerStateEntry
    from pessoa.log.producer_state import ProducerState

log = logging.getLogger("pessoa.log")

SNAPSHOT_SUFFIX = ".snapshot"


class ProducerSnapshots:
    """The producer snapshots of one log; `offsets` are those of the files, rising."""

    __slots__ = ("_disk", "directory", "offsets")

    def __init__(self, disk: Disk, directory: str, offsets: list[int]) -> None:
        self._disk = disk
        self.directory = directory
        self.offsets = offsets

    def path(self, offset: int) -> str:
        return f"{self.directory}/{segment_name(offset)}{SNAPSHOT_SUFFIX}"

    def take(self, offset: int, producers: ProducerState) -> None:
        """Write a snapshot at this offset, if there is none: batches below an offset do not change."""
        if offset in self.offsets:
            return
        self._disk.write_file(self.path(offset), encode_snapshot(producers.entries()), durable=False)
        self.offsets.append(offset)
        self.offsets.sort()

    def latest(self, up_to: int) -> tuple[int, list[ProducerStateEntry]] | None:
        """Return the last snapshot at or below an offset that can be read, with its offset; None if there is none."""
        for offset in reversed([known for known in self.offsets if known <= up_to]):
            try:
                return offset, decode_snapshot(self._disk.read_file(self.path(offset)))
            except CorruptSnapshot as problem:
                log.warning("%s is damaged (%s) and is removed; older state is replayed", self.path(offset), problem)
                self.remove(lambda known, bad=offset: known == bad)  # type: ignore[misc]
        return None

    def remove(self, unwanted: Callable[[int], bool]) -> None:
        for offset in [known for known in self.offsets if unwanted(known)]:
            self._disk.remove(self.path(offset), missing_ok=True)
            self.offsets.remove(offset)
