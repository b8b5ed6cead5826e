"""ShareFetch: acquire records for a member of a share group, and say what became of earlier ones (KIP-932).

    v1      acknowledgements with the fetch
    v2      acquire mode (KIP-1206), renewed locks (KIP-1222)

A request belongs to a share session (`share.share_sessions`). What it acknowledges is done first. Then records are
acquired (`broker.share.share_reads`) as soon as `min_bytes` of them can be read, and otherwise it waits, at most
`max_wait_ms`: for records, for records that others give back, and for the state of a partition that is being loaded. A
request that renews locks, or the last one of a session, fetches nothing. The limit of bytes is shared evenly by the
partitions, but the first that has records gives at least one batch.

The response names partitions that have records, an error or an acknowledgement, and those that the request has added
to the session.

Unlike Apache Kafka, which may answer with nothing after it has acquired records, a member that is over its quota
acquires nothing.

Authorised: READ on the group, and on each topic. Membership of the group is not checked, as in Apache Kafka.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from pessoa.broker.api_row import ApiRow, Authorised, Counted, Quota
from pessoa.broker.slices import SLICE_COUNT
from pessoa.security.acl import GROUP, READ
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from pessoa.base.ids import Uuid
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.broker.share.share_acknowledging import Outcome
    from pessoa.broker.share.share_reads import Target
    from pessoa.broker.share.share_waiting import Change
    from pessoa.share.share_sessions import FetchPlan, SessionKey, SharedPartition
    from pessoa.wire.api.share_fetch import FetchTopic, PartitionData, ShareFetchRequest, ShareFetchResponse
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message

T = TypeVar("T")
U = TypeVar("U")


class _Limits(NamedTuple):
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    fetches: bool


def handle(broker: BrokerServices, context: RequestContext, request: ShareFetchRequest) -> Reply:
    return _fetch(broker, context, request)


async def _fetch(broker: BrokerServices, context: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    from pessoa.broker.share.share_acknowledging import acknowledge, acknowledgements_of
    from pessoa.broker.share.share_requests import check_request, denied_topics
    from pessoa.wire.errors import Refusal

    try:
        key = check_request(broker, request.group_id, request.member_id)
        limits = _limits(broker, context, request)
        named = [one async for one in _in_slices(request.topics, _named_of)]
        plan = _plan(broker, context, request, key, named)
    except Refusal as refusal:
        if refusal.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # Its member will ask again at once.
            await broker.clock.wait_ms(max(0, request.max_wait_ms))
        return _error_response(refusal)
    asked = acknowledgements_of([topic for topic, one in zip(request.topics, named, strict=True) if one.acknowledges])
    denied = denied_topics(broker, context, [topic_id for topic_id, _ in (*plan.partitions, *asked)])
    found: dict[SharedPartition, PartitionData] = {}
    try:
        outcomes = await acknowledge(broker, key, asked, denied, context.version, is_renewal=request.is_renew_ack)
    finally:
        # Even if the connection has closed meanwhile: the session is no longer among those that end with it.
        if plan.is_closed:
            broker.coordinators.share_partitions.end_session(key)
    is_open = broker.coordinators.share_partitions.sessions.get(key) is plan.session
    if is_open and limits.fetches and plan.partitions:
        found = await _find(broker, context, request, key, plan, limits, denied)
    return await _response(broker, context, key, plan, found, outcomes)


def _limits(broker: BrokerServices, context: RequestContext, request: ShareFetchRequest) -> _Limits:
    from pessoa.wire.errors import Refusal

    if request.share_acquire_mode not in (0, 1):
        raise Refusal(ErrorCode.INVALID_REQUEST, f"There is no acquire mode {request.share_acquire_mode}.")
    sizes = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    if request.is_renew_ack and any(sizes):
        raise Refusal(ErrorCode.INVALID_REQUEST, "A request that renews locks fetches nothing, and must say so.")
    max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
    if context.charge is not None:
        max_bytes = context.charge.limit_fetch(max_bytes)
    fetches = not request.is_renew_ack and max_bytes > 0 and request.max_records > 0
    return _Limits(request.max_wait_ms, min(request.min_bytes, max_bytes), max_bytes, fetches)


class _RequestedTopic(NamedTuple):
    """One topic of a request, with its partitions."""

    partitions: list[SharedPartition]
    acknowledges: bool


def _named_of(topic: FetchTopic) -> _RequestedTopic:
    return _RequestedTopic(
        [(topic.topic_id, one.partition_index) for one in topic.partitions],
        any(one.acknowledgement_batches for one in topic.partitions),
    )


def _plan(
    broker: BrokerServices,
    context: RequestContext,
    request: ShareFetchRequest,
    key: SessionKey,
    named: Sequence[_RequestedTopic],
) -> FetchPlan:
    wanted = [partition for one in named for partition in one.partitions]
    forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
    acknowledges = any(one.acknowledges for one in named)
    return broker.coordinators.share_partitions.sessions.plan_fetch(
        key,
        context.connection_id,
        request.share_session_epoch,
        wanted,
        forgotten,
        has_acknowledgements=acknowledges,
    )


# Finding.


async def _find(
    broker: BrokerServices,
    context: RequestContext,
    request: ShareFetchRequest,
    key: SessionKey,
    plan: FetchPlan,
    limits: _Limits,
    denied: frozenset[Uuid],
) -> dict[SharedPartition, PartitionData]:
    """Return the acquired records, after waiting for them if there are none, but no longer than the share session
    lasts. A member without a session would keep the records until their locks time out, and this broker the share
    partitions for ever."""
    from pessoa.broker.share.share_reads import failed, renewed, target_of, why_gone
    from pessoa.broker.share.share_waiting import Change

    clock, sessions = broker.clock, broker.coordinators.share_partitions.sessions
    began_ms = clock.monotonic_ms()
    deadline_ms = began_ms + max(0, limits.max_wait_ms)
    targets: list[Target] = []
    # Of so many others have their turn during a look, so it must be heard what they do.
    is_large = len(plan.partitions) >= SLICE_COUNT
    while sessions.get(key) is plan.session:
        change = Change(clock, deadline_ms)
        try:
            if targets:
                found_now = _in_slices(targets, partial(renewed, broker, key.group_id, denied))
            else:
                found_now = _in_slices(plan.partitions, partial(target_of, broker, key.group_id, denied))
            look = await _examine_targets(found_now, limits, change if is_large else None)
            targets, is_over = look.targets, clock.monotonic_ms() >= deadline_ms
            if is_over or look.is_urgent or look.size >= max(1, limits.min_bytes):
                if context.charge is not None and not context.charge.admits_fetch(0):
                    return {target.shared: failed(target, why_gone(target)) for target in targets}
                found, has_passed_any = await _acquire(broker, request, key, targets, limits, began_ms)
                if context.charge is not None:
                    context.charge.count_fetched(sum(len(data.records) for data in found.values()))
                if is_over or look.is_urgent or any(one.acquired_records or one.error_code for one in found.values()):
                    return found
                if has_passed_any:
                    # What was read must not be delivered: records of aborted transactions. Others may stand behind it,
                    # and it may be long: other requests have their turn.
                    await asyncio.sleep(0)
                    continue
            if not is_large:
                change.watch(targets)
            await change.wait()
        finally:
            change.close()
    return {}


class _ExaminedTargets(NamedTuple):
    targets: list[Target]
    # A target has an error, which the response must carry at once.
    is_urgent: bool
    # How many bytes could be read, as far as it matters.
    size: int


async def _examine_targets(found: AsyncIterator[Target], limits: _Limits, change: Change | None) -> _ExaminedTargets:
    """Return the targets, and how many bytes could be acquired from them; `change` watches each before it is
    examined."""
    from pessoa.broker.share.share_reads import available_bytes, why_gone

    targets: list[Target] = []
    is_urgent, size = False, 0
    async for target in found:
        targets.append(target)
        if change is not None:
            change.watch([target])
        is_urgent = is_urgent or why_gone(target).is_error
        if size < max(1, limits.min_bytes):
            size += available_bytes(target, limits.max_bytes)
    return _ExaminedTargets(targets, is_urgent, size)


async def _acquire(
    broker: BrokerServices,
    request: ShareFetchRequest,
    key: SessionKey,
    targets: Sequence[Target],
    limits: _Limits,
    began_ms: int,
) -> tuple[dict[SharedPartition, PartitionData], bool]:
    """Return the acquired records, and whether any records were skipped that no member may get."""
    from pessoa.broker.share.share_reads import acquire, may_acquire, next_offset
    from pessoa.share.acquisition import AcquireMode, AcquireRequest

    found: dict[SharedPartition, PartitionData] = {}
    left, size = request.max_records, 0
    partition_bytes = max(1, limits.max_bytes // len(targets))
    mode = AcquireMode(request.share_acquire_mode)

    has_passed_any, acquirable, wait_ms = False, 0, broker.clock.monotonic_ms() - began_ms

    def acquire_of(target: Target) -> PartitionData:
        nonlocal has_passed_any, acquirable
        acquirable += may_acquire(target)
        wanted = AcquireRequest(key.member_id, left, max(1, request.batch_size), mode)
        before = next_offset(target)
        data = acquire(broker, target, wanted, partition_bytes, at_least_one_batch=not size)
        has_passed_any = has_passed_any or (not data.acquired_records and next_offset(target) != before)
        return data

    async for data in _in_slices(targets, acquire_of):
        left -= sum(one.last_offset - one.first_offset + 1 for one in data.acquired_records)
        size += len(data.records)
        found[targets[len(found)].shared] = data
    broker.coordinators.share_partitions.note_fetch(key.group_id, acquirable, len(targets), wait_ms)
    return found, has_passed_any


async def _in_slices(values: Sequence[T], call: Callable[[T], U]) -> AsyncIterator[U]:
    """Yield what `call` returns for each of the values. With very many values, other requests are served in between."""
    for number, value in enumerate(values, 1):
        yield call(value)
        if number % SLICE_COUNT == 0:
            await asyncio.sleep(0)


# Answering.


async def _response(
    broker: BrokerServices,
    context: RequestContext,
    key: SessionKey,
    plan: FetchPlan,
    found: Mapping[SharedPartition, PartitionData],
    outcomes: Mapping[SharedPartition, Outcome],
) -> ShareFetchResponse:
    from pessoa.broker.share.share_reads import Target, failed
    from pessoa.broker.share.share_requests import ERRORS_WITH_LEADER, current_leader, endpoints
    from pessoa.broker.share.share_settings import share_settings
    from pessoa.wire.api.share_fetch import (
        LeaderIdAndEpoch,
        NodeEndpoint,
        ShareFetchableTopicResponse,
        ShareFetchResponse,
    )

    topics: dict[Uuid, ShareFetchableTopicResponse] = {}
    leaders: set[int] = set()
    for number, shared in enumerate(dict.fromkeys((*plan.partitions, *outcomes)), 1):
        if number % SLICE_COUNT == 0:
            await asyncio.sleep(0)
        data = found.get(shared) or failed(Target(shared, None), ErrorCode.NONE)
        outcome = outcomes.get(shared)
        if outcome is not None:
            data.acknowledge_error_code, data.acknowledge_error_message = outcome
        elif not data.error_code and not data.acquired_records and shared not in plan.added:
            continue
        if data.error_code in ERRORS_WITH_LEADER:
            leader_id, leader_epoch = current_leader(broker, shared)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            leaders.add(leader_id)
        topic = topics.get(shared[0])
        if topic is None:
            topic = topics[shared[0]] = ShareFetchableTopicResponse(topic_id=shared[0], partitions=[])
        topic.partitions.append(data)
    return ShareFetchResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=share_settings(broker, key.group_id).limits.lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in endpoints(broker, context, leaders)
        ],
    )


def _error_response(refusal: Refusal) -> ShareFetchResponse:
    from pessoa.wire.api.share_fetch import ShareFetchResponse

    return ShareFetchResponse(
        throttle_time_ms=0,
        error_code=refusal.code,
        error_message=refusal.text,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


def refuse(request: ShareFetchRequest, refusal: Refusal, version: int) -> Message:
    return _error_response(refusal)


ROW = ApiRow(
    ApiKey.SHARE_FETCH,
    "1-2",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(READ, GROUP, lambda request: request.group_id or ""),
    quota=Quota.FETCH,
    counted=Counted.SHARED,
)
