"""Client quotas on a running broker, set with kafka-configs, with raw requests and real clients.

Times have only lower bounds in these tests: a muted connection may be served later than necessary, but not earlier.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.broker.metrics.collectors import collect_quotas
from pessoa.broker.metrics.exposition import Exposition
from pessoa.cli.configs import main as kafka_configs
from pessoa.quota.client_quotas import Reading
from pessoa.testing import Broker, Cluster
from pessoa.wire.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from pessoa.wire.api.metadata import MetadataRequest, MetadataResponse
from pessoa.wire.errors import ErrorCode
from tests.cluster.conftest import until
from tests.support.crash_wire import Closed
from tests.support.quota_clients import NamedWire, records_in

if TYPE_CHECKING:
    from pessoa.broker.assembly import AnyBroker

METADATA_VERSION = 12
# What a limit of 20,000 bytes a second allows at once: ten seconds of it.
AT_ONCE = 200_000
LIMIT = 20_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(60)
        yield running


def configs(broker: Broker, line: str) -> None:
    words = shlex.split(f"--bootstrap-server {broker.bootstrap_servers} --alter {line}")
    assert kafka_configs(words) == 0


def limits_are(broker: Broker, count: int) -> None:
    """Wait until the broker's image has so many entities with quotas."""
    until(lambda: broker.inspect(lambda inside: len(inside.services.image.quotas.by_entity)) == count, "the quotas")


def read_all(inside: AnyBroker) -> list[Reading]:
    throttling = inside.services.throttling
    assert throttling is not None
    return list(throttling.readings())


