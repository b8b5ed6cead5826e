"""ElectLeaders: elect the preferred leader of partitions, or any replica if unclean (KIP-460).

v1  the kind of election, and an error for the whole        v2  flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.security.acl import ALTER, CLUSTER
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.elect_leaders import ElectLeadersRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: ElectLeadersRequest) -> Reply:
    return node.controller.submit(request, context)


def decide(situation: Situation, request: ElectLeadersRequest) -> Decision:
    from pessoa.controller.elections import elect_leaders

    return elect_leaders(situation, request)


def refuse(request: ElectLeadersRequest, refusal: Refusal, version: int) -> Message:
    """Return the error response; version 0, which has no error of the whole response, has it at every partition."""
    from pessoa.wire.api.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
    from pessoa.wire.errors import ErrorCode

    results = [
        ReplicaElectionResult(
            topic=wanted.topic,
            partition_result=[
                PartitionResult(partition_id=index, error_code=refusal.code, error_message=refusal.message)
                for index in wanted.partitions
            ],
        )
        for wanted in request.topic_partitions or ()
    ]
    code = refusal.code if version != 0 else ErrorCode.NONE
    return ElectLeadersResponse(throttle_time_ms=0, error_code=code, replica_election_results=results)


ROW = ApiRow(
    ApiKey.ELECT_LEADERS,
    "0-2",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.YES,
    decide=decide,
    refuse=refuse,
    authorised=Authorised(ALTER, CLUSTER),
)
