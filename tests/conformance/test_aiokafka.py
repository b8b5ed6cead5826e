"""aiokafka against our broker. Tests are coroutines; conftest.py runs them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    InvalidPartitionsError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    ProducerFenced,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from pessoa.testing import Broker
from tests.support.clients import CODECS, TIMEOUT_S, Reachable, create_topic, unique
from tests.support.lossy_proxy import LossyProxy

pytestmark = pytest.mark.client("aiokafka")

feature = pytest.mark.feature


@asynccontextmanager
async def admin_of(broker: Reachable) -> AsyncIterator[Any]:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


@asynccontextmanager
async def producer_of(broker: Reachable, **settings: Any) -> AsyncIterator[Any]:
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consumer_of(broker: Reachable, *topics: str, **settings: Any) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap_servers,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings},
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def send(broker: Reachable, topic: str, values: list[bytes], partition: int = 0, **settings: Any) -> list[Any]:
    async with producer_of(broker, **settings) as producer:
        waiting = [await producer.send(topic, value, partition=partition) for value in values]
        return list(await asyncio.gather(*waiting))


async def take(consumer: Any, count: int) -> list[Any]:
    return [await asyncio.wait_for(consumer.getone(), TIMEOUT_S) for _ in range(count)]


async def read(broker: Reachable, topic: str, count: int, partition: int = 0, **settings: Any) -> list[bytes | None]:
    async with consumer_of(broker, **settings) as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        return [record.value for record in await take(consumer, count)]


async def until(ask: Callable[[], Awaitable[object]], is_right: Callable[[], object], what: str) -> None:
    """Repeat `ask`, which waits by itself, until `is_right`; fail after a deadline."""
    deadline = time.monotonic() + TIMEOUT_S
    while not is_right():
        assert time.monotonic() < deadline, f"{what} did not come about"
        await ask()


def numbers(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


@feature("topics")
async def test_topics_are_created_described_extended_and_deleted(kafka: Broker) -> None:
    name = unique("topic")
    async with admin_of(kafka) as admin:
        await admin.create_topics([NewTopic(name, 2, 1)])
        await admin.create_partitions({name: NewPartitions(4)})
        [described] = await admin.describe_topics([name])
        assert sorted(one["partition"] for one in described["partitions"]) == [0, 1, 2, 3]
        await admin.delete_topics([name])
        assert name not in await admin.list_topics()


@feature("errors")
async def test_existing_invalid_and_unknown_topics_are_refused_with_kafkas_errors(kafka: Broker, topic: str) -> None:
    async with admin_of(kafka) as admin:
        response = await admin.create_topics([NewTopic(topic, 1, 1), NewTopic(unique("topic"), 0, 1)])
        codes = {name: for_code(code) for name, code, *_ in response.topic_errors}
        assert set(codes.values()) == {TopicAlreadyExistsError, InvalidPartitionsError}
        response = await admin.delete_topics([unique("absent")])
        assert [for_code(code) for _, code in response.topic_error_codes] == [UnknownTopicOrPartitionError]


@feature("configs")
async def test_configurations_are_described_and_altered(kafka: Broker, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "1234"})

    async def retention(admin: Any) -> str:
        [response] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        entries = response.resources[0][4]
        return str(next(value for name, value, *_ in entries if name == "retention.ms"))

    async with admin_of(kafka) as admin:
        assert await retention(admin) == "604800000"
        await admin.alter_configs([resource])
        assert await retention(admin) == "1234"


@feature("acks")
@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_records_arrive_with_every_kind_of_acks(kafka: Broker, topic: str, acks: Any) -> None:
    told = await send(kafka, topic, numbers(50), acks=acks)
    if acks != 0:
        assert [one.offset for one in told] == list(range(50))
    assert await read(kafka, topic, 50) == numbers(50)


@feature("codecs")
@pytest.mark.parametrize("codec", CODECS)
async def test_records_compressed_with_any_codec_are_consumed_as_produced(
    kafka: Broker, topic: str, codec: str
) -> None:
    values = [value * 40 for value in numbers(200)]
    await send(kafka, topic, values, compression_type=None if codec == "none" else codec, linger_ms=10)
    assert await read(kafka, topic, 200) == values


@feature("keys", "headers", "timestamps")
async def test_keys_headers_and_timestamps_are_consumed_as_produced(kafka: Broker, topic: str) -> None:
    headers = [("a", b"1"), ("b", b""), ("a", b"2")]
    async with producer_of(kafka) as producer:
        for number in range(30):
            await producer.send_and_wait(
                topic, b"v", key=b"%d" % (number % 10), timestamp_ms=1_700_000_000_000 + number, headers=headers
            )
    async with consumer_of(kafka) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        found = await take(consumer, 30)
    assert all(record.headers == tuple(headers) and record.timestamp_type == 0 for record in found)
    assert sorted(record.timestamp for record in found) == [1_700_000_000_000 + number for number in range(30)]
    assert len({(record.key, record.partition) for record in found}) == 10


@feature("timestamps")
async def test_a_topic_with_log_append_time_replaces_the_producers_timestamp(kafka: Broker) -> None:
    topic = create_topic(kafka, config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    async with producer_of(kafka) as producer:
        told = await producer.send_and_wait(topic, b"v", timestamp_ms=1_700_000_000_000)
    async with consumer_of(kafka, topic) as consumer:
        [record] = await take(consumer, 1)
    assert record.timestamp_type == 1
    assert before_ms - 1 <= record.timestamp == told.timestamp


@feature("sizes")
async def test_records_above_the_fetch_size_are_consumed_and_those_above_max_message_bytes_are_refused(
    kafka: Broker,
) -> None:
    topic = create_topic(kafka, config={"max.message.bytes": "3000000"})
    values = [b"x" * 2_500_000, b"small", b"y" * 2_500_000]
    await send(kafka, topic, values, max_request_size=9_000_000)
    assert await read(kafka, topic, 3, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000) == values
    with pytest.raises(MessageSizeTooLargeError):
        await send(kafka, topic, [b"x" * 4_000_000], max_request_size=9_000_000)


@feature("seek")
async def test_a_consumer_seeks_to_the_beginning_the_end_and_a_time(kafka: Broker, topic: str) -> None:
    here = TopicPartition(topic, 0)
    async with producer_of(kafka) as producer:
        for number in range(10):
            await producer.send_and_wait(topic, b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000 + number)
    async with consumer_of(kafka) as consumer:
        consumer.assign([here])
        assert await consumer.beginning_offsets([here]) == {here: 0}
        assert await consumer.end_offsets([here]) == {here: 10}
        found = await consumer.offsets_for_times({here: 1_700_000_000_004})
        assert (found[here].offset, found[here].timestamp) == (4, 1_700_000_000_004)
        assert await consumer.offsets_for_times({here: 1_800_000_000_000}) == {here: None}
        consumer.seek(here, 4)
        assert [record.value for record in await take(consumer, 6)] == numbers(10)[4:]
        await consumer.seek_to_beginning(here)
        assert [record.value for record in await take(consumer, 10)] == numbers(10)
        await consumer.seek_to_end(here)
        assert await consumer.position(here) == 10


@feature("seek")
async def test_fetching_beyond_the_log_end_is_an_error_when_auto_offset_reset_is_none(
    kafka: Broker, topic: str
) -> None:
    async with consumer_of(kafka, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 1_000)
        with pytest.raises(OffsetOutOfRangeError):
            await take(consumer, 1)


async def wait_until_assigned(consumers: list[Any], sizes: list[int]) -> None:
    """Poll until every partition has one owner and the members have these numbers of partitions."""

    def is_right() -> bool:
        owned = [sorted(one.partition for one in consumer.assignment()) for consumer in consumers]
        return sorted(map(len, owned)) == sizes and sorted(chain(*owned)) == [0, 1, 2]

    async def poll() -> None:
        await asyncio.gather(*(consumer.getmany(timeout_ms=100) for consumer in consumers))

    await until(poll, is_right, f"an assignment of {sizes} partitions")


@feature("groups", "rebalances")
async def test_a_group_grows_to_four_members_and_shrinks_again(kafka: Broker, topic: str) -> None:
    group, shapes = unique("group"), {1: [3], 2: [1, 2], 3: [1, 1, 1], 4: [0, 1, 1, 1]}
    async with AsyncExitStack() as stack:
        members: list[Any] = []
        for count in (1, 2, 3, 4):
            member = consumer_of(kafka, topic, group_id=group, heartbeat_interval_ms=100)
            members.append(await stack.enter_async_context(member))
            await wait_until_assigned(members, shapes[count])
        for count in (3, 2, 1):
            await members.pop(0).stop()
            await wait_until_assigned(members, shapes[count])
        await send(kafka, topic, numbers(5), partition=2)
        assert [record.value for record in await take(members[0], 5)] == numbers(5)


@feature("commits")
async def test_a_group_resumes_where_it_committed(kafka: Broker) -> None:
    topic, group = create_topic(kafka), unique("group")
    here = TopicPartition(topic, 0)
    await send(kafka, topic, numbers(10))
    async with consumer_of(kafka, topic, group_id=group) as consumer:
        await take(consumer, 4)
        await consumer.commit({here: (4, "so far")})
        assert await consumer.committed(here) == 4
    async with consumer_of(kafka, topic, group_id=group) as consumer:
        assert [record.value for record in await take(consumer, 6)] == numbers(10)[4:]
    async with admin_of(kafka) as admin:
        offsets = await admin.list_consumer_group_offsets(group)
        assert (offsets[here].offset, offsets[here].metadata) == (4, "so far")
        assert group in [name for name, *_ in await admin.list_consumer_groups()]


@feature("idempotence")
async def test_an_idempotent_producer_writes_each_record_once_when_responses_are_lost(lossy_kafka: LossyProxy) -> None:
    topic = create_topic(lossy_kafka)
    async with producer_of(lossy_kafka, enable_idempotence=True, retry_backoff_ms=10) as producer:
        for _ in range(4):
            lossy_kafka.lose_answers(1)
            for value in numbers(20):
                await producer.send(topic, value)
            await producer.flush()
    # A cut connection may take several answers with it, which then count as one.
    assert lossy_kafka.lost_count > 0
    assert await read(lossy_kafka, topic, 80) == numbers(20) * 4
    async with consumer_of(lossy_kafka) as consumer:
        assert list((await consumer.end_offsets([TopicPartition(topic, 0)])).values()) == [80]


@feature("transactions")
async def test_read_committed_consumers_read_only_committed_transactions(kafka: Broker, topic: str) -> None:
    async with producer_of(kafka, transactional_id=unique("transactional")) as producer:
        for name, commits in (("one-", True), ("two-", False), ("three-", True)):
            await producer.begin_transaction()
            for value in numbers(5, name):
                await producer.send(topic, value, partition=1)
            await (producer.commit_transaction() if commits else producer.abort_transaction())
    committed = numbers(5, "one-") + numbers(5, "three-")
    assert await read(kafka, topic, 10, 1, isolation_level="read_committed") == committed
    everything = numbers(5, "one-") + numbers(5, "two-") + numbers(5, "three-")
    assert await read(kafka, topic, 15, 1, isolation_level="read_uncommitted") == everything


@feature("transactions")
async def test_a_second_producer_with_the_same_transactional_id_fences_the_first(kafka: Broker, topic: str) -> None:
    name = unique("transactional")
    first = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=name)
    await first.start()
    await first.begin_transaction()
    await first.send_and_wait(topic, b"from the first", partition=0)
    async with producer_of(kafka, transactional_id=name) as second, second.transaction():
        await second.send_and_wait(topic, b"from the second", partition=0)
    with pytest.raises(ProducerFenced):
        await first.commit_transaction()
    await first.stop()
    assert await read(kafka, topic, 1, isolation_level="read_committed") == [b"from the second"]


async def wait_for_offset(consumer: Any, here: TopicPartition, position: int) -> None:
    """Wait for the committed offset: EndTxn is answered before its markers are written, and aiokafka does not wait."""
    found: list[int | None] = [None]

    async def ask() -> None:
        found[0] = await consumer.committed(here)

    await until(ask, lambda: found[0] == position, f"an offset of {position}")


@feature("exactly once")
async def test_records_and_consumed_offsets_of_a_transaction_are_committed_or_aborted_together(kafka: Broker) -> None:
    source, target, group = create_topic(kafka), create_topic(kafka), unique("group")
    here = TopicPartition(source, 0)
    await send(kafka, source, numbers(10))
    async with producer_of(kafka, transactional_id=unique("transactional")) as producer:
        for count, commits in ((4, True), (3, False), (6, True)):
            async with consumer_of(kafka, source, group_id=group, isolation_level="read_committed") as consumer:
                await producer.begin_transaction()
                taken = await take(consumer, count)
                for record in taken:
                    await producer.send(target, b"of " + record.value)
                position = taken[-1].offset + 1
                await producer.send_offsets_to_transaction({here: position}, group)
                await (producer.commit_transaction() if commits else producer.abort_transaction())
                if commits:
                    await wait_for_offset(consumer, here, position)
    expected = [b"of " + value for value in numbers(10)]
    assert await read(kafka, target, 10, isolation_level="read_committed") == expected
    assert len(await read(kafka, target, 13, isolation_level="read_uncommitted")) == 13


@feature("restart")
async def test_a_producer_and_a_consumer_group_continue_after_a_broker_restart(tmp_path: Path) -> None:
    broker = Broker(directory=tmp_path / "data")
    await asyncio.to_thread(broker.start)
    try:
        topic = await asyncio.to_thread(create_topic, broker)
        async with (
            producer_of(broker, enable_idempotence=True) as producer,
            consumer_of(broker, topic, group_id="survivors") as consumer,
        ):
            for round_number in range(2):
                values = numbers(50, f"{round_number}-")
                waiting = [await producer.send(topic, value) for value in values]
                await asyncio.to_thread(broker.restart)
                await asyncio.wait_for(asyncio.gather(*waiting), TIMEOUT_S)
                assert [record.value for record in await take(consumer, 50)] == values
                await consumer.commit()
            assert await consumer.committed(TopicPartition(topic, 0)) == 100
    finally:
        await asyncio.to_thread(broker.stop)
