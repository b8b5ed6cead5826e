"""ReadShareGroupState: the state of share partitions; it fences leaders of earlier epochs (KIP-932).

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
    from pessoa.wire.api.read_share_group_state import ReadShareGroupStateRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: ReadShareGroupStateRequest) -> Reply:
    return broker.coordinators.shares.read(request, context)


def refuse(request: ReadShareGroupStateRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.coordinator.share.state_messages import READ, refuse_all

    return refuse_all(READ, request, refusal)


ROW = ApiRow(
    ApiKey.READ_SHARE_GROUP_STATE,
    "0",
    handle=handle,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
