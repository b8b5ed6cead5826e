"""OffsetFetch: the committed offsets of groups.

    v2  null topics mean all; an error for the whole     v5  leader epochs (KIP-320)
    v6  flexible        v7  only stable offsets, if asked for (KIP-447)      v8  several groups (KIP-709)
    v9  member and epoch of the new consumer protocol (KIP-848)              v10 topics by id

With `require_stable` the answer waits until the in-sync replicas have confirmed that this broker still coordinates the
group; Apache Kafka answers from memory.

Authorised: DESCRIBE on each group and on each topic; of all topics, hidden ones are left out.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, TypeVar

from pessoa.base.ids import ZERO_UUID
from pessoa.broker.api_row import ApiRow
from pessoa.broker.authorization import denied_names, may
from pessoa.security.acl import DESCRIBE, GROUP, TOPIC
from pessoa.wire.catalogue import ApiKey
from pessoa.wire.errors import ErrorCode

if TYPE_CHECKING:
    from pessoa.broker.api_row import Reply
    from pessoa.broker.services import BrokerServices
    from pessoa.wire.api.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchResponse,
        OffsetFetchResponseTopic,
        OffsetFetchResponseTopics,
    )
    from pessoa.wire.request_context import RequestContext

    T = TypeVar("T", OffsetFetchResponseTopic, OffsetFetchResponseTopics)

_NO_OFFSET = -1
_NO_EPOCH = -1


def handle(broker: BrokerServices, context: RequestContext, request: OffsetFetchRequest) -> Reply:
    if broker.authorizer is None:
        return broker.groups.offsets.fetch(request, context)
    from pessoa.coordinator.shard_answers import then
    from pessoa.wire.api.offset_fetch import FIRST_OFFSET_FETCH_WITH_GROUPS

    if context.version >= FIRST_OFFSET_FETCH_WITH_GROUPS:
        denied = denied_names(broker, context, DESCRIBE, GROUP, (group.group_id for group in request.groups))
        rest = copy(request)
        rest.groups = [group for group in request.groups if group.group_id not in denied]
        answer = broker.groups.offsets.fetch(rest, context)
        return then(answer, lambda response: _without_denied_groups(broker, context, request, response, denied))
    if not may(broker, context, DESCRIBE, GROUP, request.group_id):
        return _error_response(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, context.version)
    answer = broker.groups.offsets.fetch(request, context)
    return then(answer, lambda response: _of_one_group(broker, context, request, response))


def _without_denied_groups(
    broker: BrokerServices,
    context: RequestContext,
    request: OffsetFetchRequest,
    response: OffsetFetchResponse,
    denied: frozenset[str],
) -> OffsetFetchResponse:
    from pessoa.wire.api.offset_fetch import OffsetFetchResponseGroup

    are_listed = {group.group_id for group in request.groups if group.topics is None}
    for group in response.groups:
        group.topics = _visible_topics(broker, context, group.topics, is_list=group.group_id in are_listed)
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    asked = dict.fromkeys(group.group_id for group in request.groups if group.group_id in denied)
    response.groups += [OffsetFetchResponseGroup(group_id=name, topics=[], error_code=error) for name in asked]
    return response


def _of_one_group(
    broker: BrokerServices, context: RequestContext, request: OffsetFetchRequest, response: OffsetFetchResponse
) -> OffsetFetchResponse:
    response.topics = _visible_topics(broker, context, response.topics, is_list=request.topics is None)
    return response


def _visible_topics(broker: BrokerServices, context: RequestContext, topics: list[T], *, is_list: bool) -> list[T]:
    """Return the topics without those that the client may not describe, if it asked for all; otherwise these have an
    authorization error."""
    name_of = broker.image.topics.name_of
    names = [topic.name or name_of(getattr(topic, "topic_id", ZERO_UUID)) for topic in topics]
    denied = denied_names(broker, context, DESCRIBE, TOPIC, filter(None, names), quietly=is_list)
    if not denied:
        return topics
    if is_list:
        return [topic for topic, name in zip(topics, names, strict=True) if name not in denied]
    for topic, name in zip(topics, names, strict=True):
        if name in denied:
            for one in topic.partitions:
                one.committed_offset, one.committed_leader_epoch, one.metadata = _NO_OFFSET, _NO_EPOCH, ""
                one.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return topics


def _error_response(request: OffsetFetchRequest, code: ErrorCode, version: int) -> OffsetFetchResponse:
    """Return the error response; version 1, which has no error of the whole response, has it at every partition."""
    from pessoa.wire.api.offset_fetch import (
        FIRST_OFFSET_FETCH_WITH_ERROR,
        OffsetFetchResponse,
        OffsetFetchResponsePartition,
        OffsetFetchResponseTopic,
    )

    if version >= FIRST_OFFSET_FETCH_WITH_ERROR:
        return OffsetFetchResponse(error_code=code, topics=[])
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
    return OffsetFetchResponse(topics=topics)


ROW = ApiRow(
    ApiKey.OFFSET_FETCH,
    "1-10",
    handle=handle,
)
