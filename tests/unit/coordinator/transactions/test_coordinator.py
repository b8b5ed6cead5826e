"""The transaction coordinator as handlers call it: real runtime, a log in memory, markers that are only recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pessoa.base.clock import ManualClock
from pessoa.coordinator.transactions.marker_writer import Marker
from pessoa.coordinator.transactions.producer_id_pool import ProducerIdPool
from pessoa.coordinator.transactions.transaction import TopicPartition
from pessoa.coordinator.transactions.transaction_config import TransactionConfig
from pessoa.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from pessoa.coordinator.transactions.verification import Verifier
from pessoa.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from pessoa.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pessoa.wire.api.allocate_producer_ids import AllocateProducerIdsResponse
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest
from pessoa.wire.api.end_txn import EndTxnRequest
from pessoa.wire.api.init_producer_id import InitProducerIdRequest
from pessoa.wire.api.list_transactions import ListTransactionsRequest
from pessoa.wire.errors import ErrorCode
from pessoa.wire.schema import Message
from tests.support.coordinators import submit
from tests.support.markers import wait_until_idle
from tests.support.memory_coordinator_log import MemoryLog
from tests.unit.coordinator.transactions.driver import Context
from tests.unit.coordinator.transactions.test_producer_ids import turn

PARTITION_COUNT = 3
TOPICS = {"t": 2, "__consumer_offsets": 50}


@dataclass
class World:
    """A broker that leads every partition; `partitions` of `__transaction_state` are elected with epoch 4."""

    holds_back: bool = False
    transaction_version: int = 2
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_000_000))
    markers: list[tuple[Marker, list[TopicPartition]]] = field(default_factory=list)
    blocks_given: int = 0

    def __post_init__(self) -> None:
        self.log = MemoryLog(PARTITION_COUNT)
        self.topics = {name: SimpleNamespace(partitions=dict.fromkeys(range(count))) for name, count in TOPICS.items()}
        self.image: Any = SimpleNamespace(topics=SimpleNamespace(by_name=self.topics))
        self.coordinator = self.new_coordinator()

    def new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            TransactionConfig(),
            self.log,
            self.clock,
            self.image,
            ProducerIdPool(self.allocate, self.clock),
            self,
            lambda: self.transaction_version,
            len,
        )

    async def allocate(self) -> AllocateProducerIdsResponse:
        self.blocks_given += 1
        return AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=0, producer_id_start=1000 * self.blocks_given, producer_id_len=1000
        )

    def write(
        self, marker: Marker, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode] | Awaitable[Mapping[TopicPartition, ErrorCode]]:
        self.markers.append((marker, list(partitions)))
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def is_gone(self, partition: TopicPartition) -> bool:
        return partition[0] not in self.topics

    async def elect(self, *partitions: int, epoch: int = 4) -> None:
        for partition in partitions or range(PARTITION_COUNT):
            loading = self.coordinator.elect(partition, epoch)
            assert loading is not None
            await loading

    async def ask(self, request: Message, version: int) -> Any:
        answer = submit(self.coordinator, request, Context(version))
        return answer if isinstance(answer, Message) else await answer


def scenario(play: Callable[[World], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Return a test that runs `play` in an event loop of its own, with every partition elected."""

    def test() -> None:
        async def run() -> None:
            world = World()
            await world.elect()
            await play(world)
            world.coordinator.close()

        asyncio.run(run())

    test.__name__, test.__doc__ = play.__name__, play.__doc__
    return test


def init(
    name: str | None = "orders", timeout_ms: int = 60_000, producer_id: int = -1, producer_epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def add(epoch: int, *topics: tuple[str, int], name: str = "orders") -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=1000,
        producer_epoch=epoch,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition]) for topic, partition in topics],
    )


def end(epoch: int, commits: bool = True, name: str = "orders") -> EndTxnRequest:
    return EndTxnRequest(transactional_id=name, producer_id=1000, producer_epoch=epoch, committed=commits)


def codes(response: Any) -> list[ErrorCode]:
    results = response.results_by_topic_v3_and_below or [
        topic for result in response.results_by_transaction for topic in result.topic_results
    ]
    return [
        ErrorCode.of(partition.partition_error_code) for topic in results for partition in topic.results_by_partition
    ]


