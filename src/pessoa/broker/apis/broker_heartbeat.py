"""BrokerHeartbeat: a broker tells the controller that it lives, how far its metadata is, and whether it wants to stop.

    v1  log directories that failed (KIP-858)        v2  cordoned ones (KIP-1066): new replicas still come there

Served by controllers alone. The connection that it comes on is watched: when it breaks, the controller suspects the
broker, which Apache Kafka does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, ControllerChannel, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(node: ControllerServices, context: RequestContext, request: BrokerHeartbeatRequest) -> Reply:
    node.controller.note_heartbeat(request.broker_id, request.broker_epoch, context.connection_id)
    return node.controller.submit(request, context)


def decide(situation: Situation, request: BrokerHeartbeatRequest) -> Decision:
    from pessoa.controller.brokers import heartbeat

    return heartbeat(situation, request)


def refuse(request: BrokerHeartbeatRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.broker_heartbeat import BrokerHeartbeatResponse

    return BrokerHeartbeatResponse(throttle_time_ms=0, error_code=refusal.code, should_shut_down=False)


ROW = ApiRow(
    ApiKey.BROKER_HEARTBEAT,
    "0-2",
    handle_on_controller=handle_on_controller,
    controller_channel=ControllerChannel.HEARTBEAT,
    decide=decide,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
