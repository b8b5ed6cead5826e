"""AllocateProducerIds: blocks of a thousand ids, each given out once in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.controller.decision import Decision
from pessoa.controller.replicas import check_broker_epoch
from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.stored.metadata_records import ProducerIdsRecord

if TYPE_CHECKING:
    from pessoa.controller.decision import Situation

# As many as Kafka gives out at once.
BLOCK_SIZE = 1000
_LAST_ID = (1 << 63) - 1


def allocate_producer_ids(situation: Situation, request: AllocateProducerIdsRequest) -> Decision:
    try:
        check_broker_epoch(situation, request.broker_id, request.broker_epoch)
    except Refusal as refusal:
        return Decision([], _response(refusal.code))
    start = situation.image.producer_ids.next_producer_id
    if start > _LAST_ID - BLOCK_SIZE:
        return Decision([], _response(ErrorCode.UNKNOWN_SERVER_ERROR))
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=start + BLOCK_SIZE
    )
    return Decision([record], _response(ErrorCode.NONE, start, BLOCK_SIZE))


def _response(code: ErrorCode, start: int = 0, size: int = 0) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=code, producer_id_start=start, producer_id_len=size
    )