@scenario
async def test_a_transaction_is_initialised_extended_committed_and_completed(world: World) -> None:
    begun = await world.ask(init(), 5)
    assert (begun.error_code, begun.producer_id, begun.producer_epoch) == (0, 1000, 0)
    added = await world.ask(AddPartitionsToTxnRequest(transactions=[add(0, ("t", 0), ("t", 1))]), 5)
    assert codes(added) == [ErrorCode.NONE, ErrorCode.NONE]
    offsets = AddOffsetsToTxnRequest(transactional_id="orders", producer_id=1000, producer_epoch=0, group_id="four")
    assert (await world.ask(offsets, 4)).error_code == 0
    ended = await world.ask(end(0), 5)
    assert (ended.error_code, ended.producer_id, ended.producer_epoch) == (0, 1000, 1)
    await wait_until_idle(world.coordinator.markers)
    assert world.markers == [(Marker(1000, 1, 4, True, 2), [("__consumer_offsets", 4), ("t", 0), ("t", 1)])]
    (state,) = (await world.ask(DescribeTransactionsRequest(transactional_ids=["orders"]), 0)).transaction_states
    assert state.transaction_state == "CompleteCommit"


@scenario
async def test_a_producer_without_a_transactional_id_needs_no_shard(world: World) -> None:
    for partition in range(PARTITION_COUNT):
        world.coordinator.resign(partition)
    first, second = [await world.ask(init(None), 0) for _ in range(2)]
    assert (first.error_code, first.producer_id, first.producer_epoch) == (0, 1000, 0)
    assert second.producer_id == 1001
    at_once = submit(world.coordinator, init(None), Context(0))
    assert isinstance(at_once, Message), "with a block at hand nothing waits"


@scenario
async def test_malformed_init_producer_id_requests_are_refused(world: World) -> None:
    for request, code in [
        (init(""), ErrorCode.INVALID_REQUEST),
        (init(timeout_ms=0), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (init(timeout_ms=900_001), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (init(producer_id=5), ErrorCode.INVALID_REQUEST),
        (init(producer_epoch=5), ErrorCode.INVALID_REQUEST),
    ]:
        refused = await world.ask(request, 5)
        assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (code, -1, -1)
    assert (await world.ask(init(timeout_ms=900_000), 5)).error_code == 0
    assert (await world.ask(end(0, name=""), 5)).error_code == ErrorCode.INVALID_REQUEST
    (state,) = (await world.ask(DescribeTransactionsRequest(transactional_ids=[""]), 0)).transaction_states
    assert state.error_code == ErrorCode.INVALID_REQUEST


@scenario
async def test_old_clients_get_invalid_producer_epoch_in_place_of_producer_fenced(world: World) -> None:
    await world.ask(init(), 5)
    await world.ask(init(), 5)
    old = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="orders",
        v3_and_below_producer_id=1000,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
    )
    offsets = AddOffsetsToTxnRequest(transactional_id="orders", producer_id=1000, producer_epoch=0, group_id="g")
    expected = init(producer_id=1000, producer_epoch=7)
    for request, last_old_version in [(old, 1), (offsets, 1), (end(0), 1), (expected, 3)]:
        for version, code in [
            (last_old_version, ErrorCode.INVALID_PRODUCER_EPOCH),
            (last_old_version + 1, ErrorCode.PRODUCER_FENCED),
        ]:
            answer = await world.ask(request, version)
            heard = codes(answer)[0] if request is old else answer.error_code
            assert heard == code, (request, version)


@scenario
async def test_either_all_or_none_of_the_partitions_of_a_request_are_added(world: World) -> None:
    await world.ask(init(), 5)
    answer = await world.ask(AddPartitionsToTxnRequest(transactions=[add(0, ("t", 0), ("t", 2), ("no", 0))]), 5)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(answer) == [ErrorCode.OPERATION_NOT_ATTEMPTED, missing, missing]
    (state,) = (await world.ask(DescribeTransactionsRequest(transactional_ids=["orders"]), 0)).transaction_states
    assert state.transaction_state == "Empty"


@scenario
async def test_clients_do_not_add_internal_topics_but_brokers_do(world: World) -> None:
    await world.ask(init(), 5)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="orders",
        v3_and_below_producer_id=1000,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="__consumer_offsets", partitions=[0])],
    )
    assert codes(await world.ask(request, 3)) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    by_broker = AddPartitionsToTxnRequest(transactions=[add(0, ("__consumer_offsets", 0))])
    assert codes(await world.ask(by_broker, 5)) == [ErrorCode.NONE]


@scenario
async def test_brokers_may_verify_several_transactions_in_one_request(world: World) -> None:
    await world.ask(init(), 5)
    request = AddPartitionsToTxnRequest(
        transactions=[add(0, ("t", 0)), add(0, ("t", 0), name="unknown"), add(0, ("t", 1), name="")]
    )
    answer = await world.ask(request, 5)
    assert [result.transactional_id for result in answer.results_by_transaction] == ["orders", "unknown", ""]
    assert codes(answer) == [
        ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_REQUEST,
    ]  # fmt: skip


