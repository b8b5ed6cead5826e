"""The two sparse indexes beside a segment.

    .index       int32 offset - base offset, int32 position in the .log          8 bytes an entry
    .timeindex   int64 timestamp, int32 offset - base offset                     12 bytes an entry

An offset entry names the last offset of a batch and the position where that batch starts; a time entry says that no
record up to that offset is newer than the timestamp. Both columns rise from entry to entry. An entry is added about
every `index.interval.bytes` of log, so a look-up ends with a short walk through batch headers.

Entries are collected in memory and go to the file a block at a time, and whenever the segment is flushed, rolled or
closed. An index is only ever a shortcut: after a crash it is rebuilt from the log, so nothing depends on when it
reaches the disk. A look-up first tries the entries in memory, where readers at the end of the log find theirs, and
otherwise searches the file: over the first entries of its blocks, then within one block. The block that was searched
last is kept, because a reader that goes through the log comes back to it. So memory is at most two blocks an index,
however large the segment.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import TYPE_CHECKING

from pessoa.records.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from pessoa.log.files import File

# Entries in a block: 4 KiB of offset index, 6 KiB of time index.
_BLOCK_ENTRIES = 512

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")
_pack_offset_entry = OFFSET_ENTRY.pack
_unpack_offset_entry = OFFSET_ENTRY.unpack_from
_OFFSET_BLOCK_BYTES = _BLOCK_ENTRIES * OFFSET_ENTRY.size

MAX_RELATIVE_OFFSET = (1 << 31) - 1


class Index:
    """A file of fixed-size entries with two columns, both rising. The subclasses say what the columns are."""

    __slots__ = ("_block", "_block_start", "_entry", "_file_entries", "_file_last", "_tail", "base_offset", "file")

    def __init__(self, file: File, base_offset: int, entry: Struct) -> None:
        self.file = file
        self.base_offset = base_offset
        self._entry = entry
        self._tail = bytearray()
        self._file_entries = file.size // entry.size
        self._file_last = self._read_entry(self._file_entries - 1) if self._file_entries else None
        # Some whole entries of the file, from the one with the number `_block_start` on.
        self._block = b""
        self._block_start = 0

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.file.path}: {self.entry_count} entries, last {self.last}>"

    @property
    def entry_count(self) -> int:
        return self._file_entries + len(self._tail) // self._entry.size

    @property
    def last(self) -> tuple[int, int] | None:
        """The last entry, or None in an empty index."""
        if not self._tail:
            return self._file_last
        first, second = self._entry.unpack_from(self._tail, len(self._tail) - self._entry.size)
        return first, second

    @property
    def is_whole(self) -> bool:
        """Whether the file ends with an entry, and not with a piece of one."""
        return self.file.size % self._entry.size == 0

    def write(self) -> None:
        """Bring the entries in memory to the file."""
        if self._tail:
            self.file.append(self._tail)
            self._file_entries, self._file_last = self.entry_count, self.last
            self._tail.clear()

    def entry(self, number: int) -> tuple[int, int]:
        assert 0 <= number < self.entry_count
        if number < self._file_entries:
            return self._read_entry(number)
        first, second = self._entry.unpack_from(self._tail, (number - self._file_entries) * self._entry.size)
        return first, second

    def entries(self) -> list[tuple[int, int]]:
        """Return all entries, for checks and tools."""
        self.write()
        data = self.file.read(0, self.entry_count * self._entry.size)
        return [(first, second) for first, second in self._entry.iter_unpack(data)]

    def truncate_entries(self, count: int) -> None:
        """Keep the first `count` entries."""
        self.write()
        # A crash or another program may have left a piece of an entry behind the last one.
        if count < self.entry_count or not self.is_whole:
            self._block = b""
            self.file.truncate(count * self._entry.size)
            self._file_entries = count
            self._file_last = self._read_entry(count - 1) if count else None

    def close(self) -> None:
        self.write()
        self.file.close()

    def _floor(self, value: int, column: int) -> int:
        """The number of the last entry whose column is at most `value`, or -1."""
        tail = self._tail
        if tail and self._entry.unpack_from(tail)[column] <= value:
            return self._file_entries + self._floor_in(tail, value, column)
        if not self._file_entries:
            return -1
        if not self._is_within_block(value, column):
            self._load_block(value, column)
        return self._block_start + self._floor_in(self._block, value, column)

    def _is_within_block(self, value: int, column: int) -> bool:
        """Whether the loaded block has an entry at or before the value, and one at or after it."""
        block, entry = self._block, self._entry
        if not block or entry.unpack_from(block)[column] > value:
            return False
        return bool(value <= entry.unpack_from(block, len(block) - entry.size)[column])

    def _load_block(self, value: int, column: int) -> None:
        low, high = 0, (self._file_entries - 1) // _BLOCK_ENTRIES
        while low < high:
            middle = (low + high + 1) // 2
            if self._read_entry(middle * _BLOCK_ENTRIES)[column] <= value:
                low = middle
            else:
                high = middle - 1
        start, size = low * _BLOCK_ENTRIES, self._entry.size
        count = min(_BLOCK_ENTRIES, self._file_entries - start)
        self._block, self._block_start = self.file.read(start * size, count * size), start

    def _floor_in(self, block: bytes | bytearray, value: int, column: int) -> int:
        unpack_from, size = self._entry.unpack_from, self._entry.size
        numbers = range(len(block) // size)
        return bisect_right(numbers, value, key=lambda number: unpack_from(block, number * size)[column]) - 1

    def _read_entry(self, number: int) -> tuple[int, int]:
        first, second = self._entry.unpack(self.file.read(number * self._entry.size, self._entry.size))
        return first, second


class OffsetIndex(Index):
    """relative offset → position."""

    __slots__ = ()

    def __init__(self, file: File, base_offset: int) -> None:
        super().__init__(file, base_offset, OFFSET_ENTRY)

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last[0] if self.last is not None else self.base_offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry. On the path of every produced batch of some size: the offsets rise because the log's do."""
        tail = self._tail
        tail += _pack_offset_entry(offset - self.base_offset, position)
        if len(tail) >= _OFFSET_BLOCK_BYTES:
            self.write()

    def position_before(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`."""
        return self.entry_before(offset)[1]

    def entry_before(self, offset: int) -> tuple[int, int]:
        """Return the last entry at or before `offset`: the last offset of a batch and the batch's position; the start
        of the segment if there is no such entry."""
        value = offset - self.base_offset
        block: bytes | bytearray = self._tail
        if not block or _unpack_offset_entry(block)[0] > value:
            if not self._file_entries:
                return self.base_offset, 0
            if not self._is_within_block(value, 0):
                self._load_block(value, 0)
            block = self._block
        number = self._floor_in(block, value, 0)
        if number < 0:
            return self.base_offset, 0
        relative_offset, position = _unpack_offset_entry(block, number * OFFSET_ENTRY.size)
        return self.base_offset + relative_offset, position

    def offset_after(self, position: int) -> int | None:
        """An offset that lies behind every record before `position`, if the index reaches so far."""
        number = self._floor(position - 1, 1) + 1
        return self.base_offset + self.entry(number)[0] if number < self.entry_count else None

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and after `offset`."""
        self.truncate_entries(self._floor(offset - 1 - self.base_offset, 0) + 1)


class TimeIndex(Index):
    """timestamp → relative offset: no record up to that offset is newer."""

    __slots__ = ()

    def __init__(self, file: File, base_offset: int) -> None:
        super().__init__(file, base_offset, TIME_ENTRY)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add the entry if its timestamp is larger than that of the last one."""
        last = self.last
        if timestamp > (last[0] if last is not None else NO_TIMESTAMP):
            self._tail += TIME_ENTRY.pack(timestamp, offset - self.base_offset)
            if len(self._tail) >= _BLOCK_ENTRIES * TIME_ENTRY.size:
                self.write()

    def offset_before(self, timestamp: int) -> int:
        """An offset up to which every record is older than `timestamp`, or the base offset."""
        number = self._floor(timestamp - 1, 0)
        return self.base_offset + self.entry(number)[1] if number >= 0 else self.base_offset

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at and after `offset`."""
        self.truncate_entries(self._floor(offset - 1 - self.base_offset, 1) + 1)
