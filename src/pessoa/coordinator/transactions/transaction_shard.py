"""The transactions of one partition of `__transaction_state`: a pure shard (see `coordinator.shard`).

A change goes through these steps. While it does, the transactional id is *changing*, and every other change is refused:

    decided ──► appended, replayed ──► committed ──► (prepare) WriteMarkers … MarkersWritten ──► decided (complete) …
       └── the log refuses it: nothing has changed

A prepared transaction counts as changing until it is complete. Its markers are asked for when the prepare record is
committed and not before: a marker cannot be taken back. The same holds after a load, where the outcome may stand in the
log without being committed. If a commit takes too long its client gets an error, but the shard waits on: the record
is in the log, and will be committed or go with the leadership.

Time. An open transaction has a deadline: its time-out, counted from its first partition. Unused ids expire
after `transactional.id.expiration.ms`; a sweep looks for them every now and then, as there may be very many of them.

What stands in no record: what is changing, which markers are missing, and `last_producer_epoch` (see `transaction`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pessoa.coordinator.shard import Delta, Image, Output
from pessoa.coordinator.timers import Timers
from pessoa.coordinator.transactions import decisions, transaction_descriptions
from pessoa.coordinator.transactions.marker_messages import MarkersWritten, WriteMarkers
from pessoa.coordinator.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdentity,
    State,
    TopicPartition,
    Transaction,
)
from pessoa.coordinator.transactions.transaction_config import TransactionConfig
from pessoa.coordinator.transactions.transaction_encoding import from_value, to_record, tombstone
from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pessoa.wire.api.add_partitions_to_txn import (
    FIRST_ADD_PARTITIONS_OF_BROKERS,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest
from pessoa.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.list_transactions import ListTransactionsRequest
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.internal_topics import GROUP_TOPIC
from pessoa.wire.request_context import Caller
from pessoa.wire.schema import Message
from pessoa.wire.stored.transaction_records import TransactionLogKey, TransactionLogValue

# Clients before this version have an older epoch rule: EndTxn 5 is of clients of transaction.version 2.
_END_VERSION_WITH_EPOCH_BUMP = 5

# Tombstones in one batch: what Kafka's 16 KB have room for, roughly.
_TOMBSTONES_PER_BATCH = 200
_SWEEP = "sweep"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a shard uses of the broker. `next_producer_id` raises a `Refusal` if none is available."""

    next_producer_id: Callable[[], int]
    # The level of the feature transaction.version.
    transaction_version: Callable[[], int]
    # The partition of __consumer_offsets that a group's offsets are in.
    group_partition: Callable[[str], int]
    write_markers: Callable[[WriteMarkers], None]


