"""Producers that retry until the end: idempotent ones, and transactional ones.

An idempotent producer has up to five batches in flight for each partition. A batch without a response is sent again
with the same sequence numbers, so the log has it once in the end. If the first batch in flight is refused as out of
order, the broker has lost a batch that it acknowledged.

A transactional producer writes to several partitions and then commits or aborts. From version 2 of transactions on
(KIP-890) every transaction has an epoch of its own, and Produce adds the partition; before, the producer adds it first.
After a request with an unknown outcome it asks for a new epoch, which fences requests that are still on their way.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from pessoa.net.channel import ChannelFailed
from pessoa.records.builder import build_batch
from pessoa.records.record import Record
from pessoa.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from pessoa.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from pessoa.wire.errors import ErrorCode
from tests.simulation.client import TRANSACTION, TRANSIENT, Client
from tests.simulation.history import Outcome, TopicPartition, Transaction, Violation, Write
from tests.simulation.node import EPOCH_MS
from tests.simulation.readers import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Sequence

_PRODUCE_TIMEOUT_MS = 1_000
_MAX_IN_FLIGHT = 5
# The share of records with a key that are tombstones.
_TOMBSTONES = 0.15
# The last Produce version whose clients send AddPartitionsToTxn, and the first that adds partitions itself.
_PRODUCE_V1, _PRODUCE_V2 = 11, 12
_END_V1, _END_V2 = 4, 5
_FENCED = frozenset(
    (
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    )
)
# Errors after which the transaction must be aborted, and the producer can continue.
_ABORTABLE = frozenset((ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE))


class Batch(NamedTuple):
    writes: list[Write]
    sequence: int


class Answer(NamedTuple):
    error: ErrorCode
    base_offset: int = -1


# No response came: the request may have been executed.
SILENCE = Answer(ErrorCode.NETWORK_EXCEPTION)


def _record(index: int, write: Write) -> Record:
    if write.is_tombstone:
        return Record(index, EPOCH_MS, write.key, None, ((IDENTITY, write.value),))
    return Record(index, EPOCH_MS, write.key, write.value)


class Producer(Client):
    """What idempotent and transactional producers share."""

    producer_id = -1
    producer_epoch = -1
    transactional_id: str | None = None
    # How many different keys its records have; 0 for records without a key.
    keys = 0
    # The longest pause after each step.
    pause_s = 0.8
    _written = 0

    def new_write(self, partition: TopicPartition, transaction: Transaction | None = None) -> Write:
        self._written += 1
        value = b"%s:%d" % (self.name.encode(), self._written)
        write = self.history.begin_write(value, partition, self.name, transaction)
        write.begun_s = self.loop.now_s
        if self.keys:
            write.key = b"k%d" % self.rng.randrange(self.keys)
            write.is_tombstone = self.rng.random() < _TOMBSTONES
        return write

    async def produce(self, partition: TopicPartition, batch: Batch, version: int) -> Answer:
        data = build_batch(
            [_record(index, write) for index, write in enumerate(batch.writes)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=batch.sequence,
            transactional=self.transactional_id is not None,
        )
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=partition.topic,
                    partition_data=[PartitionProduceData(index=partition.number, records=memoryview(data))],
                )
            ],
        )
        try:
            response = await self.ask_leader(partition, request, ProduceResponse, version)
        except ChannelFailed:
            return SILENCE
        one = response.responses[0].partition_responses[0]
        return Answer(ErrorCode.of(one.error_code), one.base_offset)

    async def wait_for_producer_id(self, timeout_ms: int) -> None:
        """Get a new producer id, or a new epoch of the transactional id's producer id."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        while True:
            try:
                if self.transactional_id is None:
                    response = await self.ask(self.some_broker(), request, InitProducerIdResponse, 4)
                else:
                    response = await self.ask_coordinator(
                        TRANSACTION, self.transactional_id, request, InitProducerIdResponse, 4
                    )
            except ChannelFailed:
                self._look_elsewhere()
                await self.back_off()
                continue
            error = ErrorCode.of(response.error_code)
            if error is ErrorCode.NONE:
                self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
                self.trace("has producer id %s, epoch %s", self.producer_id, self.producer_epoch)
                return
            if error not in TRANSIENT and error not in _FENCED:
                raise Violation(f"{self.name} gets no producer id: {error.name}")
            self._look_elsewhere()
            await self.back_off()

    def _look_elsewhere(self) -> None:
        if self.transactional_id is not None:
            self.forget_coordinator(TRANSACTION, self.transactional_id)


