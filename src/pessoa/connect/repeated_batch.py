"""A batch of a source that is read once more after a crash: what of it has come, and when the rest is given up.

A source that can tell which of two offsets comes first gives what lies between the two, though rows came or went since.
Another gives as many records as there were, and goes on until it meets the end: a record may have come in between, and
what lies before the end is never asked for again. If the end itself has gone, that is everything there is, and what
lies behind it is written twice.

Patience is for a source that has nothing. One that gives records from behind the end is polled for longer: a partition
that has grown may be given page after page before another partition has its turn. But one that never falls silent does
not keep the batch open for ever for a row that is gone: it is given up soon if the source knows that it has read all of
the partition, and after ten minutes if it does not.
"""

from __future__ import annotations

import json
import time
from enum import Enum

from pessoa.connect.connector import Offset, SourceConnector
from pessoa.connect.data import Record
from pessoa.connect.query_offset import QueryOffset, advance, count_of, partition_of, parts_of

# A source that returns fewer records than before is polled this often before the rest is given up.
PATIENCE = 20
# A source that returns only records from behind the end may have more of the batch in a partition that waits for its
# turn. After this many polls all partitions have had theirs. A partition without any record may wait for the backlog of
# another, and is given this much time too.
MOST_POLLS_BEHIND = 1000
MOST_BACKLOG_S = 600.0


class Position(Enum):
    """Where a record lies relative to the end of the repeated batch."""

    WITHIN = "within"
    BEHIND = "behind"
    # The source cannot tell.
    UNKNOWN = "unknown"


class RepeatedBatch:
    def __init__(self, source: SourceConnector, start: QueryOffset, end: QueryOffset) -> None:
        self._source = source
        self._start = parts_of(start)
        self._end = parts_of(end)
        self._parts: dict[str, Offset] = dict(self._start)
        # Partitions of which the source has returned records from behind the end.
        self._passed: set[str] = set()
        self._left = count_of(end) - count_of(start)
        self._patience = PATIENCE
        # Polls since the last record of the batch, and the time of that record.
        self._polls_in_vain = 0
        self._since_s = time.monotonic()

    def __repr__(self) -> str:
        return f"<RepeatedBatch, {self._left} records left, without {self.missing()}>"

    def is_complete(self) -> bool:
        """Whether every source partition is past its end offset, or at it with enough records read."""
        if not self._end:
            return self._left <= 0
        return all(
            name in self._passed or (self._left <= 0 and self._parts.get(name) == offset)
            for name, offset in self._end.items()
        )

    def is_given_up(self) -> bool:
        if not self._patience or (self._polls_in_vain >= PATIENCE and self._has_read_all_that_is_missing()):
            return True
        return self._polls_in_vain >= MOST_POLLS_BEHIND and (
            time.monotonic() - self._since_s >= MOST_BACKLOG_S or not self._has_untouched_partition()
        )

    def _has_read_all_that_is_missing(self) -> bool:
        """Whether the source has no more records of any partition that lacks records of the batch."""
        missing = self.missing()
        return bool(missing) and all(self._source.has_read_all(json.loads(name)) for name in missing)

    def _has_untouched_partition(self) -> bool:
        """Whether the source has returned no record for a partition of the batch since the restart."""
        return any(
            name not in self._passed and self._parts.get(name) == self._start.get(name) != offset
            for name, offset in self._end.items()
        )

    def missing(self) -> list[str]:
        """Return the source partitions of which records are still missing."""
        return [
            name for name, offset in self._end.items() if name not in self._passed and self._parts.get(name) != offset
        ]

    def begin_poll(self) -> None:
        self._polls_in_vain += 1

    def end_silent_poll(self) -> None:
        self._patience -= 1

    def take(self, record: Record) -> Position:
        """Count a polled record and return its position; a record past the end does not belong to the batch."""
        position = self._position(record)
        if position is Position.BEHIND:
            self._passed.add(partition_of(record))
            return position
        if position is Position.WITHIN or self._left > 0:
            self._polls_in_vain, self._since_s = 0, time.monotonic()
        self._left -= 1
        advance(self._parts, record)
        return position

    def _position(self, record: Record) -> Position:
        if record.source_partition is None or record.source_offset is None:
            return Position.UNKNOWN
        last = self._end.get(partition_of(record))
        if last is None:
            # Nothing of this partition was in the batch: the next batch begins it.
            return Position.BEHIND
        is_beyond = self._source.is_beyond(record.source_offset, last)
        if is_beyond is None:
            return Position.UNKNOWN
        return Position.BEHIND if is_beyond else Position.WITHIN
