"""CreateAcls: add access control entries. v2: flexible.

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
    from pessoa.wire.api.create_acls import CreateAclsRequest
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: CreateAclsRequest) -> Reply:
    if node.authorizer is not None:
        return node.controller.submit(request, context)
    return refuse(request, Refusal(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER), context.version)


def decide(situation: Situation, request: CreateAclsRequest) -> Decision:
    from pessoa.controller.acl_decisions import create_acls

    return create_acls(situation, request)


def refuse(request: CreateAclsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.create_acls import AclCreationResult, CreateAclsResponse

    results = [AclCreationResult(error_code=refusal.code, error_message=refusal.message) for _ in request.creations]
    return CreateAclsResponse(throttle_time_ms=0, results=results)


ROW = ApiRow(
    ApiKey.CREATE_ACLS,
    "1-3",
    handle=handle,
    handle_on_controller=handle,
    is_forwarded=True,
    audited=Audited.OF_ACLS,
    decide=decide,
    refuse=refuse,
    authorised=Authorised(ALTER, CLUSTER),
)
