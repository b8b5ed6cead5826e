"""DescribeGroups: the state and members of classic groups.

    v3  the authorised operations (KIP-430)     v4  static members (KIP-345)     v5  flexible
    v6  a sentence with an error, and GROUP_ID_NOT_FOUND (KIP-1043)

The answer waits until what it shows is committed, and a group that is named several times is described once; Apache
Kafka shows the last committed state, as often as it is asked.

Authorised: DESCRIBE on each group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names, group_operations
from pessoa.broker.slices import Sliced
from pessoa.security.acl import DESCRIBE, GROUP
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: DescribeGroupsRequest) -> Reply:
    if broker.authorizer is None:
        return broker.groups.describe_classic(request, context)
    from pessoa.coordinator.shard_answers import then
    from pessoa.wire.api.describe_groups import DescribeGroupsRequest

    denied = denied_names(broker, context, DESCRIBE, GROUP, request.groups)
    rest = DescribeGroupsRequest(groups=[one for one in request.groups if one not in denied])

    def with_operations(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            for group in response.groups:
                if not group.error_code:
                    group.authorized_operations = group_operations(broker, context, group.group_id)
        response.groups = [
            _authorization_error(name) for name in dict.fromkeys(request.groups) if name in denied
        ] + response.groups
        return response

    return then(broker.groups.describe_classic(rest, context), with_operations)


def _authorization_error(name: str) -> DescribedGroup:
    from pessoa.wire.api.describe_groups import DescribedGroup

    return DescribedGroup(
        error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED,
        group_id=name,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )


ROW = ApiRow(
    ApiKey.DESCRIBE_GROUPS,
    "0-6",
    handle=handle,
    sliced=Sliced("groups", "groups", lambda group: group),
)
