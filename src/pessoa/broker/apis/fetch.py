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

A fetch that finds fewer than `min_bytes` waits, at most `max_wait_ms`, and then looks once more. What it finds in a
partition, `partition_fetch.py` decides. Sizes are found without reading; bytes are read from the page cache when the
answer is made. Every partition gets at most its own limit and what is left of the request's, but the first that has
records gives at least one batch, however large, so that no reader gets stuck. While consumers leave much of their
answers unread, all answers get smaller: they are in memory until they are read. A consumer that is over its quota gets
an empty response (`throttling.py`).

A follower reads from the leader up to the end of the log, and its fetch tells the leader how far it is. No client may
say that: such a fetch moves the high watermark, so without an authorizer it is taken only from the listener between
brokers. A consumer reads from the leader, or, from version 11 on, from any replica, and up to the high watermark. A
leader that knows the racks sends a consumer to a replica in its own (`replica.selector.class`).

Authorised: READ on each topic; for a follower CLUSTER_ACTION, without which all its partitions are refused and it
gets no session: sessions of followers come before those of consumers, and their size is not limited. This is checked
once for a fetch, also for one that waits, and anew for each fetch of a session.

On the listeners of controllers it reads the metadata log, and the quorum answers (`quorum/quorum_requests.py`).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, cast

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, Counted, Quota
from pessoa.broker.authorization import denied_names, may_in_cluster
from pessoa.broker.fetch_sessions import CONSUMER, plan_without_session
from pessoa.broker.file_records import FileRecords
from pessoa.broker.partition_fetch import (
    FIRST_VERSION_WITH_ENDPOINTS,
    Found,
    Reader,
    is_as_before,
    read_partition,
    refused,
    refused_unseen,
)
from pessoa.broker.slices import SLICE_COUNT
from pessoa.log.files import DiskError
from pessoa.log.partition_log import ReadUpTo
from pessoa.net.file_sending import WORTH_SENDING_BYTES
from pessoa.net.pending import Pending
from pessoa.replication.partition import FetchWaiter
from pessoa.security.acl import CLUSTER_ACTION, READ, TOPIC
from pessoa.wire.api.fetch import (
    FIRST_FETCH_WITH_TOPIC_IDS,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.base.ids import Uuid
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.broker.fetch_sessions import FetchPlan
    from pessoa.broker.services import BrokerServices
    from pessoa.quorum.raft_quorum import RaftQuorum
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import Answer, RequestContext
    from pessoa.wire.schema import Message

_READ_COMMITTED = 1
# What answers may take in memory that consumers do not read; a consumer by default asks for up to 50 MiB at a time.
MAX_UNREAD_BYTES = 256 * 1024 * 1024
_NO_EPOCH = -1


def handle(broker: BrokerServices, context: RequestContext, request: FetchRequest) -> Answer[Message | None]:
    reader = _reader(context, request)
    if reader.is_follower and not _may_follow(broker, context):
        return _error_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if reader.is_follower and not may_in_cluster(broker, context, CLUSTER_ACTION):
        plan = plan_without_session(request)
        reader = reader._replace(denied=frozenset(_topics_of(plan)))
    else:
        plan = broker.fetch_sessions.plan(request, context.version, broker.clock.monotonic_ms(), reader.replica_id)
        if broker.authorizer is not None and not reader.is_follower:
            reader = reader._replace(denied=_denied_topics(broker, context, plan))
    if plan.error is not ErrorCode.NONE:
        return _error_response(plan.error)
    if context.charge is not None:
        request.max_bytes = context.charge.limit_fetch(request.max_bytes)
        request.min_bytes = min(request.min_bytes, request.max_bytes)
    if len(plan.wanted) > SLICE_COUNT and not reader.is_follower:
        return _fetch_in_slices(broker, context, request, reader, plan)
    found = _read_partitions(broker, reader, plan, request.max_bytes)
    if request.max_wait_ms <= 0 or not found or _is_enough(found, request.min_bytes):
        return _response(broker, context, reader, plan, found)
    return WaitingFetch(broker, context, request, reader, plan, found)


def _may_follow(broker: BrokerServices, context: RequestContext) -> bool:
    """Return whether a fetch on this listener may come from a follower: with an authorizer on any listener, since
    CLUSTER_ACTION is checked; without one only on the inter-broker listener."""
    return broker.authorizer is not None or context.listener == broker.config.inter_broker_listener_name


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


def _topics_of(plan: FetchPlan) -> dict[tuple[str, Uuid], None]:
    return dict.fromkeys((one.topic, one.topic_id) for one in plan.wanted)


def _denied_topics(broker: BrokerServices, context: RequestContext, plan: FetchPlan) -> frozenset[tuple[str, Uuid]]:
    """Return the topics that a consumer may not read. Ids of unknown topics are not among them: that they are unknown
    is no secret."""
    by_name, name_of = context.version < FIRST_FETCH_WITH_TOPIC_IDS, broker.image.topics.name_of
    names = {key: key[0] if by_name else name_of(key[1]) for key in _topics_of(plan)}
    denied = denied_names(broker, context, READ, TOPIC, (name for name in names.values() if name is not None))
    return frozenset(key for key, name in names.items() if name in denied)


def _error_response(error: ErrorCode) -> FetchResponse:
    return FetchResponse(throttle_time_ms=0, error_code=error, session_id=0, responses=[])


async def _fetch_in_slices(
    broker: BrokerServices, context: RequestContext, request: FetchRequest, reader: Reader, plan: FetchPlan
) -> FetchResponse:
    """Serve a consumer's fetch of very many partitions in slices, with other requests between them (`slices`). A
    follower's fetch is not sliced: it must get each append at once, and looking at its partitions is cheap
    (`is_as_before`)."""
    found = await _read_in_slices(broker, reader, plan, request.max_bytes)
    if request.max_wait_ms > 0 and not _is_enough(found, request.min_bytes):
        if not any(map(_has_moved, found)):
            await _wait_for_more(broker, request, reader, found)
        found = await _read_in_slices(broker, reader, plan, request.max_bytes)
    return _response(broker, context, reader, plan, found)


async def _wait_for_more(broker: BrokerServices, request: FetchRequest, reader: Reader, found: list[Found]) -> None:
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    wake = partial(_wake, woken)
    waiter = FetchWaiter(
        wake,
        request.min_bytes - sum(one.size for one in found),
        [one.partition for one in found if one.partition is not None],
        is_follower=reader.is_follower,
    )
    timer = broker.clock.call_after_ms(request.max_wait_ms, wake)
    try:
        await woken
    finally:
        timer.cancel()
        waiter.leave()


async def _read_in_slices(broker: BrokerServices, reader: Reader, plan: FetchPlan, max_bytes: int) -> list[Found]:
    found: list[Found] = []
    found_bytes = 0
    for start in range(0, len(plan.wanted), SLICE_COUNT):
        end = start + SLICE_COUNT
        more = _read_partitions(broker, reader, plan._replace(wanted=plan.wanted[start:end]), max_bytes, found_bytes)
        found_bytes += sum(one.size for one in more)
        found += more
        await asyncio.sleep(0)
    return found


def _has_moved(one: Found) -> bool:
    """Return whether more can be read now than when this partition was read, some slices ago."""
    return one.partition is not None and one.partition.log.high_watermark != one.data.high_watermark


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


class WaitingFetch(Pending):
    """A fetch in purgatory: it found too little. It reads again when there is enough, or its wait time is over."""

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
        self._timer = broker.clock.call_after_ms(request.max_wait_ms, self.ready)

    def __repr__(self) -> str:
        return f"<WaitingFetch of {self._context!r}{', ready' if self.is_ready else ''}>"

    def response(self) -> FetchResponse:
        self._leave()
        broker, reader, plan = self._broker, self._reader, self._plan
        return _response(broker, self._context, reader, plan, _read_partitions(broker, reader, plan, self._max_bytes))

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


def _read_partitions(
    broker: BrokerServices, reader: Reader, plan: FetchPlan, max_bytes: int, found_bytes: int = 0
) -> list[Found]:
    """Read the partitions of the plan; `found_bytes` were found in earlier slices."""
    left = min(max_bytes, broker.config.fetch_max_bytes)
    if not reader.is_follower:
        left = min(left, max(0, MAX_UNREAD_BYTES - broker.unread_bytes()) // 2)
    has_some = found_bytes > 0
    left = max(0, left - found_bytes)
    found = []
    for number, wanted in enumerate(plan.wanted):
        known = plan.known[number] if plan.known is not None else None
        last = known.last_look if known is not None else None
        if last is not None and is_as_before(last, wanted, reader):
            found.append(last)
            continue
        one = read_partition(broker, reader, wanted, left, at_least_one_batch=not has_some)
        if known is not None:
            known.last_look = None if one.size or one.is_urgent else one
        size = one.size
        has_some = has_some or size > 0
        left = max(0, left - size)
        found.append(one)
    return found


# Answering.


def _response(
    broker: BrokerServices, context: RequestContext, reader: Reader, plan: FetchPlan, found: list[Found]
) -> FetchResponse:
    if context.charge is not None and not context.charge.admits_fetch(sum(one.size for one in found)):
        return FetchResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, session_id=broker.fetch_sessions.withhold(plan), responses=[]
        )
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
        if one.size < WORTH_SENDING_BYTES:
            one.data.records = memoryview(one.records.read())
        else:
            # It passes through the encoder untouched, as every buffer of records does.
            one.data.records = cast("memoryview", FileRecords(one.partition, one.records))
    except DiskError as problem:
        one.partition.directory.fail(problem)
        return refused(one.data.partition_index, ErrorCode.KAFKA_STORAGE_ERROR)
    if reader.is_follower:
        one.partition.count_sent(one.size)
    return one.data


def _endpoints(broker: BrokerServices, context: RequestContext, leaders: dict[int, None]) -> list[NodeEndpoint]:
    """Return the addresses of the leaders that the response names, so that the client need not ask for metadata first
    (KIP-951)."""
    if context.version < FIRST_VERSION_WITH_ENDPOINTS:
        return []
    return [
        NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
        for node in broker.nodes(context.listener)
        if node.id in leaders
    ]


def handle_on_controller(node: ControllerServices, context: RequestContext, request: FetchRequest) -> Reply:
    """Serve a fetch of the metadata log, from another controller or a broker."""
    return node.quorum.handle(serve_in_quorum, request, context.version)


def serve_in_quorum(quorum: RaftQuorum, request: FetchRequest, version: int) -> Answer[Message]:
    from pessoa.quorum.quorum_requests import fetch

    return fetch(quorum, request, version)


def refuse(request: FetchRequest, refusal: Refusal, version: int) -> Message:
    """Return the error for the whole response; in versions with topic names also for every partition, as in Kafka."""
    response = _error_response(refusal.code)
    if version < FIRST_FETCH_WITH_TOPIC_IDS:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic, partitions=[refused_unseen(one.partition, refusal.code) for one in topic.partitions]
            )
            for topic in request.topics
        ]
    return response


ROW = ApiRow(
    ApiKey.FETCH,
    "4-18",
    handle=handle,
    handle_on_controller=handle_on_controller,
    serve_in_quorum=serve_in_quorum,
    refuse=refuse,
    authorised_on_controller=BETWEEN_NODES,
    quota=Quota.FETCH,
    counted=Counted.FETCHED,
)
