"""The APIs of share groups in the group coordinator (KIP-932), as the broker's handlers see them.

What share partitions begin with, and what is stored of them, is with the share coordinator. A shard writes down what
is to be done there, this shell asks the share coordinator (`SharePersister`), and the outcome goes back to the shard:

    ShareGroupHeartbeat ──► shard: initialising ──► persister ──► shard: initialised
    AlterShareGroupOffsets, DeleteShareGroupOffsets, DeleteGroups: `groups.share.share_offsets`
    DescribeShareGroupOffsets ──► persister: summaries ──► leaders of the partitions: latest offsets ──► lags (KIP-1226)

Where the share coordinator cannot be reached in time, what was begun is undone, or stays to be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.coordinator.groups.group_shard import GroupShard
from pessoa.coordinator.groups.share.share_descriptions import share_group_error
from pessoa.coordinator.groups.share.share_group import NamedTopics
from pessoa.coordinator.groups.share.share_group_replay import named_topics, topic_infos
from pessoa.coordinator.groups.share.share_initialisation import InitializeShares, SharesInitialised
from pessoa.coordinator.groups.share.share_offsets import (
    PlannedTopic,
    ShareGroupNamed,
    SharePlan,
    SharesDeleted,
    initialised_by,
)
from pessoa.coordinator.runtime import CoordinatorRuntime, Decide, R
from pessoa.coordinator.shard import Image, public_error
from pessoa.coordinator.shard_answers import all_of, ask
from pessoa.coordinator.share.share_state import NO_OFFSET
from pessoa.coordinator.share.state_messages import DELETE, INITIALIZE, SUMMARY, StateApi
from pessoa.coordinator.share.state_messages import R as StateR
from pessoa.wire.api import alter_share_group_offsets as alter
from pessoa.wire.api import delete_share_group_offsets as delete
from pessoa.wire.api import delete_share_group_state as delete_state
from pessoa.wire.api import describe_share_group_offsets as offsets
from pessoa.wire.api import initialize_share_group_state as initialize_state
from pessoa.wire.api import read_share_group_state_summary as summary_state
from pessoa.wire.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Answer, Caller, OwnRequest
from pessoa.wire.schema import Message

logger = logging.getLogger(__name__)

# The first share.version that has share groups.
_VERSION_WITH_SHARE_GROUPS = 1
_NO_LAG = -1
_UNKNOWN = -1

SharePartitionId = tuple[Uuid, int]


class SharePersister(Protocol):
    """Sends requests to the share coordinators. A share partition without a response in time has an error."""

    async def ask(self, api: StateApi[StateR], request: StateR) -> Message: ...


# Asks for the latest offset of each partition; one whose leader has not told it is left out.
LatestOffsets: TypeAlias = Callable[[Sequence[tuple[str, int]]], Awaitable[Mapping[tuple[str, int], int]]]


class StateResult(NamedTuple):
    code: ErrorCode
    message: str | None


def state_results(response: Message) -> dict[SharePartitionId, StateResult]:
    """Return the error of each share partition in a response of a share coordinator."""
    return {
        (topic.topic_id, one.partition): StateResult(ErrorCode.of(one.error_code), one.error_message)
        for topic in response.results  # type: ignore[attr-defined]
        for one in topic.partitions
    }


class ShareGroupService:
    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        image: Callable[[], Image],
        persister: SharePersister,
        latest_offsets: LatestOffsets,
        share_version: Callable[[], int],
    ) -> None:
        self._runtime = runtime
        self._image = image
        self._persister = persister
        self._latest_offsets = latest_offsets
        self._share_version = share_version
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<ShareGroupService: {len(self._tasks)} initialisations under way>"

    @property
    def is_on(self) -> bool:
        return self._share_version() >= _VERSION_WITH_SHARE_GROUPS

    def _check_on(self) -> None:
        if not self.is_on:
            raise Refusal(ErrorCode.UNSUPPORTED_VERSION)

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _partition_for(self, group_id: str) -> int:
        return self._runtime.partition_for(group_id)

    # ── members ──

    def heartbeat(self, request: ShareGroupHeartbeatRequest, context: Caller) -> Answer[ShareGroupHeartbeatResponse]:
        def failed(code: ErrorCode, message: str | None) -> ShareGroupHeartbeatResponse:
            return ShareGroupHeartbeatResponse(
                throttle_time_ms=0, error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
            )

        if not self.is_on:
            return failed(ErrorCode.UNSUPPORTED_VERSION, None)
        return ask(
            self._runtime,
            self._partition_for(request.group_id),
            GroupShard.share_heartbeat,
            request,
            context,
            ShareGroupHeartbeatResponse,
            failed,
        )

    def describe(self, group_ids: Sequence[str], context: Caller) -> Answer[ShareGroupDescribeResponse]:
        """Return the descriptions of the groups in the order of the request, each once."""

        def failed(group_id: str, code: ErrorCode, message: str | None = None) -> ShareGroupDescribeResponse:
            return ShareGroupDescribeResponse(throttle_time_ms=0, groups=[share_group_error(group_id, code, message)])

        def answer(group_id: str) -> Answer[ShareGroupDescribeResponse]:
            if not self.is_on:
                return failed(group_id, ErrorCode.UNSUPPORTED_VERSION)
            if not group_id:
                return failed(group_id, ErrorCode.INVALID_GROUP_ID)
            return ask(
                self._runtime,
                self._partition_for(group_id),
                GroupShard.describe_share,
                ShareGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False),
                context,
                ShareGroupDescribeResponse,
                lambda code, message: failed(group_id, code, message),
            )

        return all_of(
            [answer(group_id) for group_id in group_ids],
            lambda responses: ShareGroupDescribeResponse(
                throttle_time_ms=0, groups=[group for one in responses for group in one.groups]
            ),
        )

    # ── initialising ──

    def initialize(self, asked: InitializeShares) -> None:
        """Let the share coordinator initialise share partitions, and give the result to the shard."""
        self._start(self._initialize(asked))

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _initialize(self, asked: InitializeShares) -> None:
        request = initialize_state.InitializeShareGroupStateRequest(
            group_id=asked.group_id,
            topics=[
                initialize_state.InitializeStateData(
                    topic_id=topic_id,
                    partitions=[
                        initialize_state.PartitionData(
                            partition=index, state_epoch=asked.state_epoch, start_offset=NO_OFFSET
                        )
                        for index in sorted(named.partitions)
                    ],
                )
                for topic_id, named in sorted(asked.topics.items())
            ],
        )
        results = state_results(await self._persister.ask(INITIALIZE, request))
        await self._note_initialised(asked.group_id, asked.topics, results)

    async def _note_initialised(
        self, group_id: str, topics: NamedTopics, results: Mapping[SharePartitionId, StateResult]
    ) -> None:
        """Let the shard record which share partitions were initialised, and which were not and are to be tried
        again."""
        infos = {False: topic_infos(topics), True: topic_infos(topics)}
        for is_failed, some in infos.items():
            for info in some:
                info.partitions = [
                    index for index in info.partitions if results[info.topic_id, index].code.is_error is is_failed
                ]
            left = [info for info in some if info.partitions]
            if not left:
                continue
            code = results[left[0].topic_id, left[0].partitions[0]].code
            if is_failed:
                logger.warning(
                    "share group %s: %s could not be initialised: %s", group_id, named_topics(left), code.name
                )
            try:
                await self._ask_shard(
                    GroupShard.note_shares_initialised,
                    SharesInitialised(group_id=group_id, error_code=code, topics=left),
                    group_id,
                )
            except Refusal as refusal:
                # Whatever coordinates the group next asks again.
                logger.info("share group %s: what was initialised is not written: %s", group_id, refusal.code.name)

    async def _ask_shard(
        self, decide: Decide[GroupShard, R], request: R, group_id: str, caller: Caller | None = None
    ) -> Any:
        """Return the response of that method of the group's shard. Raises `Refusal`."""
        try:
            answer = self._runtime.submit(self._partition_for(group_id), decide, request, caller or OwnRequest(0), None)
            return answer if isinstance(answer, Message) else await answer
        except Refusal as refusal:
            raise Refusal(public_error(refusal.code), refusal.message) from None

    # ── offsets ──

    async def describe_offsets(
        self, group: offsets.DescribeShareGroupOffsetsRequestGroup
    ) -> offsets.DescribeShareGroupOffsetsResponseGroup:
        response = offsets.DescribeShareGroupOffsetsResponseGroup(group_id=group.group_id, topics=[], error_code=0)
        try:
            self._check_on()
            wanted = await self._requested_topics(group)
        except Refusal as refusal:
            response.error_code, response.error_message = refusal.code, refusal.text
            return response
        by_id = self._image().topics.by_id
        asked = summary_state.ReadShareGroupStateSummaryRequest(
            group_id=group.group_id,
            topics=[
                summary_state.ReadStateSummaryData(
                    topic_id=topic_id,
                    partitions=[summary_state.PartitionData(partition=one, leader_epoch=_UNKNOWN) for one in indexes],
                )
                for _, topic_id, indexes in wanted
                if topic_id in by_id and indexes
            ],
        )
        found: dict[SharePartitionId, summary_state.PartitionResult] = {}
        if asked.topics:
            answer = await self._persister.ask(SUMMARY, asked)
            assert isinstance(answer, summary_state.ReadShareGroupStateSummaryResponse)
            found = {(one.topic_id, each.partition): each for one in answer.results for each in one.partitions}
        latest = await self._latest_of(wanted, found)
        response.topics = [
            offsets.DescribeShareGroupOffsetsResponseTopic(
                topic_name=name,
                topic_id=topic_id,
                partitions=[
                    _partition_offsets(index, found.get((topic_id, index)), latest.get((name, index)))
                    for index in indexes
                ],
            )
            for name, topic_id, indexes in wanted
        ]
        return response

    async def _requested_topics(
        self, group: offsets.DescribeShareGroupOffsetsRequestGroup
    ) -> list[tuple[str, Uuid, list[int]]]:
        """Return name, id and partitions of the requested topics; the id is zero for a topic that does not exist."""
        if group.topics is None:
            try:
                request = ShareGroupNamed(group_id=group.group_id)
                plan = await self._ask_shard(GroupShard.list_initialised_shares, request, group.group_id)
            except Refusal as refusal:
                if refusal.code is ErrorCode.GROUP_ID_NOT_FOUND:
                    return []  # no error, as in Kafka
                raise
            assert isinstance(plan, SharePlan)
            return [(one.topic_name, one.topic_id, [each.index for each in one.partitions]) for one in plan.topics]
        by_name = self._image().topics.by_name
        return [
            (one.topic_name, by_name[one.topic_name].id if one.topic_name in by_name else ZERO_UUID, one.partitions)
            for one in group.topics
        ]

    async def _latest_of(
        self,
        wanted: Sequence[tuple[str, Uuid, list[int]]],
        found: Mapping[SharePartitionId, summary_state.PartitionResult],
    ) -> Mapping[tuple[str, int], int]:
        begun = [
            (name, index)
            for name, topic_id, indexes in wanted
            for index in indexes
            if (one := found.get((topic_id, index))) is not None
            and not one.error_code
            and one.start_offset != NO_OFFSET
            and one.delivery_complete_count >= 0
        ]
        return await self._latest_offsets(begun) if begun else {}

    async def alter_offsets(
        self, request: alter.AlterShareGroupOffsetsRequest, caller: Caller
    ) -> alter.AlterShareGroupOffsetsResponse:
        response = alter.AlterShareGroupOffsetsResponse(throttle_time_ms=0, error_code=0, responses=[])
        try:
            self._check_on()
            plan = await self._ask_shard(GroupShard.plan_share_alteration, request, request.group_id, caller)
        except Refusal as refusal:
            response.error_code, response.error_message = refusal.code, refusal.text
            return response
        assert isinstance(plan, SharePlan)
        results = await self._alter(plan)
        response.responses = [
            alter.AlterShareGroupOffsetsResponseTopic(
                topic_name=topic.topic_name,
                topic_id=topic.topic_id,
                partitions=[
                    _altered_partition(
                        one.index, results.get((topic.topic_id, one.index)), ErrorCode.of(one.error_code)
                    )
                    for one in topic.partitions
                ],
            )
            for topic in plan.topics
        ]
        return response

    async def _alter(self, plan: SharePlan) -> dict[SharePartitionId, StateResult]:
        topics = initialised_by(plan)
        if not topics:
            return {}
        asked = initialize_state.InitializeShareGroupStateRequest(
            group_id=plan.group_id,
            topics=[
                initialize_state.InitializeStateData(
                    topic_id=topic.topic_id,
                    partitions=[
                        initialize_state.PartitionData(
                            partition=one.index, state_epoch=plan.state_epoch, start_offset=one.start_offset
                        )
                        for one in topic.partitions
                        if not one.error_code
                    ],
                )
                for topic in plan.topics
                if topic.topic_id in topics
            ],
        )
        results = state_results(await self._persister.ask(INITIALIZE, asked))
        await self._note_initialised(plan.group_id, topics, results)
        return results

    async def delete_offsets(
        self, request: delete.DeleteShareGroupOffsetsRequest, caller: Caller
    ) -> delete.DeleteShareGroupOffsetsResponse:
        response = delete.DeleteShareGroupOffsetsResponse(throttle_time_ms=0, error_code=0, responses=[])
        try:
            self._check_on()
            plan = await self._ask_shard(GroupShard.plan_share_offset_deletion, request, request.group_id, caller)
            assert isinstance(plan, SharePlan)
            errors = await self._delete_state(plan)
            gone = [one.topic_id for one in plan.topics if not one.error_code and one.topic_id not in errors]
            if gone:
                deleted = SharesDeleted(group_id=plan.group_id, topic_ids=gone)
                await self._ask_shard(GroupShard.note_shares_deleted, deleted, plan.group_id)
        except Refusal as refusal:
            response.error_code, response.error_message = refusal.code, refusal.text
            return response
        response.responses = [_deleted_topic(topic, errors.get(topic.topic_id)) for topic in plan.topics]
        return response

    async def delete_state_of(self, group_id: str) -> ErrorCode:
        """Delete everything that the share coordinator has of a group, which must have no members."""
        try:
            request = ShareGroupNamed(group_id=group_id)
            plan = await self._ask_shard(GroupShard.plan_share_group_deletion, request, group_id)
        except Refusal as refusal:
            return refusal.code
        assert isinstance(plan, SharePlan)
        errors = await self._delete_state(plan)
        return next((result.code for result in errors.values()), ErrorCode.NONE)

    async def _delete_state(self, plan: SharePlan) -> dict[Uuid, StateResult]:
        """Delete the state of the plan's topics; return those of which some is left, with the error."""
        asked = delete_state.DeleteShareGroupStateRequest(
            group_id=plan.group_id,
            topics=[
                delete_state.DeleteStateData(
                    topic_id=topic.topic_id,
                    partitions=[delete_state.PartitionData(partition=one.index) for one in topic.partitions],
                )
                for topic in plan.topics
                if not topic.error_code and topic.partitions
            ],
        )
        if not asked.topics:
            return {}
        results = state_results(await self._persister.ask(DELETE, asked))
        return {topic_id: result for (topic_id, _), result in results.items() if result.code.is_error}