class IdempotentProducer(Producer):
    """Produces to its partitions until it is stopped, and then waits until everything is acknowledged."""

    partitions: Sequence[TopicPartition] = ()
    in_flight = 1

    async def run(self) -> None:
        await self.wait_for_producer_id(0)
        async with asyncio.TaskGroup() as lanes:
            for partition in self.partitions:
                lanes.create_task(self._write_to(partition))

    async def _write_to(self, partition: TopicPartition) -> None:
        sequence = 0
        while not self.is_stopping:
            batches = []
            # A broker accepts any sequence of a producer that it does not know, so no batch may overtake the first one.
            for _ in range(self.rng.randint(1, self.in_flight) if sequence else 1):
                writes = [self.new_write(partition) for _ in range(self.rng.randint(1, 3))]
                batches.append(Batch(writes, sequence))
                sequence += len(writes)
            await self._deliver(partition, batches)
            await self.rest(self.pause_s)

    async def _deliver(self, partition: TopicPartition, batches: Sequence[Batch]) -> None:
        """Send the batches until all of them are acknowledged."""
        waiting = list(batches)
        while waiting:
            answers = await asyncio.gather(*(self.produce(partition, batch, _PRODUCE_V2) for batch in waiting))
            sent, waiting = waiting, []
            for batch, answer in zip(sent, answers, strict=True):
                if answer.error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._acknowledged(partition, batch, answer.base_offset)
                elif answer.error in TRANSIENT or (answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and waiting):
                    # Out of order because an earlier batch was not appended.
                    waiting.append(batch)
                else:
                    raise Violation(
                        f"{self.name} is refused sequence {batch.sequence} in {partition} with {answer.error.name}, "
                        "and all before it was acknowledged"
                    )
            if waiting:
                await self.refresh([partition.topic])
                await self.back_off()
        # A duplicate may be acknowledged without its offset.
        offsets = [batch.writes[0].offset for batch in batches if batch.writes[0].offset >= 0]
        if offsets != sorted(offsets):
            raise Violation(f"{self.name} sent batches to {partition} in order, and they are at {offsets}")

    def _acknowledged(self, partition: TopicPartition, batch: Batch, offset: int) -> None:
        self.trace("%s: %s at %s", partition, batch.writes[0].value, offset)
        for index, write in enumerate(batch.writes):
            self.history.acknowledge(write, offset + index if offset >= 0 else -1)


class Doubt(Exception):
    """The outcome of a request is unknown: ask for a new epoch."""


