"""BrokerRegistration: a broker registers its incarnation with the controller (KIP-631).

    v1  whether it migrates from ZooKeeper, which none does
    v2  its log directories (KIP-858)
    v3  the broker epoch of its last incarnation, after a clean shutdown (KIP-966)

Served by controllers alone. `broker/registration.py` asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, ControllerChannel, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.broker_registration import BrokerRegistrationRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(
    node: ControllerServices, context: RequestContext, request: BrokerRegistrationRequest
) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: BrokerRegistrationRequest) -> Decision:
    from pessoa.controller.brokers import register_broker

    return register_broker(situation, request)


def refuse(request: BrokerRegistrationRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.broker_registration import BrokerRegistrationResponse

    return BrokerRegistrationResponse(throttle_time_ms=0, error_code=refusal.code)


ROW = ApiRow(
    ApiKey.BROKER_REGISTRATION,
    "0-4",
    handle_on_controller=handle_on_controller,
    controller_channel=ControllerChannel.HEARTBEAT,
    decide=decide,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
