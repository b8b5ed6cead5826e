"""ShareAcknowledge: say what became of records that a member of a share group was given (KIP-932).

    v1      accept, release, reject, gap
    v2      renewed locks (KIP-1222), and how long a lock lasts in the response

It counts as a request of the member's share session. The response comes when all of it is stored.

Authorised: READ on the group, and on each topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow, Authorised, Counted
from pessoa.security.acl import GROUP, READ
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pessoa.base.ids import Uuid
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.broker.share.share_acknowledging import Outcome
    from pessoa.share.share_sessions import SharedPartition
    from pessoa.wire.api.share_acknowledge import (
        PartitionData,
        ShareAcknowledgeRequest,
        ShareAcknowledgeResponse,
        ShareAcknowledgeTopicResponse,
    )
    from pessoa.wire.errors import Refusal
    from pessoa.wire.request_context import RequestContext
    from pessoa.wire.schema import Message


def handle(broker: BrokerServices, context: RequestContext, request: ShareAcknowledgeRequest) -> Reply:
    return _acknowledge(broker, context, request)


async def _acknowledge(
    broker: BrokerServices, context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    from pessoa.broker.share.share_acknowledging import acknowledge, acknowledgements_of
    from pessoa.broker.share.share_requests import check_request, denied_topics
    from pessoa.share.share_sessions import FINAL_EPOCH
    from pessoa.wire.errors import Refusal

    shares = broker.coordinators.share_partitions
    try:
        key = check_request(broker, request.group_id, request.member_id)
        shares.sessions.plan_acknowledge(key, request.share_session_epoch)
    except Refusal as refusal:
        return _error_response(refusal)
    asked = acknowledgements_of(request.topics)
    denied = denied_topics(broker, context, [topic_id for topic_id, _ in asked])
    try:
        outcomes = await acknowledge(broker, key, asked, denied, context.version, is_renewal=request.is_renew_ack)
    finally:
        # Even if the connection has closed meanwhile: the session is no longer among those that end with it.
        if request.share_session_epoch == FINAL_EPOCH:
            shares.end_session(key)
    return _response(broker, context, key.group_id, outcomes)


def _response(
    broker: BrokerServices, context: RequestContext, group_id: str, outcomes: Mapping[SharedPartition, Outcome]
) -> ShareAcknowledgeResponse:
    from pessoa.broker.share.share_requests import ERRORS_WITH_LEADER, endpoints
    from pessoa.broker.share.share_settings import share_settings
    from pessoa.wire.api.share_acknowledge import (
        NodeEndpoint,
        ShareAcknowledgeResponse,
        ShareAcknowledgeTopicResponse,
    )

    topics: dict[Uuid, ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    for shared, outcome in outcomes.items():
        topic = topics.get(shared[0])
        if topic is None:
            topic = topics[shared[0]] = ShareAcknowledgeTopicResponse(topic_id=shared[0], partitions=[])
        data = _partition_data(broker, shared, outcome)
        if outcome.code in ERRORS_WITH_LEADER:
            leaders.add(data.current_leader.leader_id)
        topic.partitions.append(data)
    return ShareAcknowledgeResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=share_settings(broker, group_id).limits.lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
            for node in endpoints(broker, context, leaders)
        ],
    )


def _partition_data(broker: BrokerServices, shared: SharedPartition, outcome: Outcome) -> PartitionData:
    from pessoa.broker.share.share_requests import ERRORS_WITH_LEADER, current_leader
    from pessoa.wire.api.share_acknowledge import LeaderIdAndEpoch, PartitionData

    leader_id, leader_epoch = current_leader(broker, shared) if outcome.code in ERRORS_WITH_LEADER else (0, 0)
    return PartitionData(
        partition_index=shared[1],
        error_code=outcome.code,
        error_message=outcome.message,
        current_leader=LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch),
    )


def _error_response(refusal: Refusal) -> ShareAcknowledgeResponse:
    from pessoa.wire.api.share_acknowledge import ShareAcknowledgeResponse

    return ShareAcknowledgeResponse(
        throttle_time_ms=0,
        error_code=refusal.code,
        error_message=refusal.text,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


def refuse(request: ShareAcknowledgeRequest, refusal: Refusal, version: int) -> Message:
    return _error_response(refusal)


ROW = ApiRow(
    ApiKey.SHARE_ACKNOWLEDGE,
    "1-2",
    handle=handle,
    refuse=refuse,
    authorised=Authorised(READ, GROUP, lambda request: request.group_id or ""),
    counted=Counted.SHARED,
)
