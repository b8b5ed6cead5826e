"""Which segments may go: too old, too many bytes, or below the log start offset.

The oldest segments go first, and whole ones only. A segment stays while it holds a record at or above the high
watermark, however old it is: what is not replicated may not be deleted. By time and size the active segment can go too
(the log rolls an empty one in its place), unless it is empty.

    retention.ms        the newest record is older than that; records without timestamp are as old as their file
    retention.bytes     without it the log is still at least that large
    log start offset    DeleteRecords, or a follower whose leader has moved on; this one also where nothing else deletes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.log_config import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.log.partition_log import PartitionLog
    from pessoa.log.segment import Segment


class Expired(NamedTuple):
    """How many of the oldest segments may be deleted, and why."""

    segments: int
    reason: str


def expired_segments(log: PartitionLog, now_ms: int) -> Expired:
    config = log.config
    rules: list[tuple[str, Callable[[int, Segment], bool]]] = [
        # Not the active one, even if every record of it was deleted.
        (
            "the log start offset has passed them",
            lambda number, _: (
                number + 1 < len(log.segments) and log.segments[number + 1].base_offset <= log.log_start_offset
            ),
        )
    ]
    if config.is_deleted:
        if config.retention_ms != UNLIMITED:
            oldest_ms = now_ms - config.retention_ms
            rules.append(("retention.ms", lambda _, segment: segment.largest_timestamp_or_modified() < oldest_ms))
        if config.retention_bytes != UNLIMITED:
            rules.append(("retention.bytes", _SizeRule(log.size - config.retention_bytes)))
    return max(
        (Expired(_count_deletable(log, rule), reason) for reason, rule in rules), key=lambda expired: expired.segments
    )


def _count_deletable(log: PartitionLog, rule: Callable[[int, Segment], bool]) -> int:
    """Return how many of the oldest segments may be deleted by the rule: replicated ones, up to the first that it
    keeps."""
    for number, segment in enumerate(log.segments):
        is_replicated = log.high_watermark >= _end_offset(log, number)
        is_empty_active = segment is log.active and not segment.size
        if not is_replicated or is_empty_active or not rule(number, segment):
            return number
    return len(log.segments)


def _end_offset(log: PartitionLog, number: int) -> int:
    return log.segments[number + 1].base_offset if number + 1 < len(log.segments) else log.log_end_offset


class _SizeRule:
    """Allows the deletion of a segment while the log exceeds `retention.bytes` by at least the segment's size."""

    def __init__(self, surplus_bytes: int) -> None:
        self._surplus_bytes = surplus_bytes

    def __call__(self, number: int, segment: Segment) -> bool:
        self._surplus_bytes -= segment.size
        return self._surplus_bytes >= 0