@pytest.mark.parametrize(
    "entity",
    [
        "--entity-type users --entity-name ANONYMOUS",
        "--entity-type users --entity-default",
        "--entity-type clients --entity-name limited",
        "--entity-type clients --entity-default",
        "--entity-type users --entity-name ANONYMOUS --entity-type clients --entity-name limited",
        "--entity-type users --entity-name ANONYMOUS --entity-type clients --entity-default",
        "--entity-type users --entity-default --entity-type clients --entity-name limited",
        "--entity-type users --entity-default --entity-type clients --entity-default",
    ],
)
def test_a_quota_set_with_kafka_configs_applies_at_each_of_the_eight_levels_until_it_is_deleted(
    broker: Broker, entity: str
) -> None:
    assert broker.inspect(lambda inside: inside.services.throttling) is None
    configs(broker, f"{entity} --add-config 'producer_byte_rate={LIMIT}'")
    limits_are(broker, 1)
    with NamedWire(broker.port, "limited") as limited:
        assert limited.produce(AT_ONCE // 2) == 0
        assert limited.produce(AT_ONCE * 3 // 4) > 1_000
    configs(broker, f"{entity} --delete-config producer_byte_rate")
    limits_are(broker, 0)
    assert broker.inspect(lambda inside: inside.services.throttling) is None
    with NamedWire(broker.port, "limited") as limited:
        assert limited.produce(AT_ONCE) == 0


def test_a_muted_connection_is_not_served_until_its_time_is_over_and_other_clients_are(broker: Broker) -> None:
    configs(broker, f"--entity-type clients --entity-name limited --add-config 'producer_byte_rate={LIMIT}'")
    limits_are(broker, 1)
    with NamedWire(broker.port, "limited") as limited, NamedWire(broker.port, "free") as free:
        assert limited.produce(AT_ONCE) < 1_000
        throttle_ms = limited.produce(LIMIT)
        answered_at = time.monotonic()
        assert 500 <= throttle_ms < 3_000
        assert [free.produce(AT_ONCE) for _ in range(20)] == [0] * 20
        limited.ask(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)
        # The broker's clock has whole milliseconds, and began before the answer was there.
        assert (time.monotonic() - answered_at) * 1000 > throttle_ms * 0.9 - 100


@pytest.mark.parametrize("version", [4, 7, 12])
def test_a_fetch_over_the_quota_is_empty_and_a_later_one_gets_the_records(broker: Broker, version: int) -> None:
    with NamedWire(broker.port, "free") as free:
        for _ in range(6):
            free.produce(LIMIT * 3)
    configs(broker, f"--entity-type clients --entity-name limited --add-config 'consumer_byte_rate={LIMIT}'")
    limits_are(broker, 1)
    with NamedWire(broker.port, "limited") as limited, NamedWire(broker.port, "free") as free:
        begun_at = time.monotonic()
        # No answer has more than ten seconds of the limit.
        first = limited.fetch(0, version)
        assert (first.throttle_time_ms, records_in(first)) == (0, AT_ONCE)
        empty = limited.fetch(3, version)
        assert empty.throttle_time_ms > 0
        assert (records_in(empty), empty.error_code) == (0, 0)
        assert records_in(free.fetch(0, version)) == LIMIT * 18
        again = limited.fetch(5, version)
        assert (time.monotonic() - begun_at) * 1000 > empty.throttle_time_ms * 0.9 - 100
        if again.throttle_time_ms == 0:
            assert records_in(again) == LIMIT * 3


def test_an_incremental_fetch_session_loses_nothing_to_a_throttled_response_and_a_full_one_does_not_begin(
    broker: Broker,
) -> None:
    with NamedWire(broker.port, "free") as free:
        for _ in range(6):
            free.produce(LIMIT * 3)
    configs(broker, f"--entity-type clients --entity-default --add-config 'consumer_byte_rate={LIMIT}'")
    limits_are(broker, 1)

    def sessions() -> int:
        return broker.inspect(lambda inside: len(inside.services.fetch_sessions))

    with NamedWire(broker.port, "one") as one:
        full = one.fetch(0, session_epoch=0)
        assert (records_in(full), sessions()) == (AT_ONCE, 1)
        # Another connection, which is not muted, of the same client.
        empty = one.fetch(3, session_id=full.session_id, session_epoch=1)
        assert (records_in(empty), empty.session_id) == (0, full.session_id)
        assert empty.throttle_time_ms > 0
    with NamedWire(broker.port, "one") as one:
        refused = one.fetch(3, session_epoch=0)
        assert (records_in(refused), refused.session_id) == (0, 0)
        assert refused.throttle_time_ms > 0
        assert sessions() == 1
    with NamedWire(broker.port, "one") as one:
        # The epoch went on, and the partition is still part of the session.
        following = one.fetch(3, session_id=full.session_id, session_epoch=2)
        assert following.error_code == 0


def test_request_time_is_limited_and_no_request_is_delayed_by_more_than_a_second(broker: Broker) -> None:
    configs(broker, "--entity-type clients --entity-name limited --add-config 'request_percentage=0.001'")
    limits_are(broker, 1)
    with NamedWire(broker.port, "limited") as limited, NamedWire(broker.port, "free") as free:
        # How many that takes depends on the machine.
        throttles_ms = [0]
        while throttles_ms[-1] == 0 and len(throttles_ms) < 1_000:
            answer = limited.ask(MetadataRequest(topics=None), MetadataResponse, METADATA_VERSION)
            throttles_ms.append(answer.throttle_time_ms)
        assert 0 < throttles_ms[-1] <= 1_000
        for _ in range(50):
            response = free.ask(MetadataRequest(topics=None), MetadataResponse, METADATA_VERSION)
            assert response.throttle_time_ms == 0


def test_an_address_over_its_connection_rate_is_held_and_then_disconnected_unserved(broker: Broker) -> None:
    configs(broker, "--entity-type ips --entity-name 127.0.0.1 --add-config 'connection_creation_rate=1'")
    limits_are(broker, 1)
    first = NamedWire(broker.port, "first")
    closed = 0
    for _ in range(12):
        with NamedWire(broker.port, "c") as wire:
            begun_at = time.monotonic()
            try:
                wire.ask(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)
            except Closed:
                closed += 1
                # Held for as long as the rate asks for; that is a second at most, and some of it has passed.
                assert time.monotonic() - begun_at > 0.001
    assert closed > 0
    # Connections that are there are served on.
    with first:
        first.ask(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)
        alter = "--entity-type ips --entity-name 127.0.0.1 --delete-config connection_creation_rate"
        until(lambda: _alters(broker, alter), "a connection for the tool")
        limits_are(broker, 0)
    for _ in range(30):
        with NamedWire(broker.port, "c") as wire:
            wire.ask(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)


def _alters(broker: Broker, line: str) -> bool:
    words = shlex.split(f"--bootstrap-server {broker.bootstrap_servers} --alter {line}")
    return kafka_configs(words) == 0


def test_confluent_kafka_is_limited_to_its_quota_while_another_client_is_not_throttled(broker: Broker) -> None:
    """What counts is bytes and throttle times: a client that sent n bytes at a limit of r has been told to wait, in
    all, for about n / r less the ten seconds that the first may take at once."""
    limit, size = 100_000, 10_000
    configs(broker, f"--entity-type clients --entity-name limited --add-config 'producer_byte_rate={limit}'")
    limits_are(broker, 1)
    throttled: dict[str, list[float]] = {"limited": [], "free": []}

    def producer(client_id: str) -> Producer:
        return Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "client.id": client_id,
                "linger.ms": 0,
                "batch.num.messages": 5,
                "compression.type": "none",
                "throttle_cb": lambda event: throttled[client_id].append(event.throttle_time),
            }
        )

    begun_at = time.monotonic()
    slow, quick = producer("limited"), producer("free")
    for number in range(130):
        slow.produce("t", bytes(size))
        for _ in range(3):
            quick.produce("t", bytes(size))
        slow.poll(0)
        quick.poll(0)
        if number % 10 == 9:
            assert quick.flush(60) == 0
    assert quick.flush(60) == 0
    assert slow.flush(120) == 0
    elapsed_s = time.monotonic() - begun_at
    readings = broker.inspect(read_all)
    assert throttled["free"] == []
    assert throttled["limited"]
    # 1.3 MB at 0.1 MB/s are 13 seconds, of which ten may be taken at once.
    assert elapsed_s > 2.0
    [reading] = readings
    assert (reading.key, reading.user, reading.client_id, reading.limit) == (
        "producer_byte_rate",
        None,
        "limited",
        limit,
    )
    assert reading.rate <= limit * 1.3
    assert reading.throttled_count > 0


