"""AlterPartitionReassignments: start or cancel the move of partitions to other replicas (KIP-455).

    v1  the client may forbid a change of the replication factor (KIP-860)

A cancellation after which no replica could lead the partition is refused, and another move during a move replaces both
lists of replicas, added and removed; Apache Kafka cancels, and may keep an old list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.security.acl import ALTER, CLUSTER
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.alter_partition_reassignments import AlterPartitionReassignmentsRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: AlterPartitionReassignmentsRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: AlterPartitionReassignmentsRequest) -> Decision:
    from pessoa.controller.reassignments import alter_partition_reassignments

    return alter_partition_reassignments(situation, request)


def refuse(request: AlterPartitionReassignmentsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.alter_partition_reassignments import (
        AlterPartitionReassignmentsResponse,
        ReassignablePartitionResponse,
        ReassignableTopicResponse,
    )

    responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=target.partition_index, error_code=refusal.code, error_message=refusal.message
                )
                for target in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message, responses=responses
    )


ROW = ApiRow(
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    "0-1",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    authorised=Authorised(ALTER, CLUSTER),
)