@scenario
async def test_a_leader_on_the_coordinators_broker_verifies_and_adds_partitions(world: World) -> None:
    await world.ask(init(), 5)
    verifier = Verifier(lambda request: world.ask(request, 5), world.clock, TransactionConfig())
    for may_add, code in [
        (False, ErrorCode.TRANSACTION_ABORTABLE), (True, ErrorCode.NONE), (False, ErrorCode.NONE),
    ]:  # fmt: skip
        assert await verifier.verify("orders", 1000, 0, [("t", 1)], may_add) == {("t", 1): code}
    assert await verifier.verify("orders", 1000, 7, [("t", 1)], True) == {("t", 1): ErrorCode.INVALID_PRODUCER_EPOCH}


@scenario
async def test_append_errors_of_transaction_requests_are_mapped_to_coordinator_errors(world: World) -> None:
    for of_log, public in [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ]:
        world.log.refuses_with = of_log
        assert (await world.ask(init(), 5)).error_code == public


@scenario
async def test_a_broker_that_does_not_lead_the_partition_answers_not_coordinator(world: World) -> None:
    world.coordinator.resign(world.coordinator.runtime.partition_for("orders"), 5)
    assert (await world.ask(init(), 5)).error_code == ErrorCode.NOT_COORDINATOR
    states = (await world.ask(DescribeTransactionsRequest(transactional_ids=["orders"]), 0)).transaction_states
    assert [state.error_code for state in states] == [ErrorCode.NOT_COORDINATOR]


@scenario
async def test_no_reply_leaves_before_its_record_is_committed(world: World) -> None:
    await world.ask(init(), 5)
    world.log.holds_back = True
    answer = asyncio.ensure_future(world.ask(init(), 5))
    await turn()
    assert not answer.done()
    world.log.commit(world.coordinator.runtime.partition_for("orders"))
    assert (await answer).producer_epoch == 1


@scenario
async def test_list_transactions_lists_those_of_all_led_partitions(world: World) -> None:
    names = [f"id-{number}" for number in range(12)]
    assert len({world.coordinator.runtime.partition_for(name) for name in names}) == PARTITION_COUNT
    for name in names:
        await world.ask(init(name), 5)
    request = ListTransactionsRequest(state_filters=["Empty", "Odd"], producer_id_filters=[])
    listed = await world.ask(request, 2)
    assert sorted(state.transactional_id for state in listed.transaction_states) == sorted(names)
    assert listed.unknown_state_filters == ["Odd"]


@scenario
async def test_an_invalid_pattern_of_list_transactions_is_refused_also_where_no_partition_is_led(world: World) -> None:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="(")
    assert (await world.ask(request, 2)).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    for partition in range(PARTITION_COUNT):
        world.coordinator.resign(partition)
    assert (await world.ask(request, 2)).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_list_transactions_is_refused_while_a_partition_loads() -> None:
    async def run() -> None:
        world = World()
        loading = world.coordinator.elect(1, 4)
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
        assert (await world.ask(request, 2)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert loading is not None
        await loading
        assert (await world.ask(request, 2)).error_code == ErrorCode.NONE
        world.coordinator.close()

    asyncio.run(run())


@pytest.mark.parametrize("commits", [True, False])
def test_a_new_coordinator_completes_the_prepared_transactions_of_the_previous_one(commits: bool) -> None:
    async def run() -> None:
        world = World()
        await world.elect()
        await world.ask(init(), 5)
        await world.ask(AddPartitionsToTxnRequest(transactions=[add(0, ("t", 0))]), 5)
        await world.ask(end(0, commits), 5)
        world.coordinator.close()
        assert world.markers == [], "it was closed before the first marker was written"

        world.coordinator = world.new_coordinator()
        await world.elect(epoch=9)
        await wait_until_idle(world.coordinator.markers)
        assert world.markers == [(Marker(1000, 1, 9, commits, 2), [("t", 0)])]
        assert (await world.ask(end(0, commits), 5)).producer_epoch == 1
        world.coordinator.close()

    asyncio.run(run())


@scenario
async def test_a_transaction_is_aborted_at_its_timeout(world: World) -> None:
    await world.ask(init(), 5)
    await world.ask(AddPartitionsToTxnRequest(transactions=[add(0, ("t", 0))]), 5)
    await turn()
    world.clock.advance_ms(60_001)
    await turn()
    await wait_until_idle(world.coordinator.markers)
    assert [marker.commits for marker, _ in world.markers] == [False]
