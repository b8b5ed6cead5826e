"""ReadShareGroupStateSummary: the offsets of share partitions (KIP-932).

    v1  how many records are done behind the start offset

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
    from pessoa.wire.api.read_share_group_state_summary import ReadShareGroupStateSummaryRequest
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: ReadShareGroupStateSummaryRequest) -> Reply:
    return broker.coordinators.shares.summarize(request, context)


def refuse(request: ReadShareGroupStateSummaryRequest, refusal: Refusal, version: int) -> Message:
    from pessoa.coordinator.share.state_messages import SUMMARY, refuse_all

    return refuse_all(SUMMARY, request, refusal)


ROW = ApiRow(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    "0-1",
    handle=handle,
    refuse=refuse,
    authorised=BETWEEN_NODES,
    quota=Quota.NONE,
)
