"""DeleteShareGroupState: delete share partitions (KIP-932).

Leaders of partitions and group coordinators ask the share coordinator, which answers when it is stored.

Authorised: CLUSTER_ACTION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import BETWEEN_NODES, ApiRow, Quota
from pessoa.wire.catalogue import ApiKey

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.delete_share_group_state import DeleteShareGroupStateRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: DeleteShareGroupStateRequest) -> Reply:
    return broker.coordinators.shares.delete(request, context)


def refuse(request: DeleteShareGroupStateRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.coordinator.share.state_messages import DELETE, refuse_all

    return refuse_all(DELETE, request, refusal)


ROW = ApiRow(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    "0",
    handle=handle,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