class TransactionalProducer(Producer):
    partitions: Sequence[TopicPartition] = ()
    timeout_ms = 6_000
    # False for a client from before KIP-890.
    adds_by_producing = True

    async def run(self) -> None:
        while not self.is_stopping:
            await self.wait_for_producer_id(self.timeout_ms)
            # Partition → the next sequence number in this epoch.
            self._sequences: dict[TopicPartition, int] = {}
            try:
                while not self.is_stopping:
                    await self._transact()
                    await self.rest(self.pause_s)
            except Doubt:
                continue

    async def _transact(self) -> None:
        transaction = self.history.begin_transaction(
            f"{self.name}/{self.producer_epoch}/{len(self.history.transactions)}"
        )
        chosen = self.rng.sample(list(self.partitions), self.rng.randint(1, len(self.partitions)))
        commits = self.rng.random() < 0.7
        try:
            for partition in chosen:
                if not self.adds_by_producing:
                    await self._add(partition)
                for _ in range(self.rng.randint(1, 2)):
                    await self._write(partition, transaction)
                    if self.keys:
                        # A compaction pass should run while the transaction is open.
                        await self.rest(self.pause_s)
        except Doubt:
            # No EndTxn with a commit was sent or will be, so the transaction cannot become visible.
            transaction.outcome = Outcome.FAILED
            raise
        await self._end(transaction, commits)

    async def _add(self, partition: TopicPartition) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=partition.topic, partitions=[partition.number])],
        )
        while True:
            try:
                response = await self.ask_coordinator(
                    TRANSACTION, self.transactional_id or "", request, AddPartitionsToTxnResponse, 3
                )
            except ChannelFailed:
                self._look_elsewhere()
                await self.back_off()
                continue
            result = response.results_by_topic_v3_and_below[0].results_by_partition[0]
            error = ErrorCode.of(result.partition_error_code)
            if error is ErrorCode.NONE:
                return
            await self._tolerate(error, "adding a partition")

    async def _write(self, partition: TopicPartition, transaction: Transaction) -> None:
        await self._write_batch(
            partition, [self.new_write(partition, transaction) for _ in range(self.rng.randint(1, 2))]
        )

    async def _write_batch(self, partition: TopicPartition, writes: list[Write]) -> None:
        """Send a batch until it is acknowledged, or the transaction cannot go on."""
        sequence = self._sequences.get(partition, 0)
        batch = Batch(writes, sequence)
        self._sequences[partition] = sequence + len(batch.writes)
        version = _PRODUCE_V2 if self.adds_by_producing else _PRODUCE_V1
        while True:
            answer = await self.produce(partition, batch, version)
            if answer.error is ErrorCode.NONE or answer.error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                for index, write in enumerate(batch.writes):
                    self.history.acknowledge(write, answer.base_offset + index if answer.base_offset >= 0 else -1)
                return
            await self._tolerate(answer.error, f"writing {batch.writes[0].value!r} to {partition}")
            await self.refresh([partition.topic])

    async def _tolerate(self, error: ErrorCode, what: str) -> None:
        """Wait after an error that can be retried; raise for any other error, which ends the transaction."""
        self.trace("%s: %s", what, error.name)
        if error in _FENCED or error in _ABORTABLE or self.is_stopping:
            raise Doubt
        if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.adds_by_producing:
            # A late batch of an earlier transaction waits for its verification (KIP-890); an abort ends that.
            raise Doubt
        if error not in TRANSIENT:
            raise Violation(f"{self.name} meets {error.name} when {what}")
        self._look_elsewhere()
        await self.back_off()

    async def _end(self, transaction: Transaction, commits: bool) -> None:
        if not commits:
            transaction.outcome = Outcome.FAILED
        request = EndTxnRequest(
            transactional_id=self.transactional_id or "",
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commits,
        )
        # Whether the commit may have been executed without a response.
        is_unknown = False
        while True:
            try:
                response = await self.ask_coordinator(
                    TRANSACTION,
                    self.transactional_id or "",
                    request,
                    EndTxnResponse,
                    _END_V2 if self.adds_by_producing else _END_V1,
                )
            except ChannelFailed:
                is_unknown = True
                self._look_elsewhere()
                await self.back_off()
                continue
            error = ErrorCode.of(response.error_code)
            if error is ErrorCode.NONE:
                break
            self.trace("%s of %s: %s", "commit" if commits else "abort", transaction.name, error.name)
            if error in TRANSIENT:
                # The append of a coordinator that answered with a timeout may succeed later.
                is_unknown = True
                self._look_elsewhere()
                await self.back_off()
                continue
            if commits and not is_unknown:
                transaction.outcome = Outcome.FAILED
            raise Doubt
        transaction.outcome = Outcome.OK if commits else Outcome.FAILED
        self.trace("%s %s", transaction.name, "committed" if commits else "aborted")
        if response.producer_id >= 0 and self.adds_by_producing:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self._sequences = {}
