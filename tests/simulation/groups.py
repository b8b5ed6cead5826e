"""Members of a classic consumer group: join, assign the partitions, read, commit, and join again.

What must hold: within a generation a partition has one owner; the next owner begins at the committed offset, never
before it; and no member commits for a partition that another member owns in a later generation.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pessoa.net.channel import ChannelFailed
from pessoa.wire.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from pessoa.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from pessoa.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from pessoa.wire.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import GROUP, TRANSIENT
from tests.simulation.history import TopicPartition, Violation
from tests.simulation.readers import READ_COMMITTED, Reader

if TYPE_CHECKING:
    from pessoa.wire.schema import Message
    from tests.simulation.client import M

_SESSION_MS = 3_000
_REBALANCE_MS = 4_000
_JOIN_TIMEOUT_MS = 2 * _REBALANCE_MS
HEARTBEAT_S = 0.7
# Errors after which the member has to join again, with or without its member id.
_REJOIN = frozenset((ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION))
_FORGOTTEN = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID))


class Rejoin(Exception):
    """The member does not belong to the present generation any more."""


class GroupMember(Reader):
    group_id = "g"
    # The member id and epoch of OffsetFetch, which the coordinator checks for the newer protocol only.
    fetching_member: tuple[str | None, int] = (None, -1)
    forgotten = _FORGOTTEN
    topic = ""
    partition_count = 0
    isolation = READ_COMMITTED
    _member_id = ""
    _generation = -1

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                owned = await self._join()
                await self._consume(owned)
            except (Rejoin, ChannelFailed):
                self.forget_coordinator(GROUP, self.group_id)
                await self.back_off()
        await self._leave()

    # The group.

    async def _ask(self, request: Message, kind: type[M], version: int, timeout_ms: int = 1_500) -> M:
        return await self.ask_coordinator(GROUP, self.group_id, request, kind, version, timeout_ms)

    def _check(self, error: ErrorCode, what: str) -> None:
        """Return if there is no error; raise `Rejoin` for an error after which the member can join again."""
        if error is ErrorCode.NONE:
            return
        self.trace("%s: %s", what, error.name)
        if error in self.forgotten:
            self._member_id = ""
        if error in self.forgotten or error in _REJOIN or error in TRANSIENT:
            raise Rejoin
        raise Violation(f"{self.name} meets {error.name} at {what}")

    async def _join(self) -> list[TopicPartition]:
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="split", metadata=b"")],
        )
        joined = await self._ask(request, JoinGroupResponse, 7, _JOIN_TIMEOUT_MS)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = request.member_id = joined.member_id
            joined = await self._ask(request, JoinGroupResponse, 7, _JOIN_TIMEOUT_MS)
        self._check(ErrorCode.of(joined.error_code), "joining")
        self._member_id, self._generation = joined.member_id, joined.generation_id
        assignments = []
        if joined.leader == joined.member_id:
            members = sorted(member.member_id for member in joined.members)
            for place, member in enumerate(members):
                mine = bytes(index for index in range(self.partition_count) if index % len(members) == place)
                assignments.append(SyncGroupRequestAssignment(member_id=member, assignment=mine))
        synced = await self._ask(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                protocol_type="consumer",
                protocol_name="split",
                assignments=assignments,
            ),
            SyncGroupResponse,
            5,
            _JOIN_TIMEOUT_MS,
        )
        self._check(ErrorCode.of(synced.error_code), "being assigned")
        owned = [TopicPartition(self.topic, index) for index in synced.assignment]
        self.trace("generation %s: owns %s", self._generation, [str(one) for one in owned])
        self.history.own(self.group_id, self._generation, owned, self.name)
        return owned

    async def _consume(self, owned: list[TopicPartition]) -> None:
        positions = await self._committed_offsets(owned)
        next_heartbeat_s = self.loop.now_s
        while not self.is_stopping:
            if self.loop.now_s >= next_heartbeat_s:
                await self._heartbeat()
                next_heartbeat_s = self.loop.now_s + HEARTBEAT_S
            for partition in owned:
                positions[partition] = await self._read_once(partition, positions[partition])
            if owned and self.rng.random() < 0.5:
                await self._commit(positions)
            if not owned:
                await asyncio.sleep(HEARTBEAT_S)

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(group_id=self.group_id, generation_id=self._generation, member_id=self._member_id)
        response = await self._ask(request, HeartbeatResponse, 4)
        self._check(ErrorCode.of(response.error_code), "its heartbeat")

    async def _leave(self) -> None:
        try:
            await self._ask(
                LeaveGroupRequest(group_id=self.group_id, members=[MemberIdentity(member_id=self._member_id)]),
                LeaveGroupResponse,
                5,
            )
        except ChannelFailed:
            self.trace("leaves without a word")

    # Offsets.

    async def _committed_offsets(self, owned: list[TopicPartition]) -> dict[TopicPartition, int]:
        floors = {one: self.history.committed_floor(self.group_id, one) for one in owned}
        member_id, member_epoch = self.fetching_member
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self.group_id,
                    member_id=member_id,
                    member_epoch=member_epoch,
                    topics=[OffsetFetchRequestTopics(name=self.topic, partition_indexes=[one.number for one in owned])],
                )
            ],
            require_stable=True,
        )
        response = await self._ask(request, OffsetFetchResponse, 9)
        group = response.groups[0]
        self._check(ErrorCode.of(group.error_code), "fetching offsets")
        positions = {}
        for topic in group.topics:
            for one in topic.partitions:
                self._check(ErrorCode.of(one.error_code), "fetching an offset")
                partition = TopicPartition(self.topic, one.partition_index)
                offset = max(one.committed_offset, 0)
                if offset < floors[partition]:
                    raise Violation(
                        f"the committed offset of {partition} went back: {floors[partition]} was acknowledged, "
                        f"and {self.name} gets {one.committed_offset}"
                    )
                positions[partition] = offset
                self.know_epoch(partition, one.committed_leader_epoch)
        return positions

    async def _commit(self, positions: dict[TopicPartition, int]) -> None:
        owners = {partition: self.history.newest_owner(self.group_id, partition) for partition in positions}
        response = await self._ask(
            OffsetCommitRequest(
                group_id=self.group_id,
                generation_id_or_member_epoch=self._generation,
                member_id=self._member_id,
                topics=[
                    OffsetCommitRequestTopic(
                        name=self.topic,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition.number,
                                committed_offset=offset,
                                committed_leader_epoch=self.read_epochs.get(partition, -1),
                                committed_metadata=None,
                            )
                            for partition, offset in positions.items()
                        ],
                    )
                ],
            ),
            OffsetCommitResponse,
            9,
        )
        for topic in response.topics:
            for one in topic.partitions:
                self._check(ErrorCode.of(one.error_code), "committing")
                partition = TopicPartition(self.topic, one.partition_index)
                self.history.check_owner(self.group_id, self._generation, partition, self.name, owners[partition])
                self.history.commit_offset(self.group_id, partition, positions[partition])
