"""DescribeAcls: the access control entries that match a filter. v2: flexible.

Answered from the metadata image, by brokers and controllers; without an authorizer with SECURITY_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised
from pessoa.broker.authorization import NO_AUTHORIZER
from pessoa.security.acl import CLUSTER, DESCRIBE
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import AnyServices
    from pessoa.wire.api.describe_acls import DescribeAclsRequest, DescribeAclsResponse
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(node: AnyServices, context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    from pessoa.wire.api.describe_acls import DescribeAclsResponse

    if node.authorizer is None:
        return DescribeAclsResponse(
            throttle_time_ms=0, error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[]
        )
    from pessoa.controller.acl_decisions import describe_acls

    return describe_acls(node.image, request)


def refuse(request: DescribeAclsRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.wire.api.describe_acls import DescribeAclsResponse

    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=refusal.code, error_message=refusal.message, resources=[]
    )


ROW = ApiRow(
    ApiKey.DESCRIBE_ACLS,
    "1-3",
    handle=handle,
    handle_on_controller=handle,
    refuse=refuse,
    authorised=Authorised(DESCRIBE, CLUSTER),
)
