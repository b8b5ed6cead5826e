"""ListGroups: the groups that this broker coordinates.

v3  flexible        v4  by state (KIP-518)        v5  by type (KIP-848)

Authorised: DESCRIBE on the cluster shows all groups, DESCRIBE on a group this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names, may_in_cluster
from pessoa.security.acl import DESCRIBE, GROUP
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: ListGroupsRequest) -> Reply:
    answer = broker.groups.list_groups(request, context)
    if may_in_cluster(broker, context, DESCRIBE, quietly=True):
        return answer
    from pessoa.coordinator.shard_answers import then

    return then(answer, lambda response: _without_hidden_groups(broker, context, response))


def _without_hidden_groups(
    broker: BrokerServices, context: RequestContext, response: ListGroupsResponse
) -> ListGroupsResponse:
    hidden = denied_names(broker, context, DESCRIBE, GROUP, (group.group_id for group in response.groups), quietly=True)
    response.groups = [group for group in response.groups if group.group_id not in hidden]
    return response


ROW = ApiRow(
    ApiKey.LIST_GROUPS,
    "0-5",
    handle=handle,
)
