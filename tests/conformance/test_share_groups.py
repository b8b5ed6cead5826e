"""Share groups (KIP-932) with real share consumers: Java's, as kafka-console-share-consumer, and librdkafka's.

Members and brokers are killed; every produced record is delivered all the same, and an accepted record is not delivered
again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from pessoa.base.ids import Uuid
from pessoa.testing import Broker, Cluster
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from pessoa.wire.api.share_fetch import FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse
from pessoa.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from tests.apache.broker import TOOLS, java_command, run_tool
from tests.support.clients import POLL_S, TIMEOUT_S, Reachable, create_topic, unique, until
from tests.support.crash_wire import Wire
from tests.support.logged_process import LoggedProcess
from tests.support.topics import eventually

pytestmark = pytest.mark.apache

# A member gets its partitions with its second heartbeat, which by default comes after five seconds.
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "3",
}
# How long a tool waits for records that do not come.
NO_RECORDS_TIMEOUT_MS = "3000"
VERSION = 2


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as broker:
        yield broker


def share_group(broker: Reachable, **configs: str) -> str:
    """Configure a new group to begin with the earliest record and return its name."""
    group = unique("share")
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in {"share.auto.offset.reset": "earliest", **configs}.items()
    ]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(TIMEOUT_S)
    return group


def produce(broker: Reachable, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def numbers(count: int, prefix: str = "n") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def consume(broker: Reachable, topic: str, group: str, count: int, *words: str) -> list[str]:
    """Return the lines of Java's console share consumer: delivery count and value of each record."""
    done = run_tool(
        "kafka-console-share-consumer",
        *("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group", group),
        *("--max-messages", str(count), "--formatter-property", "print.delivery=true"),
        *(words if "--timeout-ms" in words else (*words, "--timeout-ms", "60000")),
    )
    # At its timeout it reports an error because no more records have come.
    assert done.stderr.count("ERROR") == done.stderr.count("TimeoutException"), done.stderr
    return done.stdout.splitlines()


def delivered(values: list[str], count: int) -> list[str]:
    return [f"Delivery:{count}\t{value}" for value in values]


def test_records_that_java_releases_are_delivered_again_and_those_it_accepts_are_not(broker: Broker) -> None:
    topic, group, values = create_topic(broker), share_group(broker), numbers(20)
    produce(broker, topic, values)
    assert consume(broker, topic, group, 20, "--release") == delivered(values, 1)
    assert consume(broker, topic, group, 20) == delivered(values, 2)
    assert consume(broker, topic, group, 20, "--timeout-ms", NO_RECORDS_TIMEOUT_MS) == []
    described = run_tool(
        "kafka-share-groups", "--bootstrap-server", broker.bootstrap_servers, "--describe", "--group", group
    ).stdout.split()
    assert described[5:8] == [group, topic, "0"]
    assert described[-1] == "0", f"the lag of {described}"


def test_records_that_java_rejects_are_not_delivered_again(broker: Broker) -> None:
    topic, group, values = create_topic(broker), share_group(broker), numbers(5)
    produce(broker, topic, values)
    assert consume(broker, topic, group, 5, "--reject") == delivered(values, 1)
    produce(broker, topic, ["after"])
    assert consume(broker, topic, group, 1) == delivered(["after"], 1)


class SilentMember:
    """A share group member that acquires records and never acknowledges them."""

    def __init__(self, broker: Broker, topic: str, group: str) -> None:
        self._wire = Wire(broker.port)
        self._group = group
        self._topic_id = self._find_topic(topic)
        self._join(topic)

    def _find_topic(self, topic: str) -> Uuid:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        topic_id: Uuid = self._wire.ask(request, MetadataResponse, 12).topics[0].topic_id
        return topic_id

    def _join(self, topic: str) -> None:
        # The first FindCoordinator creates __consumer_offsets.
        self._wire.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group]), FindCoordinatorResponse, 6)
        epoch = 0

        def beat() -> ShareGroupHeartbeatResponse:
            nonlocal epoch
            time.sleep(POLL_S)
            request = ShareGroupHeartbeatRequest(
                group_id=self._group, member_id="silent", member_epoch=epoch, subscribed_topic_names=[topic]
            )
            response: ShareGroupHeartbeatResponse = self._wire.ask(request, ShareGroupHeartbeatResponse, 1)
            epoch = response.member_epoch
            return response

        until(beat, lambda one: one.assignment and one.assignment.topic_partitions, "the member's partitions")

    def acquire(self) -> int:
        """Fetch, and return the number of acquired records."""
        whole = FetchPartition(partition_index=0, acknowledgement_batches=[])
        request = ShareFetchRequest(
            group_id=self._group,
            member_id="silent",
            share_session_epoch=0,
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=500,
            batch_size=500,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[whole])],
            forgotten_topics_data=[],
        )
        response = self._wire.ask(request, ShareFetchResponse, VERSION)
        return sum(
            one.last_offset - one.first_offset + 1 for one in response.responses[0].partitions[0].acquired_records
        )

    def disconnect(self) -> None:
        self._wire.close()


