"""Acknowledgements of acquired records by a member, and the state transitions that follow.

    type        transition of an ACQUIRED record
    0 gap       → ARCHIVED: the log has no such record, compaction removed it or it is a control record
    1 accept    → ACKNOWLEDGED
    2 release   → AVAILABLE; → ARCHIVED if it was delivered as often as the group allows
    3 reject    → ARCHIVED
    4 renew     stays ACQUIRED, with a whole new lock (KIP-1222); nothing is stored

An acknowledgement is a range of offsets with one type for all of them, or one for each. Those of a partition in one
request are done all or not at all. (Kafka renews the locks that stand before a refused range; its client takes them for
not renewed, as it takes the whole partition.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from pessoa.share.in_flight import InFlight, Run
from pessoa.share.state_batches import DeliveryState
from pessoa.wire.errors import ErrorCode, Refusal


class AcknowledgeType(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Acknowledgement(NamedTuple):
    first_offset: int
    last_offset: int
    types: Sequence[int]


class _TypedRange(NamedTuple):
    first_offset: int
    last_offset: int
    type: AcknowledgeType


class Limits(NamedTuple):
    """The limits in the group's configuration. They may change between two events of a share partition."""

    delivery_count: int = 5
    # The most offsets between start and end offset.
    record_locks: int = 2000
    lock_duration_ms: int = 30_000
    can_renew: bool = True


def check_form(acknowledgements: Sequence[Acknowledgement], *, knows_renew: bool, is_renewal: bool) -> None:
    """Raise INVALID_REQUEST for acknowledgements that are wrong in any state of the partition. `knows_renew` is
    False for requests of versions without type 4, `is_renewal` is the IsRenewAck of the request."""
    highest = AcknowledgeType.RENEW if knows_renew else AcknowledgeType.REJECT
    previous_last_offset = -1
    for first_offset, last_offset, types in acknowledgements:
        if first_offset > last_offset:
            raise Refusal(ErrorCode.INVALID_REQUEST, "The first offset is behind the last offset.")
        if first_offset < previous_last_offset:
            raise Refusal(ErrorCode.INVALID_REQUEST, "The ranges are not in the order of their offsets.")
        if len(types) not in (1, last_offset - first_offset + 1):
            raise Refusal(ErrorCode.INVALID_REQUEST, "There must be one type, or one for every offset.")
        if not all(0 <= kind <= highest for kind in types):
            raise Refusal(ErrorCode.INVALID_REQUEST, "An acknowledge type is not known.")
        if not is_renewal and AcknowledgeType.RENEW in types:
            raise Refusal(ErrorCode.INVALID_REQUEST, "The request renews locks and does not say so.")
        previous_last_offset = last_offset


def released_state(run: Run, limits: Limits) -> DeliveryState:
    """Return the state of an acquired record after its release or the end of its lock: archived at the delivery
    count limit."""
    is_given_up = run.delivery_count >= limits.delivery_count
    return DeliveryState.ARCHIVED if is_given_up else DeliveryState.AVAILABLE


def plan_acknowledgements(
    in_flight: InFlight,
    member_id: str,
    acknowledgements: Sequence[Acknowledgement],
    limits: Limits,
    transition: int,
    now_ms: int,
) -> list[Run]:
    """Return the runs that replace those in flight. Runs whose state must be stored are in `transition`.

    Offsets below the start offset are skipped: they were acknowledged before, or the log has deleted them.
    """
    plan: list[Run] = []
    for acknowledgement in acknowledgements:
        if acknowledgement.last_offset >= in_flight.end_offset:
            code = ErrorCode.INVALID_REQUEST if in_flight.span else ErrorCode.INVALID_RECORD_STATE
            raise Refusal(code, f"Offset {acknowledgement.last_offset} was never acquired.")
        for first_offset, last_offset, kind in _typed_ranges(acknowledgement):
            if last_offset < in_flight.start_offset:
                continue
            first_offset = max(first_offset, in_flight.start_offset)
            if plan:
                if first_offset <= plan[-1].last_offset:
                    raise Refusal(ErrorCode.INVALID_RECORD_STATE, f"Offset {first_offset} is acknowledged twice.")
                plan.extend(in_flight.between(plan[-1].last_offset + 1, first_offset - 1))
            plan.extend(
                _acknowledge_run(run, kind, member_id, limits, transition, now_ms)
                for run in in_flight.between(first_offset, last_offset)
            )
    return plan


def _acknowledge_run(
    run: Run, kind: AcknowledgeType, member_id: str, limits: Limits, transition: int, now_ms: int
) -> Run:
    offsets = f"Offsets {run.first_offset} to {run.last_offset}"
    if run.transition or not run.is_acquired:
        raise Refusal(ErrorCode.INVALID_RECORD_STATE, f"{offsets} are not acquired.")
    if run.member_id != member_id:
        raise Refusal(ErrorCode.INVALID_RECORD_STATE, f"{offsets} are acquired by another member.")
    if kind is AcknowledgeType.RENEW:
        if not limits.can_renew:
            raise Refusal(ErrorCode.INVALID_RECORD_STATE, "The group does not allow locks to be renewed.")
        return run._replace(deadline_ms=now_ms + limits.lock_duration_ms)
    if kind is AcknowledgeType.ACCEPT:
        state = DeliveryState.ACKNOWLEDGED
    elif kind is AcknowledgeType.RELEASE:
        state = released_state(run, limits)
    else:
        state = DeliveryState.ARCHIVED
    return run._replace(state=state, transition=transition)


def _typed_ranges(acknowledgement: Acknowledgement) -> Iterator[_TypedRange]:
    """Yield the acknowledgement as ranges of one type each, as long as possible."""
    first_offset, last_offset, types = acknowledgement
    if len(types) == 1:
        yield _TypedRange(first_offset, last_offset, AcknowledgeType(types[0]))
        return
    begin = 0
    for index in range(1, len(types) + 1):
        if index == len(types) or types[index] != types[begin]:
            yield _TypedRange(first_offset + begin, first_offset + index - 1, AcknowledgeType(types[begin]))
            begin = index
