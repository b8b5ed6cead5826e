"""Settings of groups, transactions and producers on Apache Kafka and on us: the same requests get the same responses.

The requests are those of Apache's own integration tests (ProducerIdExpirationTest, TransactionsExpirationTest and those
of the group APIs), with limits so low that every request reaches one of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pessoa.testing import Broker
from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from pessoa.wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest
from pessoa.wire.api.end_txn import EndTxnRequest
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest
from pessoa.wire.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pessoa.wire.api.init_producer_id import InitProducerIdRequest
from pessoa.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pessoa.wire.errors import ErrorCode
from tests.apache.broker import ApacheKafka
from tests.differential.group_stage import PATIENCE_S, ApacheSide
from tests.support.batches import idempotent, transactional
from tests.support.crash_wire import now_ms, produce_request

pytestmark = pytest.mark.apache

SETTINGS = {
    "group.max.size": "1",
    "group.min.session.timeout.ms": "1000",
    "group.max.session.timeout.ms": "20000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.max.size": "1",
    "group.consumer.assignors": "range",
    "group.consumer.heartbeat.interval.ms": "6000",
    "group.consumer.migration.policy": "disabled",
    "offset.metadata.max.bytes": "10",
    "transaction.max.timeout.ms": "5000",
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "producer.id.expiration.ms": "86400000",
    "producer.id.expiration.check.interval.ms": "100",
}
ORDERS = "orders"
DAY_MS = 86_400_000
BROKER_RESOURCE = 4


class Play:
    def __init__(self, port: int) -> None:
        self.side = ApacheSide(port)
        self.found: list[tuple[str, object]] = []

    async def ask(self, request: Any, version: int, actor: str = "admin") -> Any:
        return await self.side.ask(actor, request, version)

    def note(self, what: str, answer: object) -> None:
        self.found.append((what, ErrorCode.of(answer).name if isinstance(answer, int) else answer))

    async def until(self, ask: Callable[[], Awaitable[Any]], is_right: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while not is_right(answer := await ask()):  # noqa: ASYNC110  # another process has to come so far
                await asyncio.sleep(0.05)
            return answer

    async def run(self) -> list[tuple[str, object]]:
        try:
            await self.side.prepare()
            await self.classic_groups()
            await self.consumer_groups()
            await self.transactions()
            await self.producers()
        finally:
            self.side.close()
        return self.found

    # Groups.

    async def classic_groups(self) -> None:
        for session_ms in (999, 1_000, 20_000, 20_001):
            answer = await self.join(f"session-{session_ms}", "first", session_ms)
            self.note(f"session of {session_ms} ms", answer.error_code)
        answer = await self.join("session-1000", "second", 1_000)
        self.note("a second member", answer.error_code)
        for size in (10, 11):
            partition = OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata="." * size
            )
            request = OffsetCommitRequest(
                group_id="simple",
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[OffsetCommitRequestTopic(name=ORDERS, partitions=[partition])],
            )
            answer = await self.ask(request, 8)
            self.note(f"metadata of {size} bytes", answer.topics[0].partitions[0].error_code)

    async def join(self, group_id: str, member: str, session_ms: int) -> Any:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=1_000,
            member_id="",
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        return await self.ask(request, 3, member)

    async def consumer_groups(self) -> None:
        for group_id, member_id, assignor in (
            ("c", "m1", "uniform"),
            ("c", "m1", "range"),
            ("c", "m2", None),
            # The group has a member of the classic protocol, and may not be converted.
            ("session-20000", "m1", None),
        ):
            request = ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[ORDERS],
                server_assignor=assignor,
                topic_partitions=[],
            )
            answer = await self.ask(request, 1)
            self.note(f"{group_id} {member_id} {assignor}", answer.error_code)
            self.note("heartbeats", f"every {answer.heartbeat_interval_ms} ms")
        question = ConsumerGroupDescribeRequest(group_ids=["c"], include_authorized_operations=False)
        [group] = (await self.ask(question, 1)).groups
        self.note("described", (group.group_state, group.assignor_name, [one.member_id for one in group.members]))

    # Transactions.

    async def begin(self, name: str, timeout_ms: int) -> Any:
        await self.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms)
        passing = (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )
        return await self.until(lambda: self.ask(request, 4), lambda answer: answer.error_code not in passing)

    async def add(self, name: str, producer: Any) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=ORDERS, partitions=[0])],
        )
        answer = await self.ask(request, 3)
        self.note(
            "adds a partition", answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        )

    async def end(self, name: str, producer: Any) -> None:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=True,
        )
        self.note("commits", (await self.ask(request, 4)).error_code)

    async def transactions(self) -> None:
        for timeout_ms in (0, 5_000, 5_001):
            self.note(f"time-out of {timeout_ms} ms", (await self.begin("timed", timeout_ms)).error_code)
        producer = await self.begin("expires", 5_000)
        await self.add("expires", producer)
        records = transactional(producer.producer_id, 0, producer_epoch=producer.producer_epoch, timestamp=now_ms())
        self.note("produces", await self.produce(records, "expires"))
        await self.end("expires", producer)
        # The transactional id expires, while the partition still has its producer id.
        described = DescribeTransactionsRequest(transactional_ids=["expires"])
        gone = await self.until(
            lambda: self.ask(described, 0), lambda answer: answer.transaction_states[0].error_code != ErrorCode.NONE
        )
        self.note("described", gone.transaction_states[0].error_code)
        self.note("is known", producer.producer_id in await self.known())
        await self.add("expires", producer)
        await self.end("expires", producer)
        again = await self.begin("expires", 5_000)
        self.note("begins again", again.error_code)
        self.note("as another", again.producer_id != producer.producer_id)
        self.note("with the first epoch", f"{again.producer_epoch}")

    # Producers.

    async def produce(self, records: memoryview, transactional_id: str | None = None) -> int:
        request = produce_request(ORDERS, records)
        request.transactional_id = transactional_id
        answer = await self.ask(request, 11)
        code: int = answer.responses[0].partition_responses[0].error_code
        return code

    async def known(self) -> list[int]:
        request = DescribeProducersRequest(topics=[TopicRequest(name=ORDERS, partition_indexes=[0])])
        [partition] = (await self.ask(request, 0)).topics[0].partitions
        return [one.producer_id for one in partition.active_producers]

    async def alter(self, name: str, value: str) -> None:
        resource = AlterConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name="",
            configs=[AlterableConfig(name=name, config_operation=0, value=value)],
        )
        answer = await self.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        self.note(f"{name}={value}", answer.responses[0].error_code)

    async def producers(self) -> None:
        self.note("an old batch", await self.produce(idempotent(900_000, 0, timestamp=now_ms() - DAY_MS // 2)))
        self.note("is known", 900_000 in await self.known())
        await self.alter("producer.id.expiration.ms", "0")
        await self.alter("producer.id.expiration.ms", str(DAY_MS // 4))
        await self.until(self.known, lambda known: 900_000 not in known)
        self.note("goes on anywhere", await self.produce(idempotent(900_000, 7, timestamp=now_ms())))
        self.note("and then in order", await self.produce(idempotent(900_000, 7, timestamp=now_ms())))
        self.note("or not", await self.produce(idempotent(900_000, 20, timestamp=now_ms())))
        await self.alter("transaction.partition.verification.enable", "false")

        async def late() -> int:
            return await self.produce(transactional(900_001, 0, timestamp=now_ms()), "unknown")

        self.note("a batch of no transaction", await self.until(late, lambda code: code == ErrorCode.NONE))


def test_limits_and_expiry_of_groups_transactions_and_producers_are_those_of_apache() -> None:
    with ApacheKafka(properties=SETTINGS) as apache, Broker(SETTINGS) as broker:
        theirs = asyncio.run(Play(apache.nodes[0].port).run())
        ours = asyncio.run(Play(broker.port).run())
    assert ours == theirs
