"""A copier: reads committed records, writes them elsewhere, and commits how far it has read, in one transaction.

    OffsetFetch ─▶ fetch ─▶ produce the copies ─▶ TxnOffsetCommit ─▶ EndTxn ─▶ fetch …
         ▲                                                            │ an unknown outcome
         └──────── a new producer epoch, which fences the rest ◀──────┘

What must hold in the end is exactly-once: every committed record of the source, up to the offset that the group has
committed, has one visible copy, and no other record has any. There are two ways to prevent two copies of a record:

- they share a transactional id, and each copier that starts fences the others, which happens all the time here;
- they are members of the group, each with a transactional id of its own, and their commits name the generation
  (`MemberCopier`, KIP-447). A copier that lost a partition cannot commit for it, and its new owner fetches offsets only
  when no transaction can change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pessoa.net.channel import ChannelFailed
from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pessoa.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from pessoa.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import GROUP, TRANSACTION, TRANSIENT
from tests.simulation.groups import HEARTBEAT_S, GroupMember, Rejoin
from tests.simulation.history import Outcome, TopicPartition, Violation
from tests.simulation.producers import Doubt, TransactionalProducer
from tests.simulation.readers import READ_COMMITTED, Reader, Seen, visible_records

if TYPE_CHECKING:
    from tests.simulation.history import Transaction, Write

GROUP_ID = "copiers"
_MOST_AT_ONCE = 4
# The last TxnOffsetCommit version whose clients send AddOffsetsToTxn, and the first that adds the group itself.
_COMMIT_V1, _COMMIT_V2 = 4, 5
_ADD_VERSION = 3


class Copier(TransactionalProducer, Reader):
    """Copies the records of `partitions` to the partitions of `target` with the same numbers."""

    isolation = READ_COMMITTED
    target = ""
    pause_s = 0.4
    # Member id and generation of a client that is no member.
    _member_id = ""
    _generation = -1

    async def run(self) -> None:
        while not self.is_stopping:
            await self.wait_for_producer_id(self.timeout_ms)
            self._sequences = {}
            try:
                self._positions = await self.committed_offsets()
                while not self.is_stopping:
                    await self._copy(self.rng.choice(self.partitions))
                    await self.rest(self.pause_s)
            except Doubt:
                continue

    async def committed_offsets(self) -> dict[TopicPartition, int]:
        """Return the committed offsets of the group, when no transaction can change them any more."""
        topic = self.partitions[0].topic
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[one.number for one in self.partitions])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=GROUP_ID, topics=[wanted])], require_stable=True
        )
        while True:
            try:
                response = await self.ask_coordinator(GROUP, GROUP_ID, request, OffsetFetchResponse, 8)
            except ChannelFailed:
                self._look_elsewhere()
                await self.back_off()
                continue
            group = response.groups[0]
            found = [one for topic in group.topics for one in topic.partitions]
            errors = {ErrorCode.of(code) for code in (group.error_code, *(one.error_code for one in found))}
            if errors <= {ErrorCode.NONE}:
                for one in found:
                    self.know_epoch(TopicPartition(topic, one.partition_index), one.committed_leader_epoch)
                return {TopicPartition(topic, one.partition_index): max(one.committed_offset, 0) for one in found}
            if not errors <= TRANSIENT | {ErrorCode.NONE}:
                raise Violation(f"{self.name} asks for its offsets: {sorted(one.name for one in errors)}")
            self._look_elsewhere()
            await self.back_off()

    async def _copy(self, source: TopicPartition) -> None:
        start = self._positions[source]
        data = await self.fetch(source, start)
        if data is None:
            return
        records, following = visible_records(data, start, READ_COMMITTED)
        if records[_MOST_AT_ONCE:]:
            records, following = records[:_MOST_AT_ONCE], records[_MOST_AT_ONCE].offset
        if not records:
            # Only markers and aborted records.
            self._positions[source] = following
            return
        transaction = self.history.begin_transaction(
            f"{self.name}/{self.producer_epoch}/{len(self.history.transactions)}"
        )
        commits = self.rng.random() < 0.8
        target = TopicPartition(self.target, source.number)
        try:
            if not self.adds_by_producing:
                await self._add(target)
            await self._write_batch(target, [self._copy_of(one, source, target, transaction) for one in records])
            await self._commit_offset(source, following)
        except Doubt:
            transaction.outcome = Outcome.FAILED
            raise
        await self._end(transaction, commits)
        if commits:
            self._positions[source] = following

    def _copy_of(self, one: Seen, source: TopicPartition, target: TopicPartition, transaction: Transaction) -> Write:
        write = self.new_write(target, transaction)
        self.history.copies[write.value] = (source, one.offset)
        return write

    async def _commit_offset(self, source: TopicPartition, offset: int) -> None:
        if not self.adds_by_producing:
            await self._add_group()
        partition = TxnOffsetCommitRequestPartition(
            partition_index=source.number,
            committed_offset=offset,
            committed_leader_epoch=self.read_epochs.get(source, -1),
            committed_metadata=None,
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id or "",
            group_id=GROUP_ID,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id=self._generation,
            member_id=self._member_id,
            topics=[TxnOffsetCommitRequestTopic(name=source.topic, partitions=[partition])],
        )
        version = _COMMIT_V2 if self.adds_by_producing else _COMMIT_V1
        while True:
            try:
                response = await self.ask_coordinator(GROUP, GROUP_ID, request, TxnOffsetCommitResponse, version)
            except ChannelFailed:
                await self._tolerate(ErrorCode.NETWORK_EXCEPTION, "committing an offset")
                continue
            error = ErrorCode.of(response.topics[0].partitions[0].error_code)
            if error is ErrorCode.NONE:
                return
            await self._tolerate(error, "committing an offset")

    async def _add_group(self) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id or "",
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=GROUP_ID,
        )
        while True:
            try:
                response = await self.ask_coordinator(
                    TRANSACTION, self.transactional_id or "", request, AddOffsetsToTxnResponse, _ADD_VERSION
                )
            except ChannelFailed:
                await self._tolerate(ErrorCode.NETWORK_EXCEPTION, "adding the group")
                continue
            error = ErrorCode.of(response.error_code)
            if error is ErrorCode.NONE:
                return
            await self._tolerate(error, "adding the group")

    def _look_elsewhere(self) -> None:
        super()._look_elsewhere()
        self.forget_coordinator(GROUP, GROUP_ID)


_EVICTED = frozenset((ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS))


class MemberCopier(Copier, GroupMember):
    """Copies the partitions that its group assigns to it, of the `partition_count` partitions of `topic`."""

    group_id = GROUP_ID

    async def run(self) -> None:
        while not self.is_stopping:
            # InitProducerId also aborts the transaction that this copier left open when it was a member last.
            await self.wait_for_producer_id(self.timeout_ms)
            self._sequences = {}
            try:
                await self._copy_as_member()
            except Doubt:
                continue
            except (Rejoin, ChannelFailed):
                self._look_elsewhere()
                await self.back_off()
        await self._leave()

    async def _copy_as_member(self) -> None:
        self.partitions = await self._join()
        if self.partitions:
            self._positions = await self.committed_offsets()
        next_heartbeat_s = self.loop.now_s
        while not self.is_stopping:
            if self.loop.now_s >= next_heartbeat_s:
                await self._heartbeat()
                next_heartbeat_s = self.loop.now_s + HEARTBEAT_S
            if self.partitions:
                await self._copy(self.rng.choice(self.partitions))
            await self.rest(self.pause_s)

    async def _tolerate(self, error: ErrorCode, what: str) -> None:
        if error in _EVICTED:
            self.trace("%s: %s", what, error.name)
            raise Doubt
        await super()._tolerate(error, what)
