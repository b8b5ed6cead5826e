"""The checks of a leader on produced batches before it appends them.

These are the rules of Apache Kafka's ProduceRequest, UnifiedLog and LogValidator, in their order; the first that is
broken decides the error that the producer sees.

    no whole batch, or another magic than 2                     INVALID_RECORD
    zstd in a Produce before version 7                          UNSUPPORTED_COMPRESSION_TYPE
    more than one batch                                         INVALID_RECORD
    a base offset other than 0                                  INVALID_RECORD
    more bytes than max.message.bytes                           MESSAGE_TOO_LARGE
    a size below the header's, a CRC that is not the bytes'     CORRUPT_MESSAGE
    a codec that does not exist                                 UNSUPPORTED_COMPRESSION_TYPE
    no records, or a count that is not last offset delta + 1    INVALID_RECORD
    more records than the bytes can hold                        INVALID_RECORD
    the control flag                                            INVALID_RECORD
    a producer id without a sequence                            INVALID_RECORD
    the transactional flag without a producer id                INVALID_RECORD
    LogAppendTime set by the producer                           INVALID_TIMESTAMP
    a timestamp outside message.timestamp.{before,after}.max.ms INVALID_TIMESTAMP
    a record without a key in a compacted topic                 INVALID_RECORD

**Three depths.** Kafka opens every batch. A record costs Python more than the rest of a batch of a hundred, so here it
depends on what the header could do if it were wrong (docs/decisions/0010-what-a-header-may-decide.md):

- The header alone, if its base and max timestamp lie in this order within an hour of now (less where `retention.ms` is
  less): with any timestamps in the records, retention can be wrong about them by no more than that.
- The timestamps of all records (`largest_timestamp`) otherwise: none were given, as librdkafka writes it (max timestamp
  0, records -1); a client does not fill in the field; or a producer sends old records. Bounds are those of the records,
  and a header that says something else gets their largest timestamp, as with Kafka.
- The records whole (`check_records`) if the topic is compacted, so that keys matter, or has a
  `message.timestamp.before.max.ms`. This also checks that offset deltas count 0, 1, 2, …

A batch with a hollow inside that is not opened is its consumers' to refuse.

**Not on the loop.** Some kilobytes may unpack to a hundred megabytes, or hold a million records. A batch whose records
must be read, and that holds more than the loop may be held for, is a `CostlyBatch`: nothing was changed, a thread reads
it (`open_produced`), and then it is checked again as one that `is_opened`.

An incomplete batch after the first one is dropped, as Kafka does. The result is the batch that may be stamped and
written: take its `view`, not the bytes that came in.

`check_produced` is on the path of every produced batch: one pass, plain comparisons, and every sentence is made
elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

from pessoa.records import checksum
from pessoa.records.batch import (
    ATTRIBUTES_POSITION,
    CODEC_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchWalk,
    RecordBatch,
    TimestampType,
)
from pessoa.records.compression import DECOMPRESSED_LIMIT, Codec
from pessoa.records.invalid_batch import InvalidBatch, RecordError
from pessoa.records.record import SMALLEST_RECORD_SIZE, largest_timestamp, spans
from pessoa.records.stamping import stamp_max_timestamp
from pessoa.wire.errors import ErrorCode

P = ParamSpec("P")
T = TypeVar("T")

# Kafka's defaults: max.message.bytes is 1 MiB and the overhead of one old message; the future is an hour (KIP-1030).
MAX_MESSAGE_BYTES = 1024 * 1024 + 12
TIMESTAMP_AFTER_MAX_MS = 60 * 60 * 1000
UNBOUNDED_MS = (1 << 63) - 1
NO_RETENTION_MS = -1

# How far from now a header's timestamps may lie and be trusted. Kafka's own default for the future, and longer than
# any producer holds a record back (delivery.timeout.ms: 2 minutes).
BELIEVED_MS = 60 * 60 * 1000

# Produce version 7 is the first whose clients know zstd (KIP-110).
ZSTD_PRODUCE_VERSION = 7

# A batch can hold a hundred thousand wrong records. The answer names the first ones and counts them all.
RECORD_ERRORS_REPORTED = 100

# What an event loop may be held for: some milliseconds of unpacking, or of Python for each record.
BYTES_ON_LOOP = 1024 * 1024
_RECORDS_ON_LOOP = 5_000
_TIMESTAMPS_ON_LOOP = 50_000

_CODEC_LAST = int(max(Codec))
# Records differ at least in their offset delta: of the smallest possible ones zstd packs not quite two into a byte, and
# the other codecs less than one.
_RECORDS_IN_PACKED_BYTE = 4
_ZSTD = int(Codec.ZSTD)
_INT64_MAX = (1 << 63) - 1
_UNPRODUCIBLE_FLAGS = CONTROL_FLAG | LOG_APPEND_TIME_FLAG


class CostlyBatch(Exception):
    """Raised where the records of a batch have to be read, and that takes longer than an event loop may be held."""


class AppendRules:
    """The rules by which one topic accepts batches from producers. Made when its configuration changes, not per
    request; immutable."""

    __slots__ = (
        "believed_future_ms",
        "believed_past_ms",
        "checks_timestamps",
        "decompressed_limit",
        "is_compacted",
        "max_message_bytes",
        "opens_records",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "timestamp_type",
    )

    def __init__(
        self,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        timestamp_before_max_ms: int = UNBOUNDED_MS,
        timestamp_after_max_ms: int = TIMESTAMP_AFTER_MAX_MS,
        is_compacted: bool = False,
        retention_ms: int = NO_RETENTION_MS,
        decompressed_limit: int = DECOMPRESSED_LIMIT,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self.timestamp_type = timestamp_type
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        self.is_compacted = is_compacted
        self.decompressed_limit = decompressed_limit
        self.checks_timestamps = timestamp_type is TimestampType.CREATE_TIME
        self.opens_records = is_compacted or (self.checks_timestamps and timestamp_before_max_ms < UNBOUNDED_MS)
        # How old and how far ahead the timestamps of a header may be, if they are to be trusted. A record whose header
        # is wrong is there for half of its time at least.
        self.believed_past_ms = BELIEVED_MS if retention_ms < 0 else min(BELIEVED_MS, retention_ms // 2)
        self.believed_future_ms = min(BELIEVED_MS, timestamp_after_max_ms)

    def __repr__(self) -> str:
        return f"<AppendRules: {', '.join(f'{name}={getattr(self, name)}' for name in self.__slots__)}>"


def check_produced(
    data: memoryview, rules: AppendRules, now_ms: int, version: int, is_opened: bool = False
) -> RecordBatch:
    """Return the one batch in `data`, the records of one partition in a Produce request of this `version`. With
    `is_opened` the records themselves were checked before. Raises `InvalidBatch` or `CostlyBatch`.

    Where its max timestamp is not that of its records, the field is corrected in place: `data` must be writable.
    """
    try:
        batch = RecordBatch(data)
    except InvalidBatch as refusal:
        raise _error_of_first_batch(data, refusal) from None
    attributes = batch.attributes
    codec = attributes & CODEC_MASK
    if codec == _ZSTD and version < ZSTD_PRODUCE_VERSION:
        _refuse_zstd(version)
    size = batch.size
    if size != len(data):
        _check_nothing_follows(data)
    if batch.base_offset != 0:
        _refuse_base_offset(batch)
    if size > rules.max_message_bytes:
        _refuse_size(batch, rules)
    if checksum.crc32c(batch.view[ATTRIBUTES_POSITION:]) != batch.crc:
        _refuse_crc(batch)
    count = batch.records_count
    if (
        codec > _CODEC_LAST
        or count <= 0
        or batch.last_offset_delta != count - 1
        or (count * SMALLEST_RECORD_SIZE > size - HEADER_SIZE and _is_too_many(count, batch))
        or attributes & _UNPRODUCIBLE_FLAGS
        or (batch.base_sequence < 0 if batch.producer_id >= 0 else attributes & TRANSACTIONAL_FLAG)
    ):
        _refuse_header(batch)
    if is_opened:
        return batch
    if rules.opens_records:
        if count > _RECORDS_ON_LOOP:
            raise CostlyBatch
        on_loop(rules, check_records, batch, rules, now_ms, BYTES_ON_LOOP)
    elif rules.checks_timestamps:
        base, largest = batch.base_timestamp, batch.max_timestamp
        # Comparisons first: numbers of this size take longer to subtract than all of them together.
        if (
            base > largest
            or now_ms - base > rules.believed_past_ms
            or (largest > now_ms and largest - now_ms > rules.believed_future_ms)
        ):
            if count > _TIMESTAMPS_ON_LOOP:
                raise CostlyBatch
            on_loop(rules, check_timestamps, batch, rules, now_ms, BYTES_ON_LOOP)
    return batch


def open_produced(data: memoryview, rules: AppendRules, now_ms: int) -> RecordBatch:
    """Check the records of a batch that was too costly for `check_produced`. It may be called in a thread."""
    batch = RecordBatch(data)
    if rules.opens_records:
        check_records(batch, rules, now_ms)
    elif rules.checks_timestamps:
        check_timestamps(batch, rules, now_ms)
    return batch


def on_loop(rules: AppendRules, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `read` returns, which decompresses at most `BYTES_ON_LOOP`. Raises `CostlyBatch` if the batch
    has more, and the topic allows more.

    It takes arguments, not a closure: the variables of a closure are slower in the function that makes it, and those
    are on the path of every batch."""
    try:
        return read(*args, **kwargs)
    except InvalidBatch as refusal:
        if refusal.error is ErrorCode.MESSAGE_TOO_LARGE and rules.decompressed_limit > BYTES_ON_LOOP:
            raise CostlyBatch from None
        raise


