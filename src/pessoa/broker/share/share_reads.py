"""What one ShareFetch finds: reads the log of each partition from its first available record on, and acquires.

    not here, not led here, topic unknown, denied  ─▶ that error
    the state is loading, or too much is in flight ─▶ nothing; the member asks again
    else                                           ─▶ batches, and which of their records the member has now

The headers of batches are read, as far as records could be acquired; then the member acquires, and the batches around
what it acquired are sent whole. Nothing waits between the two: what was acquired and could not be sent would be with no
member until its lock ends.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, cast

from pessoa.broker.file_records import FileRecords
from pessoa.broker.share.led_share_partition import LoadState
from pessoa.coordinator.share.share_state import ShareKey
from pessoa.log.files import DiskError
from pessoa.log.partition_log import OffsetOutOfRange
from pessoa.log.segment import FileSlice
from pessoa.net.file_sending import WORTH_SENDING_BYTES
from pessoa.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL_FLAG
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.share.acquisition import FetchedBatch
from pessoa.wire.api.share_fetch import AcquiredRecords, LeaderIdAndEpoch, PartitionData
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pessoa.base.ids import Uuid
    from pessoa.broker.services import BrokerServices
    from pessoa.broker.share.led_share_partition import LedSharePartition
    from pessoa.log.aborted_transactions import AbortedTransaction
    from pessoa.replication.partition import Partition
    from pessoa.share.acquisition import AcquireRequest
    from pessoa.share.share_sessions import SharedPartition

_HEADERS_CHUNK = 16 * 1024
_EMPTY = memoryview(b"")
_NO_TRANSACTIONS: tuple[list[int], list[int]] = ([], [])
# Codes that Java's share consumer knows in an answer to a fetch; for others it fails.
_TOLD = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class Target(NamedTuple):
    """One partition of a share fetch: its share partition, or the error why there is none."""

    shared: SharedPartition
    led: LedSharePartition | None
    error: ErrorCode = ErrorCode.NONE


class _Read(NamedTuple):
    batches: list[FetchedBatch]
    # Where each of them begins in the file, and where it ends.
    positions: list[tuple[int, int]]
    data: FileSlice


def target_of(broker: BrokerServices, group_id: str, denied: frozenset[Uuid], shared: SharedPartition) -> Target:
    topic_id, index = shared
    if topic_id in denied:
        return Target(shared, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = broker.image.topics.by_id.get(topic_id)
    if topic is None:
        return Target(shared, None, ErrorCode.UNKNOWN_TOPIC_ID)
    partition = broker.replicas.ensure_by_id(topic_id, index)
    if partition is None:
        return Target(shared, None, broker.replicas.why_missing(broker.image, topic.name, index))
    if partition.is_offline:
        return Target(shared, None, ErrorCode.KAFKA_STORAGE_ERROR)
    if not partition.is_leader:
        return Target(shared, None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    led = broker.coordinators.share_partitions.get_or_make(ShareKey(group_id, topic_id, index), partition)
    if led is None:
        return Target(shared, None, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return Target(shared, led)


def renewed(broker: BrokerServices, group_id: str, denied: frozenset[Uuid], target: Target) -> Target:
    """Return the target with its present share partition. One that failed by itself stays failed for this request,
    since it would fail again."""
    led = target.led
    if led is not None and (led.state is not LoadState.GONE or led.error.is_error):
        return target
    return target_of(broker, group_id, denied, target.shared)


def next_offset(target: Target) -> int | None:
    """Return the offset from which the log of a target would be read; None if it is not active."""
    led = target.led
    return led.machine.next_fetch_offset() if led is not None and led.state is LoadState.ACTIVE else None


def may_acquire(target: Target) -> bool:
    """Return whether a member could acquire records of this partition now, if its log has any."""
    led = target.led
    return led is not None and led.state is LoadState.ACTIVE and led.machine.can_acquire()


def why_gone(target: Target) -> ErrorCode:
    """Return the error of a target; NONE if records may come. An unreachable share coordinator is no error for a fetch:
    the next one tries again."""
    if target.led is None or target.led.state is not LoadState.GONE:
        return target.error
    code = target.led.error
    if not code.is_error:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code if code in _TOLD else ErrorCode.NONE


def available_bytes(target: Target, limit: int) -> int:
    """Return how many bytes of records could be read for a member now, at most `limit`."""
    led = target.led
    if led is None or led.state is not LoadState.ACTIVE or not led.machine.can_acquire():
        return 0
    try:
        found = led.partition.log.read(
            max(led.machine.next_fetch_offset(), led.partition.log.log_start_offset),
            limit,
            led.settings.up_to,
            at_least_one_batch=True,
        )
    except (OffsetOutOfRange, InvalidBatch, DiskError):
        # The look that follows tells what is wrong.
        return limit
    return 0 if found.data is None else found.data.size


def acquire(
    broker: BrokerServices, target: Target, request: AcquireRequest, max_bytes: int, *, at_least_one_batch: bool
) -> PartitionData:
    """Acquire records of a partition for a member, and return its part of the response."""
    led = target.led
    error = why_gone(target)
    if led is None or error.is_error or led.state is not LoadState.ACTIVE:
        return failed(target, error)
    machine, partition = led.machine, led.partition
    data = failed(target, ErrorCode.NONE)
    machine.begin_at(partition.log.log_start_offset)
    if request.max_records <= 0 or not machine.can_acquire():
        # Other partitions have given the member all that it asked for, or too much is in flight.
        return data
    try:
        read = _read_batches(led, request.max_records, max_bytes, at_least_one_batch=at_least_one_batch)
    except OffsetOutOfRange:
        # The log was truncated, or is about to be read by a new leader.
        return data
    except DiskError as problem:
        partition.directory.fail(problem)
        return failed(target, ErrorCode.KAFKA_STORAGE_ERROR)
    except InvalidBatch as damage:
        broker.damage.report(partition, machine.next_fetch_offset(), damage)
        return failed(target, damage.error)
    if read is None:
        return data
    acquired = machine.acquire(request, read.batches, broker.clock.monotonic_ms())
    led.after_acquire()
    if not acquired:
        return data
    data.acquired_records = [
        AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count) for first, last, count in acquired
    ]
    try:
        data.records = _records(partition, read, acquired[0].first_offset, acquired[-1].last_offset)
    except DiskError as problem:
        partition.directory.fail(problem)
        return failed(target, ErrorCode.KAFKA_STORAGE_ERROR)
    return data


def failed(target: Target, error: ErrorCode) -> PartitionData:
    """Return the response for a partition without records. Its leader is filled in when the response is assembled."""
    return PartitionData(
        partition_index=target.shared[1],
        error_code=error,
        error_message=error.text if error.is_error else None,
        acknowledge_error_code=ErrorCode.NONE,
        current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=_EMPTY,
        acquired_records=[],
    )


def _read_batches(
    led: LedSharePartition, max_records: int, max_bytes: int, *, at_least_one_batch: bool
) -> _Read | None:
    """Return the batches of which a member may acquire `max_records` records; None if there are none."""
    log, settings, machine = led.partition.log, led.settings, led.machine
    offset = machine.next_fetch_offset()
    found = log.read(offset, max_bytes, settings.up_to, at_least_one_batch=at_least_one_batch)
    if found.data is None:
        return None
    # From there on no member can have anything; and before that, what was never acquired is enough for this one.
    locks_end = machine.start_offset + settings.limits.record_locks + 1
    enough = max(offset, machine.in_flight.end_offset) + max_records
    batches: list[FetchedBatch] = []
    positions: list[tuple[int, int]] = []
    for batch, position, size in _headers(found.data, found.aborted):
        if batch.first_offset >= min(locks_end, enough) and batches:
            break
        if batch.is_gone:
            enough += batch.last_offset - batch.first_offset + 1
        batches.append(batch)
        positions.append((position, position + size))
    return _Read(batches, positions, found.data) if batches else None


def _headers(data: FileSlice, aborted: Sequence[AbortedTransaction]) -> Iterator[tuple[FetchedBatch, int, int]]:
    """Yield the whole batches of a slice by their headers, each with its position and size."""
    file, position, end = data.file, data.position, data.position + data.size
    chunk, chunk_start = b"", position
    transactions = AbortedOffsets(aborted)
    while end - position >= HEADER_SIZE:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_start, at = file.read(position, _HEADERS_CHUNK), position, 0
            if len(chunk) < HEADER_SIZE:
                return
        base_offset, length, _, _, _, attributes, last_delta, _, _, producer_id, _, _, _ = HEADER.unpack_from(chunk, at)
        size = length + LOG_OVERHEAD
        if size < HEADER_SIZE or position + size > end:
            return
        is_aborted = bool(attributes & TRANSACTIONAL_FLAG) and transactions.have(producer_id, base_offset)
        yield FetchedBatch(base_offset, base_offset + last_delta, is_aborted), position, size
        position += size


class AbortedOffsets:
    """Finds whether an offset belongs to an aborted transaction, quickly: a read may have very many of both."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        # The first and last offsets of each producer's transactions, which follow each other.
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for one in aborted:
            firsts, lasts = self._by_producer.setdefault(one.producer_id, ([], []))
            firsts.append(one.first_offset)
            lasts.append(one.last_offset)

    def have(self, producer_id: int, offset: int) -> bool:
        """Return whether the producer's record at this offset was aborted; the marker, at the last offset, is no
        record."""
        firsts, lasts = self._by_producer.get(producer_id, _NO_TRANSACTIONS)
        index = bisect_right(firsts, offset) - 1
        return index >= 0 and offset < lasts[index]


def _records(partition: Partition, read: _Read, first_offset: int, last_offset: int) -> memoryview:
    """Return the whole batches that hold these offsets."""
    wanted = [
        position
        for batch, position in zip(read.batches, read.positions, strict=True)
        if batch.last_offset >= first_offset and batch.first_offset <= last_offset
    ]
    start, end = wanted[0][0], wanted[-1][1]
    found = FileSlice(read.data.file, start, end - start)
    if found.size < WORTH_SENDING_BYTES:
        return memoryview(found.read())
    # It passes through the encoder untouched, as every buffer of records does.
    return cast("memoryview", FileRecords(partition, found))