def _partition_offsets(
    index: int, found: summary_state.PartitionResult | None, latest: int | None
) -> offsets.DescribeShareGroupOffsetsResponsePartition:
    """Return the offsets of one share partition. As in Kafka, an offset that the share coordinator did not return is
    unknown, and not an error."""
    if found is None or found.error_code:
        return offsets.DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=NO_OFFSET, leader_epoch=0, lag=_NO_LAG, error_code=0
        )
    lag = _NO_LAG if latest is None else latest - found.start_offset - found.delivery_complete_count
    return offsets.DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=found.start_offset,
        leader_epoch=found.leader_epoch,
        lag=max(lag, _NO_LAG),
        error_code=0,
    )


def _altered_partition(
    index: int, result: StateResult | None, code: ErrorCode
) -> alter.AlterShareGroupOffsetsResponsePartition:
    message = code.text if code.is_error else None
    if result is not None:
        code, message = result
    return alter.AlterShareGroupOffsetsResponsePartition(
        partition_index=index, error_code=code, error_message=message if code.is_error else None
    )


def _deleted_topic(topic: PlannedTopic, result: StateResult | None) -> delete.DeleteShareGroupOffsetsResponseTopic:
    code = ErrorCode.of(topic.error_code) if result is None else result.code
    return delete.DeleteShareGroupOffsetsResponseTopic(
        topic_name=topic.topic_name,
        topic_id=topic.topic_id,
        error_code=code,
        error_message=code.text if code.is_error else None,
    )