def check_size(batch: RecordBatch, rules: AppendRules) -> RecordBatch:
    """Return the batch, whose size has changed since it was received. Raises InvalidBatch if it is larger than
    max.message.bytes."""
    if batch.size > rules.max_message_bytes:
        _refuse_size(batch, rules)
    return batch


def check_timestamps(batch: RecordBatch, rules: AppendRules, now_ms: int, limit: int | None = None) -> None:
    """Check the timestamps of the records of a produced CreateTime batch, and set the header's max timestamp to the
    largest."""
    limit = _unpacked_limit(batch, rules, limit)
    largest = largest_timestamp(batch, limit)
    if largest - now_ms > rules.timestamp_after_max_ms:
        check_records(batch, rules, now_ms, limit)  # names the records
    _correct_max_timestamp(batch, largest)


def _unpacked_limit(batch: RecordBatch, rules: AppendRules, limit: int | None) -> int:
    """Return how many bytes the records of a batch may decompress to; `limit` holds only for a compressed batch."""
    if limit is None or not batch.attributes & CODEC_MASK:
        return rules.decompressed_limit
    return min(limit, rules.decompressed_limit)


def check_records(batch: RecordBatch, rules: AppendRules, now_ms: int, limit: int | None = None) -> None:
    """Check the records of a produced batch one by one, and set the header's max timestamp to the largest."""
    base_timestamp = batch.base_timestamp
    earliest = now_ms - rules.timestamp_before_max_ms
    latest = now_ms + rules.timestamp_after_max_ms
    largest = NO_TIMESTAMP
    first_errors: list[RecordError] = []
    count = 0
    is_timestamp_wrong = False
    for index, span in enumerate(spans(batch, _unpacked_limit(batch, rules, limit))[1]):
        timestamp = base_timestamp + span.timestamp_delta
        if timestamp > largest:
            largest = timestamp
        if span.offset_delta != index:
            problem = f"its offset delta is {span.offset_delta}"
        elif rules.is_compacted and span.key_end < span.key_start:
            problem = "a compacted topic accepts no record without a key"
        elif rules.checks_timestamps and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            problem = f"its timestamp {timestamp} is not within [{earliest}, {latest}]"
            is_timestamp_wrong = True
        else:
            continue
        count += 1
        if len(first_errors) < RECORD_ERRORS_REPORTED:
            first_errors.append(RecordError(index, problem))
    if count:
        first = first_errors[0]
        raise InvalidBatch(
            ErrorCode.INVALID_TIMESTAMP if is_timestamp_wrong else ErrorCode.INVALID_RECORD,
            f"{count} of {batch.records_count} records are refused; index {first.batch_index}: {first.message}",
            tuple(first_errors),
        )
    if rules.checks_timestamps:
        _correct_max_timestamp(batch, largest)