def test_a_client_id_that_rotates_does_not_evade_the_quota_of_its_user(broker: Broker) -> None:
    configs(broker, f"--entity-type users --entity-default --add-config 'producer_byte_rate={LIMIT}'")
    limits_are(broker, 1)
    throttled = []
    for number in range(30):
        with NamedWire(broker.port, f"client-{number}") as wire:
            throttled.append(wire.produce(LIMIT * 2) > 0)
    assert throttled[:3] == [False] * 3
    assert throttled[-10:] == [True] * 10
    [reading] = broker.inspect(read_all)
    assert (reading.user, reading.client_id) == ("ANONYMOUS", None)
    shown = broker.inspect(quota_metrics)
    labels = '{type="Produce",user="ANONYMOUS",client_id=""}'
    assert any(line.startswith(f"kafka_server_quota_byte_rate{labels} ") for line in shown)
    assert any(line.startswith(f"kafka_server_quota_throttle_time{labels} ") for line in shown)


def quota_metrics(inside: AnyBroker) -> list[str]:
    out = Exposition()
    # To its end at once, without the turns that it leaves to other tasks.
    for _ in collect_quotas(inside.services, out).__await__():
        pass
    return "".join(out.lines()).splitlines()


def test_a_user_quota_applies_to_the_authenticated_user(tmp_path: Path) -> None:
    users = 'username="node" password="n" user_node="n" user_ana="a" user_ben="b"'
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": f"{module} {users};",
    }
    login = tmp_path / "client.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} username="node" password="n";\n'
    )
    throttled: dict[str, list[float]] = {"ana": [], "ben": []}
    with Broker(settings) as broker:
        configs(
            broker,
            f"--command-config {login} --entity-type users --entity-name ana --add-config producer_byte_rate=20000",
        )
        limits_are(broker, 1)
        for user, password in (("ana", "a"), ("ben", "b")):
            settings_of_client: dict[str, Any] = {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": user,
                "sasl.password": password,
                "client.id": "same",
                "batch.num.messages": 2,
                "throttle_cb": lambda event, of=throttled[user]: of.append(event.throttle_time),
            }
            producer = Producer(settings_of_client)
            for _ in range(21):
                producer.produce("t", bytes(10_000))
                producer.poll(0)
            assert producer.flush(60) == 0
            producer.poll(0)
        [reading] = broker.inspect(read_all)
    assert throttled["ben"] == []
    assert throttled["ana"]
    assert (reading.user, reading.client_id, reading.throttled_count > 0) == ("ana", None, True)


