"""How far a controller's metadata log has been synced, written down beside it.

    __cluster_metadata-0/pessoa.durable-offset      one decimal number

A torn tail and bit rot look alike when a log is opened: at some batch the checksum is wrong, and the log is cut there.
What was never synced may be cut. What was, the controller has acknowledged, and must not forget without knowing it. The
mark tells the two apart: a log that ends before it has lost something, and the controller does not vote until it has
that again (`pessoa.raft.memory`).

The file is written now and then, without waiting for the disk: a power loss may bring an older one back, which only
means that less is noticed. Where something is missing, it is synced. When the log is cut on purpose the mark goes back
first, and that waits for the disk: a mark that is too high would keep a voter from voting for no reason. Kafka passes
over the file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pessoa.log.files import Disk

MARK_FILE = "pessoa.durable-offset"
# What became durable since may be cut unnoticed, so not too long; every write is one more for the disk.
_EVERY_MS = 1_000


class DurableMark:
    """`offset` is what the file says, 0 where it says nothing that can be believed."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{MARK_FILE}"
        self.offset = self._read()
        self._written_ms: int | None = None

    def __repr__(self) -> str:
        return f"<DurableMark at {self.offset}>"

    def _read(self) -> int:
        if not self._disk.exists(self.path):
            return 0
        text = self._disk.read_file(self.path)
        # Without its end of line it is a piece of a number.
        return int(text) if text.endswith(b"\n") and text[:-1].isdigit() else 0

    def follow(self, durable_end_offset: int, now_ms: int) -> None:
        """So much is on the disk, by a clock that only grows."""
        is_due = self._written_ms is None or now_ms - self._written_ms >= _EVERY_MS
        if durable_end_offset < self.offset:
            self.lower_to(durable_end_offset)
        elif durable_end_offset > self.offset and is_due:
            self._written_ms = now_ms
            self._write(durable_end_offset, durable=False)

    def settle(self, durable_end_offset: int) -> None:
        """At the end of a life: exactly."""
        if durable_end_offset > self.offset:
            self._write(durable_end_offset, durable=False)

    def lower_to(self, offset: int) -> None:
        """What lies behind is about to be cut."""
        if offset < self.offset:
            self._write(offset, durable=True)

    def secure(self, least: int = 0) -> None:
        """Nothing else tells that something is missing, so it must outlive a power loss."""
        self._write(max(self.offset, least), durable=True)

    def _write(self, offset: int, *, durable: bool) -> None:
        self._disk.write_file(self.path, b"%d\n" % offset, durable=durable)
        self.offset = offset
