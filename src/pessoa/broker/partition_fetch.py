"""What a fetch finds in one partition: its part of the answer, and where the records for it are.

    denied?  ─▶ TOPIC_AUTHORIZATION_FAILED, whether the topic exists or not
    not here, offline, not led by this broker, another leader epoch, no follower of it  ─▶ that error
    the reader's log parts from ours     ─▶ where (KIP-320)
    a replica in the reader's rack       ─▶ which (KIP-392)
    else                                 ─▶ a slice of the log; a follower's fetch counts as its acknowledgement

Nothing is read here: a slice says where the bytes are, and `apis/fetch.py`, which decides how many partitions share the
limit of a request, reads them when it makes the answer. A damaged batch or a failed disk is the error of its partition,
and of no other one of the request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pessoa.log.files import DiskError
from pessoa.log.leader_epoch_cache import UNDEFINED_OFFSET
from pessoa.log.partition_log import Fetched, OffsetOutOfRange, ReadUpTo
from pessoa.records.batch import LENGTH_POSITION, LOG_OVERHEAD
from pessoa.records.invalid_batch import InvalidBatch
from pessoa.wire.api.fetch import (
    FIRST_FETCH_WITH_TOPIC_IDS,
    AbortedTransaction,
    EpochEndOffset,
    LeaderIdAndEpoch,
    PartitionData,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.broker.fetch_sessions import Wanted
    from pessoa.broker.services import BrokerServices
    from pessoa.log.segment import FileSlice
    from pessoa.replication.partition import Partition
    from pessoa.wire.api.fetch import FetchPartition

# From this version on the answer says where the leaders are that it names.
FIRST_VERSION_WITH_ENDPOINTS = 16
# From which version on it names the leader.
_FIRST_VERSION_WITH_LEADER_OF = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: 12,
    ErrorCode.FENCED_LEADER_EPOCH: FIRST_VERSION_WITH_ENDPOINTS,
}
_FIRST_VERSION_FROM_FOLLOWERS = 11
_EMPTY = memoryview(b"")


class Reader(NamedTuple):
    """The consumer or follower that fetches, and what it may read."""

    # -1 is a consumer.
    replica_id: int
    broker_epoch: int
    up_to: ReadUpTo
    version: int
    rack: str
    is_follower: bool
    # Topics, as they are asked for, that the reader may not read.
    denied: frozenset[tuple[str, Uuid]] = frozenset()

    @property
    def needs_leader(self) -> bool:
        return self.replica_id >= 0 or self.version < _FIRST_VERSION_FROM_FOLLOWERS


class Found:
    """The result of a fetch for one partition: its part of the response, and where its records are."""

    __slots__ = ("data", "partition", "records", "size", "wanted")

    def __init__(
        self, wanted: Wanted, partition: Partition | None, data: PartitionData, records: FileSlice | None = None
    ) -> None:
        self.wanted = wanted
        self.partition = partition
        self.data = data
        self.records = records
        self.size = 0 if records is None else records.size

    def __repr__(self) -> str:
        return f"<Found {self.size} bytes for {self.wanted!r}>"

    @property
    def is_urgent(self) -> bool:
        """Whether the response must be sent at once: it has an error, a diverging epoch or a preferred replica."""
        data = self.data
        return bool(data.error_code) or data.diverging_epoch is not None or data.preferred_read_replica >= 0


def is_as_before(last: Found, wanted: Wanted, reader: Reader) -> bool:
    """Return whether reading again for an in-sync follower would find what the last read found: nothing. The fetch
    counts for the ISR all the same. Otherwise a follower of a thousand partitions, of which one is busy, would cost a
    thousand reads a round."""
    if last.wanted is not wanted or last.partition is None:
        return False
    partition, request, data = last.partition, wanted.request, last.data
    log, in_sync = partition.log, partition.in_sync
    # None also if another broker leads it, or its disk has failed.
    follower = None if in_sync is None else in_sync.followers.get(reader.replica_id)
    if (
        in_sync is None
        or follower is None
        or partition.leader_epoch != request.current_leader_epoch
        or log.log_end_offset != request.fetch_offset
        or log.high_watermark != data.high_watermark
        or log.log_start_offset != data.log_start_offset
        or reader.replica_id not in in_sync.isr
        or follower.broker_epoch != reader.broker_epoch
    ):
        return False
    partition.follower_fetched(reader.replica_id, reader.broker_epoch, request.fetch_offset, request.log_start_offset)
    return True


def read_partition(
    broker: BrokerServices, reader: Reader, wanted: Wanted, left: int, *, at_least_one_batch: bool
) -> Found:
    request = wanted.request
    if reader.denied and (wanted.topic, wanted.topic_id) in reader.denied:
        return Found(wanted, None, refused_unseen(request.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    partition, error = _find(broker, reader.version, wanted)
    if partition is None:
        return Found(wanted, None, _missing_partition_data(broker, reader.version, wanted, error))
    error = _check(partition, reader, request)
    if error is ErrorCode.NONE and broker.is_leaving and not partition.is_leader:
        # It could be read here, but not for long: this sends a consumer to the leader (KIP-392).
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error is not ErrorCode.NONE:
        return Found(wanted, partition, refused_with_leader(partition, error, reader.version))
    log = partition.log
    limit = min(request.partition_max_bytes, left)
    try:
        if request.last_fetched_epoch >= 0:
            diverging = _diverging_epoch_response(partition, request)
            if diverging is not None:
                return Found(wanted, partition, diverging)
        if reader.rack and partition.in_sync is not None:
            elsewhere = _preferred_replica(broker, partition, reader, request.fetch_offset)
            if elsewhere is not None:
                return Found(wanted, partition, elsewhere)
        if reader.is_follower and partition.is_throttled_for(reader.replica_id):
            at_least_one_batch, limit = False, 0
        fetched = log.read(request.fetch_offset, limit, reader.up_to, at_least_one_batch=at_least_one_batch)
        if not at_least_one_batch and fetched.data is not None and not _has_whole_batch(fetched.data):
            fetched = Fetched(None, ())
    except OffsetOutOfRange:
        if not partition.log.log_start_offset <= request.fetch_offset <= partition.log.log_end_offset:
            broker.damage.report_deleted(partition, request.fetch_offset)
        return Found(wanted, partition, refused(request.partition, ErrorCode.OFFSET_OUT_OF_RANGE))
    except DiskError as problem:
        partition.directory.fail(problem)
        return Found(wanted, partition, refused(request.partition, ErrorCode.KAFKA_STORAGE_ERROR))
    except InvalidBatch as damage:
        # The disk has changed what it was given. It fails this partition, and no other of the request.
        broker.damage.report(partition, request.fetch_offset, damage)
        return Found(wanted, partition, refused(request.partition, damage.error))
    if broker.damage and fetched.data is not None:
        broker.damage.report_repaired(partition, request.fetch_offset)
    if reader.is_follower:
        partition.follower_fetched(
            reader.replica_id, reader.broker_epoch, request.fetch_offset, request.log_start_offset
        )
    data = PartitionData(
        partition_index=request.partition,
        error_code=ErrorCode.NONE,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=_aborted_transactions(fetched) if reader.up_to is ReadUpTo.LAST_STABLE_OFFSET else None,
        records=_EMPTY,
    )
    return Found(wanted, partition, data, fetched.data)


def _check(partition: Partition, reader: Reader, request: FetchPartition) -> ErrorCode:
    if partition.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if not partition.is_leader and reader.needs_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error = partition.check_epoch(request.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return error
    if reader.is_follower:
        return partition.check_follower(
            reader.replica_id, reader.broker_epoch, knows_epoch=request.current_leader_epoch >= 0
        )
    return ErrorCode.NONE


def _diverging_epoch_response(partition: Partition, request: FetchPartition) -> PartitionData | None:
    """Return a response with the diverging epoch if the log of a follower diverges from this one; None if not."""
    end = partition.end_offset_for(request.last_fetched_epoch)
    if end.end_offset == UNDEFINED_OFFSET:
        raise OffsetOutOfRange(f"nothing is known of epoch {request.last_fetched_epoch}")
    if end.epoch >= request.last_fetched_epoch and end.end_offset >= request.fetch_offset:
        return None
    log = partition.log
    return PartitionData(
        partition_index=request.partition,
        error_code=ErrorCode.NONE,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset),
        aborted_transactions=None,
        records=_EMPTY,
    )


def _preferred_replica(
    broker: BrokerServices, partition: Partition, reader: Reader, offset: int
) -> PartitionData | None:
    """Return a response with a replica in the consumer's rack, if the broker has a replica selector and there is one
    (KIP-392); otherwise None."""
    from pessoa.replication.replica_selector import RACK_AWARE, replica_in_rack

    if broker.config.value("replica.selector.class") != RACK_AWARE:
        return None
    chosen = replica_in_rack(broker.image, partition, reader.rack, offset)
    if chosen is None:
        return None
    log = partition.log
    return PartitionData(
        partition_index=partition.index,
        error_code=ErrorCode.NONE,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        preferred_read_replica=chosen,
        records=_EMPTY,
    )


def _find(broker: BrokerServices, version: int, wanted: Wanted) -> tuple[Partition | None, ErrorCode]:
    index = wanted.request.partition
    if version >= FIRST_FETCH_WITH_TOPIC_IDS:
        partition = broker.replicas.ensure_by_id(wanted.topic_id, index)
        if partition is not None:
            return partition, ErrorCode.NONE
        topic = broker.image.topics.by_id.get(wanted.topic_id)
        if topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        return None, broker.replicas.why_missing(broker.image, topic.name, index)
    partition = broker.replicas.ensure(wanted.topic, index)
    if partition is not None:
        return partition, ErrorCode.NONE
    return None, broker.replicas.why_missing(broker.image, wanted.topic, index)


def _has_whole_batch(data: FileSlice) -> bool:
    """Return whether the data has a whole batch. Clients drop a part of a batch at the end; but if that is all they
    get, they take it for a batch larger than their limit, and the Java consumer fails."""
    if data.size < LOG_OVERHEAD:
        return False
    head = data.file.read(data.position, LOG_OVERHEAD)
    return LOG_OVERHEAD + int.from_bytes(head[LENGTH_POSITION:], "big") <= data.size


def _aborted_transactions(fetched: Fetched) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in fetched.aborted]


def refused(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=_EMPTY,
    )


def refused_unseen(index: int, error: ErrorCode) -> PartitionData:
    """Return the error for a partition that was refused before it was looked up. As in Kafka, its aborted transactions
    are then an empty list, not null."""
    data = refused(index, error)
    data.aborted_transactions = []
    return data


def _missing_partition_data(broker: BrokerServices, version: int, wanted: Wanted, error: ErrorCode) -> PartitionData:
    """Return the error for a partition that this broker has no replica of, with its leader by the metadata."""
    index = wanted.request.partition
    data = refused_unseen(index, error)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= FIRST_VERSION_WITH_ENDPOINTS:
        leader_id, leader_epoch = broker.replicas.leader_elsewhere(
            broker.image, broker.image.topics.by_id[wanted.topic_id].name, index
        )
        data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
    return data


def refused_with_leader(partition: Partition, error: ErrorCode, version: int) -> PartitionData:
    """Return an error; with the present leader if the broker does not lead or the leader epoch is old, and the version
    has it."""
    data = refused(partition.index, error)
    first_version = _FIRST_VERSION_WITH_LEADER_OF.get(error)
    if first_version is not None and version >= first_version:
        data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
    return data
