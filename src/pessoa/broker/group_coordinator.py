"""The group coordinator as the handlers see it: a request of an API goes in, its response comes out.

A request about one group goes to the shard of that group's partition. One about several is cut up by partition, and
the answers are put together again. Topic ids (from version 10 on of OffsetCommit and OffsetFetch) become names on the
way in and ids again on the way out, since committed offsets are kept by name. What a shard refuses becomes the error
response of the API.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from pessoa.base.ids import ZERO_UUID
from pessoa.broker.group_refusals import refused_response
from pessoa.coordinator.groups.config import GroupCoordinatorConfig, MigrationPolicy
from pessoa.coordinator.groups.shard import GroupShard
from pessoa.coordinator.runtime import CoordinatorRuntime, SlotState
from pessoa.coordinator.shard import Refusal
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from pessoa.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from pessoa.wire.api.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupResponse
from pessoa.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from pessoa.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from pessoa.wire.stored.framing import GROUP_LOG

if TYPE_CHECKING:
    from pessoa.broker.config import BrokerConfig
    from pessoa.broker.context import RequestContext
    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.log import CoordinatorLog

# The answer, or where something waits, an awaitable of it.
Maybe: TypeAlias = Message | Awaitable[Message]

_FIRST_JOIN_WITH_NULL_PROTOCOL = 7
_FIRST_FETCH_OF_SEVERAL_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10


def group_config(config: BrokerConfig) -> GroupCoordinatorConfig:
    return GroupCoordinatorConfig(
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        group_consumer_max_size=config.group_consumer_max_size,
        group_consumer_assignors=config.group_consumer_assignors,
        group_consumer_migration_policy=MigrationPolicy(config.group_consumer_migration_policy.lower()),
        group_consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
    )


class GroupCoordinator:
    def __init__(self, broker: BrokerServices, log: CoordinatorLog, make_shard: Callable[[int], GroupShard]) -> None:
        self._broker = broker
        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            GROUP_LOG, log, make_shard, broker.clock, broker.image, broker.config.offsets_commit_timeout_ms
        )
        self.elect = self.runtime.elect
        self.resign = self.runtime.resign
        self.publish = self.runtime.publish
        self.close = self.runtime.close
        self.complete_transaction = self.runtime.complete_transaction
        self._special: dict[type[Message], Callable[[Any, RequestContext], Maybe]] = {
            JoinGroupRequest: self._join,
            OffsetCommitRequest: self._commit,
            OffsetFetchRequest: self._fetch,
            ListGroupsRequest: self._list,
            DescribeGroupsRequest: self._describe,
            ConsumerGroupDescribeRequest: self._describe_consumers,
            DeleteGroupsRequest: self._delete,
        }

    def __repr__(self) -> str:
        return f"<GroupCoordinator: {self.runtime!r}>"

    def submit(self, request: Message, context: RequestContext) -> Maybe:
        special = self._special.get(type(request))
        if special is not None:
            return special(request, context)
        return self._ask(cast("Any", request).group_id, request, context)

    # Asking one shard.

    def _ask(self, group_id: str, request: Message, context: RequestContext) -> Maybe:
        return self._ask_partition(self.runtime.partition_for(group_id), request, context)

    def _ask_partition(self, partition: int, request: Message, context: RequestContext) -> Maybe:
        try:
            reply = self.runtime.submit(partition, request, context)
        except Refusal as refusal:
            return refused_response(request, refusal)
        return reply if isinstance(reply, Message) else _answered(reply, request)

    def _join(self, request: JoinGroupRequest, context: RequestContext) -> Maybe:
        answer = self._ask(request.group_id, request, context)
        return answer if context.version >= _FIRST_JOIN_WITH_NULL_PROTOCOL else _then(answer, _without_null_protocol)

    # Offsets.

    def _commit(self, request: OffsetCommitRequest, context: RequestContext) -> Maybe:
        known: list[OffsetCommitRequestTopic] = []
        unknown: list[OffsetCommitResponseTopic] = []
        topics = self._broker.image.topics
        for topic in request.topics:
            if context.version >= _FIRST_WITH_TOPIC_IDS:
                found = topics.by_id.get(topic.topic_id)
                error = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                found = topics.by_name.get(topic.name)
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            here = [one for one in topic.partitions if found is not None and one.partition_index in found.partitions]
            gone = [one for one in topic.partitions if found is None or one.partition_index not in found.partitions]
            if found is not None and here:
                known.append(OffsetCommitRequestTopic(name=found.name, topic_id=found.id, partitions=here))
            if gone:
                code = error if found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                unknown.append(_not_committed(topic, [one.partition_index for one in gone], code))
        if not known and unknown:
            return OffsetCommitResponse(topics=unknown)
        request.topics = known
        answer = self._ask(request.group_id, request, context)
        return _then(answer, lambda response: _committed(cast("OffsetCommitResponse", response), known, unknown))

    def _fetch(self, request: OffsetFetchRequest, context: RequestContext) -> Maybe:
        if context.version < _FIRST_FETCH_OF_SEVERAL_GROUPS:
            group = OffsetFetchRequestGroup(
                group_id=request.group_id,
                topics=None
                if request.topics is None
                else [
                    OffsetFetchRequestTopics(name=one.name, partition_indexes=one.partition_indexes)
                    for one in request.topics
                ],
            )
            answer = self._fetch_one(group, request, context)
            return _then(answer, lambda response: _in_the_old_form(cast("OffsetFetchResponse", response)))
        answers = [self._fetch_one(group, request, context) for group in request.groups]
        return _together(
            answers,
            lambda responses: OffsetFetchResponse(
                groups=[group for one in responses for group in cast("OffsetFetchResponse", one).groups]
            ),
        )

    def _fetch_one(self, group: OffsetFetchRequestGroup, request: OffsetFetchRequest, context: RequestContext) -> Maybe:
        topics = self._broker.image.topics
        if context.version >= _FIRST_WITH_TOPIC_IDS and group.topics is not None:
            for topic in group.topics:
                topic.name = topics.name_of(topic.topic_id) or ""
        one = OffsetFetchRequest(groups=[group], require_stable=request.require_stable)
        answer = self._ask(group.group_id, one, context)
        if context.version < _FIRST_WITH_TOPIC_IDS:
            return answer

        def with_ids(response: Message) -> Message:
            for found in cast("OffsetFetchResponse", response).groups:
                for topic in found.topics:
                    known = topics.by_name.get(topic.name)
                    topic.topic_id = known.id if known is not None else ZERO_UUID
                found.topics = [topic for topic in found.topics if topic.topic_id != ZERO_UUID]
                for wanted in group.topics or []:
                    if not wanted.name:
                        found.topics.append(_unknown_id(wanted))
            return response

        return _then(answer, with_ids)

    # Groups.

    def _list(self, request: ListGroupsRequest, context: RequestContext) -> Maybe:
        """Of all partitions that this broker leads. While one of them loads, the list would have a hole."""
        slots = [self.runtime.slot(partition) for partition in range(self._partition_count())]
        if any(slot is not None and slot.state is SlotState.LOADING for slot in slots):
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[])
        answers = [self._ask_partition(one, request, context) for one in self.runtime.active_partitions()]
        return _together(
            answers,
            lambda responses: ListGroupsResponse(
                error_code=ErrorCode.NONE,
                groups=[group for one in responses for group in cast("ListGroupsResponse", one).groups],
            ),
        )

    def _partition_count(self) -> int:
        topic = self._broker.image.topics.by_name.get("__consumer_offsets")
        return len(topic.partitions) if topic is not None else 0

    def _describe(self, request: DescribeGroupsRequest, context: RequestContext) -> Maybe:
        answers = [
            self._ask(name, DescribeGroupsRequest(groups=[name]), context) for name in dict.fromkeys(request.groups)
        ]
        return _together(
            answers,
            lambda responses: DescribeGroupsResponse(
                groups=[group for one in responses for group in cast("DescribeGroupsResponse", one).groups]
            ),
        )

    def _describe_consumers(self, request: ConsumerGroupDescribeRequest, context: RequestContext) -> Maybe:
        answers = [
            self._ask(
                name, ConsumerGroupDescribeRequest(group_ids=[name], include_authorized_operations=False), context
            )
            for name in dict.fromkeys(request.group_ids)
        ]
        return _together(
            answers,
            lambda responses: ConsumerGroupDescribeResponse(
                throttle_time_ms=0,
                groups=[group for one in responses for group in cast("ConsumerGroupDescribeResponse", one).groups],
            ),
        )

    def _delete(self, request: DeleteGroupsRequest, context: RequestContext) -> Maybe:
        answers = [
            self._ask(name, DeleteGroupsRequest(groups_names=[name]), context)
            for name in dict.fromkeys(request.groups_names)
        ]
        return _together(
            answers,
            lambda responses: DeleteGroupsResponse(
                throttle_time_ms=0,
                results=[result for one in responses for result in cast("DeleteGroupsResponse", one).results],
            ),
        )


# Putting answers together.


async def _answered(reply: Awaitable[Message], request: Message) -> Message:
    try:
        return await reply
    except Refusal as refusal:
        return refused_response(request, refusal)


def _then(answer: Maybe, change: Callable[[Message], Message]) -> Maybe:
    return change(answer) if isinstance(answer, Message) else _changed(answer, change)


async def _changed(answer: Awaitable[Message], change: Callable[[Message], Message]) -> Message:
    return change(await answer)


def _together(answers: list[Maybe], join: Callable[[list[Message]], Message]) -> Maybe:
    done = [answer for answer in answers if isinstance(answer, Message)]
    return join(done) if len(done) == len(answers) else _gathered(answers, join)


async def _gathered(answers: list[Maybe], join: Callable[[list[Message]], Message]) -> Message:
    return join([answer if isinstance(answer, Message) else await answer for answer in answers])


def _without_null_protocol(response: Message) -> Message:
    assert isinstance(response, JoinGroupResponse)
    if response.protocol_name is None:
        response.protocol_name = ""
    return response


def _not_committed(topic: OffsetCommitRequestTopic, indexes: list[int], error: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[OffsetCommitResponsePartition(partition_index=index, error_code=error) for index in indexes],
    )


def _committed(
    response: OffsetCommitResponse, known: list[OffsetCommitRequestTopic], unknown: list[OffsetCommitResponseTopic]
) -> OffsetCommitResponse:
    ids = {topic.name: topic.topic_id for topic in known}
    for topic in response.topics:
        topic.topic_id = ids.get(topic.name, ZERO_UUID)
    response.topics = [*response.topics, *unknown]
    return response


def _in_the_old_form(response: OffsetFetchResponse) -> OffsetFetchResponse:
    group: OffsetFetchResponseGroup = response.groups[0]
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code or group.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


def _unknown_id(wanted: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        topic_id=wanted.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for index in wanted.partition_indexes
        ],
    )
