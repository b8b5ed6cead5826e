"""What `kafka-dump-log` finds to be wrong, and how it says so: Apache Kafka's sentences, in Apache's order.

A finding is something wrong in a file that can be read all the same; the dump goes on. A file that cannot be read any
further is `Unreadable`, and ends the run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    Pairs = dict[str, list[tuple[int, int]]]


class Unreadable(Exception):
    """A file does not have the format that its suffix stands for; the message names the file and the error."""


class Findings:
    """The findings of each kind, as pairs of numbers under the absolute path of a file."""

    def __init__(self) -> None:
        self._index_mismatches: dict[str, dict[int, int]] = {}
        self._timestamp_mismatches: Pairs = {}
        self._timestamps_out_of_order: Pairs = {}
        self._offsets_not_found: Pairs = {}
        self._gaps: dict[str, dict[int, int]] = {}
        self._sentences: list[str] = []

    def index_mismatch(self, path: str, index_offset: int, log_offset: int) -> None:
        """Note that the batch at an index entry has another last offset than the entry."""
        self._index_mismatches.setdefault(_absolute(path), {})[index_offset] = log_offset

    def timestamp_mismatch(self, path: str, index_timestamp: int, log_timestamp: int) -> None:
        self._timestamp_mismatches.setdefault(_absolute(path), []).append((index_timestamp, log_timestamp))

    def timestamp_out_of_order(self, path: str, timestamp: int, previous: int) -> None:
        self._timestamps_out_of_order.setdefault(_absolute(path), []).append((timestamp, previous))

    def offset_not_found(self, path: str, index_offset: int, log_offset: int) -> None:
        """Note that a time index names an offset that is not the last of a batch; `log_offset` is the last offset of
        the batch that was found, or -1."""
        self._offsets_not_found.setdefault(_absolute(path), []).append((index_offset, log_offset))

    def gap(self, path: str, previous_offset: int, offset: int) -> None:
        """Note that two records do not follow each other: compaction leaves such gaps, and so does an append to a
        later base offset."""
        self._gaps.setdefault(_absolute(path), {})[previous_offset] = offset

    def sentence(self, text: str) -> None:
        self._sentences.append(text)

    def lines(self) -> Iterator[str]:
        yield from self._sentences
        for path, mismatches in self._index_mismatches.items():
            yield f"Mismatches in :{path}"
            for index_offset in sorted(mismatches, reverse=True):
                yield f"  Index offset: {index_offset}, log offset: {mismatches[index_offset]}"
        for path, pairs in self._timestamp_mismatches.items():
            yield f"Found timestamp mismatch in :{path}"
            yield from (f"  Index timestamp: {indexed}, log timestamp: {logged}" for indexed, logged in pairs)
        for path, pairs in self._timestamps_out_of_order.items():
            yield f"Found out of order timestamp in :{path}"
            yield from (f"  Index timestamp: {now}, Previously indexed timestamp: {before}" for now, before in pairs)
        for path, pairs in self._offsets_not_found.items():
            yield f"The following indexed offsets are not found in :{path}"
            yield from (f"Indexed offset: {indexed}, found log offset: {found}" for indexed, found in pairs)
        for path, gaps in self._gaps.items():
            yield f"Non-consecutive offsets in {path}"
            yield from (f"  {previous} is followed by {offset}" for previous, offset in sorted(gaps.items()))


def _absolute(path: str) -> str:
    """Return the absolute path as Java does: dots in the path stay."""
    return os.path.join(os.getcwd(), path)
