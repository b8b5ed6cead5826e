"""Batches whose records must be read, and that hold more than the event loop may be held for: read in a thread.

    Produce ──▶ append ──CostlyBatch──▶ a thread reads its records, one batch of a broker at a time ──▶ append

What else the request carries is appended at once. The request is in progress until all of it is, so the next one of its
connection is not served before: a producer's batches stay in their order. One batch at a time, because each may unpack
to a hundred megabytes.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from pessoa.broker.produce_errors import close_if_refused, refused_records
from pessoa.broker.produced_topics import denied_topics
from pessoa.net.pending import Pending
from pessoa.records.invalid_batch import InvalidBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pessoa.broker.services import BrokerServices
    from pessoa.log.partition_log import PartitionLog
    from pessoa.replication.partition import Partition
    from pessoa.wire.api.produce import (
        PartitionProduceData,
        PartitionProduceResponse,
        ProduceRequest,
        ProduceResponse,
        TopicProduceData,
    )
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message

    # Appends decompressed batches, but those of the denied topics.
    Append = Callable[[ProduceRequest, frozenset[str]], ProduceResponse | Pending | None]


class BatchOpener:
    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<BatchOpener: {'reads a batch' if self._turn.locked() else 'idle'}>"

    async def open(self, log: PartitionLog, data: memoryview, now_ms: int) -> memoryview:
        """Validate the batch in a worker thread; return the batch to append. Raises `InvalidBatch`."""
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(None, log.open_produced, data, now_ms)


class Unopened(NamedTuple):
    """A batch that was not appended, because it must be decompressed first, and the place of its response."""

    topic: TopicProduceData
    data: PartitionProduceData
    partition: Partition
    answers: list[PartitionProduceResponse]
    position: int


async def append_opened(
    broker: BrokerServices,
    context: RequestContext,
    request: ProduceRequest,
    unopened: list[Unopened],
    response: ProduceResponse,
    others: Pending | None,
    denied: frozenset[str],
    append: Append,
) -> Message | None:
    """Decompress and append the remaining batches, and return the response to the whole request. `others` is what the
    other partitions of the request wait for."""
    waiting = None if others is None else asyncio.ensure_future(_wait_for(others))
    try:
        opened = [one for one in unopened if await _try_open(broker, one)]
        rest = _request_of(request, opened)
        denied = denied_topics(broker, context, rest, denied)
        reply = append(rest, denied)
        answer = await reply if isinstance(reply, Pending) else reply
        if waiting is not None:
            await waiting
    finally:
        if waiting is not None:
            waiting.cancel()
    if request.acks == 0:
        close_if_refused(response.responses)
        return None
    assert answer is not None
    _put_in_place(opened, response, answer)
    return response


async def _wait_for(pending: Pending) -> Message | None:
    return await pending


async def _try_open(broker: BrokerServices, one: Unopened) -> bool:
    """Decompress the batch; return False if it is invalid, with the error in its response."""
    log, data = one.partition.log, one.data
    assert data.records is not None
    try:
        data.records = await broker.opener.open(log, data.records, broker.clock.now_ms())
    except InvalidBatch as refusal:
        one.answers[one.position] = refused_records(data.index, refusal, log.log_start_offset)
        return False
    return True


def _request_of(request: ProduceRequest, opened: list[Unopened]) -> ProduceRequest:
    from pessoa.wire.api.produce import ProduceRequest, TopicProduceData

    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[
            TopicProduceData(name=one.topic.name, topic_id=one.topic.topic_id, partition_data=[one.data])
            for one in opened
        ],
    )


def _put_in_place(opened: list[Unopened], response: ProduceResponse, answer: Message) -> None:
    from pessoa.wire.api.produce import ProduceResponse

    assert isinstance(answer, ProduceResponse)
    for one, topic in zip(opened, answer.responses, strict=True):
        [one.answers[one.position]] = topic.partition_responses
    known = {one.node_id for one in response.node_endpoints}
    response.node_endpoints = [
        *response.node_endpoints,
        *(one for one in answer.node_endpoints if one.node_id not in known),
    ]
