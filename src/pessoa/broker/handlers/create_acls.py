"""CreateAcls: add access control entries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.acl_gate import NO_AUTHORIZER, has_authorizer
from pessoa.wire.api.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.dispatch import Reply
    from pessoa.broker.services import BrokerServices


def handle(broker: BrokerServices, context: RequestContext, request: CreateAclsRequest) -> Reply:
    if has_authorizer(broker):
        reply: Reply = broker.controller.submit(request, context)
        return reply
    return CreateAclsResponse(
        throttle_time_ms=0,
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.creations
        ],
    )
