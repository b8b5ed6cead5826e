"""Figures of all messages of a topic: how many and how large, keys, nulls, when they came, how partitions share them.

    TopicFigures    what is counted (pure); its size does not grow with the topic
    AnalysisScan    a reading of the whole topic that counts instead of handing over

Percentiles are exact up to a kilobyte and right to 10 % above, by buckets that grow by a tenth. Distinct keys and
values are estimated by HyperLogLog with 2^11 registers, right to about 2.3 %.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import blake2b

import msgspec
from confluent_kafka import Consumer
from confluent_kafka import Message as KafkaMessage

from pessoa.control_center.message_decoding import Decoder
from pessoa.control_center.message_reading import Message, MessageQuery, Range, Scan

_BITS = 11
_REGISTERS = 1 << _BITS
# Every size up to a kilobyte, then by a tenth up to beyond any message that a broker takes.
_BOUNDS: list[int] = sorted({*range(1025), *(int(1.1**power) for power in range(73, 220))})
HOUR_MS = 3_600_000
MAX_HOURS = 24 * 31


class SizeFigures:
    """The count, total, bounds and distribution of the sizes of keys or of values, in bytes."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.least = 0
        self.most = 0
        self._buckets: Counter[int] = Counter()

    def add(self, size: int) -> None:
        self.least = size if self.count == 0 else min(self.least, size)
        self.most = max(self.most, size)
        self.count += 1
        self.total += size
        self._buckets[bisect_right(_BOUNDS, size) - 1] += 1

    def percentile(self, percent: float) -> int | None:
        wanted, seen = self.count * percent / 100, 0
        for bucket, count in sorted(self._buckets.items()):
            seen += count
            if seen >= wanted:
                return min(self.most, max(self.least, _BOUNDS[bucket]))
        return None


class DistinctEstimate:
    """An estimate of the number of distinct values by HyperLogLog (Flajolet and others, 2007), with the correction
    for small numbers."""

    def __init__(self) -> None:
        self._registers = bytearray(_REGISTERS)

    def add(self, data: bytes) -> None:
        digest = int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
        register, rest = digest >> (64 - _BITS), digest & ((1 << (64 - _BITS)) - 1)
        rank = 64 - _BITS - rest.bit_length() + 1
        if rank > self._registers[register]:
            self._registers[register] = rank

    def estimate(self) -> int:
        raw = 0.7213 / (1 + 1.079 / _REGISTERS) * _REGISTERS**2 / sum(2.0**-one for one in self._registers)
        empty = self._registers.count(0)
        if raw <= 2.5 * _REGISTERS and empty:
            return round(_REGISTERS * math.log(_REGISTERS / empty))
        return round(raw)


class TopicReport(msgspec.Struct, frozen=True):
    """What pages and the API show."""

    messages: int
    null_keys: int
    null_values: int
    distinct_keys: int
    distinct_values: int
    # least, average, p50, p95, p99, most; empty without any.
    key_bytes: list[float]
    value_bytes: list[float]
    first_ms: int | None
    last_ms: int | None
    # Messages of each partition, and of each hour by its first millisecond.
    partitions: dict[int, int]
    hours: list[tuple[int, int]]
    seconds: float = 0.0
    is_done: bool = True
    error: str | None = None


class TopicFigures:
    def __init__(self) -> None:
        self.messages = 0
        self.null_keys = 0
        self.null_values = 0
        self.keys = SizeFigures()
        self.values = SizeFigures()
        self.distinct_keys = DistinctEstimate()
        self.distinct_values = DistinctEstimate()
        self.first_ms: int | None = None
        self.last_ms: int | None = None
        self.partitions: Counter[int] = Counter()
        self._hours: Counter[int] = Counter()

    def __repr__(self) -> str:
        return f"<TopicFigures of {self.messages} messages>"

    def add(self, partition: int, at_ms: int, key: bytes | None, value: bytes | None) -> None:
        self.messages += 1
        self.partitions[partition] += 1
        if key is None:
            self.null_keys += 1
        else:
            self.keys.add(len(key))
            self.distinct_keys.add(key)
        if value is None:
            self.null_values += 1
        else:
            self.values.add(len(value))
            self.distinct_values.add(value)
        if at_ms >= 0:
            self.first_ms = at_ms if self.first_ms is None else min(self.first_ms, at_ms)
            self.last_ms = at_ms if self.last_ms is None else max(self.last_ms, at_ms)
            self._hours[at_ms - at_ms % HOUR_MS] += 1
            if len(self._hours) > 2 * MAX_HOURS:
                for hour in sorted(self._hours)[:MAX_HOURS]:
                    del self._hours[hour]

    def report(self, seconds: float = 0.0, *, is_done: bool = True, error: str | None = None) -> TopicReport:
        return TopicReport(
            self.messages, self.null_keys, self.null_values, min(self.distinct_keys.estimate(), self.keys.count),
            min(self.distinct_values.estimate(), self.values.count), _sizes(self.keys), _sizes(self.values),
            self.first_ms, self.last_ms, dict(sorted(self.partitions.items())),
            sorted(self._hours.items())[-MAX_HOURS:], seconds, is_done, error,
        )  # fmt: skip


def _sizes(found: SizeFigures) -> list[float]:
    if not found.count:
        return []
    middle = [float(found.percentile(percent) or 0) for percent in (50, 95, 99)]
    return [float(found.least), found.total / found.count, *middle, float(found.most)]


class AnalysisScan(Scan):
    """A scan that computes the figures of a whole topic. `figures` are written by its thread and may be read at any
    time."""

    def __init__(
        self, query: MessageQuery, ranges: Mapping[int, Range], open_consumer: Callable[[], Consumer], decoder: Decoder
    ) -> None:
        # The thread begins in the constructor of a scan.
        self.figures = TopicFigures()
        super().__init__(query, ranges, open_consumer, decoder)

    def _examine(self, record: KafkaMessage) -> Message | None:
        self.progress.scanned += 1
        self.progress.bytes += len(record)
        self.figures.add(record.partition() or 0, record.timestamp()[1], record.key(), record.value())
        return None

    def report(self) -> TopicReport:
        progress = self.progress
        return self.figures.report(progress.seconds, is_done=progress.is_done, error=progress.error)
