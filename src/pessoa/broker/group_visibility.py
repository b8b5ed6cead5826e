"""What a client is shown of described groups: those whose topics it may describe, with what it may do with each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from pessoa.broker.authorization import denied_names, group_operations
from pessoa.security.acl import DESCRIBE, TOPIC
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.request_context import RequestContext

_MESSAGE = "The group has described topic(s) that the client is not authorized to describe."


class DescribedGroup(Protocol):
    """A group in the response of ConsumerGroupDescribe, ShareGroupDescribe or StreamsGroupDescribe."""

    error_code: int
    group_id: str
    authorized_operations: int


G = TypeVar("G", bound=DescribedGroup)


def show_operations(broker: BrokerServices, context: RequestContext, groups: Iterable[DescribedGroup]) -> None:
    """Set the authorized operations of each group that was found."""
    for group in groups:
        if not group.error_code:
            group.authorized_operations = group_operations(broker, context, group.group_id)


def refuse_hidden_topics(
    broker: BrokerServices,
    context: RequestContext,
    groups: list[G],
    topics_of: Callable[[G], list[str]],
    refused: Callable[[str, ErrorCode, str], G],
) -> list[G]:
    """Return the groups with `refused` in the place of those that have a topic which the client may not describe."""
    topics = {group.group_id: topics_of(group) for group in groups}
    hidden = denied_names(broker, context, DESCRIBE, TOPIC, (name for names in topics.values() for name in names))
    return [
        group
        if hidden.isdisjoint(topics[group.group_id])
        else refused(group.group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, _MESSAGE)
        for group in groups
    ]
