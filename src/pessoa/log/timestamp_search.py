"""Finding records of a segment by their timestamps, for ListOffsets (KIP-79, KIP-734).

The time index and the headers say which batch may hold the record; the batch is then opened, since only its records
have timestamps of their own.

A search holds the event loop, and the batches are what clients have sent: one may unpack to a hundred megabytes, and a
thousand may have headers that name a time which none of their records has. So a search opens `_MOST_BATCHES` batches at
most, none of them larger than a usual one; of the next batch that may hold the record, the header is believed. A reader
that starts at its first offset misses nothing, and reads some records too many.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from pessoa.records.batch import NO_TIMESTAMP
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import records
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pessoa.log.segment import BatchPlace, Segment
    from pessoa.records.record import Record

log = logging.getLogger("pessoa.log")


# As large as producers make them: 1 MiB, twice or more of that unpacked.
_MOST_BYTES = 4 * 1024 * 1024
_MOST_RECORDS = 20_000
_MOST_BATCHES = 2


class OpenedBatches:
    """Limits how many batches one search by timestamp decompresses."""

    __slots__ = ("_batches_left",)

    def __init__(self) -> None:
        self._batches_left = _MOST_BATCHES

    def open(self, segment: Segment, place: BatchPlace) -> Iterator[Record] | None:
        """Return the records of a batch; None if the search has opened enough batches or this one is too large."""
        batch = segment.batch_at(place)
        if not self._batches_left or batch.records_count > _MOST_RECORDS:
            return None
        self._batches_left -= 1
        return records(batch, max(_MOST_BYTES, batch.size))


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def find_by_timestamp(
    segment: Segment, timestamp: int, from_offset: int, opened: OpenedBatches | None = None
) -> TimestampOffset | None:
    """The first record at or after `from_offset` whose timestamp is at least `timestamp`."""
    opened = opened or OpenedBatches()
    start = max(segment.time_index.offset_before(timestamp), from_offset)
    for place in segment.places(segment.offset_index.position_before(start)):
        if place.max_timestamp < timestamp or place.last_offset < from_offset:
            continue
        try:
            inside = opened.open(segment, place)
            if inside is None:
                return _by_header(place, from_offset)
            for record in inside:
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return TimestampOffset(record.timestamp, record.offset, place.partition_leader_epoch)
        except InvalidBatch as problem:
            # Its records were not opened when it was appended. A reader that starts here is told, and misses none.
            log.warning("%r cannot be opened to look for a time: %s", place, problem)
            return _by_header(place, from_offset)
    return None


def _by_header(place: BatchPlace, from_offset: int = 0) -> TimestampOffset:
    return TimestampOffset(place.max_timestamp, max(place.base_offset, from_offset), place.partition_leader_epoch)


def find_max_timestamp(segment: Segment, opened: OpenedBatches | None = None) -> TimestampOffset | None:
    """The first record with the largest timestamp in the first batch whose header names the largest.

    If the headers are true to their records, that is the largest of all; -1 where no record has a timestamp.
    """
    opened = opened or OpenedBatches()
    largest = segment.max_timestamp
    for place in segment.places(segment.offset_index.position_before(segment.offset_of_max_timestamp)):
        if place.max_timestamp != largest:
            continue
        try:
            inside = opened.open(segment, place)
            if inside is None:
                return _by_header(place)
            newest = max(inside, key=_timestamp_of, default=None)
        except InvalidBatch as problem:
            if problem.error is ErrorCode.MESSAGE_TOO_LARGE:
                return _by_header(place)
            log.warning("%r cannot be opened to look for a time: %s", place, problem)
            continue
        # Compaction may have left none. A negative time other than -1 is one that ListOffsets cannot ask for.
        if newest is not None and newest.timestamp >= NO_TIMESTAMP:
            return TimestampOffset(newest.timestamp, newest.offset, place.partition_leader_epoch)
    return None


def _timestamp_of(record: Record) -> int:
    return record.timestamp
