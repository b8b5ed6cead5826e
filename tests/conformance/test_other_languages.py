"""Clients of other languages against our broker: sarama, franz-go, kafka-go, kafkajs, the rdkafka crate, Spring.

Every test runs with each client that has the tested feature: see `drivers` for how, features.py for missing features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from pessoa.client.cluster_client import Cluster as AskedCluster
from pessoa.client.group_admin import describe_group
from pessoa.testing import Broker, Cluster
from tests.cluster.test_metrics import Scrape
from tests.conformance.drivers import DRIVERS, ClientUnavailable, Driver, DriverError
from tests.conformance.features import BEYOND
from tests.conformance.test_share_groups import SETTINGS as SHARE_SETTINGS
from tests.conformance.test_share_groups import create_replicated_topic, share_group
from tests.support.clients import CODECS, TIMEOUT_S, Reachable, create_topic, unique, until

# Short heartbeat intervals, so that members learn of a rebalance soon, and no initial rebalance delay.
SETTINGS = {
    **SHARE_SETTINGS,
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
}


def with_clients(*features: str) -> Callable[[Any], Any]:
    """Return a mark that runs the test once for each client that has these features."""
    mark = pytest.mark
    return mark.parametrize(
        "driver",
        [
            pytest.param(client, marks=[mark.client(client), mark.feature(*features)])
            for client in DRIVERS
            if not any((client, feature) in BEYOND for feature in features)
        ],
        indirect=True,
    )


class Client:
    """A driver and the broker that it uses."""

    def __init__(self, driver: Driver, broker: Reachable) -> None:
        self.driver = driver
        self.broker = broker

    def ask(self, op: str, **words: Any) -> Any:
        return self.driver.ask(op, self.broker.bootstrap_servers, **words)

    def produce(self, topic: str, values: list[str], partition: int = -1, **words: Any) -> None:
        self.ask("produce", topic=topic, records=[record(value, partition=partition) for value in values], **words)

    def read(self, topic: str, count: int, partition: int = 0, offset: int = 0, **words: Any) -> list[dict[str, Any]]:
        found = self.ask("read", topic=topic, partition=partition, offset=offset, count=count, **words)
        assert isinstance(found, list)
        return found

    def values(self, topic: str, count: int, **words: Any) -> list[str]:
        return [one["value"] for one in self.read(topic, count, **words)]

    @contextmanager
    def member(self, group: str, topic: str, op: str = "join", **words: str) -> Iterator[Callable[[], list[str]]]:
        """Start a group member; yield a function that returns all values that it has read so far."""
        name, seen = unique("member"), list[str]()
        self.ask(op, member=name, group=group, topic=topic, **words)

        def listen() -> list[str]:
            seen.extend(self.ask("poll", member=name))
            return seen

        try:
            yield listen
        finally:
            self.ask("leave", member=name)


def record(value: str, **words: Any) -> dict[str, Any]:
    return {"value": value, "key": None, "headers": [], "timestamp": 0, "partition": -1, **words}


def numbers(count: int, prefix: str = "n") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, Driver]]:
    """Yield the running drivers by client; each is started once in this test process."""
    drivers: dict[str, Driver] = {}
    yield drivers
    for driver in drivers.values():
        driver.kill()


@pytest.fixture
def driver(request: pytest.FixtureRequest, running: dict[str, Driver]) -> Driver:
    name: str = request.param
    if name not in running:
        try:
            running[name] = Driver(name)
        except ClientUnavailable as missing:
            pytest.skip(f"{name}: {missing}")
    return running[name]


@pytest.fixture
def client(driver: Driver, broker: Broker) -> Client:
    return Client(driver, broker)


@with_clients("topics")
def test_topics_are_created_described_extended_and_deleted(client: Client) -> None:
    topic = unique("theirs")
    client.ask("topic_create", topic=topic, partitions=2)
    assert client.ask("topic_partitions", topic=topic) == 2
    client.ask("topic_grow", topic=topic, partitions=5)
    assert client.ask("topic_partitions", topic=topic) == 5
    client.ask("topic_delete", topic=topic)
    admin = AdminClient({"bootstrap.servers": client.broker.bootstrap_servers})
    assert topic not in admin.list_topics(timeout=TIMEOUT_S).topics


@with_clients("errors")
def test_creating_an_existing_topic_fails_with_kafkas_error(client: Client) -> None:
    topic = create_topic(client.broker)
    with pytest.raises(DriverError, match=r"(?i)already.{0,3}exists"):
        client.ask("topic_create", topic=topic, partitions=2)


@with_clients("acks")
def test_records_arrive_with_every_kind_of_acks(client: Client) -> None:
    topic = create_topic(client.broker, 3)
    for partition, acks in enumerate(("0", "1", "all")):
        client.produce(topic, numbers(50), partition, acks=acks)
        assert client.values(topic, 50, partition=partition) == numbers(50)


@with_clients("codecs")
def test_records_compressed_with_any_codec_are_consumed_as_produced(client: Client) -> None:
    topic = create_topic(client.broker, len(CODECS))
    for partition, codec in enumerate(CODECS):
        client.produce(topic, numbers(300, "value-"), partition, codec=codec)
        assert client.values(topic, 300, partition=partition) == numbers(300, "value-")


@with_clients("keys")
def test_a_key_always_goes_to_the_same_partition(client: Client) -> None:
    topic = create_topic(client.broker, 3)
    for _ in range(2):
        client.ask("produce", topic=topic, records=[record("v", key=f"key-{number}") for number in range(20)])
    ends = {partition: end_offset(client.broker, topic, partition) for partition in range(3)}
    placed = {partition: {one["key"] for one in client.read(topic, end, partition)} for partition, end in ends.items()}
    assert sum(ends.values()) == 40
    assert sum(map(len, placed.values())) == 20
    assert max(map(len, placed.values())) < 20, "one partition has all keys"


def end_offset(broker: Reachable, topic: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": unique("ends")})
    watermarks = consumer.get_watermark_offsets(TopicPartition(topic, partition), TIMEOUT_S)
    consumer.close()
    assert watermarks is not None
    return int(watermarks[1])


@with_clients("headers")
def test_headers_and_timestamps_are_consumed_as_produced_and_offsets_are_found_by_timestamp(client: Client) -> None:
    topic = create_topic(client.broker)
    headers = [["a", "1"], ["a", "2"], ["b", ""]]
    sent = [record(f"v{second}", timestamp=1_700_000_000_000 + 1000 * second, headers=headers) for second in range(10)]
    client.ask("produce", topic=topic, records=[{**one, "partition": 0} for one in sent])
    found = client.read(topic, 10)
    assert [one["headers"] for one in found] == [headers] * 10
    assert [one["timestamp"] for one in found] == [one["timestamp"] for one in sent]
    assert client.ask("offset_at", topic=topic, partition=0, time=1_700_000_000_000 + 6500) == 7
    assert client.values(topic, 3, offset=7) == ["v7", "v8", "v9"]


@with_clients("timestamps")
def test_records_have_the_producers_or_the_append_timestamp_as_message_timestamp_type_says(client: Client) -> None:
    theirs, ours = (
        create_topic(client.broker, config={"message.timestamp.type": kind}) for kind in ("CreateTime", "LogAppendTime")
    )
    long_ago = 1_700_000_000_000
    for topic in (theirs, ours):
        client.ask("produce", topic=topic, records=[record("v", timestamp=long_ago, partition=0)])
    assert client.read(theirs, 1)[0]["timestamp"] == long_ago
    assert client.read(ours, 1)[0]["timestamp"] > long_ago


def sizes_of_members(broker: Reachable, group: str) -> list[int]:
    """Return the number of partitions of each member, sorted; an empty list while the group is not stable."""
    with AskedCluster(broker.bootstrap_servers) as cluster:
        described = describe_group(cluster, group)
    return sorted(len(one.assignment) for one in described.members) if described.state == "Stable" else []


def wait_for_sizes(broker: Reachable, group: str, wanted: list[int]) -> None:
    until(lambda: sizes_of_members(broker, group), wanted.__eq__, f"members with {wanted} partitions")


def see_a_group_grow_and_shrink(client: Client, **words: str) -> None:
    topic, group, wanted = create_topic(client.broker, 3), unique("group"), set[str]()
    with ExitStack() as alone, ExitStack() as others:
        members: list[Callable[[], list[str]]] = []
        for sizes in ([3], [1, 2], [1, 1, 1], [0, 1, 1, 1]):
            stack = others if members else alone
            members.append(stack.enter_context(client.member(group, topic, **words)))
            # A group that does not exist cannot be described: first a record has to be read.
            wanted |= set(numbers(30, f"{len(members)}-"))
            client.produce(topic, numbers(30, f"{len(members)}-"))
            until(lambda: {value for listen in members for value in listen()}, wanted.__eq__, "every record")
            wait_for_sizes(client.broker, group, sizes)
        others.close()
        wait_for_sizes(client.broker, group, [3])


@with_clients("groups", "rebalances")
def test_a_second_group_member_gets_partitions_and_returns_them_when_it_leaves(client: Client) -> None:
    see_a_group_grow_and_shrink(client)


@with_clients("new groups")
def test_a_second_member_of_the_consumer_protocol_gets_partitions_and_returns_them_when_it_leaves(
    client: Client,
) -> None:
    see_a_group_grow_and_shrink(client, protocol="consumer")


@with_clients("commits")
def test_a_group_resumes_where_it_committed(client: Client) -> None:
    topic, group = create_topic(client.broker), unique("group")
    client.produce(topic, numbers(10))
    with client.member(group, topic) as listen:
        until(listen, lambda seen: seen == numbers(10), "the first records")
    client.produce(topic, numbers(5, "later-"))
    with client.member(group, topic) as listen:
        until(listen, lambda seen: len(seen) >= 5, "the later records")
        assert listen() == numbers(5, "later-")


@with_clients("transactions")
def test_read_committed_consumers_read_only_committed_transactions(client: Client) -> None:
    topic, name = create_topic(client.broker), unique("transactional")
    client.ask("transact", id=name, topic=topic, values=numbers(5, "kept-"), commit=True)
    client.ask("transact", id=name, topic=topic, values=numbers(5, "dropped-"), commit=False)
    client.ask("transact", id=name, topic=topic, values=["last"], commit=True)
    everything = [*numbers(5, "kept-"), *numbers(5, "dropped-"), "last"]
    assert client.values(topic, 11, committed=False) == everything
    assert client.values(topic, 6, committed=True) == [*numbers(5, "kept-"), "last"]


@with_clients("exactly once")
def test_records_and_consumed_offsets_are_committed_in_one_transaction(client: Client) -> None:
    source, target = create_topic(client.broker), create_topic(client.broker)
    name, group = unique("piping"), unique("pipes")
    for prefix in ("first-", "second-"):
        client.produce(source, numbers(10, prefix))
        # The second call begins at the offsets that the transaction of the first has committed.
        client.ask("pipe", id=name, group=group, topic=source, target=target, count=10)
    wanted = [f"{value}!" for value in (*numbers(10, "first-"), *numbers(10, "second-"))]
    assert client.values(target, 20, committed=True) == wanted


@with_clients("restart")
def test_a_group_member_continues_after_a_broker_restart(driver: Driver) -> None:
    with Broker() as broker:
        client, topic = Client(driver, broker), create_topic(broker)
        with client.member("survivors", topic) as listen:
            client.produce(topic, numbers(20))
            until(listen, lambda seen: seen == numbers(20), "the first records")
            broker.restart()
            client.produce(topic, numbers(20, "later-"))
            wanted = {*numbers(20), *numbers(20, "later-")}
            until(listen, lambda seen: set(seen) == wanted, "the records after the restart")


@with_clients("share groups")
def test_a_share_group_gets_released_records_again_and_accepted_and_rejected_ones_never(client: Client) -> None:
    topic, group = create_topic(client.broker), share_group(client.broker, **{"share.delivery.count.limit": "3"})
    client.produce(topic, numbers(10))
    with client.member(group, topic, "share_join", verdict="release") as listen:
        # Three deliveries of each record, which is the limit.
        wanted = sorted(f"{count} {value}" for count in (1, 2, 3) for value in numbers(10))
        until(listen, lambda seen: len(seen) >= 30, "three deliveries")
        assert sorted(listen()) == wanted
    for verdict in ("reject", "accept"):
        client.produce(topic, [verdict])
        with client.member(group, topic, "share_join", verdict=verdict) as listen:
            until(listen, len, "a record")
            assert listen() == [f"1 {verdict}"]


@with_clients("share groups")
def test_records_of_a_killed_share_member_are_delivered_to_another_member(client: Client) -> None:
    topic, group = create_topic(client.broker), share_group(client.broker)
    doomed = Driver(client.driver.client)
    try:
        unheard = Client(doomed, client.broker)
        unheard.ask("share_join", member="doomed", group=group, topic=topic, verdict="accept")
        client.produce(topic, numbers(50))
        seen: list[str] = until(lambda: unheard.ask("poll", member="doomed"), len, "a record of the first member")
    finally:
        doomed.kill()
    client.produce(topic, numbers(50, "after-"))
    with client.member(group, topic, "share_join", verdict="accept") as listen:
        wanted = {*numbers(50), *numbers(50, "after-")}
        until(lambda: {one.split()[1] for one in (*seen, *listen())}, lambda values: values == wanted, "every record")


@with_clients("share groups")
def test_a_share_member_reads_on_when_leaders_and_coordinators_are_killed(driver: Driver) -> None:
    with Cluster(3, SETTINGS) as cluster:
        client, topic = Client(driver, cluster), create_replicated_topic(cluster)
        group, wanted = share_group(cluster), set[str]()
        with client.member(group, topic, "share_join", verdict="accept") as listen:
            for number in range(2):
                wanted |= set(numbers(50, f"before-{number}-"))
                client.produce(topic, numbers(50, f"before-{number}-"))
                leader = cluster.leader_of(topic, 0)
                cluster.kill(leader)
                wanted |= set(numbers(50, f"after-{number}-"))
                client.produce(topic, numbers(50, f"after-{number}-"))
                until(lambda: {one.split()[1] for one in listen()}, wanted.__le__, "every record")
                cluster.start(leader)
                cluster.wait_until_in_sync()


@pytest.mark.parametrize("driver", ["Spring"], indirect=True)
def test_a_java_share_consumer_renews_its_record_locks_while_it_processes_records(driver: Driver) -> None:
    with Broker({**SETTINGS, "pessoa.metrics.port": "0"}) as broker:
        client, topic = Client(driver, broker), create_topic(broker)
        group = share_group(broker, **{"share.record.lock.duration.ms": "1000"})
        client.produce(topic, numbers(5))
        # Three times as long as a lock: without renewals the records would be delivered a second time.
        done = client.ask("share_renew", group=group, topic=topic, count=5, hold_ms=3000)
        assert done["errors"] == []
        assert done["seen"] == [f"1 {value}" for value in numbers(5)]
        assert done["renewals"] >= 15
        page = Scrape(broker)
        counts = {
            kind: page.value("kafka_server_sharegroupmetrics_recordacknowledgements_total", ackType=kind)
            for kind in ("Accept", "Release", "Renew")
        }
        assert counts == {"Accept": 5, "Release": 0, "Renew": done["renewals"]}