def test_confluent_kafka_reads_every_record_though_it_is_throttled(broker: Broker) -> None:
    count, size = 120, 10_000
    with NamedWire(broker.port, "writer") as writer:
        for _ in range(count):
            writer.produce(size)
    configs(broker, "--entity-type clients --entity-name limited --add-config 'consumer_byte_rate=100000'")
    limits_are(broker, 1)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "limited",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 100_000,
        }
    )
    consumer.subscribe(["t"])
    offsets: list[int] = []

    def has_all() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            offset = message.offset()
            assert offset is not None
            offsets.append(offset)
        return len(offsets) == count

    until(has_all, "all records")
    consumer.close()
    assert offsets == list(range(count))
    [reading] = broker.inspect(read_all)
    assert reading.throttled_count > 0
    assert reading.rate <= 130_000


def test_mutations_are_counted_by_the_controller_and_the_contacted_broker_mutes_the_client() -> None:
    """By whichever broker it is asked: two of the three hand the request on, in an envelope."""
    with Cluster(3) as cluster:
        first = cluster[min(cluster)]
        configs(first, "--entity-type clients --entity-name limited --add-config 'controller_mutation_rate=1'")
        for one in cluster:
            limits_are(cluster[one], 1)
        errors, throttled = [], []
        for number, one in enumerate(sorted(cluster)):
            with NamedWire(cluster[one].port, "limited") as limited, NamedWire(cluster[one].port, "free") as free:
                created = limited.create_topics({f"limited-{number}": 100 if number == 0 else 1})
                errors.append(created.topics[0].error_code)
                throttled.append(created.throttle_time_ms)
                assert free.create_topics({f"free-{number}": 20}).topics[0].error_code == ErrorCode.NONE
                muted = cluster[one].inspect(muted_connections)
                assert muted == (1 if created.throttle_time_ms else 0)
        # Of eleven tokens a hundred were taken: 89 are owed, for as many seconds.
        exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert errors == [ErrorCode.NONE, exceeded, exceeded]
        assert throttled[0] == 0
        assert 0 < throttled[2] <= throttled[1] <= 89_000


def test_creating_internal_topics_counts_for_no_mutation_quota() -> None:
    """All fifty partitions of one would leave nothing for the next, nor for clients."""
    with Broker(settings={"offsets.topic.num.partitions": "50"}) as broker:
        configs(broker, "--entity-type users --entity-default --add-config 'controller_mutation_rate=1'")
        limits_are(broker, 1)
        with NamedWire(broker.port, "c") as client:
            for key_type in (0, 1):
                request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["one"])

                def is_found(asked: FindCoordinatorRequest = request) -> bool:
                    answer = client.ask(asked, FindCoordinatorResponse, 4)
                    return bool(answer.coordinators[0].error_code == ErrorCode.NONE)

                # A bucket that owes fifty partitions is empty for longer than this waits.
                until(is_found, "a coordinator", 25)
            created = client.create_topics({"mine": 1})
        assert created.topics[0].error_code == ErrorCode.NONE


def muted_connections(inside: AnyBroker) -> int:
    return sum(
        connection.connection.muted_until_ms is not None
        for held in inside.listeners
        for connection in held.listener.connections
    )
