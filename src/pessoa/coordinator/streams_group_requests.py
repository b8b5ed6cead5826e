"""The APIs of streams groups in the group coordinator (KIP-1071), as the broker's handlers see them.

A shard says which internal topics of a topology are missing; this shell has them created, in the name of the client
whose heartbeat showed it, and lets heartbeats go on meanwhile: the next one finds them in the metadata. A topic whose
creation is under way is not asked for again, and one that was refused not before two heartbeats have passed: until then
the heartbeats of the group tell why.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from pessoa.base.clock import Clock
from pessoa.coordinator.groups.group_shard import GroupShard
from pessoa.coordinator.groups.streams.streams_answers import failed_response
from pessoa.coordinator.groups.streams.streams_descriptions import streams_group_error
from pessoa.coordinator.groups.streams.streams_heartbeat import CreateInternalTopics
from pessoa.coordinator.groups.streams.topology_configuration import InternalTopic
from pessoa.coordinator.runtime import CoordinatorRuntime
from pessoa.coordinator.shard_answers import all_of, ask
from pessoa.wire.api.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from pessoa.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.request_context import Answer, Caller

logger = logging.getLogger(__name__)

# Creates topics in the name of a client; returns why it could not, by the name of the topic.
CreateTopics: TypeAlias = Callable[[Sequence[InternalTopic], Caller], Awaitable[Mapping[str, str]]]
# How long a refusal is remembered, and how many are told in one heartbeat: as Apache has it.
_REMEMBERED_HEARTBEATS = 2
_MOST_TOLD = 3


class _Refused(NamedTuple):
    reason: str
    until_ms: int


class StreamsGroupService:
    """The APIs of streams groups. `is_on`: this cluster has streams groups. `heartbeat_interval_ms` is the broker's."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        clock: Clock,
        is_on: Callable[[], bool],
        heartbeat_interval_ms: Callable[[], int],
        create: CreateTopics,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._is_on = is_on
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._create = create
        self._tasks: set[asyncio.Task[None]] = set()
        self._under_way: set[str] = set()
        self._refused_topics: dict[str, _Refused] = {}

    def __repr__(self) -> str:
        return f"<StreamsGroupService: {len(self._under_way)} topics are being created>"

    @property
    def is_on(self) -> bool:
        return self._is_on()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, context: Caller
    ) -> Answer[StreamsGroupHeartbeatResponse]:
        if not self.is_on:
            return failed_response(ErrorCode.UNSUPPORTED_VERSION, None)
        return ask(
            self._runtime,
            self._runtime.partition_for(request.group_id),
            GroupShard.streams_heartbeat,
            request,
            context,
            StreamsGroupHeartbeatResponse,
            failed_response,
        )

    def describe(self, group_ids: Sequence[str], context: Caller) -> Answer[StreamsGroupDescribeResponse]:
        """Return the descriptions of the groups in the order of the request."""

        def failed(group_id: str, code: ErrorCode, message: str | None = None) -> StreamsGroupDescribeResponse:
            return StreamsGroupDescribeResponse(
                throttle_time_ms=0, groups=[streams_group_error(group_id, code, message)]
            )

        def answer(group_id: str) -> Answer[StreamsGroupDescribeResponse]:
            if not self.is_on:
                return failed(group_id, ErrorCode.UNSUPPORTED_VERSION)
            if not group_id:
                return failed(group_id, ErrorCode.INVALID_GROUP_ID)
            return ask(
                self._runtime,
                self._runtime.partition_for(group_id),
                GroupShard.describe_streams,
                StreamsGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False),
                context,
                StreamsGroupDescribeResponse,
                lambda code, message: failed(group_id, code, message),
            )

        return all_of(
            [answer(group_id) for group_id in group_ids],
            lambda responses: StreamsGroupDescribeResponse(
                throttle_time_ms=0, groups=[group for one in responses for group in one.groups]
            ),
        )

    # ── internal topics ──

    def create_topics(self, asked: CreateInternalTopics) -> list[str]:
        """Begin to create the internal topics that are missing and were not refused lately; return the error messages
        of earlier attempts."""
        now_ms = self._clock.now_ms()
        self._refused_topics = {name: one for name, one in self._refused_topics.items() if one.until_ms > now_ms}
        wanted = [
            topic
            for topic in asked.topics
            if topic.name not in self._under_way and topic.name not in self._refused_topics
        ]
        if wanted:
            task = asyncio.get_running_loop().create_task(self._create_topics(wanted, asked.caller))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        told = [
            f"{one.name}: {self._refused_topics[one.name].reason}"
            for one in asked.topics
            if one.name in self._refused_topics
        ]
        return told[:_MOST_TOLD]

    async def _create_topics(self, topics: Sequence[InternalTopic], caller: Caller) -> None:
        names = {topic.name for topic in topics}
        self._under_way |= names
        try:
            refusals = await self._create(topics, caller)
        except Refusal as refusal:
            refusals = dict.fromkeys(names, refusal.message or refusal.code.text)
        finally:
            self._under_way -= names
        until_ms = self._clock.now_ms() + _REMEMBERED_HEARTBEATS * self._heartbeat_interval_ms()
        for name, reason in refusals.items():
            logger.warning("internal topic %s of a streams group could not be created: %s", name, reason)
            self._refused_topics[name] = _Refused(reason, until_ms)
