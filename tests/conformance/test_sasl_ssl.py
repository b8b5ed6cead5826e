"""Real clients that log in over TLS: only the broker has a certificate, the principal comes from the login."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from pessoa.testing import Broker
from tests.apache.broker import run_tool
from tests.support.certificates import Authority
from tests.support.clients import TIMEOUT_S, unique
from tests.support.sasl import MECHANISMS, PASSWORD, USER, add_scram_users, client_settings, jaas, server_settings
from tests.support.tls_settings import TlsFiles

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Secured(NamedTuple):
    files: TlsFiles
    broker: Broker

    def confluent(self, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        return {
            **client_settings(self.broker.bootstrap_servers, mechanism, password),
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.files.trust),
        }

    def python(self, mechanism: str) -> dict[str, object]:
        """Return the settings of kafka-python and aiokafka, which have the same names."""
        return {
            "bootstrap_servers": self.broker.bootstrap_servers,
            "security_protocol": "SASL_SSL",
            "ssl_context": ssl.create_default_context(cafile=str(self.files.trust)),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    files = TlsFiles(tmp_path_factory.mktemp("tls"), Authority("the authority of a test"))
    settings = {
        **files.node(files.issue("broker-1")),
        **server_settings("client"),
        "listeners": "CLIENT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENT:SASL_SSL,CONTROLLER:SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        # On a SASL_SSL listener only the `ssl.client.auth` with the listener's prefix counts.
        "ssl.client.auth": "required",
    }
    with Broker(settings) as broker:
        secured = Secured(files, broker)
        add_scram_users(secured.confluent("PLAIN"))
        yield secured


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in_over_tls(secured: Secured, mechanism: str) -> None:
    topic, settings = unique("confluent"), secured.confluent(mechanism)
    delivered: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce(topic, b"x", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert delivered == [None]
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"x"
    consumer.close()


def test_a_wrong_password_is_refused_over_tls(secured: Secured) -> None:
    admin = AdminClient({**secured.confluent("SCRAM-SHA-512", "wrong"), "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_a_tls_client_without_a_login_is_served_nothing(secured: Secured) -> None:
    admin = AdminClient({**secured.confluent("PLAIN"), "security.protocol": "SSL", "log_level": 0})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)


def test_kafka_python_logs_in_over_tls(secured: Secured) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    topic, settings = unique("kafka-python"), secured.python("SCRAM-SHA-256")
    producer = KafkaProducer(**settings)
    producer.send(topic, b"x").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **settings)
    assert next(consumer).value == b"x"
    consumer.close()


async def test_aiokafka_logs_in_over_tls(secured: Secured) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic, settings = unique("aiokafka"), secured.python("SCRAM-SHA-512")
    async with AIOKafkaProducer(**settings) as producer:
        await producer.send_and_wait(topic, b"x")
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        assert (await consumer.getone()).value == b"x"


@pytest.mark.apache
def test_apaches_console_tools_log_in_over_tls(secured: Secured, tmp_path: Path) -> None:
    topic, server = unique("java"), secured.broker.bootstrap_servers
    config = secured.files.properties("java", {
        **secured.files.java_client(),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas("SCRAM-SHA-512", {"username": USER, "password": PASSWORD}),
    })  # fmt: skip
    run_tool("kafka-console-producer", "--bootstrap-server", server, "--topic", topic, "--command-config", config,
             stdin="over TLS\n", check=True)  # fmt: skip
    read = run_tool("kafka-console-consumer", "--bootstrap-server", server, "--topic", topic, "--from-beginning",
                    "--max-messages", "1", "--command-config", config, check=True)  # fmt: skip
    assert read.stdout.strip() == "over TLS"
