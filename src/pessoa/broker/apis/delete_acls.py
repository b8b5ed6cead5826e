"""DeleteAcls: remove the access control entries that match filters. v2: flexible.

Without an authorizer the answer is SECURITY_DISABLED, as in Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited, Authorised
from pessoa.broker.authorization import NO_AUTHORIZER
from pessoa.security.acl import ALTER, CLUSTER
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices, Reply
    from pessoa.controller.decision import Decision, Situation
    from pessoa.wire.api.delete_acls import DeleteAclsRequest
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: DeleteAclsRequest) -> Reply:
    if node.authorizer is not None:
        return node.controller.submit(request, context)
    return refuse(request, Refusal(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER), context.version)


def decide(situation: Situation, request: DeleteAclsRequest) -> Decision:
    from pessoa.controller.acl_decisions import delete_acls

    return delete_acls(situation, request)


def refuse(request: DeleteAclsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse

    results = [
        DeleteAclsFilterResult(error_code=refusal.code, error_message=refusal.message, matching_acls=[])
        for _ in request.filters
    ]
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


ROW = ApiRow(
    ApiKey.DELETE_ACLS,
    "1-3",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.OF_ACLS,
    decide=decide,
    refuse=refuse,
    authorised=Authorised(ALTER, CLUSTER),
)
