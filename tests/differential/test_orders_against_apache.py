"""The order of groups, members, partitions, transactions and producers in responses is the same as Apache Kafka's.

One script of requests is played to Apache Kafka and to a broker of ours. Where an order depends on topic ids, which are
random, both sides are compared with `base.java_order`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from pessoa.base.ids import Uuid
from pessoa.base.java_order import computed_hash_order, hash_order, int_hash, uuid_hash
from pessoa.testing import Broker
from pessoa.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from pessoa.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from pessoa.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from pessoa.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from pessoa.wire.api.delete_groups import DeleteGroupsRequest
from pessoa.wire.api.describe_groups import DescribeGroupsRequest
from pessoa.wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from pessoa.wire.api.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
)
from pessoa.wire.api.describe_topic_partitions import TopicRequest as PagedTopic
from pessoa.wire.api.describe_transactions import DescribeTransactionsRequest
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest
from pessoa.wire.api.init_producer_id import InitProducerIdRequest
from pessoa.wire.api.list_groups import ListGroupsRequest
from pessoa.wire.api.list_transactions import ListTransactionsRequest
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from pessoa.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from pessoa.wire.errors import ErrorCode
from tests.apache.broker import ApacheKafka
from tests.differential.group_stage import PATIENCE_S, ApacheSide
from tests.support.batches import idempotent
from tests.support.crash_wire import now_ms, produce_request

pytestmark = pytest.mark.apache

GROUPS = [f"g{number}" for number in range(60)]
TRANSACTIONS = [f"x{number}" for number in range(60)]
# Sizes around those at which Java's hash tables grow.
GROUP_SIZES = (2, 3, 5, 6, 11, 12, 23)
SUBSCRIPTIONS = (1, 11, 12, 13, 24)
TOPICS = [f"t{number}" for number in range(24)]
WIDE = "wide"

Ask = Callable[..., Any]


async def play(port: int) -> dict[str, Any]:
    side = ApacheSide(port)
    try:
        await side.prepare()
        await create_topics(side)
        return {
            **await groups(side),
            **await consumer_groups(side),
            **await transactions(side),
            "producers": await producers(side),
            "pages": await pages(side),
        }
    finally:
        side.close()


async def until(ask: Callable[[], Any], is_right: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        while not is_right(answer := await ask()):  # noqa: ASYNC110  # another process has to come so far
            await asyncio.sleep(0.05)
        return answer


async def create_topics(side: ApacheSide) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=size, replication_factor=1, assignments=[], configs=[])
        for name, size in [*((name, 1) for name in TOPICS), (WIDE, 40)]
    ]
    await side.ask("admin", CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=False), 7)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in (*TOPICS, WIDE)])
    await until(
        lambda: side.ask("admin", request, 12),
        lambda answer: all(one.error_code == 0 and len(one.partitions) for one in answer.topics),
    )


async def groups(side: ApacheSide) -> dict[str, Any]:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    topic = OffsetCommitRequestTopic(name="orders", partitions=[partition])
    for group_id in GROUPS:
        request = OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        answer = await side.ask("admin", request, 8)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
    asked = [*GROUPS[:20], "nope", "", "x9", *GROUPS[40:]]
    listed = await side.ask("admin", ListGroupsRequest(), 5)
    described = await side.ask("admin", DescribeGroupsRequest(groups=asked), 5)
    question = ConsumerGroupDescribeRequest(group_ids=asked, include_authorized_operations=False)
    refused = await side.ask("admin", question, 1)
    deleted = await side.ask("admin", DeleteGroupsRequest(groups_names=asked), 2)
    return {
        "listed": [one.group_id for one in listed.groups],
        "described": [one.group_id for one in described.groups],
        "refused": [(one.group_id, one.error_code) for one in refused.groups],
        "deleted": [(one.group_id, one.error_code) for one in deleted.results],
    }


def heartbeat(group_id: str, member_id: str, topics: list[str], assignor: str | None = None) -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=topics,
        server_assignor=assignor,
        topic_partitions=[],
    )


async def described(side: ApacheSide, group_id: str) -> list[Any]:
    request = ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)
    members: list[Any] = (await side.ask("admin", request, 1)).groups[0].members
    return members


async def consumer_groups(side: ApacheSide) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for size in GROUP_SIZES:
        random = Random(size)
        for _ in range(size):
            member_id = f"m{random.randrange(10**9)}"
            await side.ask(member_id, heartbeat(f"members-{size}", member_id, ["orders"]), 1)
        found[f"{size} members"] = [one.member_id for one in await described(side, f"members-{size}")]
    # Apache's group coordinator learns of new topics later than Metadata shows them, and after all logs are created.
    await until(
        lambda: side.ask("admin", heartbeat("all-topics", "only", [*TOPICS, WIDE]), 1),
        lambda answer: len(answer.assignment.topic_partitions) == len(TOPICS) + 1,
    )
    for size in SUBSCRIPTIONS:
        answer = await side.ask("admin", heartbeat(f"topics-{size}", "only", TOPICS[:size]), 1)
        assert_in_order(answer.assignment.topic_partitions, computed_hash_order)
        [member] = await described(side, f"topics-{size}")
        found[f"{size} topics"] = member.subscribed_topic_names
        assert_in_order(member.assignment.topic_partitions, computed_hash_order)
        assert_in_order(member.target_assignment.topic_partitions, hash_order)
    for assignor in ("uniform", "range"):
        found[assignor] = await partitions(side, assignor)
    return found


def assert_in_order(topics: list[Any], order: Callable[..., list[Uuid]]) -> None:
    """Assert that the topics are in the order of Java's hash buckets; within a bucket either order is right."""
    ids = [topic.topic_id for topic in topics]
    assert ids
    assert ids in (order(ids, uuid_hash), order(ids[::-1], uuid_hash))


