"""ListPartitionReassignments: the moves of partitions that are going on (KIP-455)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.security.acl import CLUSTER, DESCRIBE
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.list_partition_reassignments import ListPartitionReassignmentsRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: ListPartitionReassignmentsRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: ListPartitionReassignmentsRequest) -> Decision:
    from pessoa.controller.reassignments import list_partition_reassignments

    return list_partition_reassignments(situation, request)


def refuse(request: ListPartitionReassignmentsRequest, refusal: Refusal, version: int) -> Message:
    """Return the error response. As in Apache Kafka it names the requested partitions, without replicas."""
    from pessoa.wire.api.list_partition_reassignments import (
        ListPartitionReassignmentsResponse,
        OngoingPartitionReassignment,
        OngoingTopicReassignment,
    )

    topics = [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[
                OngoingPartitionReassignment(
                    partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message, topics=topics
    )


ROW = ApiRow(
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    "0",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    decide=decide,
    refuse=refuse,
    authorised=Authorised(DESCRIBE, CLUSTER),
)
