"""Members of a share group (KIP-932): several may read one partition, and each record is acknowledged by itself.

    heartbeat ─▶ which partitions ─▶ a share session with each of their leaders ─▶ fetch, acknowledge, fetch …

A member accepts, releases, rejects or renews the records that it acquires, or ignores them until the acquisition lock
expires. A member lives a few seconds, and ends by leaving the group, by closing its connections, or by sending nothing
while they stay open. It then joins with another member id and without any state.

A member sends one request at a time to a broker, as Kafka's clients do. Sometimes it repeats a session epoch, which
must be refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from pessoa.base.ids import ZERO_UUID, Uuid
from pessoa.net.channel import ChannelFailed
from pessoa.records.batch import batches
from pessoa.records.record import records
from pessoa.share.acknowledgement import AcknowledgeType
from pessoa.wire.api import share_acknowledge, share_fetch
from pessoa.wire.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import GROUP, TRANSIENT, Client
from tests.simulation.history import TopicPartition, Violation
from tests.simulation.readers import identity

if TYPE_CHECKING:
    from pessoa.net.channel import Channel
    from tests.simulation.share_ledger import ShareLedger

SHARE_GROUP = "shares"
_HEARTBEAT_S = 0.4
_VERSION = 2
_WAIT_MS = 300
_JOIN_EPOCH, _LEAVE_EPOCH = 0, -1
_LAST_EPOCH = -1
_END_OF_LIFE = 0.03

Address = tuple[str, int]
Types = dict[int, AcknowledgeType]

_SESSION_ERRORS = frozenset(
    (
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    )
)
_FORGOTTEN = frozenset(
    (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND),
)
# Allowed errors of an acknowledgement: the lock has expired, the leader has changed, the state cannot be stored.
_ACKNOWLEDGE_ERRORS = TRANSIENT | {
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
_FETCH_ERRORS = TRANSIENT | {ErrorCode.UNKNOWN_SERVER_ERROR}
# The acknowledgement of a record, and its share in percent; None: no acknowledgement.
_WEIGHTED: tuple[Sequence[AcknowledgeType | None], Sequence[int]] = (
    (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW, None),
    (60, 15, 5, 8, 12),
)


class Rejoin(Exception):
    """The coordinator does not know this member any more."""


class _Session:
    """The share session with one broker."""

    def __init__(self) -> None:
        self.epoch = 0
        self.partitions: set[TopicPartition] = set()
        # What the next request acknowledges.
        self.types: dict[TopicPartition, Types] = {}


class ShareMember(Client):
    topic = ""
    ledger: ShareLedger
    is_committed = False
    # The member that reads on at the end accepts everything, and lives until it is stopped.
    is_last = False
    _topic_id: Uuid = ZERO_UUID
    _lives = 0

    async def run(self) -> None:
        self._silent: list[Channel] = []
        while not self.is_stopping:
            self._lives += 1
            self._member_id, self._member_epoch = f"{self.name}/{self._lives}", _JOIN_EPOCH
            self._assigned: set[TopicPartition] = set()
            self._sessions: dict[Address, _Session] = {}
            # Brokers that have not answered a request that opens a session: it may arrive late, and replace the
            # session.
            self._late_openings: set[Address] = set()
            try:
                await self.refresh([self.topic])
                await self._live()
            except Rejoin:
                await self.back_off()
            await self._die()
        for channel in self._silent:
            channel.close()

    async def _live(self) -> None:
        next_heartbeat_s = self.loop.now_s
        while not self.is_stopping:
            if self.loop.now_s >= next_heartbeat_s:
                try:
                    await self._beat()
                except ChannelFailed:
                    # It keeps its partitions, since share-partition leaders do not check membership.
                    self.forget_coordinator(GROUP, SHARE_GROUP)
                next_heartbeat_s = self.loop.now_s + _HEARTBEAT_S
            leaders = self._leaders_of_assigned()
            if not leaders:
                await asyncio.sleep(max(0.0, next_heartbeat_s - self.loop.now_s))
                continue
            address = self._next_leader(leaders)
            try:
                await self._talk(address, leaders[address])
            except ChannelFailed:
                # The acknowledgements may have arrived or not.
                self._sessions.pop(address, None)
                await self.refresh([self.topic])
            if not self.is_last and self.rng.random() < _END_OF_LIFE:
                return
            await self.rest(0.1)

    async def _die(self) -> None:
        way = self.rng.choice(("in order", "disconnected", "silent"))
        self.trace("%s ends %s", self._member_id, way)
        if way == "in order" or self.is_last:
            await self._leave()
        elif way == "disconnected":
            self.close()
            self._channels.clear()
        else:
            self._silent += self._channels.values()
            self._channels.clear()

    async def _leave(self) -> None:
        """Close all sessions with their last acknowledgements, and leave the group; each request is tried once."""
        try:
            for address, session in sorted(self._sessions.items()):
                if session.epoch:
                    session.epoch = _LAST_EPOCH
                    await self._acknowledge(address, session)
            request = ShareGroupHeartbeatRequest(
                group_id=SHARE_GROUP, member_id=self._member_id, member_epoch=_LEAVE_EPOCH
            )
            await self.ask_coordinator(GROUP, SHARE_GROUP, request, ShareGroupHeartbeatResponse, 1)
        except ChannelFailed:
            self.trace("%s leaves without a word", self._member_id)

    # The group.

    async def _beat(self) -> None:
        request = ShareGroupHeartbeatRequest(
            group_id=SHARE_GROUP,
            member_id=self._member_id,
            member_epoch=self._member_epoch,
            subscribed_topic_names=[self.topic] if self._member_epoch == _JOIN_EPOCH else None,
        )
        response = await self.ask_coordinator(GROUP, SHARE_GROUP, request, ShareGroupHeartbeatResponse, 1)
        error = ErrorCode.of(response.error_code)
        if error in TRANSIENT:
            raise ChannelFailed(f"its heartbeat: {error.name}")
        if error in _FORGOTTEN:
            self.trace("its heartbeat: %s", error.name)
            raise Rejoin
        if error.is_error:
            raise Violation(f"{self.name} meets {error.name} at its heartbeat: {response.error_message}")
        self._member_epoch = response.member_epoch
        if response.assignment is not None:
            self._assigned = set()
            for topic in response.assignment.topic_partitions:
                self._topic_id = topic.topic_id
                self._assigned |= {TopicPartition(self.topic, index) for index in topic.partitions}
            self.trace("epoch %s: shares %s", self._member_epoch, sorted(map(str, self._assigned)))

    def _leaders_of_assigned(self) -> dict[Address, set[TopicPartition]]:
        by_leader: dict[Address, set[TopicPartition]] = {}
        for partition in self._assigned:
            leader = self._leaders.get(partition)
            # Without a known leader it fetches from any broker, whose error makes it refresh the metadata.
            address = self._brokers.get(leader[0]) if leader is not None else None
            by_leader.setdefault(address or (self._bootstrap[0], 9092), set()).add(partition)
        return by_leader

    def _next_leader(self, leaders: Mapping[Address, set[TopicPartition]]) -> Address:
        """Return any of the leaders. The member at the end prefers those to which it has to send acknowledgements: it
        has one request in flight in all, where Kafka's clients have one for each, so that locks could expire meanwhile.
        """
        awaiting = [one for one, session in self._sessions.items() if one in leaders and session.types]
        return self.rng.choice(sorted(awaiting if awaiting and self.is_last else leaders))

    # Share sessions.

    async def _talk(self, address: Address, partitions: set[TopicPartition]) -> None:
        session = self._sessions.setdefault(address, _Session())
        if session.epoch > 1 and self.rng.random() < 0.05 and address not in self._late_openings:
            await self._repeat_epoch(address, session.epoch - 1)
        if session.epoch and session.types and self.rng.random() < 0.4:
            await self._acknowledge(address, session)
        else:
            await self._fetch(address, session, partitions)

    async def _repeat_epoch(self, address: Address, epoch: int) -> None:
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=SHARE_GROUP, member_id=self._member_id, share_session_epoch=epoch, topics=[]
        )
        response = await self.ask(address, request, share_acknowledge.ShareAcknowledgeResponse, _VERSION)
        if ErrorCode.of(response.error_code) not in _SESSION_ERRORS:
            raise Violation(f"{self._member_id} could use the epoch {epoch} of its share session twice")

    async def _acknowledge(self, address: Address, session: _Session) -> None:
        asked = self._take_types(session, lambda kind: kind is not AcknowledgeType.RENEW)
        is_renewal = False
        if not asked and session.epoch != _LAST_EPOCH:
            asked, is_renewal = self._take_types(session, lambda kind: kind is AcknowledgeType.RENEW), True
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id=SHARE_GROUP,
            member_id=self._member_id,
            share_session_epoch=self._use_epoch(session),
            is_renew_ack=is_renewal,
            topics=[
                share_acknowledge.AcknowledgeTopic(
                    topic_id=self._topic_id,
                    partitions=[
                        share_acknowledge.AcknowledgePartition(
                            partition_index=partition.number,
                            acknowledgement_batches=[
                                share_acknowledge.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in self._ranges(some)
                            ],
                        )
                        for partition, some in sorted(asked.items())
                    ],
                )
            ]
            if asked
            else [],
        )
        response = await self.ask(address, request, share_acknowledge.ShareAcknowledgeResponse, _VERSION)
        if self._is_session_over(address, ErrorCode.of(response.error_code), response.error_message):
            return
        outcomes = [
            (TopicPartition(self.topic, one.partition_index), ErrorCode.of(one.error_code))
            for topic in response.responses
            for one in topic.partitions
        ]
        self._take_outcomes(session, asked, outcomes)

    async def _fetch(self, address: Address, session: _Session, partitions: set[TopicPartition]) -> None:
        is_new = session.epoch == 0
        asked = {} if is_new else self._take_types(session, lambda kind: kind is not AcknowledgeType.RENEW)
        forgotten = sorted(session.partitions - partitions)
        named = sorted((partitions - session.partitions) | asked.keys())
        session.partitions = set(partitions)
        request = share_fetch.ShareFetchRequest(
            group_id=SHARE_GROUP,
            member_id=self._member_id,
            share_session_epoch=self._use_epoch(session),
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=self.rng.choice((200, 1 << 16)),
            max_records=self.rng.choice((1, 3, 500)),
            batch_size=self.rng.choice((1, 500)),
            share_acquire_mode=self.rng.choice((0, 1)),
            topics=[
                share_fetch.FetchTopic(
                    topic_id=self._topic_id,
                    partitions=[
                        share_fetch.FetchPartition(
                            partition_index=partition.number,
                            acknowledgement_batches=[
                                share_fetch.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in self._ranges(asked.get(partition, {}))
                            ],
                        )
                        for partition in named
                    ],
                )
            ]
            if named
            else [],
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=self._topic_id, partitions=[one.number for one in forgotten])
            ]
            if forgotten
            else [],
        )
        was_late = address in self._late_openings
        if is_new:
            self._late_openings.add(address)
        response = await self.ask(address, request, share_fetch.ShareFetchResponse, _VERSION)
        if not was_late:
            self._late_openings.discard(address)
        if self._is_session_over(address, ErrorCode.of(response.error_code), response.error_message):
            return
        if response.acquisition_lock_timeout_ms <= 0:
            raise Violation(f"{self.name} is told that locks last {response.acquisition_lock_timeout_ms} ms")
        found = [
            (TopicPartition(self.topic, one.partition_index), one)
            for topic in response.responses
            for one in topic.partitions
        ]
        self._take_outcomes(
            session,
            asked,
            [(partition, ErrorCode.of(one.acknowledge_error_code)) for partition, one in found if partition in asked],
        )
        # The records are in the connection's buffer, which the next response overwrites: taking the records of one
        # partition may fetch metadata.
        for _, one in found:
            one.records = memoryview(bytes(one.records))
        for partition, one in found:
            await self._take_records(session, partition, one)

    def _use_epoch(self, session: _Session) -> int:
        """Return the session epoch of the next request, which counts as used whether the request arrives or not."""
        epoch = session.epoch
        if epoch != _LAST_EPOCH:
            session.epoch += 1
        return epoch

    def _is_session_over(self, address: Address, error: ErrorCode, message: str | None) -> bool:
        if not error.is_error:
            return False
        self.trace("the session with %s: %s", address[0], error.name)
        if error not in _SESSION_ERRORS:
            raise Violation(f"{self.name} meets {error.name} in its share session: {message}")
        self._sessions.pop(address, None)
        return True

    # Acknowledgements.

    def _take_types(self, session: _Session, is_meant: object) -> dict[TopicPartition, Types]:
        """Return the acknowledgements to send now, and note them in the ledger, since the request may arrive."""
        assert callable(is_meant)
        taken = {}
        for partition, types in session.types.items():
            some = {offset: kind for offset, kind in types.items() if is_meant(kind)}
            if some:
                taken[partition] = some
                self.ledger.ask(partition, some)
        session.types = {
            partition: left
            for partition, types in session.types.items()
            if (left := {offset: kind for offset, kind in types.items() if not is_meant(kind)})
        }
        return taken

    def _ranges(self, types: Types) -> list[tuple[int, int, list[int]]]:
        """Return acknowledgement batches of consecutive offsets, with a type for each offset or one for all."""
        ranges = []
        for _, run in groupby(enumerate(sorted(types)), lambda pair: pair[1] - pair[0]):
            offsets = [offset for _, offset in run]
            kinds = [int(types[offset]) for offset in offsets]
            is_one = len(set(kinds)) == 1 and self.rng.random() < 0.5
            ranges.append((offsets[0], offsets[-1], kinds[:1] if is_one else kinds))
        return ranges

    def _take_outcomes(
        self,
        session: _Session,
        asked: Mapping[TopicPartition, Types],
        outcomes: Sequence[tuple[TopicPartition, ErrorCode]],
    ) -> None:
        if sorted(partition for partition, _ in outcomes) != sorted(asked):
            raise Violation(f"{self.name} acknowledges records of {sorted(asked)}, and is answered {outcomes}")
        for partition, error in outcomes:
            types = asked[partition]
            if error.is_error:
                self.trace("acknowledging %s of %s: %s", types, partition, error.name)
                if error not in _ACKNOWLEDGE_ERRORS:
                    raise Violation(f"{self.name} meets {error.name} as it acknowledges {types} of {partition}")
                continue
            self.ledger.answer(self._member_id, partition, types)
            for offset, kind in types.items():
                if kind is AcknowledgeType.RENEW:
                    session.types.setdefault(partition, {})[offset] = AcknowledgeType.ACCEPT

    # Records.

    async def _take_records(
        self, session: _Session, partition: TopicPartition, data: share_fetch.PartitionData
    ) -> None:
        error = ErrorCode.of(data.error_code)
        if error.is_error:
            self.trace("share fetch of %s: %s", partition, error.name)
            if error not in _FETCH_ERRORS:
                raise Violation(f"{self.name} meets {error.name} as it shares {partition}")
            await self.refresh([self.topic])
            return
        sent: dict[int, bytes | None] = {}
        for batch in batches(bytes(data.records)):
            if not batch.is_valid():
                raise Violation(f"a batch at {batch.base_offset} was served with a wrong checksum")
            # Offsets without a record were removed by compaction, or have a marker.
            sent |= dict.fromkeys(range(batch.base_offset, batch.last_offset + 1))
            if not batch.is_control:
                sent |= {one.offset: identity(one) for one in records(batch)}
        last_offset = -1
        for acquired in data.acquired_records:
            if acquired.first_offset <= last_offset or acquired.last_offset < acquired.first_offset:
                raise Violation(f"{self.name} gets {data.acquired_records} of {partition}, not in order")
            last_offset = acquired.last_offset
            for offset in range(acquired.first_offset, acquired.last_offset + 1):
                if offset not in sent:
                    raise Violation(f"{self.name} has acquired {partition}@{offset}, and was not sent it")
                self._take_record(session, partition, offset, sent[offset], acquired.delivery_count)

    def _take_record(
        self, session: _Session, partition: TopicPartition, offset: int, value: bytes | None, count: int
    ) -> None:
        self.ledger.deliver(self._member_id, partition, offset, count)
        self.trace("gets %s@%s for the %s. time", partition, offset, count)
        kind: AcknowledgeType | None = AcknowledgeType.GAP
        if value is not None:
            self.history.see(self.name, partition, offset, value, is_committed=self.is_committed)
            kind = self._choose()
        if kind is not None:
            session.types.setdefault(partition, {})[offset] = kind

    def _choose(self) -> AcknowledgeType | None:
        if self.is_last:
            return AcknowledgeType.ACCEPT
        return self.rng.choices(*_WEIGHTED)[0]

    # At the end.

    async def lags(self) -> dict[TopicPartition, int]:
        """Return the lag of the group as the coordinator reports it; empty if it does not."""
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=SHARE_GROUP, topics=None)]
        )
        try:
            response = await self.ask_coordinator(GROUP, SHARE_GROUP, request, DescribeShareGroupOffsetsResponse, 1)
        except ChannelFailed:
            response = None
        if response is None or response.groups[0].error_code:
            self.forget_coordinator(GROUP, SHARE_GROUP)
            return {}
        return {
            TopicPartition(topic.topic_name, one.partition_index): one.lag
            for topic in response.groups[0].topics
            for one in topic.partitions
        }