async def partitions(side: ApacheSide, assignor: str) -> dict[str, list[int]]:
    """Assign one topic with many partitions to seven members, and check how many each gets and in which order. Return
    the partitions of each member for `range`, and nothing for `uniform`."""
    group_id, members = f"wide-{assignor}", "abcdefg"
    epochs = dict.fromkeys(members, 0)
    owned: dict[str, list[TopicPartitions]] = {one: [] for one in members}

    async def beat() -> list[int]:
        for member_id in members:
            request = heartbeat(group_id, member_id, [WIDE], assignor)
            if epochs[member_id]:
                request = ConsumerGroupHeartbeatRequest(
                    group_id=group_id,
                    member_id=member_id,
                    member_epoch=epochs[member_id],
                    topic_partitions=owned[member_id],
                )
            answer = await side.ask(member_id, request, 1)
            assert answer.error_code == ErrorCode.NONE, answer
            epochs[member_id] = answer.member_epoch
            if answer.assignment is not None:
                topics = answer.assignment.topic_partitions
                owned[member_id] = [TopicPartitions(topic_id=one.topic_id, partitions=one.partitions) for one in topics]
        return [len(one[0].partitions) if one else 0 for one in owned.values()]

    await until(beat, lambda counts: sorted(counts) == [5, 5, 6, 6, 6, 6, 6])
    for one in owned.values():
        assert one[0].partitions == hash_order(sorted(one[0].partitions), int_hash)
    return {
        one.member_id: one.assignment.topic_partitions[0].partitions
        for one in await described(side, group_id)
        if assignor == "range"
    }


async def transactions(side: ApacheSide) -> dict[str, Any]:
    for name in TRANSACTIONS:
        producer = await until(
            lambda name=name: begin(side, name),  # type: ignore[misc]
            lambda answer: answer.error_code == ErrorCode.NONE,
        )
    topics = [
        AddPartitionsToTxnTopic(name=WIDE, partitions=[30, 7, 19, 2]),
        *(AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("t3", "t1", "t8", "t15")),
    ]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTIONS[-1],
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=topics,
    )
    await side.ask("admin", request, 3)
    asked = [TRANSACTIONS[-1], "zz", "x3", "", "x11", "x1"]
    listed = await side.ask("admin", ListTransactionsRequest(state_filters=[], producer_id_filters=[]), 1)
    states = await side.ask("admin", DescribeTransactionsRequest(transactional_ids=asked), 0)
    return {
        "listed transactions": [one.transactional_id for one in listed.transaction_states],
        "described transactions": [
            (one.transactional_id, one.error_code, [(each.topic, each.partitions) for each in one.topics])
            for one in states.transaction_states
        ],
    }


async def begin(side: ApacheSide, name: str) -> Any:
    await side.ask("admin", FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
    return await side.ask("admin", InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)


async def producers(side: ApacheSide) -> list[int]:
    for producer_id in (4_000, 17, 1_000_001, 33, 5 << 32, 2, 16):
        answer = await side.ask("admin", produce_request("t0", idempotent(producer_id, 0, timestamp=now_ms())), 12)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    request = DescribeProducersRequest(topics=[TopicRequest(name="t0", partition_indexes=[0])])
    answer = await side.ask("admin", request, 0)
    return [one.producer_id for one in answer.topics[0].partitions[0].active_producers]


async def pages(side: ApacheSide) -> list[tuple[str, list[int]]]:
    topics = [PagedTopic(name=name) for name in ("t9", "t10", WIDE, "nope", "t1")]
    request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=12, cursor=None)
    answer = await side.ask("admin", request, 0)
    return [(one.name, [each.partition_index for each in one.partitions]) for one in answer.topics]


def test_lists_in_responses_have_the_same_order_as_apaches() -> None:
    with ApacheKafka() as apache, Broker() as broker:
        theirs = asyncio.run(play(apache.nodes[0].port))
        ours = asyncio.run(play(broker.port))
    assert ours == theirs
