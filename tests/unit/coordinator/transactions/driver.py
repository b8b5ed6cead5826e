"""A driver that runs a transaction shard as the runtime does, step by step, with a log that outlives the shard.

Nothing here waits: a batch is committed at once or, with `holds_back`, when the test calls `commit`. A crash loses the
shard and all responses that were not sent; the log stays, up to its end or up to the high watermark.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from pessoa.coordinator.shard import Output, Reply
from pessoa.coordinator.transactions.marker_messages import MarkersWritten, WriteMarkers
from pessoa.coordinator.transactions.transaction import ProducerIdentity, TopicPartition, Transaction
from pessoa.coordinator.transactions.transaction_config import TransactionConfig
from pessoa.coordinator.transactions.transaction_shard import Surroundings, TransactionShard
from pessoa.metadata.image import MetadataImage
from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pessoa.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pessoa.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.write_txn_markers import WritableTxnMarkerTopic
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.schema import Message
from pessoa.wire.stored.record_framing import (
    TRANSACTION_LOG,
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
)
from pessoa.wire.stored.transaction_records import TransactionLogValue
from tests.support.shards import decide

NAME = "orders"
TIMEOUT_MS = 60_000
START_MS = 1_700_000_000_000
INIT_VERSION = 5
# Below and at transaction.version 2.
OLD_END_VERSION, END_VERSION = 4, 5
OLD_ADD_VERSION, ADD_VERSION = 3, 5


class Context(NamedTuple):
    version: int
    client_id: str | None = "test"
    client_host: str = "127.0.0.1"
    principal: str = "User:ANONYMOUS"
    api_key: int = -1


class Stored(NamedTuple):
    key: bytes
    value: bytes | None


class Driver:
    def __init__(self, transaction_version: int = 2, config: TransactionConfig | None = None) -> None:
        self.transaction_version = transaction_version
        self.config = config or TransactionConfig()
        self.now_ms = START_MS
        self.log: list[Stored] = []
        # How many answers the replicas were asked to confirm.
        self.confirmations = 0
        self.committed = 0
        self.holds_back = False
        self.refuses_with: ErrorCode | None = None
        self.has_ids = True
        self.replies: dict[int, Reply] = {}
        self.markers: list[WriteMarkers] = []
        self._ids = count(1000)
        self._tokens = count(1)
        self._pending: list[tuple[int, Output]] = []
        self.shard = self._new_shard()
        self._perform(self.shard.on_loaded(MetadataImage.EMPTY, self.now_ms))

    # ── the runtime's part ──

    def _new_shard(self) -> TransactionShard:
        return TransactionShard(
            self.config,
            Surroundings(self._take_id, lambda: self.transaction_version, len, self._write_markers),
        )

    def _take_id(self) -> int:
        if not self.has_ids:
            raise Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return next(self._ids)

    def _write_markers(self, wanted: WriteMarkers) -> None:
        self.markers.append(wanted)

    def _perform(self, output: Output) -> None:
        self.confirmations += output.is_confirmed
        if output.records:
            if self.refuses_with is not None:
                self._finish(output, self.refuses_with)
                return
            for record in output.records:
                value = None if record.value is None else encode_coordinator_value(record.value, record.value_version)
                self.log.append(Stored(encode_coordinator_key(record.key), value))
                self.shard.replay(record.key, record.value, len(self.log) - 1, -1, -1)
            if not self.holds_back:
                self.committed = len(self.log)
        elif not output.replies and output.on_outcome is None:
            return
        if self.committed == len(self.log) and not self._pending:
            self._finish(output, ErrorCode.NONE)
        else:
            self._pending.append((len(self.log), output))

    def _finish(self, output: Output, code: ErrorCode) -> None:
        for token, reply in output.replies:
            self.replies.setdefault(token, reply if code is ErrorCode.NONE else Refusal(code))
        if output.on_outcome is not None:
            self._perform(output.on_outcome(code, self.now_ms))

    def commit(self, until: int | None = None) -> None:
        """Move the high watermark to the end of the log, or to `until`."""
        self.committed = len(self.log) if until is None else until
        while self._pending and self._pending[0][0] <= self.committed:
            self._finish(self._pending.pop(0)[1], ErrorCode.NONE)

    def time_out_commits(self) -> None:
        """Make the appends that wait for the high watermark time out."""
        pending, self._pending = self._pending, []
        for _, output in pending:
            self._finish(output, ErrorCode.REQUEST_TIMED_OUT)

    def advance_ms(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= self.now_ms:
            self._perform(self.shard.expire(self.now_ms))

    def crash(self, loses_uncommitted: bool = False) -> None:
        """Replace the shard by a new one that has replayed the log."""
        if loses_uncommitted:
            del self.log[self.committed :]
        self._pending.clear()
        self.markers.clear()
        self.shard = self._new_shard()
        for offset, stored in enumerate(self.log):
            key = decode_coordinator_key(TRANSACTION_LOG, stored.key)
            assert key is not None
            value = None if stored.value is None else decode_coordinator_value(TRANSACTION_LOG, key, stored.value)
            self.shard.replay(key, value, offset, -1, -1)
        self._perform(self.shard.on_loaded(MetadataImage.EMPTY, self.now_ms))

    # ── what a test says ──

    def send(self, request: Message, version: int = 0) -> int:
        token = next(self._tokens)
        self._perform(decide(self.shard, request, Context(version), token, self.now_ms))
        return token

    def ask(self, request: Message, version: int = 0) -> Reply:
        return self.replies[self.send(request, version)]

    def begin(
        self, expected: ProducerIdentity | None = None, timeout_ms: int = TIMEOUT_MS, name: str = NAME
    ) -> ProducerIdentity | ErrorCode:
        reply = self.ask(init_request(expected, timeout_ms, name), INIT_VERSION)
        if isinstance(reply, Refusal):
            return reply.code
        assert isinstance(reply, InitProducerIdResponse)
        return ProducerIdentity(reply.producer_id, reply.producer_epoch)

    def begin_surely(self, name: str = NAME) -> ProducerIdentity:
        producer = self.begin(name=name)
        assert isinstance(producer, ProducerIdentity), producer
        return producer

    def add(
        self, producer: ProducerIdentity, *partitions: TopicPartition, version: int = ADD_VERSION, name: str = NAME
    ) -> ErrorCode:
        return _one_code(self.ask(add_request(producer, partitions, name=name), version))

    def verify(self, producer: ProducerIdentity, *partitions: TopicPartition) -> list[ErrorCode] | ErrorCode:
        reply = self.ask(add_request(producer, partitions, verify_only=True), ADD_VERSION)
        return reply.code if isinstance(reply, Refusal) else _codes(reply)

    def add_offsets(self, producer: ProducerIdentity, group: str) -> ErrorCode:
        reply = self.ask(
            AddOffsetsToTxnRequest(
                transactional_id=NAME, producer_id=producer.id, producer_epoch=producer.epoch, group_id=group
            ),
            4,
        )
        if isinstance(reply, Refusal):
            return reply.code
        assert isinstance(reply, AddOffsetsToTxnResponse)
        return ErrorCode.of(reply.error_code)

    def end(
        self, producer: ProducerIdentity, commits: bool, version: int = END_VERSION, name: str = NAME
    ) -> ProducerIdentity | ErrorCode:
        return ended(self.ask(end_request(producer, commits, name), version))

    def write_markers(self) -> list[WriteMarkers]:
        """Report all requested markers as written; return the requests."""
        done, self.markers = self.markers, []
        for wanted in done:
            self.report(wanted, wanted.partitions)
        return done

    def report(self, wanted: WriteMarkers, partitions: tuple[TopicPartition, ...]) -> Reply | None:
        return self.replies.get(self.send(marked(wanted, partitions)))

    def transaction(self, name: str = NAME) -> Transaction:
        transaction = self.shard.transaction(name)
        assert transaction is not None
        return transaction

    def last_value(self) -> TransactionLogValue:
        stored = self.log[-1]
        key = decode_coordinator_key(TRANSACTION_LOG, stored.key)
        assert key is not None
        assert stored.value is not None
        value = decode_coordinator_value(TRANSACTION_LOG, key, stored.value)
        assert isinstance(value, TransactionLogValue)
        return value


def init_request(
    expected: ProducerIdentity | None = None, timeout_ms: int = TIMEOUT_MS, name: str = NAME
) -> InitProducerIdRequest:
    producer = expected or ProducerIdentity(-1, -1)
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
    )


def add_request(
    producer: ProducerIdentity,
    partitions: tuple[TopicPartition, ...],
    verify_only: bool = False,
    name: str = NAME,
) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions],
            )
        ]
    )


def end_request(producer: ProducerIdentity, commits: bool, name: str = NAME) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name, producer_id=producer.id, producer_epoch=producer.epoch, committed=commits
    )


def ended(reply: Reply) -> ProducerIdentity | ErrorCode:
    if isinstance(reply, Refusal):
        return reply.code
    assert isinstance(reply, EndTxnResponse)
    assert reply.error_code == ErrorCode.NONE
    return ProducerIdentity(reply.producer_id, reply.producer_epoch)


def marked(wanted: WriteMarkers, partitions: tuple[TopicPartition, ...]) -> MarkersWritten:
    return MarkersWritten(
        transactional_id=wanted.transactional_id,
        producer_id=wanted.producer.id,
        producer_epoch=wanted.producer.epoch,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index]) for topic, index in partitions],
    )


def _codes(reply: Reply) -> list[ErrorCode]:
    assert isinstance(reply, AddPartitionsToTxnResponse)
    (result,) = reply.results_by_transaction
    return [
        ErrorCode.of(partition.partition_error_code)
        for topic in result.topic_results
        for partition in topic.results_by_partition
    ]


def _one_code(reply: Reply) -> ErrorCode:
    if isinstance(reply, Refusal):
        return reply.code
    (code,) = set(_codes(reply))
    return code
