"""kafka-python against our broker."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from pessoa.testing import Broker
from tests.support.clients import CODECS, TIMEOUT_S, Reachable, create_topic, unique, until
from tests.support.lossy_proxy import LossyProxy

with warnings.catch_warnings():
    # It reads its schemas through a deprecated function of importlib.resources, some of them when first used.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource
    from kafka.errors import (
        InvalidPartitionsError,
        LogDirNotFoundError,
        MessageSizeTooLargeError,
        NoError,
        OffsetOutOfRangeError,
        ProducerFencedError,
        TopicAlreadyExistsError,
        UnknownTopicOrPartitionError,
    )
    from kafka.structs import OffsetAndMetadata, TopicPartitionReplica

pytestmark = [
    pytest.mark.client("kafka-python"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

feature = pytest.mark.feature


@pytest.fixture(autouse=True)
def _own_garbage() -> Iterator[None]:
    """Collect garbage after each test: kafka-python leaves sockets of failed connections to the garbage collector."""
    yield
    gc.collect()


@contextmanager
def admin_of(broker: Reachable) -> Iterator[Any]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        yield admin
    finally:
        admin.close()


@contextmanager
def producer_of(broker: Reachable, **settings: Any) -> Iterator[Any]:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **settings)
    try:
        yield producer
    finally:
        producer.close()


@contextmanager
def consumer_of(broker: Reachable, *topics: str, **settings: Any) -> Iterator[Any]:
    consumer = KafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap_servers,
        **{"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings},
    )
    try:
        yield consumer
    finally:
        consumer.close()


def send(broker: Reachable, topic: str, values: list[bytes], partition: int = 0, **settings: Any) -> list[Any]:
    with producer_of(broker, **settings) as producer:
        waiting = [producer.send(topic, value, partition=partition) for value in values]
        return [one.get(TIMEOUT_S) for one in waiting]


def take(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []

    def more() -> int:
        # Long, because a poll that ends while its member joins a group makes it join anew.
        found.extend(chain(*consumer.poll(timeout_ms=5_000, max_records=count - len(found)).values()))
        return len(found)

    until(more, lambda number: number >= count, f"reading {count} records")
    return found


def read(broker: Reachable, topic: str, count: int, partition: int = 0, **settings: Any) -> list[bytes | None]:
    with consumer_of(broker, **settings) as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        return [record.value for record in take(consumer, count)]


def numbers(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


@feature("topics")
def test_topics_are_created_described_extended_and_deleted(kafka: Broker) -> None:
    name = unique("topic")
    with admin_of(kafka) as admin:
        admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
        admin.create_partitions({name: 4})
        [described] = admin.describe_topics([name])
        assert len(described["partitions"]) == 4
        admin.delete_topics([name])
        assert name not in admin.list_topics()


@feature("topics")
def test_records_are_deleted_up_to_an_offset(kafka: Broker, topic: str) -> None:
    send(kafka, topic, numbers(10))
    with admin_of(kafka) as admin:
        admin.delete_records({TopicPartition(topic, 0): 4})
    assert read(kafka, topic, 6) == numbers(10)[4:]


@feature("topics")
def test_alter_replica_log_dirs_accepts_the_current_directory_and_refuses_an_unknown_one(
    kafka: Broker, topic: str
) -> None:
    with admin_of(kafka) as admin:
        [broker] = admin.describe_log_dirs()
        replica = TopicPartitionReplica(topic, 0, broker["broker"])
        [directory] = broker["log_dirs"]
        assert admin.alter_replica_log_dirs({replica: directory["log_dir"]}) == {replica: NoError}
        assert admin.alter_replica_log_dirs({replica: "/elsewhere"}) == {replica: LogDirNotFoundError}


@feature("errors")
def test_existing_invalid_and_unknown_topics_are_refused_with_kafkas_errors(kafka: Broker, topic: str) -> None:
    with admin_of(kafka) as admin:
        with pytest.raises(TopicAlreadyExistsError):
            admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
        with pytest.raises(InvalidPartitionsError):
            admin.create_topics({unique("topic"): {"num_partitions": 0, "replication_factor": 1}})
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics([unique("absent")])


@feature("configs")
def test_configurations_are_described_and_altered(kafka: Broker, topic: str) -> None:
    def retention(admin: Any) -> str:
        described = admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
        return str(described["topic"][topic]["retention.ms"]["value"])

    with admin_of(kafka) as admin:
        assert retention(admin) == "604800000"
        admin.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": "1234"})])
        assert retention(admin) == "1234"
        admin.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": ("DELETE", None)})])
        assert retention(admin) == "604800000"


@feature("acks")
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_with_every_kind_of_acks(kafka: Broker, topic: str, acks: Any) -> None:
    told = send(kafka, topic, numbers(50), acks=acks, enable_idempotence=False)
    if acks != 0:
        assert [one.offset for one in told] == list(range(50))
    assert read(kafka, topic, 50) == numbers(50)


@feature("codecs")
@pytest.mark.parametrize("codec", CODECS)
def test_records_compressed_with_any_codec_are_consumed_as_produced(kafka: Broker, topic: str, codec: str) -> None:
    values = [value * 40 for value in numbers(200)]
    send(kafka, topic, values, compression_type=None if codec == "none" else codec, linger_ms=10)
    assert read(kafka, topic, 200) == values


@feature("keys", "headers", "timestamps")
def test_keys_headers_and_timestamps_are_consumed_as_produced(kafka: Broker, topic: str) -> None:
    headers = [("a", b"1"), ("b", b""), ("a", b"2")]
    with producer_of(kafka) as producer:
        for number in range(30):
            key, time_ms = b"%d" % (number % 10), 1_700_000_000_000 + number
            producer.send(topic, b"v", key=key, timestamp_ms=time_ms, headers=headers).get(TIMEOUT_S)
    with consumer_of(kafka) as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        found = take(consumer, 30)
    assert all(list(record.headers) == headers and record.timestamp_type == 0 for record in found)
    assert sorted(record.timestamp for record in found) == [1_700_000_000_000 + number for number in range(30)]
    assert len({(record.key, record.partition) for record in found}) == 10


@feature("timestamps")
def test_a_topic_with_log_append_time_replaces_the_producers_timestamp(kafka: Broker) -> None:
    topic = create_topic(kafka, config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    with producer_of(kafka) as producer:
        told = producer.send(topic, b"v", timestamp_ms=1_700_000_000_000).get(TIMEOUT_S)
    with consumer_of(kafka) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        [record] = take(consumer, 1)
    assert record.timestamp_type == 1
    assert before_ms - 1 <= record.timestamp == told.timestamp


@feature("sizes")
def test_records_above_the_fetch_size_are_consumed_and_those_above_max_message_bytes_are_refused(kafka: Broker) -> None:
    topic = create_topic(kafka, config={"max.message.bytes": "3000000"})
    values = [b"x" * 2_500_000, b"small", b"y" * 2_500_000]
    large = {"max_request_size": 9_000_000, "batch_size": 100}
    send(kafka, topic, values, **large)
    assert read(kafka, topic, 3, max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000) == values
    with pytest.raises(MessageSizeTooLargeError):
        send(kafka, topic, [b"x" * 4_000_000], **large)


@feature("seek")
def test_a_consumer_seeks_to_the_beginning_the_end_and_a_time(kafka: Broker, topic: str) -> None:
    here = TopicPartition(topic, 0)
    with producer_of(kafka) as producer:
        for number in range(10):
            time_ms = 1_700_000_000_000 + number
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=time_ms).get(TIMEOUT_S)
    with consumer_of(kafka) as consumer:
        consumer.assign([here])
        assert consumer.beginning_offsets([here]) == {here: 0}
        assert consumer.end_offsets([here]) == {here: 10}
        found = consumer.offsets_for_times({here: 1_700_000_000_004})
        assert (found[here].offset, found[here].timestamp) == (4, 1_700_000_000_004)
        assert consumer.offsets_for_times({here: 1_800_000_000_000})[here] is None
        consumer.seek(here, 4)
        assert [record.value for record in take(consumer, 6)] == numbers(10)[4:]
        consumer.seek_to_beginning(here)
        assert [record.value for record in take(consumer, 10)] == numbers(10)
        consumer.seek_to_end(here)
        assert consumer.position(here) == 10


@feature("seek")
def test_fetching_beyond_the_log_end_is_an_error_when_auto_offset_reset_is_none(kafka: Broker, topic: str) -> None:
    with consumer_of(kafka, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 1_000)
        with pytest.raises(OffsetOutOfRangeError):
            take(consumer, 1)


def wait_until_assigned(consumers: list[Any], sizes: list[int]) -> None:
    """Poll until every partition has one owner and the members have these numbers of partitions.

    All members poll at once and long enough: a poll that ends before all have joined makes its member join anew, and if
    members do that in turns the rebalance never ends. How long is enough depends on the machine.
    """
    polls_ms = chain((500, 500, 1_000, 2_000), repeat(5_000))

    def owned() -> list[list[int]]:
        timeout_ms = next(polls_ms)
        with ThreadPoolExecutor(len(consumers)) as pool:
            list(pool.map(lambda consumer: consumer.poll(timeout_ms=timeout_ms), consumers))
        return [sorted(one.partition for one in consumer.assignment()) for consumer in consumers]

    until(
        owned,
        lambda all_owned: sorted(map(len, all_owned)) == sizes and sorted(chain(*all_owned)) == [0, 1, 2],
        f"an assignment of {sizes} partitions",
    )


@feature("groups", "rebalances")
def test_a_group_grows_to_four_members_and_shrinks_again(kafka: Broker, topic: str) -> None:
    group, shapes = unique("group"), {1: [3], 2: [1, 2], 3: [1, 1, 1], 4: [0, 1, 1, 1]}
    with ExitStack() as stack:
        members: list[Any] = []
        for count in (1, 2, 3, 4):
            member = consumer_of(kafka, topic, group_id=group, heartbeat_interval_ms=100)
            members.append(stack.enter_context(member))
            wait_until_assigned(members, shapes[count])
        for count in (3, 2, 1):
            members.pop(0).close()
            wait_until_assigned(members, shapes[count])
        send(kafka, topic, numbers(5), partition=2)
        assert [record.value for record in take(members[0], 5)] == numbers(5)


@feature("commits", "group admin")
def test_a_group_resumes_at_its_committed_offset_and_is_described_reset_and_deleted(kafka: Broker) -> None:
    topic, group = create_topic(kafka), unique("group")
    here = TopicPartition(topic, 0)
    send(kafka, topic, numbers(10))
    with consumer_of(kafka, topic, group_id=group) as consumer:
        take(consumer, 4)
        consumer.commit({here: OffsetAndMetadata(4, "so far", -1)})
        assert consumer.committed(here) == 4
    with consumer_of(kafka, topic, group_id=group) as consumer, admin_of(kafka) as admin:
        assert [record.value for record in take(consumer, 6)] == numbers(10)[4:]
        described = admin.describe_groups([group])
        assert group in described
        assert "Stable" in str(described)
    with admin_of(kafka) as admin:
        offsets = admin.list_group_offsets(group)[group]
        assert (offsets[here].offset, offsets[here].metadata) == (4, "so far")
        admin.alter_group_offsets(group, {here: OffsetAndMetadata(1, "", -1)})
        assert admin.list_group_offsets(group)[group][here].offset == 1
        assert group in str(admin.list_groups())
        admin.delete_groups([group])
        assert group not in str(admin.list_groups())


@feature("idempotence")
def test_an_idempotent_producer_writes_each_record_once_when_responses_are_lost(lossy_kafka: LossyProxy) -> None:
    topic = create_topic(lossy_kafka)
    quick = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10}
    with producer_of(lossy_kafka, enable_idempotence=True, **quick) as producer:
        for _ in range(4):
            lossy_kafka.lose_answers(1)
            for value in numbers(20):
                producer.send(topic, value)
            producer.flush(TIMEOUT_S)
    # A cut connection may take several answers with it, which then count as one.
    assert lossy_kafka.lost_count > 0
    assert read(lossy_kafka, topic, 80) == numbers(20) * 4
    with consumer_of(lossy_kafka) as consumer:
        assert list(consumer.end_offsets([TopicPartition(topic, 0)]).values()) == [80]


@feature("transactions")
def test_read_committed_consumers_read_only_committed_transactions(kafka: Broker, topic: str) -> None:
    with producer_of(kafka, transactional_id=unique("transactional")) as producer:
        producer.init_transactions()
        for name, commits in (("one-", True), ("two-", False), ("three-", True)):
            producer.begin_transaction()
            for value in numbers(5, name):
                producer.send(topic, value, partition=1)
            # An abort drops what has not been sent.
            producer.flush(TIMEOUT_S)
            if commits:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    committed = numbers(5, "one-") + numbers(5, "three-")
    assert read(kafka, topic, 10, 1, isolation_level="read_committed") == committed
    everything = numbers(5, "one-") + numbers(5, "two-") + numbers(5, "three-")
    assert read(kafka, topic, 15, 1, isolation_level="read_uncommitted") == everything


@feature("transactions")
def test_a_second_producer_with_the_same_transactional_id_fences_the_first(kafka: Broker, topic: str) -> None:
    name = unique("transactional")
    with producer_of(kafka, transactional_id=name) as first, producer_of(kafka, transactional_id=name) as second:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"from the first", partition=0).get(TIMEOUT_S)
        second.init_transactions()
        second.begin_transaction()
        second.send(topic, b"from the second", partition=0).get(TIMEOUT_S)
        second.commit_transaction()
        with pytest.raises(ProducerFencedError):
            first.commit_transaction()
    assert read(kafka, topic, 1, isolation_level="read_committed") == [b"from the second"]


@feature("exactly once")
def test_records_and_consumed_offsets_of_a_transaction_are_committed_or_aborted_together(kafka: Broker) -> None:
    source, target, group = create_topic(kafka), create_topic(kafka), unique("group")
    here = TopicPartition(source, 0)
    send(kafka, source, numbers(10))
    with producer_of(kafka, transactional_id=unique("transactional")) as producer:
        producer.init_transactions()
        for count, commits in ((4, True), (3, False), (6, True)):
            with consumer_of(kafka, source, group_id=group, isolation_level="read_committed") as consumer:
                producer.begin_transaction()
                taken = take(consumer, count)
                for record in taken:
                    producer.send(target, b"of " + record.value)
                position = {here: OffsetAndMetadata(taken[-1].offset + 1, "", -1)}
                producer.send_offsets_to_transaction(position, consumer.group_metadata())
                producer.flush(TIMEOUT_S)
                if commits:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
    expected = [b"of " + value for value in numbers(10)]
    assert read(kafka, target, 10, isolation_level="read_committed") == expected
    assert len(read(kafka, target, 13, isolation_level="read_uncommitted")) == 13


@feature("restart")
def test_a_producer_and_a_consumer_group_continue_after_a_broker_restart(tmp_path: Path) -> None:
    quick = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100}
    with Broker(directory=tmp_path / "data") as broker:
        topic = create_topic(broker)
        with (
            producer_of(broker, enable_idempotence=True, **quick) as producer,
            consumer_of(broker, topic, group_id="survivors", **quick) as consumer,
        ):
            for round_number in range(2):
                values = numbers(50, f"{round_number}-")
                waiting = [producer.send(topic, value) for value in values]
                broker.restart()
                for one in waiting:
                    one.get(TIMEOUT_S)
                assert [record.value for record in take(consumer, 50)] == values
                consumer.commit()
            assert consumer.committed(TopicPartition(topic, 0)) == 100
