"""What members say about records that they were given, in ShareFetch and in ShareAcknowledge.

The acknowledgements of one partition are done all or not at all, and the answer comes when they are stored. Very many
acknowledge types for one partition, more than `_MOST_TYPES`, are done in slices, between which other requests are
served; then a slice that is refused leaves those before it done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pessoa.coordinator.share.share_state import ShareKey
from pessoa.share.acknowledgement import Acknowledgement, check_form
from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.base.ids import Uuid
    from pessoa.broker.services import BrokerServices
    from pessoa.share.share_sessions import SessionKey, SharedPartition

_FIRST_VERSION_WITH_RENEWALS = 2
# So many take some 40 ms at the most, if no two neighbours are alike.
_MOST_TYPES = 2_000


class Outcome(NamedTuple):
    code: ErrorCode
    message: str | None = None


class _Batch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class _PartitionOfRequest(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[_Batch]: ...


class _TopicOfRequest(Protocol):
    topic_id: Uuid

    @property
    def partitions(self) -> Sequence[_PartitionOfRequest]: ...


Asked = dict["SharedPartition", list[Acknowledgement]]


def acknowledgements_of(topics: Sequence[_TopicOfRequest]) -> Asked:
    """Return the acknowledgements of a request by partition."""
    return {
        (topic.topic_id, one.partition_index): [
            Acknowledgement(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in one.acknowledgement_batches
        ]
        for topic in topics
        for one in topic.partitions
        if one.acknowledgement_batches
    }


async def acknowledge(
    broker: BrokerServices,
    session: SessionKey,
    asked: Asked,
    denied: frozenset[Uuid],
    version: int,
    *,
    is_renewal: bool,
) -> Mapping[SharedPartition, Outcome]:
    """Acknowledge the records, and return the outcomes when all are stored; `denied` are topics that the member may not
    read."""
    knows_renew = version >= _FIRST_VERSION_WITH_RENEWALS
    outcomes: dict[SharedPartition, Outcome] = {}
    waiting: list[tuple[SharedPartition, asyncio.Future[ErrorCode]]] = []
    for partition, acknowledgements in asked.items():
        try:
            if partition[0] in denied:
                raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)  # noqa: TRY301
            check_form(acknowledgements, knows_renew=knows_renew, is_renewal=is_renewal)
            for number, some in enumerate(_slice_acknowledgements(acknowledgements)):
                if number:
                    await asyncio.sleep(0)
                pending = _acknowledge_some(broker, session, partition, some)
                if pending is not None:
                    waiting.append((partition, pending))
            outcomes[partition] = Outcome(ErrorCode.NONE)
        except Refusal as refusal:
            outcomes[partition] = Outcome(refusal.code, refusal.text)
    for partition, pending in waiting:
        code = await pending
        if code.is_error and not outcomes[partition].code.is_error:
            outcomes[partition] = Outcome(code, code.text)
    return outcomes


def _acknowledge_some(
    broker: BrokerServices, session: SessionKey, partition: SharedPartition, some: Sequence[Acknowledgement]
) -> asyncio.Future[ErrorCode] | None:
    topic_id, index = partition
    topic = broker.image.topics.by_id.get(topic_id)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
    led = broker.coordinators.share_partitions.get(ShareKey(session.group_id, topic_id, index))
    if led is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    outcome = led.acknowledge(session.member_id, some)
    broker.coordinators.share_partitions.note_acknowledged(some)
    return outcome


def _slice_acknowledgements(acknowledgements: Sequence[Acknowledgement]) -> Iterator[list[Acknowledgement]]:
    """Yield the acknowledgements in slices of at most `_MOST_TYPES` types."""
    slice_: list[Acknowledgement] = []
    count = 0
    for first_offset, last_offset, types in acknowledgements:
        if len(types) == 1:
            parts = [Acknowledgement(first_offset, last_offset, types)]
        else:
            parts = [
                Acknowledgement(first_offset + at, min(first_offset + at + _MOST_TYPES - 1, last_offset), some)
                for at in range(0, len(types), _MOST_TYPES)
                for some in (types[at : at + _MOST_TYPES],)
            ]
        for part in parts:
            if slice_ and count + len(part.types) > _MOST_TYPES:
                yield slice_
                slice_, count = [], 0
            slice_.append(part)
            count += len(part.types)
    if slice_:
        yield slice_
