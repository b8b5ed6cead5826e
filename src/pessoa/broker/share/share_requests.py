"""What ShareFetch and ShareAcknowledge have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.broker.authorization import denied_names
from pessoa.broker.share.share_partitions import is_share_on
from pessoa.security.acl import READ, TOPIC
from pessoa.share.share_sessions import SessionKey
from pessoa.wire.errors import ErrorCode, Refusal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pessoa.base.ids import Uuid
    from pessoa.broker.services import BrokerServices, Node
    from pessoa.share.share_sessions import SharedPartition
    from pessoa.wire.request_context import RequestContext

# The errors of a partition whose answer names the leader.
ERRORS_WITH_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# The text of a UUID is 36 characters long.
_LONGEST_MEMBER_ID = 36


def check_request(broker: BrokerServices, group_id: str | None, member_id: str | None) -> SessionKey:
    """Return the session key of the request. Raises `Refusal` if the group or member id is invalid."""
    if not is_share_on(broker.image):
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION)
    if not group_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "The group id must be set.")
    if not member_id or len(member_id) > _LONGEST_MEMBER_ID:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"A member id has 1 to {_LONGEST_MEMBER_ID} characters.")
    return SessionKey(group_id, member_id)


def denied_topics(broker: BrokerServices, context: RequestContext, topic_ids: Iterable[Uuid]) -> frozenset[Uuid]:
    """Return those of the topics that the member may not read; ids that no topic has are not among them."""
    if broker.authorizer is None:
        return frozenset()
    name_of = broker.image.topics.name_of
    names = {topic_id: name for topic_id in topic_ids if (name := name_of(topic_id)) is not None}
    denied = denied_names(broker, context, READ, TOPIC, names.values())
    return frozenset(topic_id for topic_id, name in names.items() if name in denied)


def current_leader(broker: BrokerServices, shared: SharedPartition) -> tuple[int, int]:
    """Return the leader of a partition and its epoch, by the replica here, or without one by the metadata. Both are -1
    if the partition does not exist."""
    topic_id, index = shared
    replica = broker.replicas.ensure_by_id(topic_id, index)
    if replica is not None:
        return replica.leader_id, replica.leader_epoch
    topic = broker.image.topics.by_id.get(topic_id)
    return broker.replicas.leader_elsewhere(broker.image, "" if topic is None else topic.name, index)


def endpoints(broker: BrokerServices, context: RequestContext, leaders: Collection[int]) -> list[Node]:
    """Return the addresses of the leaders that a response names."""
    return [node for node in broker.nodes(context.listener) if node.id in leaders] if leaders else []
