"""Fetch: read record batches from partitions, for consumers and for followers.

    v4      isolation level, last stable offset, aborted transactions
    v5      log start offset
    v7      fetch sessions (KIP-227)
    v9      current leader epoch, for fencing (KIP-320)
    v11     rack, for reading from followers (KIP-392)
    v12     flexible; the last fetched epoch, and where the logs part
    v13     topics by id
    v15     the replica's state moves into a tagged field
    v16     the response names new leaders
    v17, 18 for replicas of the metadata log: directory, high watermark

A fetch that finds fewer than `min_bytes` waits, at most `max_wait_ms`, and then looks once more. Sizes are found
without reading; bytes are read from the page cache when the answer is made. Every partition gets at most its own
limit and what is left of the request's, but the first that has records gives at least one batch, however large, so
that nobody gets stuck. While consumers leave much of their answers unread, everybody's answers get smaller: they are in
memory until they are read.

A follower reads from the leader up to the end of the log, and its fetch tells the leader how far it is. Nobody else may
say that: such a fetch moves the high watermark, so it is taken only from the listener between brokers. A consumer reads
from the leader, or, from version 11 on, from any replica, and up to the high watermark. A leader that knows the racks
sends a consumer to a replica in its own (`replica.selector.class`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from pessoa.broker.context import Parked
from pessoa.broker.fetch_sessions import CONSUMER
from pessoa.log.files import DiskError
from pessoa.log.leader_epochs import UNDEFINED_OFFSET
from pessoa.log.partition_log import Fetched, OffsetOutOfRange, ReadUpTo
from pessoa.records.batch import LENGTH_POSITION, LOG_OVERHEAD
from pessoa.records.errors import InvalidBatch
from pessoa.replication.partition import FetchWaiter, Partition
from pessoa.wire.api.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.dispatch import Reply
    from pessoa.broker.fetch_sessions import FetchPlan, Wanted
    from pessoa.broker.services import BrokerServices
    from pessoa.log.segment import FileSlice
    from pessoa.wire.api.fetch import FetchPartition

_FIRST_VERSION_WITH_TOPIC_IDS = 13
# From this version on who does not lead says who does.
_FIRST_VERSION_WITH_LEADERS = 12
# And from this one on also where that one is.
_FIRST_VERSION_WITH_ENDPOINTS = 16
_FIRST_VERSION_FROM_FOLLOWERS = 11
_READ_COMMITTED = 1
# What answers may take in memory that consumers do not read; a consumer by default asks for up to 50 MiB at a time.
MAX_UNREAD_BYTES = 256 * 1024 * 1024
_NO_EPOCH = -1
_EMPTY = memoryview(b"")


class Reader(NamedTuple):
    """Who reads, and what that one may see."""

    # -1 is a consumer.
    replica_id: int
    broker_epoch: int
    up_to: ReadUpTo
    version: int
    rack: str
    is_follower: bool

    @property
    def needs_leader(self) -> bool:
        return self.replica_id >= 0 or self.version < _FIRST_VERSION_FROM_FOLLOWERS


class Found:
    """What there is for one partition: its part of the answer, and where its records are."""

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
        """Something that the reader has to hear at once."""
        data = self.data
        return bool(data.error_code) or data.diverging_epoch is not None or data.preferred_read_replica >= 0


def handle(broker: BrokerServices, context: RequestContext, request: FetchRequest) -> Reply:
    reader = _reader(context, request)
    if reader.is_follower and context.listener != broker.config.inter_broker_listener_name:
        return _failed(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    plan = broker.fetch_sessions.plan(request, context.version, broker.clock.monotonic_ms(), reader.replica_id)
    if plan.error is not ErrorCode.NONE:
        return _failed(plan.error)
    found = _look(broker, reader, plan, request.max_bytes)
    if request.max_wait_ms <= 0 or not found or _is_enough(found, request.min_bytes):
        return _response(broker, context, reader, plan, found)
    return WaitingFetch(broker, context, request, reader, plan, found)


def _reader(context: RequestContext, request: FetchRequest) -> Reader:
    replica_id, broker_epoch = request.replica_id, _NO_EPOCH
    if request.replica_state is not None:
        replica_id, broker_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    if replica_id >= 0:
        up_to = ReadUpTo.LOG_END
    elif request.isolation_level == _READ_COMMITTED:
        up_to = ReadUpTo.LAST_STABLE_OFFSET
    else:
        up_to = ReadUpTo.HIGH_WATERMARK
    return Reader(
        max(replica_id, CONSUMER), broker_epoch, up_to, context.version, request.rack_id, is_follower=replica_id >= 0
    )


def _failed(error: ErrorCode) -> FetchResponse:
    return FetchResponse(throttle_time_ms=0, error_code=error, session_id=0, responses=[])


class WaitingFetch(Parked):
    """A fetch that found too little. It looks again when there is enough, or its time is up."""

    __slots__ = ("_broker", "_context", "_max_bytes", "_plan", "_reader", "_timer", "_waiter")

    def __init__(
        self,
        broker: BrokerServices,
        context: RequestContext,
        request: FetchRequest,
        reader: Reader,
        plan: FetchPlan,
        found: list[Found],
    ) -> None:
        super().__init__()
        self._broker, self._context, self._reader, self._plan = broker, context, reader, plan
        # Not the request: it may name partitions without end, and it is waited for without end.
        self._max_bytes = request.max_bytes
        self._waiter: FetchWaiter | None = FetchWaiter(
            self.ready,
            request.min_bytes - sum(one.size for one in found),
            [one.partition for one in found if one.partition is not None],
            is_follower=reader.is_follower,
        )
        self._timer = asyncio.get_running_loop().call_later(request.max_wait_ms / 1000, self.ready)

    def __repr__(self) -> str:
        return f"<WaitingFetch of {self._context!r}{', ready' if self.is_ready else ''}>"

    def reply(self) -> FetchResponse:
        self._leave()
        broker, reader, plan = self._broker, self._reader, self._plan
        return _response(broker, self._context, reader, plan, _look(broker, reader, plan, self._max_bytes))

    def cancel(self) -> None:
        super().cancel()
        self._leave()

    def _leave(self) -> None:
        if self._waiter is not None:
            self._timer.cancel()
            self._waiter.leave()
            self._waiter = None


def _is_enough(found: list[Found], min_bytes: int) -> bool:
    size = 0
    for one in found:
        size += one.size
        if one.is_urgent:
            return True
    return size >= min_bytes


# Looking.


def _look(broker: BrokerServices, reader: Reader, plan: FetchPlan, max_bytes: int) -> list[Found]:
    left = min(max_bytes, broker.config.fetch_max_bytes)
    if not reader.is_follower:
        left = min(left, max(0, MAX_UNREAD_BYTES - broker.unread_bytes()) // 2)
    has_some = False
    found = []
    for number, wanted in enumerate(plan.wanted):
        known = plan.known[number] if plan.known is not None else None
        if known is not None and _is_as_before(known.last_look, wanted, reader):
            found.append(known.last_look)
            continue
        one = _look_at(broker, reader, wanted, left, at_least_one_batch=not has_some)
        if known is not None:
            known.last_look = None if one.size or one.is_urgent else one
        size = one.size
        has_some = has_some or size > 0
        left = max(0, left - size)
        found.append(one)
    return found


def _is_as_before(last: Found | None, wanted: Wanted, reader: Reader) -> bool:
    """Whether another look for an in-sync follower would find what the last one found: nothing. Its fetch counts as in
    a look. A follower of a thousand partitions, of which one is busy, would otherwise cost a thousand looks a round."""
    if last is None or last.wanted is not wanted or last.partition is None:
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


def _look_at(broker: BrokerServices, reader: Reader, wanted: Wanted, left: int, *, at_least_one_batch: bool) -> Found:
    request = wanted.request
    partition, error = _find(broker, reader.version, wanted)
    if partition is None:
        refused = _refused(request.partition, error)
        # Kafka answers for what it does not have elsewhere than for what it has, and not with null.
        refused.aborted_transactions = []
        return Found(wanted, None, refused)
    error = _check(partition, reader, request)
    if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return Found(wanted, partition, not_leader(partition, reader.version))
    if error is not ErrorCode.NONE:
        return Found(wanted, partition, _refused(request.partition, error))
    log = partition.log
    limit = min(request.partition_max_bytes, left)
    try:
        if request.last_fetched_epoch >= 0:
            parted = _parting(partition, request)
            if parted is not None:
                return Found(wanted, partition, parted)
        if reader.rack and partition.in_sync is not None:
            elsewhere = _preferred_replica(broker, partition, reader, request.fetch_offset)
            if elsewhere is not None:
                return Found(wanted, partition, elsewhere)
        if reader.is_follower and partition.holds_back(reader.replica_id):
            at_least_one_batch, limit = False, 0
        fetched = log.read(request.fetch_offset, limit, reader.up_to, at_least_one_batch=at_least_one_batch)
        if not at_least_one_batch and fetched.data is not None and not _has_whole_batch(fetched.data):
            fetched = Fetched(None, ())
    except OffsetOutOfRange:
        if not partition.log.log_start_offset <= request.fetch_offset <= partition.log.log_end_offset:
            broker.damage.is_gone(partition, request.fetch_offset)
        return Found(wanted, partition, _refused(request.partition, ErrorCode.OFFSET_OUT_OF_RANGE))
    except DiskError as problem:
        partition.directory.fail(problem)
        return Found(wanted, partition, _refused(request.partition, ErrorCode.KAFKA_STORAGE_ERROR))
    except InvalidBatch as damage:
        # The disk has changed what it was given. That is this partition's misfortune, and nobody else's in the request.
        broker.damage.report(partition, request.fetch_offset, damage)
        return Found(wanted, partition, _refused(request.partition, damage.error))
    if broker.damage and fetched.data is not None:
        broker.damage.is_over(partition, request.fetch_offset)
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
        aborted_transactions=_aborted(fetched) if reader.up_to is ReadUpTo.LAST_STABLE_OFFSET else None,
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


def _parting(partition: Partition, request: FetchPartition) -> PartitionData | None:
    """Where the log of a reader parts from ours, if it does."""
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
    """Send a consumer to a replica in its rack, if the broker is told to and there is one (KIP-392)."""
    from pessoa.replication.read_replicas import RACK_AWARE, replica_in_rack

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
    if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
        partition = broker.replicas.by_id.get(wanted.topic_id, {}).get(index)
        if partition is not None:
            return partition, ErrorCode.NONE
        topic = broker.image.topics.by_id.get(wanted.topic_id)
        if topic is None:
            return None, ErrorCode.UNKNOWN_TOPIC_ID
        return None, broker.replicas.why_missing(broker.image, topic.name, index)
    partition = broker.replicas.get(wanted.topic, index)
    if partition is not None:
        return partition, ErrorCode.NONE
    return None, broker.replicas.why_missing(broker.image, wanted.topic, index)


def _has_whole_batch(data: FileSlice) -> bool:
    """Clients drop half a batch at the end, but one that is all they get they take for a batch larger than their
    limit: the Java consumer fails on it."""
    if data.size < LOG_OVERHEAD:
        return False
    head = data.file.read(data.position, LOG_OVERHEAD)
    return LOG_OVERHEAD + int.from_bytes(head[LENGTH_POSITION:], "big") <= data.size


def _aborted(fetched: Fetched) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in fetched.aborted]


def _refused(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=_EMPTY,
    )


def not_leader(partition: Partition, version: int) -> PartitionData:
    data = _refused(partition.index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if version >= _FIRST_VERSION_WITH_LEADERS:
        data.current_leader = LeaderIdAndEpoch(leader_id=partition.leader_id, leader_epoch=partition.leader_epoch)
    return data


# Answering.


def _response(
    broker: BrokerServices, context: RequestContext, reader: Reader, plan: FetchPlan, found: list[Found]
) -> FetchResponse:
    topics: dict[tuple[str, bytes], FetchableTopicResponse] = {}
    leaders: dict[int, None] = {}
    for one in found:
        session = plan.session
        if session is not None:
            is_news = session.is_news(one.wanted, one.data, one.size)
            if plan.is_incremental and not is_news:
                continue
        data = one.data if not one.size else _with_records(one, reader)
        if data.current_leader is not None:
            leaders[data.current_leader.leader_id] = None
        key = (one.wanted.topic, one.wanted.topic_id)
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchableTopicResponse(
                topic=one.wanted.topic, topic_id=one.wanted.topic_id, partitions=[]
            )
        topic.partitions.append(data)
    return FetchResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        session_id=plan.session_id,
        responses=list(topics.values()),
        node_endpoints=_endpoints(broker, context, leaders) if leaders else [],
    )


def _with_records(one: Found, reader: Reader) -> PartitionData:
    assert one.records is not None
    assert one.partition is not None
    try:
        one.data.records = memoryview(one.records.read())
    except DiskError as problem:
        one.partition.directory.fail(problem)
        return _refused(one.data.partition_index, ErrorCode.KAFKA_STORAGE_ERROR)
    if reader.is_follower:
        one.partition.sent(one.size)
    return one.data


def _endpoints(broker: BrokerServices, context: RequestContext, leaders: dict[int, None]) -> list[NodeEndpoint]:
    """Where the leaders are that the answer names, so that the client need not ask for metadata first (KIP-951)."""
    if context.version < _FIRST_VERSION_WITH_ENDPOINTS:
        return []
    return [
        NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in broker.nodes(context.listener)
        if node.id in leaders
    ]