def _correct_max_timestamp(batch: RecordBatch, largest: int) -> None:
    if largest > _INT64_MAX:
        raise InvalidBatch(ErrorCode.INVALID_TIMESTAMP, f"the timestamp {largest} is beyond 64 bits")
    if largest != batch.max_timestamp:
        stamp_max_timestamp(batch, largest)


def _is_too_many(count: int, batch: RecordBatch) -> bool:
    """Return whether `count` records cannot fit into the bytes that the batch has for them."""
    size = batch.size - HEADER_SIZE
    if batch.attributes & CODEC_MASK:
        return count > size * _RECORDS_IN_PACKED_BYTE
    return count * SMALLEST_RECORD_SIZE > size


def _error_of_first_batch(data: memoryview, refusal: InvalidBatch) -> InvalidBatch:
    """Return Kafka's error for bytes that do not begin with a whole batch of format 2."""
    if refusal.error is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
        return InvalidBatch(ErrorCode.INVALID_RECORD, refusal.message)
    if len(data) <= MAGIC_POSITION:
        return InvalidBatch(ErrorCode.INVALID_RECORD, "the request has no record batch for this partition")
    if data[MAGIC_POSITION] == MAGIC and _is_incomplete(data):
        return InvalidBatch(ErrorCode.INVALID_RECORD, f"no whole record batch: {refusal.message}")
    return refusal


