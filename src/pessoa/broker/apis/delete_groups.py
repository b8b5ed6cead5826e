"""DeleteGroups: delete groups that have no members, with their offsets (KIP-229). v2: flexible.

Very many groups are deleted in slices, unlike in Apache Kafka.

Authorised: DELETE on each group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Audited
from pessoa.broker.authorization import denied_names
from pessoa.broker.slices import Sliced
from pessoa.security.acl import DELETE, GROUP
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
    from pessoa.wire.request_context import RequestContext


def handle(broker: BrokerServices, context: RequestContext, request: DeleteGroupsRequest) -> Reply:
    denied = denied_names(broker, context, DELETE, GROUP, request.groups_names)
    if not denied:
        return broker.groups.delete(request, context)
    from pessoa.coordinator.shard_answers import then
    from pessoa.wire.api.delete_groups import DeleteGroupsRequest

    refused = [_authorization_error(name) for name in dict.fromkeys(request.groups_names) if name in denied]
    rest = DeleteGroupsRequest(groups_names=[name for name in request.groups_names if name not in denied])
    return then(broker.groups.delete(rest, context), lambda answer: _append_results(refused, answer))


def _authorization_error(name: str) -> DeletableGroupResult:
    from pessoa.wire.api.delete_groups import DeletableGroupResult

    return DeletableGroupResult(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _append_results(refused: list[DeletableGroupResult], answer: DeleteGroupsResponse) -> DeleteGroupsResponse:
    answer.results += refused
    return answer


ROW = ApiRow(
    ApiKey.DELETE_GROUPS,
    "0-2",
    handle=handle,
    audited=Audited.YES,
    sliced=Sliced("groups_names", "results"),
)
