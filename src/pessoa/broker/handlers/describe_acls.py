"""DescribeAcls: the access control entries that match a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.acl_gate import NO_AUTHORIZER, has_authorizer
from pessoa.wire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices


def handle(broker: BrokerServices, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if not has_authorizer(broker):
        return DescribeAclsResponse(
            throttle_time_ms=0, error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[]
        )
    from pessoa.controller.acls import describe_acls

    return describe_acls(broker.image, request)