class TransactionShard:
    def __init__(self, config: TransactionConfig, surroundings: Surroundings) -> None:
        self._config = config
        self._surroundings = surroundings
        self._transactions: dict[str, Transaction] = {}
        # Of a decided change the last producer epoch, until the change is committed.
        self._uncommitted_changes: dict[str, int] = {}
        # The partitions of prepared transactions whose markers are not known to be written.
        self._unmarked_partitions: dict[str, set[TopicPartition]] = {}
        self._timers = Timers()

    def __repr__(self) -> str:
        return f"<TransactionShard: {len(self._transactions)} ids, {len(self._uncommitted_changes)} changing>"

    def transaction(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    def count_states(self) -> Counter[str]:
        """Return the number of transactional ids in each state, by the state's title."""
        return Counter(one.state.title for one in self._transactions.values())

    # ── requests ──

    def begin_producer(self, request: InitProducerIdRequest, context: Caller, token: int, now_ms: int) -> Output:
        assert request.transactional_id, "an id without a name has no shard"
        name, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        expected = (
            None
            if request.producer_id == NO_PRODUCER_ID
            else ProducerIdentity(request.producer_id, request.producer_epoch)
        )
        next_producer_id = self._surroundings.next_producer_id
        transaction = self._transactions.get(name)
        if transaction is None:
            if name in self._uncommitted_changes:
                # Its tombstone is on the way.
                raise Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
            transaction = Transaction.new(name, next_producer_id(), timeout_ms, now_ms)
        changed = decisions.begin_producer(
            transaction, expected, timeout_ms, self._is_changing(transaction), next_producer_id, now_ms
        )
        if isinstance(changed, Transaction):
            return self._change(
                changed,
                token,
                InitProducerIdResponse(
                    throttle_time_ms=0,
                    error_code=ErrorCode.NONE,
                    producer_id=changed.producer_id,
                    producer_epoch=changed.producer_epoch,
                ),
                notes=[f"{name!r} is producer {changed.producer_id} with epoch {changed.producer_epoch}"],
            )
        # No producer writes under the epoch of the abort: the client that comes back gets the next one.
        aborted = decisions.fence(transaction, self._version(), next_producer_id, now_ms)
        output = self._prepare(aborted)
        output.replies.append((token, Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)))
        output.notes.append(f"the open transaction of {name!r} is aborted: another producer begins")
        return output

    def add_or_verify_partitions(
        self, request: AddPartitionsToTxnRequest, context: Caller, token: int, now_ms: int
    ) -> Output:
        """Add partitions to one transaction, or verify that they are in it; the request has the form of version 4."""
        (asked,) = request.transactions
        producer = ProducerIdentity(asked.producer_id, asked.producer_epoch)
        partitions = [(topic.name, partition) for topic in asked.topics for partition in topic.partitions]
        transaction = self._transactions.get(asked.transactional_id)
        if asked.verify_only:
            errors = decisions.verify_partitions(transaction, producer, partitions)
            return _confirmed_reply(token, add_partitions_response(asked, errors))
        client_version = EPOCH_BUMP_VERSION if context.version >= FIRST_ADD_PARTITIONS_OF_BROKERS else 0
        reply = add_partitions_response(asked, dict.fromkeys(partitions, ErrorCode.NONE))
        return self._add(transaction, producer, frozenset(partitions), client_version, token, reply, now_ms)

    def add_offsets(self, request: AddOffsetsToTxnRequest, context: Caller, token: int, now_ms: int) -> Output:
        """Add the partition of `__consumer_offsets` that keeps the group: its offsets are written there."""
        return self._add(
            self._transactions.get(request.transactional_id),
            ProducerIdentity(request.producer_id, request.producer_epoch),
            frozenset({(GROUP_TOPIC, self._surroundings.group_partition(request.group_id))}),
            # In version 2 TxnOffsetCommit adds the partition by itself, so this client is an older one.
            0,
            token,
            AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=ErrorCode.NONE),
            now_ms,
        )

    def _add(
        self,
        transaction: Transaction | None,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        client_version: int,
        token: int,
        reply: Message,
        now_ms: int,
    ) -> Output:
        changed = decisions.add_partitions(
            transaction, producer, partitions, client_version, self._is_changing(transaction), now_ms
        )
        return _confirmed_reply(token, reply) if changed is None else self._change(changed, token, reply)

    def end(self, request: EndTxnRequest, context: Caller, token: int, now_ms: int) -> Output:
        client_version = EPOCH_BUMP_VERSION if context.version >= _END_VERSION_WITH_EPOCH_BUMP else 0
        transaction = self._transactions.get(request.transactional_id)
        changed = decisions.end_transaction(
            transaction,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            request.committed,
            client_version,
            self._is_changing(transaction),
            self._surroundings.next_producer_id,
            now_ms,
        )
        if changed is None:
            assert transaction is not None, "what does not exist has not ended"
            return _confirmed_reply(token, _end_response(transaction, client_version))
        output = self._prepare(changed)
        # What the client gets is what it will be when the markers are written; until then the id is changing.
        output.replies.append((token, _end_response(changed.completed(now_ms), client_version)))
        return output

    def describe(self, request: DescribeTransactionsRequest, context: Caller, token: int, now_ms: int) -> Output:
        return Output.reply(
            token,
            transaction_descriptions.describe_transactions(request, self._transactions, self._unmarked_partitions),
        )

    def list_transactions(self, request: ListTransactionsRequest, context: Caller, token: int, now_ms: int) -> Output:
        return Output.reply(token, transaction_descriptions.list_transactions(request, self._transactions, now_ms))

    # ── the end of a transaction ──

    def _prepare(self, prepared: Transaction) -> Output:
        name = prepared.transactional_id
        return self._output([prepared], then=lambda: self._ask_for_markers(name))

    def _ask_for_markers(self, transactional_id: str) -> None:
        transaction = self._transactions[transactional_id]
        assert transaction.state.is_prepared, f"no outcome: {transaction}"
        self._unmarked_partitions[transactional_id] = set(transaction.partitions)
        self._surroundings.write_markers(
            WriteMarkers(
                transactional_id,
                transaction.producer,
                transaction.state is State.PREPARE_COMMIT,
                tuple(transaction.sorted_partitions()),
                transaction.client_version,
            )
        )

    def note_markers_written(self, request: MarkersWritten, context: Caller, token: int, now_ms: int) -> Output:
        name = request.transactional_id
        transaction = self._transactions.get(name)
        producer = ProducerIdentity(request.producer_id, request.producer_epoch)
        if transaction is None or not transaction.state.is_prepared or transaction.producer != producer:
            # The marker writer reports again what it has reported, because the first answer came too late.
            return Output.reply(token, request)
        unmarked = self._unmarked_partitions[name]
        for topic in request.topics:
            unmarked.difference_update((topic.name, partition) for partition in topic.partition_indexes)
        if unmarked:
            return Output.reply(token, request)
        return self._change(transaction.completed(now_ms), token, request)

    # ── changes ──

    def _version(self) -> int:
        return self._surroundings.transaction_version()

    def _is_changing(self, transaction: Transaction | None) -> bool:
        return transaction is not None and (
            transaction.transactional_id in self._uncommitted_changes or transaction.state.is_prepared
        )

    def _change(self, changed: Transaction, token: int, reply: Message, notes: Iterable[str] = ()) -> Output:
        output = self._output([changed])
        output.replies.append((token, reply))
        output.notes.extend(notes)
        return output

    def _output(self, changed: list[Transaction], then: Callable[[], None] | None = None) -> Output:
        version = self._version()
        for transaction in changed:
            self._uncommitted_changes[transaction.transactional_id] = transaction.last_producer_epoch
        return Output(
            records=[to_record(transaction, version) for transaction in changed],
            on_outcome=self._after_commit([transaction.transactional_id for transaction in changed], then),
        )

    def _after_commit(
        self, names: list[str], then: Callable[[], None] | None = None
    ) -> Callable[[ErrorCode, int], Output]:
        """Return the function that is called when the records of a change are committed, or known not to be."""

        def on_outcome(error: ErrorCode, now_ms: int) -> Output:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                return Output(on_outcome=on_outcome)
            for name in names:
                self._uncommitted_changes.pop(name, None)
            if error is ErrorCode.NONE:
                if then is not None:
                    then()
            else:
                self._reschedule_timeouts(names, now_ms)
            return Output()

        return on_outcome

    def replay(self, key: Message, value: Message | None, offset: int, producer_id: int, producer_epoch: int) -> None:
        assert isinstance(key, TransactionLogKey), f"no key of this log: {key}"
        name = key.transactional_id
        before = self._transactions.get(name)
        self._unmarked_partitions.pop(name, None)
        if value is None:
            self._transactions.pop(name, None)
            self._timers.cancel(name)
            return
        assert isinstance(value, TransactionLogValue), f"no value of this log: {value}"
        transaction = from_value(name, value, self._uncommitted_changes.get(name, NO_EPOCH))
        self._transactions[name] = transaction
        if transaction.state.is_prepared:
            self._unmarked_partitions[name] = set(transaction.partitions)
        deadline_ms = transaction.deadline_ms
        if deadline_ms is None:
            self._timers.cancel(name)
        elif name not in self._timers or before is None or before.start_ms != transaction.start_ms:
            # The timer of a transaction that goes on stays: if the clock has jumped, it has been moved along.
            self._schedule_time_out(name, deadline_ms)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        raise AssertionError("no transaction writes to the log of transactions")

    # ── time ──

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_deadline_ms()

    def expire(self, now_ms: int) -> Output:
        action = self._timers.pop_due(now_ms)
        return Output() if action is None else action(now_ms)

    def shift_deadlines(self, by_ms: int) -> None:
        self._timers.shift(by_ms)

    def _schedule_time_out(self, name: str, deadline_ms: int) -> None:
        self._timers.schedule(name, deadline_ms, lambda now_ms: self._time_out(name, now_ms))

    def _time_out(self, name: str, now_ms: int) -> Output:
        transaction = self._transactions[name]
        assert transaction.state is State.ONGOING, f"only an open transaction has a time-out: {transaction}"
        if name in self._uncommitted_changes:
            self._reschedule_timeouts([name], now_ms)
            return Output()
        try:
            aborted = decisions.fence(transaction, self._version(), self._surroundings.next_producer_id, now_ms)
        except Refusal:
            # No producer id is at hand for the one that follows.
            self._reschedule_timeouts([name], now_ms)
            return Output()
        output = self._prepare(aborted)
        output.notes.append(f"the transaction of {name!r} is aborted: it is older than {transaction.timeout_ms} ms")
        return output

    def _reschedule_timeouts(self, names: list[str], now_ms: int) -> None:
        """Schedule again the time-out of open transactions whose deadline passed while another change of them was in
        flight."""
        later_ms = now_ms + self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        for name in names:
            transaction = self._transactions.get(name)
            if transaction is not None and transaction.deadline_ms is not None and name not in self._timers:
                self._schedule_time_out(name, later_ms)

    def _schedule_sweep(self, now_ms: int) -> None:
        interval_ms = self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        # A tuple, since any string may be a transactional id.
        self._timers.schedule((_SWEEP,), now_ms + interval_ms, self._sweep)

    def _sweep(self, now_ms: int) -> Output:
        """Write tombstones for ids that were unused for transactional.id.expiration.ms."""
        limit_ms = now_ms - self._config.transactional_id_expiration_ms
        expired = [
            name
            for name, transaction in self._transactions.items()
            if transaction.state.is_idle
            and transaction.last_update_ms <= limit_ms
            and name not in self._uncommitted_changes
        ]
        if len(expired) > _TOMBSTONES_PER_BATCH:
            expired = expired[:_TOMBSTONES_PER_BATCH]
            self._timers.schedule((_SWEEP,), now_ms, self._sweep)
        else:
            self._schedule_sweep(now_ms)
        if not expired:
            return Output()
        for name in expired:
            self._uncommitted_changes[name] = NO_EPOCH
        return Output(
            records=[tombstone(name) for name in expired],
            on_outcome=self._after_commit(expired),
            notes=[f"{len(expired)} transactional ids have expired"],
        )

    # ── what the runtime calls: loaded, new image ──

    def on_loaded(self, image: Image, now_ms: int) -> Output:
        self._schedule_sweep(now_ms)
        prepared = [name for name, transaction in self._transactions.items() if transaction.state.is_prepared]
        if not prepared:
            return Output()

        def resume() -> None:
            for name in prepared:
                self._ask_for_markers(name)

        return Output(
            on_outcome=self._after_commit([], resume), notes=[f"{len(prepared)} transactions are still to be completed"]
        )

    def on_image(self, image: Image, delta: Delta, now_ms: int) -> Output:
        return Output()


def _confirmed_reply(token: int, reply: Message) -> Output:
    """Return an output without records that the replicas must confirm. A coordinator that was deposed without knowing
    it may still see an ended transaction as open. Its producer would then write the first records of its next
    transaction, and the markers of the last one would decide over them; or a broker would append a late batch after the
    markers, and nothing would end its transaction."""
    output = Output.reply(token, reply)
    output.is_confirmed = True
    return output


def add_partitions_response(
    asked: AddPartitionsToTxnTransaction, errors: dict[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResponse:
    """Return the response for one transaction, partition by partition."""
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0,
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id,
                topic_results=[_topic_result(topic, errors) for topic in asked.topics],
            )
        ],
    )


def _topic_result(
    topic: AddPartitionsToTxnTopic, errors: dict[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=partition, partition_error_code=errors[topic.name, partition]
            )
            for partition in topic.partitions
        ],
    )


def _end_response(transaction: Transaction, client_version: int) -> EndTxnResponse:
    """Return the EndTxn response; a client below transaction version 2 gets no new epoch."""
    response = EndTxnResponse(throttle_time_ms=0, error_code=ErrorCode.NONE)
    if client_version >= EPOCH_BUMP_VERSION:
        response.producer_id, response.producer_epoch = transaction.producer
    return response
