"""The client of the share coordinators: of the leaders of partitions, and of group coordinators.

A share partition's state is kept by the leader of its partition of `__share_group_state`. A request for many share
partitions is cut by these leaders, and the responses are put together again. If this broker is the leader, its own
coordinator is asked.

Where a coordinator cannot be reached, loads, or has moved, it is asked again for `_PATIENCE_MS`; meanwhile the metadata
may say who leads. Every request can be repeated: what has arrived twice changes nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from pessoa.broker.topic_requests import create_missing_topics
from pessoa.coordinator.partitioning import partition_for
from pessoa.coordinator.share.state_messages import (
    R,
    StateApi,
    joined_request,
    split,
)
from pessoa.net.channel import ChannelFailed
from pessoa.wire.errors import ErrorCode
from pessoa.wire.internal_topics import SHARE_TOPIC
from pessoa.wire.request_context import OwnRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pessoa.broker.peers import Peers
    from pessoa.broker.services import BrokerServices
    from pessoa.coordinator.share.share_state import ShareKey
    from pessoa.wire.schema import Message

_CHANNEL = "share-persister"
_PATIENCE_MS = 20_000
_FIRST_BACKOFF_MS = 20
_LAST_BACKOFF_MS = 1_000
_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class StatePersister:
    def __init__(self, broker: BrokerServices, peers: Peers) -> None:
        self._broker = broker
        self._peers = peers

    def __repr__(self) -> str:
        return f"<StatePersister of broker {self._broker.node_id}>"

    async def ask(self, api: StateApi[R], request: R) -> Message:
        """Return the response to a request of one of the five state APIs. A part that no coordinator answered has an
        error."""
        parts = dict(split(request))
        answers: dict[ShareKey, Message] = {}
        clock = self._broker.clock
        deadline_ms = clock.monotonic_ms() + _PATIENCE_MS
        backoff_ms = _FIRST_BACKOFF_MS
        left = list(parts)
        while True:
            answers.update(await self._ask_leaders(api, {key: parts[key] for key in left}))
            left = [key for key in left if api.error_of(answers[key]) in _RETRIED]
            if not left or clock.monotonic_ms() + backoff_ms > deadline_ms:
                return api.join(list(answers.values()))
            await clock.wait_ms(backoff_ms)
            backoff_ms = min(2 * backoff_ms, _LAST_BACKOFF_MS)

    async def _ask_leaders(self, api: StateApi[R], parts: dict[ShareKey, R]) -> dict[ShareKey, Message]:
        by_leader: dict[int, list[ShareKey]] = {}
        for key in parts:
            by_leader.setdefault(await self._leader_of(key), []).append(key)
        answers = await asyncio.gather(
            *(self._ask_leader(leader, api, [parts[key] for key in keys]) for leader, keys in by_leader.items())
        )
        found: dict[ShareKey, Message] = {}
        for keys, answer in zip(by_leader.values(), answers, strict=True):
            if answer is None:
                found.update((key, api.error(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)) for key in keys)
            else:
                found.update(api.split_response(keys, answer))
        return found

    async def _leader_of(self, key: ShareKey) -> int:
        """Return the broker that leads the key's partition of `__share_group_state`; -1 while there is none."""
        by_name = self._broker.image.topics.by_name
        if SHARE_TOPIC not in by_name:
            await create_missing_topics(self._broker, [SHARE_TOPIC], client=None)
            by_name = self._broker.image.topics.by_name
        topic = by_name.get(SHARE_TOPIC)
        return -1 if topic is None else topic.partitions[partition_for(str(key), len(topic.partitions))].leader

    async def _ask_leader(self, leader: int, api: StateApi[R], parts: Sequence[R]) -> Message | None:
        """Return the leader's response; None if it cannot be reached."""
        broker = self._broker
        request = joined_request(parts)
        version = request.versions.last
        if leader == broker.node_id:
            answer = api.serve(broker.coordinators.shares, request, OwnRequest(version))
            return await answer if isinstance(answer, Awaitable) else answer
        channel = self._peers.channel_to(leader, _CHANNEL) if leader >= 0 else None
        if channel is None:
            return None
        try:
            return await channel.send(request, version, broker.config.request_timeout_ms)
        except ChannelFailed:
            return None
