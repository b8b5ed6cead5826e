"""Members of a consumer group of the newer protocol (KIP-848), whose partitions the coordinator assigns.

    heartbeat ─▶ epoch and assignment ─▶ revoke the rest, fetch the offsets of new partitions ─▶ read, commit …
        ▲                                                                                              │
        └─────────────────────── at an interval, and at once when a partition was revoked ◀────────────┘

The invariants are those of a classic group, with epochs for generations: a partition has one owner in an epoch, the
next owner begins at the committed offset, and no member commits for a partition that another member owns by then.

A member whose commit got no response leaves, and joins with another member id: the request may still be on its way, and
Kafka cannot tell it from a later one of the same member and epoch.
"""

from __future__ import annotations

import asyncio

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.net.channel import ChannelFailed
from pessoa.wire.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import GROUP, TRANSIENT
from tests.simulation.groups import GroupMember, Rejoin
from tests.simulation.history import TopicPartition

_REBALANCE_MS = 4_000
_HEARTBEAT_S = 0.5
_JOIN_EPOCH, _LEAVE_EPOCH = 0, -1


class ConsumerMember(GroupMember):
    """A member of the newer protocol; its `_generation` is the member epoch."""

    group_id = "consumers"
    forgotten = frozenset(
        (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.STALE_MEMBER_EPOCH,
            ErrorCode.GROUP_ID_NOT_FOUND,
        )
    )
    _topic_id: Uuid = ZERO_UUID
    _lives = 0

    async def run(self) -> None:
        while not self.is_stopping:
            self._lives += 1
            member_id = f"{self.name}/{self._lives}"
            self._member_id, self._generation = member_id, _JOIN_EPOCH
            self._positions: dict[TopicPartition, int] = {}
            try:
                await self._live()
            except (Rejoin, ChannelFailed):
                self.forget_coordinator(GROUP, self.group_id)
            self._member_id = member_id
            await self._leave()

    async def _live(self) -> None:
        next_heartbeat_s = self.loop.now_s
        while not self.is_stopping:
            if self.loop.now_s >= next_heartbeat_s:
                has_given_up = await self._follow_assignment()
                next_heartbeat_s = self.loop.now_s + (0.0 if has_given_up else _HEARTBEAT_S)
                continue
            for partition in self._positions:
                self._positions[partition] = await self._read_once(partition, self._positions[partition])
            if self._positions and self.rng.random() < 0.5:
                await self._commit(self._positions)
            if not self._positions:
                await asyncio.sleep(next_heartbeat_s - self.loop.now_s)

    # The group.

    async def _follow_assignment(self) -> bool:
        """Follow the last assignment; return whether partitions were revoked, which the coordinator waits to be
        told."""
        response = await self._beat()
        self._generation = response.member_epoch
        if response.assignment is None:
            return False
        assigned = []
        for topic in response.assignment.topic_partitions:
            self._topic_id = topic.topic_id
            assigned += [TopicPartition(self.topic, index) for index in topic.partitions]
        self.trace("epoch %s: owns %s", self._generation, [str(one) for one in assigned])
        self.history.own(self.group_id, self._generation, assigned, self.name)
        lost = {one: offset for one, offset in self._positions.items() if one not in assigned}
        if lost and self.rng.random() < 0.7:
            await self._commit(lost)
        for partition in lost:
            del self._positions[partition]
        new = [one for one in assigned if one not in self._positions]
        if new:
            self.fetching_member = (self._member_id, self._generation)
            self._positions.update(await self._committed_offsets(new))
        return bool(lost)

    async def _beat(self) -> ConsumerGroupHeartbeatResponse:
        """Send a heartbeat until it is answered, and return the response; the coordinator accepts the previous member
        epoch in a repeated heartbeat."""
        owned = sorted(partition.number for partition in self._positions)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self._member_id,
            member_epoch=self._generation,
            rebalance_timeout_ms=_REBALANCE_MS,
            subscribed_topic_names=[self.topic],
            topic_partitions=[TopicPartitions(topic_id=self._topic_id, partitions=owned)] if owned else [],
        )
        while True:
            try:
                response = await self._ask(request, ConsumerGroupHeartbeatResponse, 1)
            except ChannelFailed:
                if self.is_stopping:
                    raise
            else:
                error = ErrorCode.of(response.error_code)
                if error not in TRANSIENT or self.is_stopping:
                    self._check(error, "its heartbeat")
                    return response
                self.trace("its heartbeat: %s", error.name)
            self.forget_coordinator(GROUP, self.group_id)
            await self.back_off()

    async def _leave(self) -> None:
        """Leave the group, and repeat that until the coordinator answers; a member that stops for good sends it
        once."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self._member_id, member_epoch=_LEAVE_EPOCH
        )
        while True:
            try:
                response = await self._ask(request, ConsumerGroupHeartbeatResponse, 1)
                if ErrorCode.of(response.error_code) not in TRANSIENT or self.is_stopping:
                    return
            except ChannelFailed:
                if self.is_stopping:
                    return
            self.forget_coordinator(GROUP, self.group_id)
            await self.back_off()
