"""FindCoordinator: which broker coordinates a group or a transactional id.

    v1   the kind of key        v4   several keys at once        v6   share partitions (KIP-932)

It is the leader of the key's partition of the internal topic. The first question for a kind creates that topic, and the
answer waits for it. A broker that is cut off from the controller and cannot get its own writes replicated does not name
itself: somebody else leads by then, and whoever believes this one would come back to it for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.topic_listing import GROUP_TOPIC, TRANSACTION_TOPIC
from pessoa.coordinator.partitioning import partition_for
from pessoa.wire.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.context import RequestContext
    from pessoa.broker.dispatch import Reply
    from pessoa.broker.services import BrokerServices

_TOPICS = {0: GROUP_TOPIC, 1: TRANSACTION_TOPIC}
_FIRST_VERSION_WITH_SEVERAL_KEYS = 4
_NO_NODE = -1


def handle(broker: BrokerServices, context: RequestContext, request: FindCoordinatorRequest) -> Reply:
    topic = _TOPICS.get(request.key_type)
    if topic is None or topic in broker.image.topics.by_name:
        return _response(broker, context, request)
    return _create_and_respond(broker, context, request, topic)


async def _create_and_respond(
    broker: BrokerServices, context: RequestContext, request: FindCoordinatorRequest, topic: str
) -> FindCoordinatorResponse:
    await broker.create_missing_topics([topic], context)
    return _response(broker, context, request)


def _response(
    broker: BrokerServices, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.version >= _FIRST_VERSION_WITH_SEVERAL_KEYS:
        found = [_find(broker, context, request.key_type, key) for key in request.coordinator_keys]
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=found)
    one = _find(broker, context, request.key_type, request.key)
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
        return _refused(key, ErrorCode.INVALID_REQUEST, f"key type {key_type} has no coordinator here")
    topic = broker.image.topics.by_name.get(name)
    if topic is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
    index = partition_for(key, len(topic.partitions))
    leader = topic.partitions[index].leader
    if leader == broker.node_id and broker.is_out_of_touch() and _is_stuck(broker, name, index):
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
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
    return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, None)


def _is_stuck(broker: BrokerServices, topic: str, index: int) -> bool:
    partition = broker.replicas.get(topic, index)
    return partition is not None and partition.log.high_watermark < partition.log.log_end_offset


def _refused(key: str, error: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=_NO_NODE, host="", port=-1, error_code=error, error_message=message)
