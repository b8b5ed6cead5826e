"""`pessoa.durable-offset`: the offset up to which a controller's metadata log has been synced.

    __cluster_metadata-0/pessoa.durable-offset      one decimal number

A torn tail and bit rot look alike when a log is opened: at some batch the checksum is wrong, and the log is truncated
there. What was never synced may be truncated. What was synced the controller has acknowledged, and must not forget
without noticing. This file tells the two apart: a log that ends before its offset has lost something, and the
controller does not vote until it has that again (`pessoa.raft.memory`).

The file is written about once a second, without waiting for the disk: a power loss may bring an older one back, which
only means that less is noticed. Where something is missing, it is synced. Before the log is truncated on purpose the
offset is lowered, and that waits for the disk: an offset that is too high would keep a voter from voting for no reason.
Kafka passes over the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.log.files import Disk

DURABLE_OFFSET_FILE = "pessoa.durable-offset"
# The loss of what was synced since the last write goes unnoticed, so not too long; every write costs the disk one more.
_WRITE_INTERVAL_MS = 1_000


class DurableOffsetFile:
    """The file with the offset up to which the metadata log is synced; `offset` is 0 if it is missing or damaged."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{DURABLE_OFFSET_FILE}"
        self.offset = self._read_offset()
        self._written_ms: int | None = None

    def __repr__(self) -> str:
        return f"<DurableOffsetFile {self.path} at {self.offset}>"

    def _read_offset(self) -> int:
        if not self._disk.exists(self.path):
            return 0
        text = self._disk.read_file(self.path)
        # Without its end of line it is a piece of a number.
        return int(text) if text.endswith(b"\n") and text[:-1].isdigit() else 0

    def follow(self, durable_end_offset: int, now_ms: int) -> None:
        """Write the offset up to which the log is synced, if the last write is long enough ago. `now_ms` is monotonic.
        A lower offset than before is written at once."""
        is_due = self._written_ms is None or now_ms - self._written_ms >= _WRITE_INTERVAL_MS
        if durable_end_offset < self.offset:
            self.lower_to(durable_end_offset)
        elif durable_end_offset > self.offset and is_due:
            self._written_ms = now_ms
            self._write(durable_end_offset, durable=False)

    def write_on_shutdown(self, durable_end_offset: int) -> None:
        """Write the exact offset on clean shutdown, however short ago the last write was."""
        if durable_end_offset > self.offset:
            self._write(durable_end_offset, durable=False)

    def lower_to(self, offset: int) -> None:
        """Lower the offset, durably: the log is about to be truncated there."""
        if offset < self.offset:
            self._write(offset, durable=True)

    def sync(self, least: int = 0) -> None:
        """Write the offset, at least `least`, durably: after a power loss only this file shows what is missing."""
        self._write(max(self.offset, least), durable=True)

    def _write(self, offset: int, *, durable: bool) -> None:
        self._disk.write_file(self.path, b"%d\n" % offset, durable=durable)
        self.offset = offset
