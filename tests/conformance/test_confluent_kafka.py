"""confluent-kafka (librdkafka) against our broker."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    NewPartitions,
    NewTopic,
)

from pessoa.testing import Broker
from tests.support.clients import CODECS, POLL_S, TIMEOUT_S, Reachable, create_topic, unique, until
from tests.support.lossy_proxy import LossyProxy

pytestmark = pytest.mark.client("confluent-kafka")

feature = pytest.mark.feature


def admin_of(broker: Reachable) -> AdminClient:
    # Callers keep it in a variable: the futures of an admin client without a reference never finish.
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


def producer_of(broker: Reachable, **settings: Any) -> Producer:
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, **dotted})


@contextmanager
def consumer_of(broker: Reachable, **settings: Any) -> Iterator[Consumer]:
    dotted = {key.replace("_", "."): value for key, value in settings.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": unique("group"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **dotted,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def send(producer: Producer, topic: str, values: Iterable[bytes], **settings: Any) -> list[Message]:
    """Produce the values, wait for all delivery reports and return their messages in order."""
    told: list[Message] = []
    failures: list[KafkaError] = []

    def remember(error: KafkaError | None, message: Message) -> None:
        told.append(message)
        if error is not None:
            failures.append(error)

    for value in values:
        producer.produce(topic, value, on_delivery=remember, **settings)
    assert producer.flush(TIMEOUT_S) == 0
    if failures:
        raise KafkaException(failures[0])
    return told


def take(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []

    def more() -> int:
        for message in consumer.consume(count - len(found), POLL_S):
            assert message.error() is None, message.error()
            found.append(message)
        return len(found)

    until(more, lambda number: number >= count, f"reading {count} records")
    return found


def read(broker: Reachable, topic: str, count: int, partitions: Iterable[int] = (0,), **settings: Any) -> list[Message]:
    with consumer_of(broker, **settings) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        return take(consumer, count)


def values_of(messages: Iterable[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def numbers(count: int, prefix: str = "") -> list[bytes]:
    return [f"{prefix}{number}".encode() for number in range(count)]


@feature("topics")
def test_a_topic_is_created_described_extended_and_deleted(kafka: Broker) -> None:
    admin, name = admin_of(kafka), unique("topic")
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(TIMEOUT_S)
    assert sorted(admin.list_topics(name, TIMEOUT_S).topics[name].partitions) == [0, 1]
    admin.create_partitions([NewPartitions(name, 5)])[name].result(TIMEOUT_S)
    described = admin.list_topics(name, TIMEOUT_S).topics[name].partitions
    assert sorted(described) == [0, 1, 2, 3, 4]
    [broker] = admin.list_topics(timeout=TIMEOUT_S).brokers
    assert all((one.leader, one.replicas, one.isrs) == (broker, [broker], [broker]) for one in described.values())
    admin.delete_topics([name])[name].result(TIMEOUT_S)
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics


@feature("topics")
def test_create_topics_with_validate_only_creates_no_topic(kafka: Broker) -> None:
    admin, name = admin_of(kafka), unique("topic")
    admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)[name].result(TIMEOUT_S)
    assert name not in admin.list_topics(timeout=TIMEOUT_S).topics


@feature("topics")
def test_records_are_deleted_up_to_an_offset(kafka: Broker, topic: str) -> None:
    send(producer_of(kafka), topic, numbers(10), partition=0)
    admin, before = admin_of(kafka), TopicPartition(topic, 0, 4)
    assert admin.delete_records([before])[before].result(TIMEOUT_S).low_watermark == 4
    assert values_of(read(kafka, topic, 6)) == numbers(10)[4:]


@feature("errors")
@pytest.mark.parametrize(
    ("partitions", "replicas", "config", "code"),
    [
        (0, 1, {}, KafkaError.INVALID_PARTITIONS),
        (1, 3, {}, KafkaError.INVALID_REPLICATION_FACTOR),
        (1, 1, {"retention.ms": "soon"}, KafkaError.INVALID_CONFIG),
        (1, 1, {"no.such.key": "1"}, KafkaError.INVALID_CONFIG),
    ],
)
def test_creating_a_topic_with_invalid_partitions_replicas_or_configs_is_refused(
    kafka: Broker, partitions: int, replicas: int, config: dict[str, str], code: int
) -> None:
    admin, name = admin_of(kafka), unique("topic")
    future = admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name]
    with pytest.raises(KafkaException) as caught:
        future.result(TIMEOUT_S)
    assert caught.value.args[0].code() == code


@feature("errors")
@pytest.mark.parametrize(
    ("name", "code"), [("with space", KafkaError.TOPIC_EXCEPTION), ("..", KafkaError.TOPIC_EXCEPTION)]
)
def test_creating_a_topic_with_an_invalid_name_is_refused(kafka: Broker, name: str, code: int) -> None:
    admin = admin_of(kafka)
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    assert caught.value.args[0].code() == code


@feature("errors")
def test_a_topic_is_not_created_twice_nor_deleted_twice(kafka: Broker, topic: str) -> None:
    admin = admin_of(kafka)
    with pytest.raises(KafkaException) as caught:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    with pytest.raises(KafkaException) as caught:
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@feature("errors")
def test_an_unknown_topic_is_an_error_when_auto_create_topics_enable_is_false() -> None:
    with Broker({"auto.create.topics.enable": "false"}) as broker:
        with pytest.raises(KafkaException) as caught:
            send(producer_of(broker, topic_metadata_propagation_max_ms=100), "absent", [b"x"])
        assert caught.value.args[0].code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)
        with consumer_of(broker) as consumer:
            consumer.subscribe(["absent"])
            told = until(lambda: consumer.poll(POLL_S), lambda message: message is not None, "the error")
        error = told.error() if told is not None else None
        assert error is not None
        assert error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


@feature("topics")
def test_a_topic_is_created_automatically_when_it_is_first_produced_to(kafka: Broker) -> None:
    name = unique("automatic")
    send(producer_of(kafka), name, [b"first"])
    assert values_of(read(kafka, name, 1)) == [b"first"]


@feature("configs")
def test_configurations_are_described_and_altered(kafka: Broker, topic: str) -> None:
    admin, of_topic = admin_of(kafka), ConfigResource(ConfigResource.Type.TOPIC, topic)

    def described() -> dict[str, ConfigEntry]:
        entries: dict[str, ConfigEntry] = admin.describe_configs([of_topic])[of_topic].result(TIMEOUT_S)
        return entries

    assert described()["retention.ms"].value == "604800000"
    assert described()["retention.ms"].is_default
    change = ConfigEntry("retention.ms", "1234", incremental_operation=AlterConfigOpType.SET)
    alteration = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
    admin.incremental_alter_configs([alteration])[alteration].result(TIMEOUT_S)
    assert described()["retention.ms"].value == "1234"
    assert not described()["retention.ms"].is_default
    undo = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    alteration = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[undo])
    admin.incremental_alter_configs([alteration])[alteration].result(TIMEOUT_S)
    assert described()["retention.ms"].value == "604800000"


@feature("configs")
def test_a_brokers_configuration_is_described(kafka: Broker) -> None:
    admin = admin_of(kafka)
    [node_id] = admin.list_topics(timeout=TIMEOUT_S).brokers
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node_id))
    entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert entries["node.id"].value == str(node_id)
    assert entries["group.initial.rebalance.delay.ms"].value == "0"


@feature("acks")
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_every_kind_of_acks(kafka: Broker, topic: str, acks: str) -> None:
    told = send(producer_of(kafka, acks=acks), topic, numbers(50), partition=1)
    if acks != "0":
        assert [message.offset() for message in told] == list(range(50))
    assert values_of(read(kafka, topic, 50, [1])) == numbers(50)


@feature("codecs")
@pytest.mark.parametrize("codec", CODECS)
def test_records_compressed_with_any_codec_are_consumed_as_produced(kafka: Broker, topic: str, codec: str) -> None:
    values = [value * 50 for value in numbers(300)]
    send(producer_of(kafka, compression_type=codec, linger_ms=20), topic, values, partition=0)
    assert values_of(read(kafka, topic, 300)) == values


@feature("keys")
def test_a_key_always_goes_to_the_same_partition(kafka: Broker, topic: str) -> None:
    producer = producer_of(kafka)
    told = [message for key in numbers(20) for message in send(producer, topic, [b"a", b"b"], key=key)]
    homes = {message.key(): message.partition() for message in told}
    assert len(set(homes.values())) == 3
    read_back = read(kafka, topic, 40, range(3))
    assert all(homes[message.key()] == message.partition() for message in read_back)


@feature("headers")
def test_headers_are_consumed_in_the_order_in_which_they_were_produced(kafka: Broker, topic: str) -> None:
    headers = [("trace", b"\x01\x02"), ("trace", b""), ("none", None), ("naïve", b"x")]
    send(producer_of(kafka), topic, [b"v"], partition=0, headers=headers)
    [message] = read(kafka, topic, 1)
    assert message.headers() == headers


@feature("headers")
def test_null_and_empty_keys_and_values_are_not_the_same(kafka: Broker, topic: str) -> None:
    producer = producer_of(kafka)
    for key, value in ((None, None), (b"", b""), (b"k", None), (None, b"v")):
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    assert [(one.key(), one.value()) for one in read(kafka, topic, 4)] == [
        (None, None),
        (b"", b""),
        (b"k", None),
        (None, b"v"),
    ]


@feature("timestamps")
def test_the_producers_timestamp_is_kept(kafka: Broker, topic: str) -> None:
    send(producer_of(kafka), topic, [b"v"], partition=0, timestamp=1_700_000_000_123)
    [message] = read(kafka, topic, 1)
    assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_123)


@feature("timestamps")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_topic_with_log_append_time_replaces_the_producers_timestamp(kafka: Broker, codec: str) -> None:
    topic = create_topic(kafka, config={"message.timestamp.type": "LogAppendTime"})
    before_ms = int(time.time() * 1000)
    producer = producer_of(kafka, compression_type=codec)
    [told] = send(producer, topic, [b"v" * 100], timestamp=1_700_000_000_123)
    [message] = read(kafka, topic, 1)
    kind, stamp_ms = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before_ms - 1 <= stamp_ms <= int(time.time() * 1000) + 1
    assert told.timestamp() == (TIMESTAMP_LOG_APPEND_TIME, stamp_ms)


@feature("sizes")
def test_a_record_larger_than_the_fetch_size_is_consumed(kafka: Broker) -> None:
    topic = create_topic(kafka, config={"max.message.bytes": "8000000"})
    values = [b"small", b"x" * 5_000_000, b"small too"]
    send(producer_of(kafka, message_max_bytes=8_000_000), topic, values)
    found = read(kafka, topic, 3, fetch_message_max_bytes=1_000, fetch_max_bytes=8_000_000)
    assert values_of(found) == values


@feature("sizes")
def test_a_record_larger_than_the_topic_allows_is_refused(kafka: Broker) -> None:
    topic = create_topic(kafka, config={"max.message.bytes": "1000"})
    with pytest.raises(KafkaException) as caught:
        send(producer_of(kafka), topic, [b"x" * 2_000])
    assert caught.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    send(producer_of(kafka), topic, [b"fits"])
    assert values_of(read(kafka, topic, 1)) == [b"fits"]


@feature("sizes")
def test_many_small_fetches_lose_no_record(kafka: Broker, topic: str) -> None:
    values = [value.rjust(500) for value in numbers(400)]
    send(producer_of(kafka), topic, values, partition=2)
    found = read(kafka, topic, 400, [2], fetch_message_max_bytes=2_000, queued_max_messages_kbytes=16)
    assert values_of(found) == values


@feature("seek")
def test_a_consumer_seeks_to_the_beginning_the_end_and_a_time(kafka: Broker, topic: str) -> None:
    producer = producer_of(kafka)
    for number in range(10):
        send(producer, topic, [b"%d" % number], partition=0, timestamp=1_700_000_000_000 + number * 1_000)
    with consumer_of(kafka, enable_partition_eof=True) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, 10)
        [at] = consumer.offsets_for_times([TopicPartition(topic, 0, 1_700_000_003_500)], TIMEOUT_S)
        assert at.offset == 4
        [after_all] = consumer.offsets_for_times([TopicPartition(topic, 0, 1_800_000_000_000)], TIMEOUT_S)
        assert after_all.offset == OFFSET_END
        consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        end = until(lambda: consumer.poll(POLL_S), lambda message: message is not None, "the end of the partition")
        assert end is not None
        assert end.offset() == 10
    with consumer_of(kafka) as consumer:
        consumer.assign([TopicPartition(topic, 0, 9)])
        take(consumer, 1)
        consumer.seek(TopicPartition(topic, 0, 4))
        assert values_of(take(consumer, 6)) == numbers(10)[4:]
        consumer.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
        assert values_of(take(consumer, 10)) == numbers(10)


@feature("seek")
def test_an_offset_beyond_the_log_end_is_reset_to_earliest_when_auto_offset_reset_is_earliest(
    kafka: Broker, topic: str
) -> None:
    send(producer_of(kafka), topic, numbers(3), partition=0)
    with consumer_of(kafka, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0, 1_000)])
        assert values_of(take(consumer, 3)) == numbers(3)


@feature("idempotence")
def test_an_idempotent_producer_writes_each_record_once_when_responses_are_lost(lossy_kafka: LossyProxy) -> None:
    topic = create_topic(lossy_kafka)
    producer = producer_of(lossy_kafka, enable_idempotence=True, retry_backoff_ms=1, reconnect_backoff_ms=1)
    send(producer, topic, numbers(20))
    for _ in range(5):
        lossy_kafka.lose_answers(1)
        send(producer, topic, numbers(20))
    # A cut connection may take several answers with it, which then count as one.
    assert lossy_kafka.lost_count > 0
    found = read(lossy_kafka, topic, 120)
    assert values_of(found) == numbers(20) * 6
    with consumer_of(lossy_kafka) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S) == (0, 120)


@feature("transactions")
def test_read_committed_consumers_read_only_committed_transactions(kafka: Broker, topic: str) -> None:
    producer = producer_of(kafka, transactional_id=unique("transactional"))
    producer.init_transactions(TIMEOUT_S)
    for name, commits in (("one-", True), ("two-", False), ("three-", True)):
        producer.begin_transaction()
        for partition in range(3):
            send(producer, topic, numbers(4, name), partition=partition)
        if commits:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    committed = numbers(4, "one-") + numbers(4, "three-")
    everything = numbers(4, "one-") + numbers(4, "two-") + numbers(4, "three-")
    for partition in range(3):
        assert values_of(read(kafka, topic, 8, [partition], isolation_level="read_committed")) == committed
        assert values_of(read(kafka, topic, 12, [partition], isolation_level="read_uncommitted")) == everything


@feature("transactions")
def test_an_open_transaction_holds_back_read_committed_consumers(kafka: Broker, topic: str) -> None:
    producer = producer_of(kafka, transactional_id=unique("transactional"))
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, topic, [b"open"], partition=0)
    send(producer_of(kafka), topic, [b"plain"], partition=0)
    assert values_of(read(kafka, topic, 2, isolation_level="read_uncommitted")) == [b"open", b"plain"]
    with consumer_of(kafka, isolation_level="read_committed", enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        first = until(lambda: consumer.poll(POLL_S), lambda message: message is not None, "the end of the partition")
        assert first is not None
        error = first.error()
        assert error is not None
        assert (error.code(), first.offset()) == (KafkaError._PARTITION_EOF, 0)
        producer.commit_transaction(TIMEOUT_S)
        found: list[bytes | None] = []

        def more() -> list[bytes | None]:
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                found.append(message.value())
            return found

        until(more, lambda values: values == [b"open", b"plain"], "the committed records")


@feature("transactions")
def test_a_second_producer_with_the_same_transactional_id_fences_the_first(kafka: Broker, topic: str) -> None:
    name = unique("transactional")
    first, second = producer_of(kafka, transactional_id=name), producer_of(kafka, transactional_id=name)
    first.init_transactions(TIMEOUT_S)
    first.begin_transaction()
    send(first, topic, [b"from the first"], partition=0)
    second.init_transactions(TIMEOUT_S)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    second.begin_transaction()
    send(second, topic, [b"from the second"], partition=0)
    second.commit_transaction(TIMEOUT_S)
    assert values_of(read(kafka, topic, 1, isolation_level="read_committed")) == [b"from the second"]


@feature("restart")
@pytest.mark.parametrize("where", ["memory", "disk"])
def test_a_producer_and_a_consumer_continue_after_a_broker_restart(where: str, tmp_path: Any) -> None:
    with Broker(directory=tmp_path / "data" if where == "disk" else None) as broker:
        topic = create_topic(broker)
        producer = producer_of(broker, enable_idempotence=True, retry_backoff_ms=10, reconnect_backoff_ms=10)
        with consumer_of(broker, reconnect_backoff_ms=10) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            send(producer, topic, numbers(100, "before-"))
            assert values_of(take(consumer, 100)) == numbers(100, "before-")
            for round_number in range(3):
                for value in numbers(100, f"during-{round_number}-"):
                    producer.produce(topic, value)
                broker.restart()
                assert producer.flush(TIMEOUT_S) == 0
                assert values_of(take(consumer, 100)) == numbers(100, f"during-{round_number}-")


@feature("restart")
def test_an_open_transaction_is_committed_after_a_broker_restart() -> None:
    with Broker() as broker:
        topic = create_topic(broker)
        producer = producer_of(broker, transactional_id="survivor", retry_backoff_ms=10, reconnect_backoff_ms=10)
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        send(producer, topic, numbers(5, "a-"))
        broker.restart()
        send(producer, topic, numbers(5, "b-"))
        producer.commit_transaction(TIMEOUT_S)
        broker.restart()
        found = read(broker, topic, 10, isolation_level="read_committed")
        assert values_of(found) == numbers(5, "a-") + numbers(5, "b-")


def settings_of(protocol: str) -> dict[str, Any]:
    """Return the settings of a group member; with KIP-848 the broker sets the heartbeat interval."""
    quick = {} if protocol == "consumer" else {"heartbeat_interval_ms": 200}
    return {"group_protocol": protocol, **quick}


def wait_until_assigned(consumers: list[Consumer], topic: str, sizes: list[int]) -> None:
    """Poll all members until every partition has one owner and the members have these numbers of partitions."""

    def owned() -> list[list[int]]:
        for consumer in consumers:
            consumer.poll(POLL_S / len(consumers))
        return sorted(sorted(one.partition for one in consumer.assignment()) for consumer in consumers)

    until(
        owned,
        lambda all_owned: sorted(map(len, all_owned)) == sizes and sorted(chain(*all_owned)) == [0, 1, 2],
        f"an assignment of {sizes} partitions",
    )


both_protocols = pytest.mark.parametrize(
    "protocol",
    [pytest.param("classic", marks=feature("groups")), pytest.param("consumer", marks=feature("new groups"))],
)


@both_protocols
@pytest.mark.parametrize(("count", "sizes"), [(1, [3]), (2, [1, 2]), (3, [1, 1, 1]), (4, [0, 1, 1, 1])])
def test_a_group_shares_three_partitions(grouping_kafka: Broker, protocol: str, count: int, sizes: list[int]) -> None:
    topic, group = create_topic(grouping_kafka, 3), unique("group")
    with ExitStack() as stack:
        members = [
            stack.enter_context(consumer_of(grouping_kafka, group_id=group, **settings_of(protocol)))
            for _ in range(count)
        ]
        for member in members:
            member.subscribe([topic])
        wait_until_assigned(members, topic, sizes)
        producer = producer_of(grouping_kafka)
        for partition in range(3):
            send(producer, topic, numbers(10, f"{partition}-"), partition=partition)
        # A set: an idle member may join late, and then records without a committed offset are read again.
        found: set[bytes | None] = set()

        def more() -> set[bytes | None]:
            for member in members:
                found.update(values_of(member.consume(30, POLL_S)))
            return found

        expected = {value for partition in range(3) for value in numbers(10, f"{partition}-")}
        until(more, lambda values: len(values) >= 30, "all records")
        assert found == expected


@pytest.mark.parametrize(
    ("protocol", "strategy"),
    [
        pytest.param("classic", "range", marks=feature("rebalances")),
        pytest.param("classic", "cooperative-sticky", marks=feature("rebalances")),
        pytest.param("consumer", None, marks=feature("new groups")),
    ],
)
def test_partitions_move_when_members_join_and_leave(
    grouping_kafka: Broker, protocol: str, strategy: str | None
) -> None:
    topic, group = create_topic(grouping_kafka, 3), unique("group")
    settings = settings_of(protocol) | ({"partition_assignment_strategy": strategy} if strategy else {})
    with consumer_of(grouping_kafka, group_id=group, **settings) as first:
        first.subscribe([topic])
        wait_until_assigned([first], topic, [3])
        with consumer_of(grouping_kafka, group_id=group, **settings) as second:
            second.subscribe([topic])
            wait_until_assigned([first, second], topic, [1, 2])
            with consumer_of(grouping_kafka, group_id=group, **settings) as third:
                third.subscribe([topic])
                wait_until_assigned([first, second, third], topic, [1, 1, 1])
            wait_until_assigned([first, second], topic, [1, 2])
        wait_until_assigned([first], topic, [3])


@pytest.mark.parametrize(
    "protocol",
    [pytest.param("classic", marks=feature("commits")), pytest.param("consumer", marks=feature("new groups"))],
)
def test_a_group_resumes_where_it_committed(grouping_kafka: Broker, protocol: str) -> None:
    topic, group = create_topic(grouping_kafka), unique("group")
    send(producer_of(grouping_kafka), topic, numbers(10))
    with consumer_of(grouping_kafka, group_id=group, **settings_of(protocol)) as consumer:
        consumer.subscribe([topic])
        taken = take(consumer, 4)
        consumer.commit(message=taken[-1], asynchronous=False)
        [committed] = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        assert committed.offset == 4
    with consumer_of(grouping_kafka, group_id=group, **settings_of(protocol)) as consumer:
        consumer.subscribe([topic])
        assert values_of(take(consumer, 6)) == numbers(10)[4:]


@feature("commits")
def test_a_committed_offset_keeps_its_metadata(grouping_kafka: Broker) -> None:
    with consumer_of(grouping_kafka) as consumer:
        topic = create_topic(grouping_kafka)
        consumer.commit(offsets=[TopicPartition(topic, 0, 7, "why")], asynchronous=False)
        [committed] = consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)
        assert (committed.offset, committed.metadata) == (7, "why")


@feature("rebalances")
def test_a_static_member_rejoins_without_a_rebalance(grouping_kafka: Broker) -> None:
    topic, group = create_topic(grouping_kafka, 3), unique("group")
    settings = {"group_id": group, **settings_of("classic")}
    with consumer_of(grouping_kafka, **settings, group_instance_id="other") as other:
        other.subscribe([topic])
        with consumer_of(grouping_kafka, **settings, group_instance_id="moves") as moves:
            moves.subscribe([topic])
            wait_until_assigned([other, moves], topic, [1, 2])
            before = moves.assignment()
            rebalances: list[object] = []
            other.subscribe([topic], on_revoke=lambda _, gone: rebalances.append(gone))
            wait_until_assigned([other, moves], topic, [1, 2])
            rebalances.clear()
        with consumer_of(grouping_kafka, **settings, group_instance_id="moves") as back:
            back.subscribe([topic])
            wait_until_assigned([other, back], topic, [1, 2])
            assert back.assignment() == before
            assert rebalances == []


@feature("group admin")
def test_groups_are_listed_described_reset_and_deleted(grouping_kafka: Broker) -> None:
    topic, group = create_topic(grouping_kafka, 3), unique("group")
    admin = admin_of(grouping_kafka)
    with consumer_of(grouping_kafka, group_id=group, client_id="test-client") as consumer:
        consumer.subscribe([topic])
        wait_until_assigned([consumer], topic, [3])
        consumer.commit(offsets=[TopicPartition(topic, 1, 5)], asynchronous=False)
        described = admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)
        assert described.state == ConsumerGroupState.STABLE
        [member] = described.members
        assert member.client_id == "test-client"
        assert sorted(one.partition for one in member.assignment.topic_partitions) == [0, 1, 2]
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert group in {one.group_id for one in listed.valid}
    new = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 1, 2)])
    admin.alter_consumer_group_offsets([new])[group].result(TIMEOUT_S)
    asked = ConsumerGroupTopicPartitions(group)
    [offset] = admin.list_consumer_group_offsets([asked])[group].result(TIMEOUT_S).topic_partitions
    assert (offset.topic, offset.partition, offset.offset) == (topic, 1, 2)
    admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert group not in {one.group_id for one in listed.valid}


@feature("exactly once")
def test_records_and_consumed_offsets_of_a_transaction_are_committed_or_aborted_together(
    grouping_kafka: Broker,
) -> None:
    source, target, group = create_topic(grouping_kafka), create_topic(grouping_kafka), unique("group")
    send(producer_of(grouping_kafka), source, numbers(10))
    producer = producer_of(grouping_kafka, transactional_id=unique("transactional"))
    producer.init_transactions(TIMEOUT_S)

    def transform(count: int, *, commits: bool) -> None:
        with consumer_of(grouping_kafka, group_id=group, isolation_level="read_committed") as consumer:
            consumer.subscribe([source])
            producer.begin_transaction()
            taken = take(consumer, count)
            send(producer, target, [b"of " + (message.value() or b"") for message in taken])
            position = [TopicPartition(source, 0, (taken[-1].offset() or 0) + 1)]
            producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
            if commits:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)

    transform(4, commits=True)
    transform(3, commits=False)
    transform(6, commits=True)
    expected = [b"of " + value for value in numbers(10)]
    assert values_of(read(grouping_kafka, target, 10, isolation_level="read_committed")) == expected
    assert len(read(grouping_kafka, target, 13, isolation_level="read_uncommitted")) == 13
    with consumer_of(grouping_kafka, group_id=group) as consumer:
        [committed] = consumer.committed([TopicPartition(source, 0)], TIMEOUT_S)
        assert committed.offset == 10


@feature("restart")
def test_a_consumer_group_continues_after_a_broker_restart() -> None:
    with Broker() as broker:
        topic = create_topic(broker, 3)
        settings = {"group_id": "survivors", "reconnect_backoff_ms": 10, "reconnect_backoff_max_ms": 100}
        producer = producer_of(broker, reconnect_backoff_ms=10, reconnect_backoff_max_ms=100)
        with consumer_of(broker, **settings) as consumer:
            consumer.subscribe([topic])
            send(producer, topic, numbers(6), partition=0)
            taken = take(consumer, 6)
            consumer.commit(message=taken[-1], asynchronous=False)
            broker.restart()
            send(producer, topic, numbers(6, "later-"), partition=0)
            assert values_of(take(consumer, 6)) == numbers(6, "later-")
            consumer.commit(asynchronous=False)
        with consumer_of(broker, **settings) as consumer:
            assert [one.offset for one in consumer.committed([TopicPartition(topic, 0)], TIMEOUT_S)] == [12]


@feature("share groups")
def test_a_share_consumer_gets_released_records_again_and_accepted_ones_no_more(kafka: Broker) -> None:
    topic, group = create_topic(kafka), unique("share")
    begins_early = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[begins_early])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(50):
        producer.produce(topic, str(number))
    assert producer.flush(TIMEOUT_S) == 0
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
    }
    seen: list[str] = []
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([topic])

        def poll() -> list[str]:
            for message in consumer.poll(POLL_S):
                value = (message.value() or b"").decode()
                # Every record is released once.
                consumer.acknowledge(message, AcknowledgeType.ACCEPT if value in seen else AcknowledgeType.RELEASE)
                seen.append(value)
            return seen

        until(poll, lambda values: len(values) >= 100, "every record, twice")
        consumer.commit_sync(TIMEOUT_S)
    assert sorted(seen) == sorted([str(number) for number in range(50)] * 2)
