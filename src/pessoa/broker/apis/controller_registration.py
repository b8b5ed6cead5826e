"""ControllerRegistration: a controller registers its endpoints and features with the active one (KIP-919).

Served by controllers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, ControllerChannel, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.controller_registration import ControllerRegistrationRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(
    node: ControllerServices, context: RequestContext, request: ControllerRegistrationRequest
) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: ControllerRegistrationRequest) -> Decision:
    from pessoa.controller.brokers import register_controller

    return register_controller(situation, request)


def refuse(request: ControllerRegistrationRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.controller_registration import ControllerRegistrationResponse

    return ControllerRegistrationResponse(throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message)


ROW = ApiRow(
    ApiKey.CONTROLLER_REGISTRATION,
    "0",
    handle_on_controller=handle_on_controller,
    controller_channel=ControllerChannel.REGISTRATION,
    decide=decide,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
