"""The transaction coordinator as the broker's handlers see it: a request of an API goes in, its response comes out.

Requests are checked here for what no shard need know, cut into what each shard has to say, and put together again; and
what a shard refuses becomes the error response of the API. Old versions of the APIs do not know PRODUCER_FENCED and
hear INVALID_PRODUCER_EPOCH.

    API                    since version    hears PRODUCER_FENCED from
    InitProducerId         3: goes on after an error (KIP-360)                4
    AddPartitionsToTxn     4: several transactions, from brokers only         2
    AddOffsetsToTxn                                                           2
    EndTxn                 5: gives the epoch of the next transaction         2

`submit` returns the response, or an awaitable of it where something waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from pessoa.base.clock import Clock
from pessoa.coordinator.log import CoordinatorLog
from pessoa.coordinator.runtime import CoordinatorRuntime, SlotState
from pessoa.coordinator.shard import Delta, Image, Refusal, RequestContext
from pessoa.coordinator.transactions.config import TransactionConfig
from pessoa.coordinator.transactions.describe import not_described, pattern_of, unknown_states
from pessoa.coordinator.transactions.markers import MarkerPort, MarkerWriter
from pessoa.coordinator.transactions.marking import MarkersWritten
from pessoa.coordinator.transactions.producer_ids import ProducerIds
from pessoa.coordinator.transactions.shard import GROUP_TOPIC, Surroundings, TransactionShard, added
from pessoa.coordinator.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID, TopicPartition
from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from pessoa.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from pessoa.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from pessoa.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from pessoa.wire.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from pessoa.wire.stored.framing import TRANSACTION_LOG

TRANSACTION_TOPIC = "__transaction_state"
_INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, "__share_group_state"})

_FIRST_INIT_WITH_FENCED = 4
_FIRST_ADD_WITH_FENCED = 2
_FIRST_END_WITH_FENCED = 2
_FIRST_ADD_OF_BROKERS = 4

# What the log says of an append, and what a client of the coordinator hears.
_LOG_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}

M = TypeVar("M", bound=Message)
Maybe: TypeAlias = M | Awaitable[M]


class _Ourselves(NamedTuple):
    """The context of what no client has sent."""

    version: int = 0
    client_id: str | None = None
    client_host: str = ""


class TransactionCoordinator:
    """`transaction_version` is the level of that feature; `group_partition` the partition of a group in
    `__consumer_offsets`."""

    def __init__(
        self,
        config: TransactionConfig,
        log: CoordinatorLog,
        clock: Clock,
        image: Image,
        producer_ids: ProducerIds,
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
        self._services: dict[type[Message], Callable[[Any, RequestContext], Maybe[Message]]] = {
            AddOffsetsToTxnRequest: self._add_offsets,
            AddPartitionsToTxnRequest: self._add_partitions,
            DescribeTransactionsRequest: self._describe,
            EndTxnRequest: self._end,
            InitProducerIdRequest: self._begin_producer,
            ListTransactionsRequest: self._list,
        }

    def __repr__(self) -> str:
        return f"<TransactionCoordinator: {self.runtime!r}, {self.markers!r}>"

    def submit(self, request: Message, context: RequestContext) -> Maybe[Message]:
        return self._services[type(request)](request, context)

    # ── the life of the coordinator ──

    def elect(self, partition: int, epoch: int) -> asyncio.Task[None] | None:
        """This broker leads a partition of `__transaction_state`, with that leader epoch."""
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
        slot = self.runtime.slot(partition)
        return slot.epoch if slot is not None and slot.state is SlotState.ACTIVE else None

    def _markers_written(self, partition: int, told: MarkersWritten) -> Maybe[Message]:
        return self.runtime.submit(partition, told, _Ourselves())

    # ── requests ──

    def _ask(
        self, transactional_id: str, request: Message, context: RequestContext, refused: Callable[[Refusal], M]
    ) -> Maybe[M]:
        """Let the shard of the id answer; `refused` makes the answer of what it does not want to do."""
        if not transactional_id:
            return refused(Refusal(ErrorCode.INVALID_REQUEST))
        return self._ask_shard(self.runtime.partition_for(transactional_id), request, context, refused)

    def _ask_shard(
        self, partition: int, request: Message, context: RequestContext, refused: Callable[[Refusal], M]
    ) -> Maybe[M]:
        try:
            reply = self.runtime.submit(partition, request, context)
        except Refusal as refusal:
            return refused(_public(refusal))
        # A shard answers a request with the response of its API.
        if isinstance(reply, Message):
            return cast("M", reply)
        return _answered(cast("Awaitable[M]", reply), refused)

    def _begin_producer(self, request: InitProducerIdRequest, context: RequestContext) -> Maybe[Message]:
        def refused(refusal: Refusal) -> InitProducerIdResponse:
            return InitProducerIdResponse(
                throttle_time_ms=0,
                error_code=_known_to(context, _FIRST_INIT_WITH_FENCED, refusal.code),
                producer_id=NO_PRODUCER_ID,
                producer_epoch=NO_EPOCH,
            )

        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            return refused(Refusal(ErrorCode.INVALID_REQUEST))
        if request.transactional_id is not None:
            if not request.transactional_id:
                return refused(Refusal(ErrorCode.INVALID_REQUEST))
            if not 0 < request.transaction_timeout_ms <= self._config.transaction_max_timeout_ms:
                return refused(Refusal(ErrorCode.INVALID_TRANSACTION_TIMEOUT))

        def answer() -> Maybe[Message]:
            if request.transactional_id is not None:
                return self._ask(request.transactional_id, request, context, refused)
            return InitProducerIdResponse(
                throttle_time_ms=0, error_code=ErrorCode.NONE, producer_id=self.producer_ids.take(), producer_epoch=0
            )

        return answer() if self.producer_ids.has_id else self._when_ids_are_there(answer)

    async def _when_ids_are_there(self, answer: Callable[[], Maybe[Message]]) -> Message:
        await self.producer_ids.wait_for_id()
        reply = answer()
        return reply if isinstance(reply, Message) else await reply

    def _add_offsets(self, request: AddOffsetsToTxnRequest, context: RequestContext) -> Maybe[Message]:
        def refused(refusal: Refusal) -> AddOffsetsToTxnResponse:
            return AddOffsetsToTxnResponse(
                throttle_time_ms=0, error_code=_known_to(context, _FIRST_ADD_WITH_FENCED, refusal.code)
            )

        return self._ask(request.transactional_id, request, context, refused)

    def _end(self, request: EndTxnRequest, context: RequestContext) -> Maybe[Message]:
        def refused(refusal: Refusal) -> EndTxnResponse:
            return EndTxnResponse(
                throttle_time_ms=0, error_code=_known_to(context, _FIRST_END_WITH_FENCED, refusal.code)
            )

        return self._ask(request.transactional_id, request, context, refused)

    # ── AddPartitionsToTxn ──

    def _add_partitions(self, request: AddPartitionsToTxnRequest, context: RequestContext) -> Maybe[Message]:
        if context.version >= _FIRST_ADD_OF_BROKERS:
            answers = [self._add_to_one(transaction, context) for transaction in request.transactions]
            return _together(
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
        return _together(
            [self._add_to_one(transaction, context)],
            lambda responses: AddPartitionsToTxnResponse(
                throttle_time_ms=0,
                results_by_topic_v3_and_below=responses[0].results_by_transaction[0].topic_results,
            ),
        )

    def _add_to_one(
        self, transaction: AddPartitionsToTxnTransaction, context: RequestContext
    ) -> Maybe[AddPartitionsToTxnResponse]:
        partitions = [(topic.name, partition) for topic in transaction.topics for partition in topic.partitions]
        missing = {partition: code for partition in partitions if (code := self._why_not(partition, context)).is_error}
        if missing:
            # All or nothing.
            return added(transaction, dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | missing)

        def refused(refusal: Refusal) -> AddPartitionsToTxnResponse:
            code = _known_to(context, _FIRST_ADD_WITH_FENCED, refusal.code)
            return added(transaction, dict.fromkeys(partitions, code))

        request = AddPartitionsToTxnRequest(transactions=[transaction])
        return self._ask(transaction.transactional_id, request, context, refused)

    def _why_not(self, partition: TopicPartition, context: RequestContext) -> ErrorCode:
        name, index = partition
        if name in _INTERNAL_TOPICS and context.version < _FIRST_ADD_OF_BROKERS:
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._image.topics.by_name.get(name)
        if topic is None or index not in topic.partitions:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    # ── what operators ask ──

    def _describe(self, request: DescribeTransactionsRequest, context: RequestContext) -> Maybe[Message]:
        return _together(
            [self._describe_one(name, context) for name in dict.fromkeys(request.transactional_ids)],
            lambda responses: DescribeTransactionsResponse(
                throttle_time_ms=0,
                transaction_states=[state for response in responses for state in response.transaction_states],
            ),
        )

    def _describe_one(self, name: str, context: RequestContext) -> Maybe[DescribeTransactionsResponse]:
        def refused(refusal: Refusal) -> DescribeTransactionsResponse:
            return DescribeTransactionsResponse(
                throttle_time_ms=0, transaction_states=[not_described(name, refusal.code)]
            )

        request = DescribeTransactionsRequest(transactional_ids=[name])
        return self._ask(name, request, context, refused)

    def _list(self, request: ListTransactionsRequest, context: RequestContext) -> Maybe[Message]:
        """Of all partitions that this broker leads. While one of them loads, the list would have a hole."""
        if any(self._is_loading(partition) for partition in range(self._log.partition_count())):
            return _not_listed(Refusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        try:
            pattern_of(request)
        except Refusal as refusal:
            return _not_listed(refusal)
        return _together(
            [
                self._ask_shard(partition, request, context, _not_listed)
                for partition in self.runtime.active_partitions()
            ],
            lambda responses: _joined(request, responses),
        )

    def _is_loading(self, partition: int) -> bool:
        slot = self.runtime.slot(partition)
        return slot is not None and slot.state is SlotState.LOADING


def _joined(request: ListTransactionsRequest, responses: list[ListTransactionsResponse]) -> ListTransactionsResponse:
    for response in responses:
        if response.error_code:
            return response
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=unknown_states(request),
        transaction_states=[state for response in responses for state in response.transaction_states],
    )


def _not_listed(refusal: Refusal) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=0, error_code=refusal.code, unknown_state_filters=[], transaction_states=[]
    )


def _public(refusal: Refusal) -> Refusal:
    return Refusal(_LOG_ERRORS.get(refusal.code, refusal.code), refusal.message)


def _known_to(context: RequestContext, first_version: int, code: ErrorCode) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED and context.version < first_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


async def _answered(reply: Awaitable[M], refused: Callable[[Refusal], M]) -> M:
    try:
        return await reply
    except Refusal as refusal:
        return refused(_public(refusal))


def _together(answers: list[Maybe[M]], join: Callable[[list[M]], Message]) -> Maybe[Message]:
    """Wait for those that wait, if any do."""
    done = [answer for answer in answers if isinstance(answer, Message)]
    if len(done) == len(answers):
        return join(done)
    return _gathered(answers, join)


async def _gathered(answers: list[Maybe[M]], join: Callable[[list[M]], Message]) -> Message:
    return join([answer if isinstance(answer, Message) else await answer for answer in answers])
