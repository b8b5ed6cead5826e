"""AlterPartition: a leader asks the controller to change the in-sync replicas of its partitions (KIP-497).

    v3  the replicas come with their broker epochs (KIP-903)

Served by controllers alone. `replication/alter_partition_queue.py` asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, ControllerChannel, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.controller_services import ControllerServices
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.alter_partition import AlterPartitionRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle_on_controller(node: ControllerServices, context: RequestContext, request: AlterPartitionRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: AlterPartitionRequest) -> Decision:
    from pessoa.controller.replicas import alter_partition

    return alter_partition(situation, request)


def refuse(request: AlterPartitionRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.alter_partition import AlterPartitionResponse

    return AlterPartitionResponse(throttle_time_ms=0, error_code=refusal.code, topics=[])


ROW = ApiRow(
    ApiKey.ALTER_PARTITION,
    "2-3",
    handle_on_controller=handle_on_controller,
    controller_channel=ControllerChannel.ALTER_PARTITION,
    decide=decide,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
