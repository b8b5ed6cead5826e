"""What the configurations of a topic and of its broker say about a log. Field names are Kafka's keys with underscores;
defaults are Kafka's."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from pessoa.records.batch import TimestampType
from pessoa.records.batch_validation import MAX_MESSAGE_BYTES, TIMESTAMP_AFTER_MAX_MS, UNBOUNDED_MS, AppendRules
from pessoa.records.compression import Codec

_GIB = 1 << 30
_DAY_MS = 24 * 60 * 60 * 1000
UNLIMITED = -1
NEVER = (1 << 63) - 1

COMPACT = "compact"
DELETE = "delete"


class LogConfig(NamedTuple):
    segment_bytes: int = _GIB
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    retention_bytes: int = UNLIMITED
    retention_ms: int = 7 * _DAY_MS
    cleanup_policy: frozenset[str] = frozenset({DELETE})
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = MAX_MESSAGE_BYTES
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = UNBOUNDED_MS
    message_timestamp_after_max_ms: int = TIMESTAMP_AFTER_MAX_MS
    # `producer`: batches stay as they came. A codec's name: the broker compresses them anew.
    compression_type: str = "producer"
    # Of that codec; None for its default.
    compression_level: int | None = None
    # These two are the broker's, for all of its logs alike.
    producer_id_expiration_ms: int = _DAY_MS
    transaction_partition_verification_enable: bool = True

    def __post_init__(self) -> None:
        assert self.cleanup_policy <= {COMPACT, DELETE}

    @property
    def is_compacted(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return DELETE in self.cleanup_policy

    @property
    def codec(self) -> Codec | None:
        """The codec of `compression.type`; None where the producer decides."""
        if self.compression_type == "producer":
            return None
        return Codec.NONE if self.compression_type == "uncompressed" else Codec[self.compression_type.upper()]

    def append_rules(self) -> AppendRules:
        return AppendRules(
            max_message_bytes=self.max_message_bytes,
            timestamp_type=self.message_timestamp_type,
            timestamp_before_max_ms=self.message_timestamp_before_max_ms,
            timestamp_after_max_ms=self.message_timestamp_after_max_ms,
            is_compacted=self.is_compacted,
            retention_ms=self.retention_ms if self.is_deleted else UNLIMITED,
        )

    def but(self, **changes: Any) -> Self:
        """Return a copy with some values changed."""
        return self._replace(**changes)
