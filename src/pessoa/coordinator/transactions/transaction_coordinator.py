"""The transaction coordinator as the broker's handlers see it: a request of an API goes in, its response comes out.

Requests are checked here for what no shard need know, cut into what each shard has to say, and put together again; and
what a shard refuses becomes the error response of the API. Old versions of the APIs do not know PRODUCER_FENCED and
get INVALID_PRODUCER_EPOCH.

    API                    since version    gets PRODUCER_FENCED from
    InitProducerId         3: goes on after an error (KIP-360)                4
    AddPartitionsToTxn     4: several transactions, from brokers only         2
    AddOffsetsToTxn                                                           2
    EndTxn                 5: gives the epoch of the next transaction         2

A request is answered with its response, or with an awaitable of it where something waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from pessoa.base.clock import Clock
from pessoa.base.java_order import concurrent_hash_order, int_hash
from pessoa.coordinator.coordinator_log import CoordinatorLog
from pessoa.coordinator.runtime import CoordinatorRuntime, Decide, LoadState
from pessoa.coordinator.shard import Delta, Image
from pessoa.coordinator.shard_answers import Failed, all_of, ask
from pessoa.coordinator.transactions.marker_messages import MarkersWritten
from pessoa.coordinator.transactions.marker_writer import MarkerPort, MarkerWriter
from pessoa.coordinator.transactions.producer_id_pool import ProducerIdPool
from pessoa.coordinator.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from pessoa.coordinator.transactions.transaction_config import TransactionConfig
from pessoa.coordinator.transactions.transaction_descriptions import describe_error, pattern_of, unknown_states
from pessoa.coordinator.transactions.transaction_shard import (
    Surroundings,
    TransactionShard,
    add_partitions_response,
)
from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pessoa.wire.api.add_partitions_to_txn import (
    FIRST_ADD_PARTITIONS_OF_BROKERS,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from pessoa.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from pessoa.wire.errors import ErrorCode, Refusal
from pessoa.wire.internal_topics import is_internal
from pessoa.wire.request_context import Answer, Caller, OwnRequest
from pessoa.wire.schema import Message
from pessoa.wire.stored.record_framing import TRANSACTION_LOG

_FIRST_INIT_WITH_FENCED = 4
_FIRST_ADD_WITH_FENCED = 2
_FIRST_END_WITH_FENCED = 2

M = TypeVar("M", bound=Message)
R = TypeVar("R", bound=Message)


class TransactionCoordinator:
    """`transaction_version` is the level of that feature; `group_partition` the partition of a group in
    `__consumer_offsets`."""

    def __init__(
        self,
        config: TransactionConfig,
        log: CoordinatorLog,
        clock: Clock,
        image: Image,
        producer_ids: ProducerIdPool,
        markers: MarkerPort,
        transaction_version: Callable[[], int],
        group_partition: Callable[[str], int],
    ) -> None:
        self._config = config
        self._log = log
        self._image = image
        self.producer_ids = producer_ids
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            TRANSACTION_LOG, log, self._make_shard, clock, image
        )
        self.markers = MarkerWriter(markers, self._markers_written, self._epoch_of, clock)
        self._transaction_version = transaction_version
        self._group_partition = group_partition

    def __repr__(self) -> str:
        return f"<TransactionCoordinator: {self.runtime!r}, {self.markers!r}>"

    # ── election, resignation, metadata, shutdown ──

    def elect(self, partition: int, epoch: int) -> asyncio.Task[None] | None:
        """Load a partition of `__transaction_state` that this broker leads in that leader epoch."""
        return self.runtime.elect(partition, epoch)

    def resign(self, partition: int, epoch: int | None = None) -> None:
        self.runtime.resign(partition, epoch)

    def publish(self, image: Image, delta: Delta) -> None:
        self._image = image
        self.runtime.publish(image, delta)

    def close(self) -> None:
        self.markers.close()
        self.runtime.close()
        self.producer_ids.close()

    def _make_shard(self, partition: int) -> TransactionShard:
        return TransactionShard(
            self._config,
            Surroundings(
                self.producer_ids.take,
                self._transaction_version,
                self._group_partition,
                lambda wanted: self.markers.start(partition, wanted),
            ),
        )

    def _epoch_of(self, partition: int) -> int | None:
        led = self.runtime.led_partition(partition)
        return led.epoch if led is not None and led.state is LoadState.ACTIVE else None

    def _markers_written(self, partition: int, told: MarkersWritten) -> Answer[Message]:
        return self.runtime.submit(partition, TransactionShard.note_markers_written, told, OwnRequest(0))

    # ── requests ──

    def _ask_shard(
        self,
        transactional_id: str,
        decide: Decide[TransactionShard, R],
        request: R,
        context: Caller,
        kind: type[M],
        refused: Failed[M],
    ) -> Answer[M]:
        """Return the response of the shard of the transactional id; for a refusal, what `refused` returns."""
        if not transactional_id:
            return refused(ErrorCode.INVALID_REQUEST, None)
        partition = self.runtime.partition_for(transactional_id)
        return ask(self.runtime, partition, decide, request, context, kind, refused)

    def begin_producer(self, request: InitProducerIdRequest, context: Caller) -> Answer[Message]:
        def refused(code: ErrorCode, _: str | None = None) -> InitProducerIdResponse:
            return InitProducerIdResponse(
                throttle_time_ms=0,
                error_code=_error_for_version(context, _FIRST_INIT_WITH_FENCED, code),
                producer_id=NO_PRODUCER_ID,
                producer_epoch=NO_EPOCH,
            )

        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            return refused(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            if not request.transactional_id:
                return refused(ErrorCode.INVALID_REQUEST)
            if not 0 < request.transaction_timeout_ms <= self._config.transaction_max_timeout_ms:
                return refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)

        def answer() -> Answer[Message]:
            if request.transactional_id is not None:
                return self._ask_shard(
                    request.transactional_id,
                    TransactionShard.begin_producer,
                    request,
                    context,
                    InitProducerIdResponse,
                    refused,
                )
            return InitProducerIdResponse(
                throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=self.producer_ids.take(), producer_epoch=0
            )

        return answer() if self.producer_ids.has_id else self._when_ids_are_there(answer)

    async def _when_ids_are_there(self, answer: Callable[[], Answer[Message]]) -> Message:
        await self.producer_ids.wait_for_id()
        reply = answer()
        return reply if isinstance(reply, Message) else await reply

    def add_offsets(self, request: AddOffsetsToTxnRequest, context: Caller) -> Answer[Message]:
        def refused(code: ErrorCode, _: str | None = None) -> AddOffsetsToTxnResponse:
            return AddOffsetsToTxnResponse(
                throttle_time_ms=0, error_code=_error_for_version(context, _FIRST_ADD_WITH_FENCED, code)
            )

        return self._ask_shard(
            request.transactional_id, TransactionShard.add_offsets, request, context, AddOffsetsToTxnResponse, refused
        )

    def end(self, request: EndTxnRequest, context: Caller) -> Answer[Message]:
        def refused(code: ErrorCode, _: str | None = None) -> EndTxnResponse:
            return EndTxnResponse(
                throttle_time_ms=0, error_code=_error_for_version(context, _FIRST_END_WITH_FENCED, code)
            )

        return self._ask_shard(
            request.transactional_id, TransactionShard.end, request, context, EndTxnResponse, refused
        )

    # ── AddPartitionsToTxn ──

    def add_partitions(
        self, request: AddPartitionsToTxnRequest, context: Caller, denied: frozenset[str] = frozenset()
    ) -> Answer[Message]:
        """Answer AddPartitionsToTxn. `denied` are topics that the client may not write to."""
        if context.version >= FIRST_ADD_PARTITIONS_OF_BROKERS:
            answers = [self._add_to_one(transaction, context) for transaction in request.transactions]
            return all_of(
                answers,
                lambda responses: AddPartitionsToTxnResponse(
                    throttle_time_ms=0,
                    results_by_transaction=[
                        result for response in responses for result in response.results_by_transaction
                    ],
                ),
            )
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        return all_of(
            [self._add_to_one(transaction, context, denied)],
            lambda responses: AddPartitionsToTxnResponse(
                throttle_time_ms=0,
                results_by_topic_v3_and_below=responses[0].results_by_transaction[0].topic_results,
            ),
        )

    def _add_to_one(
        self, transaction: AddPartitionsToTxnTransaction, context: Caller, denied: frozenset[str] = frozenset()
    ) -> Answer[AddPartitionsToTxnResponse]:
        partitions = [(topic.name, partition) for topic in transaction.topics for partition in topic.partitions]
        missing = {
            partition: code for partition in partitions if (code := self._why_not(partition, context, denied)).is_error
        }
        if missing:
            # All or nothing.
            return add_partitions_response(
                transaction, dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | missing
            )

        def refused(code: ErrorCode, _: str | None = None) -> AddPartitionsToTxnResponse:
            public_code = _error_for_version(context, _FIRST_ADD_WITH_FENCED, code)
            return add_partitions_response(transaction, dict.fromkeys(partitions, public_code))

        request = AddPartitionsToTxnRequest(transactions=[transaction])
        return self._ask_shard(
            transaction.transactional_id,
            TransactionShard.add_or_verify_partitions,
            request,
            context,
            AddPartitionsToTxnResponse,
            refused,
        )

    def _why_not(self, partition: TopicPartition, context: Caller, denied: frozenset[str]) -> ErrorCode:
        name, index = partition
        if name in denied or (is_internal(name) and context.version < FIRST_ADD_PARTITIONS_OF_BROKERS):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._image.topics.by_name.get(name)
        if topic is None or index not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    # ── what operators ask ──

    def describe(self, request: DescribeTransactionsRequest, context: Caller) -> Answer[Message]:
        return all_of(
            [self._describe_one(name, context) for name in dict.fromkeys(request.transactional_ids)],
            lambda responses: DescribeTransactionsResponse(
                throttle_time_ms=0,
                transaction_states=[state for response in responses for state in response.transaction_states],
            ),
        )

    def _describe_one(self, name: str, context: Caller) -> Answer[DescribeTransactionsResponse]:
        def refused(code: ErrorCode, _: str | None = None) -> DescribeTransactionsResponse:
            return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=[describe_error(name, code)])

        request = DescribeTransactionsRequest(transactional_ids=[name])
        return self._ask_shard(name, TransactionShard.describe, request, context, DescribeTransactionsResponse, refused)

    def list_transactions(self, request: ListTransactionsRequest, context: Caller) -> Answer[Message]:
        """Return the transactions of all partitions that this broker leads; an error while one of them loads."""
        if any(self._is_loading(partition) for partition in range(self._log.partition_count())):
            return _list_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        try:
            pattern_of(request)
        except Refusal as refusal:
            return _list_error(refusal.code)
        return all_of(
            [
                ask(
                    self.runtime,
                    partition,
                    TransactionShard.list_transactions,
                    request,
                    context,
                    ListTransactionsResponse,
                    _list_error,
                )
                # Apache's order, that of a hash table.
                for partition in concurrent_hash_order(sorted(self.runtime.active_partitions()), int_hash)
            ],
            lambda responses: _merge_lists(request, responses),
        )

    def _is_loading(self, partition: int) -> bool:
        led = self.runtime.led_partition(partition)
        return led is not None and led.state is LoadState.LOADING


def _merge_lists(
    request: ListTransactionsRequest, responses: list[ListTransactionsResponse]
) -> ListTransactionsResponse:
    for response in responses:
        if response.error_code:
            return response
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown_states(request),
        transaction_states=[state for response in responses for state in response.transaction_states],
    )


def _list_error(code: ErrorCode, _: str | None = None) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=code, unknown_state_filters=[], transaction_states=[]
    )


def _error_for_version(context: Caller, first_version: int, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and context.version < first_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
