"""FindCoordinator: which broker coordinates a group or a transactional id.

    v1   the kind of key        v4   several keys at once        v6   share partitions (KIP-932)

It is the leader of the key's partition of the internal topic. The first question for a kind creates that topic, and the
answer waits for it. A broker that is cut off from the controller and cannot get its own writes replicated does not name
itself: another broker leads by then, and a client that believes this one would come back to it for ever.

Authorised: DESCRIBE on each group or transactional id; for share partitions CLUSTER_ACTION.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names, may_in_cluster
from pessoa.broker.slices import Sliced
from pessoa.broker.topic_requests import create_missing_topics
from pessoa.coordinator.partitioning import partition_for
from pessoa.security.acl import CLUSTER_ACTION, DESCRIBE, GROUP, TRANSACTIONAL_ID
from pessoa.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode
from pessoa.wire.internal_topics import GROUP_TOPIC, SHARE_TOPIC, TRANSACTION_TOPIC

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.request_context import Answer, RequestContext

_SHARE = 2
_TOPICS = {0: GROUP_TOPIC, 1: TRANSACTION_TOPIC, _SHARE: SHARE_TOPIC}
_KINDS = {0: GROUP, 1: TRANSACTIONAL_ID}
_DENIED = {
    0: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    1: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    _SHARE: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
_FIRST_VERSION_WITH_SEVERAL_KEYS = 4
_FIRST_VERSION_WITH_SHARES = 6
_NO_NODE = -1


def handle(
    broker: BrokerServices, context: RequestContext, request: FindCoordinatorRequest
) -> Answer[FindCoordinatorResponse]:
    has_several = context.version >= _FIRST_VERSION_WITH_SEVERAL_KEYS
    keys = request.coordinator_keys if has_several else [request.key]
    denied = _denied_keys(broker, context, request.key_type, keys)
    topic = _TOPICS.get(request.key_type)
    if topic is None or topic in broker.image.topics.by_name or denied.issuperset(keys):
        return _response(broker, context, request, keys, denied)
    return _create_and_respond(broker, context, request, keys, denied, topic)


def _denied_keys(broker: BrokerServices, context: RequestContext, key_type: int, keys: list[str]) -> frozenset[str]:
    if key_type == _SHARE:
        return frozenset() if may_in_cluster(broker, context, CLUSTER_ACTION) else frozenset(keys)
    kind = _KINDS.get(key_type)
    return frozenset() if kind is None else denied_names(broker, context, DESCRIBE, kind, keys)


async def _create_and_respond(
    broker: BrokerServices,
    context: RequestContext,
    request: FindCoordinatorRequest,
    keys: list[str],
    denied: frozenset[str],
    topic: str,
) -> FindCoordinatorResponse:
    await create_missing_topics(broker, [topic], client=None)
    return _response(broker, context, request, keys, denied)


def _response(
    broker: BrokerServices,
    context: RequestContext,
    request: FindCoordinatorRequest,
    keys: list[str],
    denied: frozenset[str],
) -> FindCoordinatorResponse:
    kind = request.key_type
    found = [
        _coordinator_error(key, _DENIED[kind], None) if key in denied else _find(broker, context, kind, key)
        for key in keys
    ]
    if context.version >= _FIRST_VERSION_WITH_SEVERAL_KEYS:
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        throttle_time_ms=0,
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(broker: BrokerServices, context: RequestContext, key_type: int, key: str) -> Coordinator:
    name = _TOPICS.get(key_type)
    if name is None:
        return _coordinator_error(key, ErrorCode.INVALID_REQUEST, f"key type {key_type} has no coordinator here")
    topic = broker.image.topics.by_name.get(name)
    if topic is None:
        return _coordinator_error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    if key_type == _SHARE and not _is_share_key(key, context.version):
        return _coordinator_error(key, ErrorCode.INVALID_REQUEST, "a share partition is named group:topic id:partition")
    index = partition_for(key, len(topic.partitions))
    leader = topic.partitions[index].leader
    if leader == broker.node_id and broker.is_out_of_touch() and _is_stuck(broker, name, index):
        return _coordinator_error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    for node in broker.live_nodes(context.listener):
        if node.id == leader:
            return Coordinator(
                key=key,
                node_id=node.id,
                host=node.host,
                port=node.port,
                error_code=ErrorCode.NONE,
                error_message=None,
            )
    return _coordinator_error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)


def _is_share_key(key: str, version: int) -> bool:
    from pessoa.coordinator.share.share_state import ShareKey

    if version < _FIRST_VERSION_WITH_SHARES:
        return False
    try:
        ShareKey.parse(key)
    except ValueError:
        return False
    return True


def _is_stuck(broker: BrokerServices, topic: str, index: int) -> bool:
    partition = broker.replicas.ensure(topic, index)
    return partition is not None and partition.log.high_watermark < partition.log.log_end_offset


def _coordinator_error(key: str, error: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=_NO_NODE, host="", port=-1, error_code=error, error_message=message)


ROW = ApiRow(
    ApiKey.FIND_COORDINATOR,
    "0-6",
    handle=handle,
    sliced=Sliced("coordinator_keys", "coordinators"),
)
