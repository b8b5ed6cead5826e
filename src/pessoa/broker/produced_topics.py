"""The topics of a Produce request: this broker's partitions of them, and those that the client may not write to.

Topics are named by their names before version 13 of the request, and by their ids from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.security.acl import TOPIC, WRITE
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.replication.partition import Partition
    from pessoa.wire.api.produce import ProduceRequest, TopicProduceData
    from pessoa.wire.request_context import RequestContext

_FIRST_VERSION_WITH_TOPIC_IDS = 13
NONE_DENIED: frozenset[str] = frozenset()


def find_topic(
    broker: BrokerServices, version: int, topic: TopicProduceData
) -> tuple[dict[int, Partition] | None, str, ErrorCode | None]:
    """Return this broker's partitions of the topic, its name, and the error if the topic itself is unknown."""
    if version < _FIRST_VERSION_WITH_TOPIC_IDS:
        return broker.replicas.by_name.get(topic.name), topic.name, None
    known = broker.image.topics.by_id.get(topic.topic_id)
    if known is None:
        return None, "", ErrorCode.UNKNOWN_TOPIC_ID
    return broker.replicas.by_id.get(topic.topic_id), known.name, None


def denied_topics(
    broker: BrokerServices, context: RequestContext, request: ProduceRequest, denied: frozenset[str] = NONE_DENIED
) -> frozenset[str]:
    """Return the topics that the client may not write to, with those that were found before. Topics that are unknown by
    their ids are not among them, so this is called again after every wait: an id may become known meanwhile."""
    authorizer = broker.authorizer
    if authorizer is None:
        return denied
    for topic in request.topic_data:
        name: str | None = topic.name
        if context.version >= _FIRST_VERSION_WITH_TOPIC_IDS:
            name = broker.image.topics.name_of(topic.topic_id)
        if name is not None and name not in denied and not authorizer.may(context, WRITE, TOPIC, name):
            denied |= {name}
    return denied
