"""Finding records of a segment by their timestamps, for ListOffsets (KIP-79, KIP-734).

The time index and the headers say which batch may hold the record; the batch is then opened, since only its records
have timestamps of their own.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from pessoa.records.batch import NO_TIMESTAMP
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.records.record import records

if TYPE_CHECKING:
    from pessoa.log.segment import Segment
    from pessoa.records.record import Record

log = logging.getLogger("pessoa.log")


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def find_by_timestamp(segment: Segment, timestamp: int, from_offset: int) -> TimestampOffset | None:
    """The first record at or after `from_offset` whose timestamp is at least `timestamp`."""
    start = max(segment.time_index.offset_before(timestamp), from_offset)
    for place in segment.places(segment.offset_index.position_before(start)):
        if place.max_timestamp < timestamp or place.last_offset < from_offset:
            continue
        try:
            for record in records(segment.batch_at(place)):
                if record.timestamp >= timestamp and record.offset >= from_offset:
                    return TimestampOffset(record.timestamp, record.offset, place.partition_leader_epoch)
        except InvalidBatch as problem:
            # Its records were not opened when it was appended. A reader that starts here is told, and misses none.
            log.warning("%r cannot be opened to look for a time: %s", place, problem)
            offset = max(place.base_offset, from_offset)
            return TimestampOffset(place.max_timestamp, offset, place.partition_leader_epoch)
    return None


def find_max_timestamp(segment: Segment) -> TimestampOffset | None:
    """The first record with the largest timestamp in the first batch whose header names the largest.

    If the headers are true to their records, that is the largest of all; -1 where no record has a timestamp.
    """
    largest = segment.max_timestamp
    for place in segment.places(segment.offset_index.position_before(segment.offset_of_max_timestamp)):
        if place.max_timestamp != largest:
            continue
        try:
            newest = max(records(segment.batch_at(place)), key=_timestamp_of, default=None)
        except InvalidBatch as problem:
            log.warning("%r cannot be opened to look for a time: %s", place, problem)
            continue
        # Compaction may have left none. A negative time other than -1 is one that ListOffsets cannot ask for.
        if newest is not None and newest.timestamp >= NO_TIMESTAMP:
            return TimestampOffset(newest.timestamp, newest.offset, place.partition_leader_epoch)
    return None


def _timestamp_of(record: Record) -> int:
    return record.timestamp
