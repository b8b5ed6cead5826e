"""Real clients over SASL_PLAINTEXT, with each mechanism, with the right password and with a wrong one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.testing import Broker
from tests.apache.broker import run_tool
from tests.support.clients import POLL_S, TIMEOUT_S, unique, until
from tests.support.sasl import (
    MECHANISMS,
    PASSWORD,
    USER,
    add_scram_users,
    client_settings,
    jaas,
    server_settings,
)

with warnings.catch_warnings():
    # It reads its schemas through a deprecated function of importlib.resources, some of them when first used.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError as PythonKafkaError

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.parametrize("mechanism", MECHANISMS),
]
VALUES = [b"%d" % number for number in range(20)]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Yield the bootstrap servers of a broker whose only listener for clients requires a login."""
    settings = {
        **server_settings(),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    with Broker(settings) as broker:
        add_scram_users(client_settings(broker.bootstrap_servers))
        yield broker.bootstrap_servers


@pytest.fixture
def topic(servers: str) -> str:
    name = unique("sasl")
    admin = AdminClient(dict(client_settings(servers)))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    return name


def test_confluent_kafka_logs_in(servers: str, topic: str, mechanism: str) -> None:
    settings = client_settings(servers, mechanism)
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []

    def poll() -> int:
        message = consumer.poll(POLL_S)
        found.extend([] if message is None else [message.value()])
        return len(found)

    try:
        until(poll, lambda count: count >= len(VALUES), "all records")
    finally:
        consumer.close()
    assert found == VALUES


def test_confluent_kafka_is_refused_with_a_wrong_password(servers: str, mechanism: str) -> None:
    errors: list[KafkaError] = []
    settings: dict[str, Any] = {**client_settings(servers, mechanism, "wrong"), "error_cb": errors.append}
    admin = AdminClient(settings)
    until(lambda: admin.poll(POLL_S), lambda _: errors, "an error")
    assert errors[0].name() == "_AUTHENTICATION"
    assert "uthentication failed" in errors[0].str()
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)


def kafka_python(servers: str, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
    return {
        "bootstrap_servers": servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


def test_kafka_python_logs_in(servers: str, topic: str, mechanism: str) -> None:
    producer = KafkaProducer(**kafka_python(servers, mechanism))
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **kafka_python(servers, mechanism)
    )
    try:
        assert [next(consumer).value for _ in VALUES] == VALUES
    finally:
        consumer.close()


def test_kafka_python_is_refused_with_a_wrong_password(servers: str, mechanism: str) -> None:
    # It reports the reason only if it reads the response before it notices that the connection was closed.
    with pytest.raises(PythonKafkaError):
        KafkaProducer(**kafka_python(servers, mechanism, "wrong"), bootstrap_timeout_ms=2_000)


async def test_aiokafka_logs_in(servers: str, topic: str, mechanism: str) -> None:
    async with AIOKafkaProducer(**kafka_python(servers, mechanism)) as producer:
        for value in VALUES:
            await producer.send_and_wait(topic, value)
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **kafka_python(servers, mechanism)) as consumer:
        assert [(await consumer.getone()).value for _ in VALUES] == VALUES


async def test_aiokafka_is_refused_with_a_wrong_password(servers: str, mechanism: str) -> None:
    producer = AIOKafkaProducer(**kafka_python(servers, mechanism, "wrong"))
    try:
        with pytest.raises(AioKafkaError):
            await producer.start()
    finally:
        await producer.stop()


def properties(folder: Path, mechanism: str, password: str = PASSWORD) -> str:
    path = folder / "client.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config={jaas(mechanism, {'username': USER, 'password': password})}\n"
    )
    return str(path)


@pytest.mark.apache
def test_apaches_console_tools_log_in(servers: str, topic: str, mechanism: str, tmp_path: Path) -> None:
    where = ("--bootstrap-server", servers, "--command-config", properties(tmp_path, mechanism))
    lines = [value.decode() for value in VALUES]
    done = run_tool("kafka-console-producer", *where, "--topic", topic, stdin="".join(f"{line}\n" for line in lines))
    assert done.returncode == 0, done.stderr
    limits = ("--from-beginning", "--max-messages", str(len(lines)), "--timeout-ms", "100000")
    done = run_tool("kafka-console-consumer", *where, "--topic", topic, *limits)
    assert done.stdout.splitlines() == lines, done.stderr
    done = run_tool("kafka-configs", *where, "--describe", "--entity-type", "users", "--entity-name", USER)
    assert "SCRAM-SHA-256=iterations=4096" in done.stdout, done.stdout + done.stderr


@pytest.mark.apache
def test_apaches_tools_are_refused_with_a_wrong_password(servers: str, mechanism: str, tmp_path: Path) -> None:
    config = properties(tmp_path, mechanism, "wrong")
    done = run_tool("kafka-topics", "--bootstrap-server", servers, "--command-config", config, "--list")
    assert done.returncode != 0
    reason = (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else f"invalid credentials with SASL mechanism {mechanism}"
    )
    assert reason in done.stdout + done.stderr
