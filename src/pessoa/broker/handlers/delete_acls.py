"""DeleteAcls: remove the access control entries that match filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.acl_gate import NO_AUTHORIZER, has_authorizer
from pessoa.wire.api.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.dispatch import Reply
    from pessoa.broker.services import BrokerServices


def handle(broker: BrokerServices, context: RequestContext, request: DeleteAclsRequest) -> Reply:
    if has_authorizer(broker):
        reply: Reply = broker.controller.submit(request, context)
        return reply
    return DeleteAclsResponse(
        throttle_time_ms=0,
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
            )
            for _ in request.filters
        ],
    )
