"""AssignReplicasToDirs: a broker tells the controller in which log directories its replicas are (KIP-858).

Served by controllers alone. `broker/directory_assignments.py` asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, ControllerChannel, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.assign_replicas_to_dirs import AssignReplicasToDirsRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(
    node: ControllerServices, context: RequestContext, request: AssignReplicasToDirsRequest
) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: AssignReplicasToDirsRequest) -> Decision:
    from pessoa.controller.replicas import assign_replicas_to_dirs

    return assign_replicas_to_dirs(situation, request)


def refuse(request: AssignReplicasToDirsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.assign_replicas_to_dirs import AssignReplicasToDirsResponse

    return AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=refusal.code, directories=[])


ROW = ApiRow(
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    "0",
    handle_on_controller=handle_on_controller,
    controller_channel=ControllerChannel.DIRECTORY_ASSIGNMENTS,
    decide=decide,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
