"""Reading a log: its segments, and up to which offset each kind of reader may read.

    log start offset ≤ high watermark ≤ log end offset
    last stable offset = the high watermark, or the first offset of the oldest open transaction if that is lower

A read finds the segment by its base offset and the place within it through the offset index, and hands out a piece of
a file. It ends with what the reader may see: a follower the log end, a consumer the high watermark, a `read_committed`
one the last stable offset, with the aborted transactions that it has to leave out.

A reader that has read everything comes back for what follows. So the positions where reads end are remembered: the next
read begins there, without index or headers. Truncating or replacing segments forgets them (`forget_ends`).

`PartitionLog` is this and everything that changes it.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.aborted_transactions import overlapping_in_segments
from pessoa.log.segment import FileSlice
from pessoa.log.timestamp_search import OpenedBatches, find_by_timestamp, find_max_timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.log.aborted_transactions import AbortedTransaction
    from pessoa.log.producer_state import ProducerState
    from pessoa.log.segment import Segment
    from pessoa.log.timestamp_search import TimestampOffset


# Of one log. Consumers that keep up are at one or two places, however many they are.
_REMEMBERED_ENDS = 16


class OffsetOutOfRange(Exception):
    """The offset lies outside the log, or outside the range that the operation allows."""


class ReadUpTo(Enum):
    """Up to which offset a reader may read."""

    LOG_END = "log end"  # followers
    HIGH_WATERMARK = "high watermark"  # consumers
    LAST_STABLE_OFFSET = "last stable offset"  # read_committed consumers


class Fetched(NamedTuple):
    """The batches that a read found, as a slice of a file or None; for read_committed also the aborted transactions."""

    data: FileSlice | None
    aborted: Sequence[AbortedTransaction]


class ReadableLog:
    """`DurableLog` and `PartitionLog` add how a log becomes durable and how it changes."""

    __slots__ = (
        "_ends",
        "directory",
        "high_watermark",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "segments",
    )

    def __init__(
        self,
        directory: str,
        segments: list[Segment],
        producers: ProducerState,
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        assert segments, "a log has at least one segment"
        self.directory = directory
        self.segments = segments
        self.producers = producers
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.high_watermark = log_start_offset
        # Where reads have ended: offset → (segment, position of its batch). None for a log without readers.
        self._ends: dict[int, tuple[Segment, int]] | None = None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.directory}: offsets {self.log_start_offset}..{self.log_end_offset}, "
            f"high watermark {self.high_watermark}, {len(self.segments)} segments>"
        )

    # Offsets.

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def last_stable_offset(self) -> int:
        first_unstable = self.producers.first_unstable_offset
        if first_unstable is None:
            return self.high_watermark
        # DeleteRecords may have moved the start of the log into an open transaction.
        return max(self.log_start_offset, min(first_unstable, self.high_watermark))

    def update_high_watermark(self, offset: int) -> bool:
        """Move the high watermark, at most to the log end; return whether it moved. It never goes back."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark_updated(offset)
        return True

    # Reading.

    def read(self, offset: int, max_bytes: int, up_to: ReadUpTo, *, at_least_one_batch: bool = True) -> Fetched:
        """Return batches from the one that holds `offset`. Raises OffsetOutOfRange if the log does not reach there, and
        InvalidBatch if there is damage before it."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is outside {self.log_start_offset}..{self.log_end_offset} of {self.directory}"
            )
        bound = self.readable_end(up_to)
        if offset >= bound:
            active = self.segments[-1]
            if offset == self.log_end_offset and active.size:
                self._remember_end(offset, active, active.size)
            return _NOTHING
        number = self._segment_number(offset)
        while number < len(self.segments):
            segment = self.segments[number]
            end_position = self._end_position(segment, number, bound)
            position = self._remembered_end_position(offset, segment)
            if position is not None and 0 < end_position - position <= max_bytes:
                data: FileSlice | None = FileSlice(segment.file, position, end_position - position)
            else:
                data = segment.read(offset, max_bytes, end_position, at_least_one_batch)
            if data is not None:
                if not data.size:
                    return _NOTHING
                if up_to is ReadUpTo.LAST_STABLE_OFFSET:
                    return Fetched(data, self._aborted_within(number, offset, data))
                return Fetched(data, ())
            number += 1
        return _NOTHING

    def readable_end(self, up_to: ReadUpTo) -> int:
        """The offset before which a reader may read."""
        if up_to is ReadUpTo.LOG_END:
            return self.log_end_offset
        return self.high_watermark if up_to is ReadUpTo.HIGH_WATERMARK else self.last_stable_offset

    def _segment_number(self, offset: int) -> int:
        """Return the number of the last segment that starts at or before `offset`."""
        segments = self.segments
        if offset >= segments[-1].base_offset:
            return len(segments) - 1
        return max(0, bisect_right(segments, offset, key=base_offset_of) - 1)

    def _end_position(self, segment: Segment, number: int, bound: int) -> int:
        """The position in the segment at which a read must end so that it does not reach the offset `bound`."""
        if bound >= self.log_end_offset:
            position = segment.size
            if segment is self.segments[-1]:
                self._remember_end(self.log_end_offset, segment, position)
            return position
        if number + 1 < len(self.segments) and self.segments[number + 1].base_offset <= bound:
            return segment.size
        known = self._remembered_end_position(bound, segment)
        if known is None:
            known = segment.position_of(bound)
            self._remember_end(bound, segment, known)
        return known

    def _remember_end(self, offset: int, segment: Segment, position: int) -> None:
        ends = self._ends
        if ends is None or len(ends) >= _REMEMBERED_ENDS:
            ends = self._ends = {}
        ends[offset] = (segment, position)

    def _remembered_end_position(self, offset: int, segment: Segment) -> int | None:
        known = None if self._ends is None else self._ends.get(offset)
        return known[1] if known is not None and known[0] is segment else None

    def forget_ends(self) -> None:
        self._ends = None

    def _aborted_within(self, number: int, offset: int, data: FileSlice) -> Sequence[AbortedTransaction]:
        """The aborted transactions that overlap what was read."""
        if not any(segment.has_aborted_transactions for segment in self.segments[number:]):
            return ()
        upper = self.segments[number].offset_behind(data.position + data.size)
        if upper is None:
            upper = self.segments[number + 1].base_offset if number + 1 < len(self.segments) else self.log_end_offset
        indexes = (segment.aborted_transactions() for segment in self.segments[number:])
        return overlapping_in_segments(indexes, offset, upper)

    def find_by_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record whose timestamp is at least `timestamp` (KIP-79)."""
        opened = OpenedBatches()
        for segment in self.segments:
            if segment.max_timestamp >= timestamp:
                found = find_by_timestamp(segment, timestamp, self.log_start_offset, opened)
                if found is not None:
                    return found
        return None

    def find_max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp, the first of them if there are several (KIP-734).

        As in Kafka it may be one below the log start offset, if its segment is still there, and is the first of all
        if none has a timestamp.
        """
        opened = OpenedBatches()
        newest = max(segment.max_timestamp for segment in self.segments)
        for segment in self.segments:
            if segment.size and segment.max_timestamp == newest:
                found = find_max_timestamp(segment, opened)
                if found is not None:
                    return found
        return None


def base_offset_of(segment: Segment) -> int:
    return segment.base_offset


_NOTHING = Fetched(None, ())
