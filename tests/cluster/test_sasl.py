"""Three brokers that demand a login of clients, of each other and of the nodes that reach their controllers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from confluent_kafka.cimpl import NewTopic

from pessoa.broker.lifecycle import Broker
from pessoa.testing import Cluster
from tests.support.clients import POLL_S, TIMEOUT_S, until

LOGIN = "org.apache.kafka.common.security"
USERS = 'user_node="between nodes" user_ana="secret"'
PLAIN = f'{LOGIN}.plain.PlainLoginModule required username="node" password="between nodes" {USERS};'
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": PLAIN,
    "listener.name.controller.plain.sasl.jaas.config": PLAIN,
}


def client(cluster: Cluster, mechanism: str = "PLAIN", user: str = "ana", password: str = "secret") -> dict[str, str]:
    return {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as found:
        yield found


def create_topic(cluster: Cluster, name: str) -> None:
    admin = AdminClient(dict(client(cluster)))
    for future in admin.create_topics([NewTopic(name, 3, 3)]).values():
        future.result(TIMEOUT_S)


def read(topic: str, count: int, settings: dict[str, str]) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": f"of {topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []

    def poll() -> int:
        message = consumer.poll(POLL_S)
        if message is not None:
            assert message.error() is None
            value = message.value()
            assert value is not None
            found.append(value)
        return len(found)

    try:
        until(poll, lambda number: number >= count, f"{count} records of {topic}")
    finally:
        consumer.close()
    return found


def produce(topic: str, values: list[bytes], settings: dict[str, str]) -> None:
    producer = Producer({**settings, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def principals_of(broker: Broker) -> list[str]:
    """Return the principals of all connections that have logged in."""
    connections = [one.connection for held in broker.listeners for one in held.listener.connections]
    return [one.principal for one in connections if one.authenticate_by_ms is None]


def test_brokers_that_demand_a_login_of_each_other_replicate(cluster: Cluster) -> None:
    create_topic(cluster, "replicated")
    values = [b"%d" % number for number in range(100)]
    produce("replicated", values, client(cluster))
    assert sorted(read("replicated", 100, client(cluster))) == sorted(values)
    cluster.wait_until_in_sync()
    principals = {name for broker_id in cluster for name in cluster[broker_id].inspect(principals_of)}
    assert "User:node" in principals
    assert principals <= {"User:node", "User:ana"}


def credentials_known(cluster: Cluster) -> list[int]:
    return [cluster[one].inspect(lambda broker: len(broker.image.scram.credentials)) for one in cluster]


def test_scram_credentials_made_through_one_broker_hold_on_all_of_them(cluster: Cluster) -> None:
    admin = AdminClient(dict(client(cluster)))
    create_topic(cluster, "with-scram")
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        made = UserScramCredentialUpsertion("bo", ScramCredentialInfo(mechanism, 8192), b"p4ss,=word")
        admin.alter_user_scram_credentials([made])["bo"].result(TIMEOUT_S)
    until(lambda: credentials_known(cluster), lambda counts: counts == [2, 2, 2], "the credentials")
    for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        produce("with-scram", [name.encode()], client(cluster, name, "bo", "p4ss,=word"))
    found = read("with-scram", 2, client(cluster, "SCRAM-SHA-512", "bo", "p4ss,=word"))
    assert sorted(found) == [b"SCRAM-SHA-256", b"SCRAM-SHA-512"]


def test_a_broker_that_was_killed_logs_in_again_and_catches_up(cluster: Cluster) -> None:
    create_topic(cluster, "after-a-crash")
    victim = cluster.leader_of("after-a-crash", 0)
    cluster.kill(victim)
    produce("after-a-crash", [b"while one is gone"], client(cluster))
    cluster.start(victim)
    cluster.wait_until_in_sync()
    assert read("after-a-crash", 1, client(cluster)) == [b"while one is gone"]
