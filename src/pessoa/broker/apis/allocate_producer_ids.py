"""AllocateProducerIds: a broker asks the controller for a block of producer ids.

Served by controllers alone, plain or in an envelope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, ControllerChannel, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(
    node: ControllerServices, context: RequestContext, request: AllocateProducerIdsRequest
) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: AllocateProducerIdsRequest) -> Decision:
    from pessoa.controller.producer_ids import allocate_producer_ids

    return allocate_producer_ids(situation, request)


def refuse(request: AllocateProducerIdsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsResponse

    return AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=refusal.code, producer_id_start=0, producer_id_len=0
    )


ROW = ApiRow(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    "0",
    handle_on_controller=handle_on_controller,
    is_forwarded=True,
    controller_channel=ControllerChannel.FORWARDING,
    decide=decide,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