def test_records_of_a_member_that_acknowledges_nothing_go_to_another_when_their_locks_expire(broker: Broker) -> None:
    topic, group = create_topic(broker), share_group(broker, **{"share.record.lock.duration.ms": "1500"})
    produce(broker, topic, numbers(10))
    silent = SilentMember(broker, topic, group)
    assert silent.acquire() == 10
    # The connection stays open and the member in the group: only the acquisition locks expire.
    assert consume(broker, topic, group, 10) == delivered(numbers(10), 2)
    silent.disconnect()


def test_records_of_a_member_whose_connection_ends_go_to_another_at_once(broker: Broker) -> None:
    # The locks would last for a minute, and the consumer waits for less.
    topic, group = create_topic(broker), share_group(broker, **{"share.record.lock.duration.ms": "60000"})
    produce(broker, topic, numbers(10))
    silent = SilentMember(broker, topic, group)
    assert silent.acquire() == 10
    silent.disconnect()
    assert consume(broker, topic, group, 10, "--timeout-ms", "50000") == delivered(numbers(10), 2)


def console(broker: Reachable, topic: str, group: str, log: Path) -> LoggedProcess:
    """Start the tool as a process of its own, which can be killed."""
    words = ("--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group", group)
    return LoggedProcess(
        java_command(TOOLS["kafka-console-share-consumer"], *words), log, errors=log.with_suffix(".errors")
    )


def test_two_java_members_share_a_partition_and_when_one_is_killed_the_other_gets_its_records(
    broker: Broker, tmp_path: Path
) -> None:
    topic, group = create_topic(broker), share_group(broker)
    with (
        console(broker, topic, group, tmp_path / "one") as one,
        console(broker, topic, group, tmp_path / "other") as other,
    ):
        wanted: list[str] = []

        def send(prefix: str) -> None:
            wanted.extend(numbers(50, prefix))
            produce(broker, topic, numbers(50, prefix))

        send("before-")
        eventually(lambda: one.lines or other.lines, TIMEOUT_S, about="the first record")
        killed, left = (one, other) if one.lines else (other, one)
        killed.kill()
        send("after-")
        eventually(lambda: set(wanted) <= {*left.lines, *killed.lines}, TIMEOUT_S, about="every record")


def test_a_java_share_consumer_reads_on_when_the_leader_and_coordinators_of_its_group_are_killed(
    tmp_path: Path,
) -> None:
    with Cluster(3, SETTINGS) as cluster:
        topic = create_replicated_topic(cluster)
        group = share_group(cluster)
        with console(cluster, topic, group, tmp_path / "consumer") as consumer:
            wanted = numbers(50, "before-")
            produce(cluster, topic, wanted)
            eventually(lambda: set(wanted) <= set(consumer.lines), TIMEOUT_S, about="the records from before")
            # The killed broker leads the partition, and may coordinate the group or its share state.
            for number in range(2):
                leader = cluster.leader_of(topic, 0)
                cluster.kill(leader)
                more = numbers(50, f"after-{number}-")
                produce(cluster, topic, more)
                wanted.extend(more)
                eventually(lambda: set(wanted) <= set(consumer.lines), TIMEOUT_S, about="the records from after")
                cluster.start(leader)
                cluster.wait_until_in_sync()
            once = [line for line in consumer.lines if line.startswith("before-")]
        assert set(once) == set(numbers(50, "before-"))


def create_replicated_topic(cluster: Cluster) -> str:
    from confluent_kafka.cimpl import NewTopic

    name = unique("replicated")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, 1, 3)]).values():
        future.result(TIMEOUT_S)
    return name


def test_librdkafkas_share_consumer_gets_every_record_once(broker: Broker) -> None:
    topic, group, values = create_topic(broker), share_group(broker), numbers(100)
    produce(broker, topic, values)
    with ShareConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group}) as consumer:
        consumer.subscribe([topic])
        found: list[str] = []

        def poll() -> list[str]:
            for message in consumer.poll(POLL_S):
                assert message.error() is None, message.error()
                found.append((message.value() or b"").decode())
            return found

        until(poll, lambda seen: len(seen) >= len(values), "every record")
        consumer.commit_sync(TIMEOUT_S)
    assert sorted(found) == sorted(values)
    assert consume(broker, topic, group, 1, "--timeout-ms", NO_RECORDS_TIMEOUT_MS) == []


def test_librdkafkas_share_consumer_reads_on_when_the_leader_and_coordinators_of_its_group_are_killed() -> None:
    with Cluster(3, SETTINGS) as cluster:
        topic, group, wanted, seen = create_replicated_topic(cluster), share_group(cluster), set[str](), list[str]()
        settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "reconnect.backoff.ms": 20}
        with ShareConsumer(settings) as consumer:
            consumer.subscribe([topic])

            def poll() -> set[str]:
                # librdkafka reports unreachable brokers as messages with errors.
                seen.extend((one.value() or b"").decode() for one in consumer.poll(POLL_S) if one.error() is None)
                return set(seen)

            for number in range(2):
                for when in ("before", "after"):
                    if when == "after":
                        killed = cluster.leader_of(topic, 0)
                        cluster.kill(killed)
                    produce(cluster, topic, numbers(50, f"{when}-{number}-"))
                    wanted |= set(numbers(50, f"{when}-{number}-"))
                until(poll, wanted.__eq__, "every record")
                cluster.start(killed)
                cluster.wait_until_in_sync()
