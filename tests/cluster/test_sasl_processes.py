"""Brokers in processes of their own that demand logins, with users from formatting."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.certificates import Authority
from tests.support.clients import TIMEOUT_S
from tests.support.logged_process import LoggedProcess, pessoa
from tests.support.role_processes import Layout, RoleProcesses
from tests.support.tls_settings import TlsFiles

LOGIN = "org.apache.kafka.common.security"
SCRAM = f'{LOGIN}.scram.ScramLoginModule required username="node" password="between-brokers";'
PLAIN = f'{LOGIN}.plain.PlainLoginModule required username="c" password="to-controllers" user_c="to-controllers";'
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": SCRAM,
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": PLAIN,
    # Sessions end while the test runs, and are renewed.
    "connections.max.reauth.ms": "2000",
}
USERS = ("SCRAM-SHA-512=[name=node,password=between-brokers]", "SCRAM-SHA-512=[name=ana,password=secret]")


def client(servers: str) -> dict[str, str]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ana",
        "sasl.password": "secret",
    }


def produce(settings: dict[str, str], topic: str, count: int) -> None:
    producer = Producer({**settings, "acks": "all"})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(TIMEOUT_S) == 0


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_three_brokers_with_scram_among_them_and_plain_to_their_controllers(tmp_path: Path, protocol: str) -> None:
    words = tuple(word for user in USERS for word in ("--add-scram", user))
    roles = dict.fromkeys((1, 2, 3), "broker,controller")
    files = TlsFiles(tmp_path, Authority("the authority of a test"))
    tls = files.node(files.issue("all-brokers"))
    del tls["inter.broker.listener.name"]
    settings = {**(tls if protocol == "SASL_SSL" else {}), **SETTINGS}
    settings["listener.security.protocol.map"] = f"PLAINTEXT:{protocol},CONTROLLER:{protocol}"
    with RoleProcesses(tmp_path, Layout(roles, format_words=words, settings=settings)) as nodes:
        right = {**client(nodes.bootstrap_servers), "security.protocol": protocol, "ssl.ca.location": str(files.trust)}
        admin = AdminClient(dict(right))
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(TIMEOUT_S)
        for _ in range(3):
            produce(right, "t", 100)
        wrong = AdminClient({**right, "sasl.password": "wrong", "socket.timeout.ms": 2000})
        with pytest.raises(KafkaException):
            wrong.list_topics(timeout=2)


def test_a_broker_formats_itself_with_its_first_user(tmp_path: Path) -> None:
    words = [
        f"--set={name}={text}"
        for name, text in {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": SCRAM,
            "log.dirs": str(tmp_path / "data"),
        }.items()
    ]
    command = pessoa("broker", *words, *(f"--add-scram={user}" for user in USERS))
    with LoggedProcess(command, tmp_path / "broker.log") as broker:
        port = broker.wait_for(r"listening on SASL_PLAINTEXT://127\.0\.0\.1:(\d+)")[1]
        broker.wait_for("is ready")
        produce(client(f"127.0.0.1:{port}"), "made-by-itself", 10)
        text = (tmp_path / "broker.log").read_text()
    assert "secret" not in text
    assert "between-brokers" not in text


def test_a_first_user_that_is_written_wrong_stops_the_start(tmp_path: Path) -> None:
    command = pessoa("broker", f"--set=log.dirs={tmp_path / 'data'}", "--add-scram=SCRAM-SHA-512=[password=hunter2]")
    broker = LoggedProcess(command, tmp_path / "broker.log")
    broker.start()
    broker.wait_for("add-scram: You must supply 'name'")
    broker.close()
    assert "hunter2" not in (tmp_path / "broker.log").read_text()
    assert not (tmp_path / "data").exists()