def _is_incomplete(data: memoryview) -> bool:
    """Return whether the first batch is, by its length field, longer than the data."""
    walk = BatchWalk(data)
    try:
        return next(iter(walk), None) is None
    except InvalidBatch:
        return False


def _check_nothing_follows(data: memoryview) -> None:
    walk = iter(BatchWalk(data))
    next(walk)
    try:
        second = next(walk, None)
    except InvalidBatch as refusal:
        # A message of an older format is a second one all the same.
        if refusal.error is not ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
            raise
    else:
        if second is None:
            return
    raise InvalidBatch(ErrorCode.INVALID_RECORD, "a Produce request has exactly one record batch for a partition")


def _refuse_zstd(version: int) -> NoReturn:
    raise InvalidBatch(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"zstd needs Produce version {ZSTD_PRODUCE_VERSION}; this is version {version}",
    )


def _refuse_base_offset(batch: RecordBatch) -> NoReturn:
    raise InvalidBatch(
        ErrorCode.INVALID_RECORD, f"the base offset of a produced batch is 0, but here it is {batch.base_offset}"
    )


def _refuse_size(batch: RecordBatch, rules: AppendRules) -> NoReturn:
    raise InvalidBatch(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch has {batch.size} bytes, and max.message.bytes is {rules.max_message_bytes}",
    )


def _refuse_crc(batch: RecordBatch) -> NoReturn:
    raise InvalidBatch(
        ErrorCode.CORRUPT_MESSAGE,
        f"the batch carries the CRC {batch.crc:#010x}, and its bytes have {batch.computed_crc():#010x}",
    )


def _refuse_header(batch: RecordBatch) -> NoReturn:
    """Raise `InvalidBatch` with the name of the wrong field of the header; at least one of its fields is wrong."""
    _ = batch.codec  # raises for a codec that does not exist
    count = batch.records_count
    if count <= 0 or batch.last_offset_delta != count - 1:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"the batch claims {count} records and a last offset delta of {batch.last_offset_delta}",
        )
    if _is_too_many(count, batch):
        raise InvalidBatch(ErrorCode.INVALID_RECORD, f"the batch claims {count} records in {batch.size} bytes")
    if batch.is_control:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "clients may not write control records")
    if batch.has_producer_id and batch.base_sequence < 0:
        raise InvalidBatch(
            ErrorCode.INVALID_RECORD,
            f"the batch of producer {batch.producer_id} has the sequence number {batch.base_sequence}",
        )
    if batch.is_transactional and not batch.has_producer_id:
        raise InvalidBatch(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    assert batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    raise InvalidBatch(ErrorCode.INVALID_TIMESTAMP, "a producer may not set the timestamp type LogAppendTime")
