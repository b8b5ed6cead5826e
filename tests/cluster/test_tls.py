"""Three broker processes whose listeners all speak TLS, with certificates on both sides.

Their certificates are replaced, broker by broker, while a producer writes.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic
from cryptography.hazmat.primitives.serialization import Encoding

from pessoa.security.tls.distinguished_name import subject_of
from tests.apache.broker import reserve_port
from tests.cluster.conftest import QUIET, TIMEOUT_S, until
from tests.support.certificates import Authority, Issued
from tests.support.logged_process import LoggedProcess, pessoa
from tests.support.role_processes import Layout, RoleProcesses
from tests.support.tls_settings import TlsFiles, librdkafka

TOPIC = "orders"


class TlsProcesses:
    def __init__(self, folder: Path) -> None:
        self.files = TlsFiles(folder, Authority("the authority of a test"))
        self.ports = {number: (reserve_port(), reserve_port()) for number in (1, 2, 3)}
        self.key_stores = {number: self.files.issue(f"broker-{number}") for number in self.ports}
        self._processes: list[LoggedProcess] = []
        self.client = {
            "bootstrap.servers": ",".join(f"127.0.0.1:{client}" for client, _ in self.ports.values()),
            **librdkafka(self.files, self.files.issue("ana")),
            **QUIET,
        }
        self.admin = AdminClient({**self.client, "socket.timeout.ms": 5_000})

    def start(self) -> None:
        voters = ",".join(f"{one}@127.0.0.1:{port}" for one, (_, port) in self.ports.items())
        for number, (client, controller) in self.ports.items():
            settings = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"CLIENT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
                "controller.quorum.voters": voters,
                "log.dirs": str(self.files.folder / str(number)),
                "offsets.topic.num.partitions": "3",
                **self.files.node(self.key_stores[number]),
                "ssl.client.auth": "required",
            }
            config = self.files.properties(f"broker-{number}", settings)
            process = LoggedProcess(pessoa("broker", "--config", config), self.files.folder / f"{number}.log")
            process.start()
            self._processes.append(process)

    def wait_until_registered(self) -> None:
        def is_complete() -> bool:
            try:
                return len(self.admin.list_topics(timeout=2).brokers) == 3
            except KafkaException:
                return False

        until(is_complete, "all brokers registered")

    def close(self) -> None:
        for process in self._processes:
            process.close()

    def presented_certificate(self, number: int) -> bytes:
        """Return the certificate that a broker presents to a new client."""
        context = ssl.create_default_context(cafile=str(self.files.trust))
        with (
            socket.create_connection(("127.0.0.1", self.ports[number][0]), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""

    def read_anew(self, number: int) -> None:
        """Set ssl.keystore.location of a broker to the same path, so that it reads the replaced file."""
        key = "listener.name.client.ssl.keystore.location"
        self.set(number, key, str(self.key_stores[number]))

    def set(self, number: int, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number), incremental_configs=[entry])
        self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsProcesses]:
    processes = TlsProcesses(tmp_path_factory.mktemp("cluster"))
    try:
        processes.start()
        processes.wait_until_registered()
        topic = NewTopic(TOPIC, 3, 3, config={"min.insync.replicas": "2"})
        processes.admin.create_topics([topic])[TOPIC].result(TIMEOUT_S)
        yield processes
    finally:
        processes.close()


def test_records_are_replicated_and_read_over_tls_alone(cluster: TlsProcesses) -> None:
    producer = Producer({**cluster.client, "acks": "all"})
    delivered: list[KafkaError | None] = []
    for number in range(300):
        producer.produce(TOPIC, f"{number}", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert delivered == [None] * 300
    consumer = Consumer({**cluster.client, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    seen: set[int] = set()

    def has_read_all() -> bool:
        seen.update(int(one.value() or b"") for one in consumer.consume(100, 1.0))
        return len(seen) == 300

    until(has_read_all, "all records read")
    consumer.close()


def test_nodes_and_clients_without_a_certificate_reach_no_listener(cluster: TlsProcesses) -> None:
    context = ssl.create_default_context(cafile=str(cluster.files.trust))
    for port in (port for ports in cluster.ports.values() for port in ports):
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as plain:
            secured = context.wrap_socket(plain, server_hostname="localhost")
            # With TLS 1.3 a client believes that it is in before the server has looked at its certificate.
            with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
                secured.recv(1)
            secured.close()


def renewed(cluster: TlsProcesses, number: int) -> Issued:
    issued = cluster.files.certify(f"broker-{number}")
    fresh = issued.write(cluster.key_stores[number].with_suffix(".new"))
    fresh.replace(cluster.key_stores[number])
    return issued


def shows(cluster: TlsProcesses, number: int, issued: Issued) -> bool:
    return cluster.presented_certificate(number) == issued.certificate.public_bytes(Encoding.DER)


def test_certificates_are_replaced_broker_by_broker_under_load_without_a_failed_produce(
    cluster: TlsProcesses,
) -> None:
    failed: list[KafkaError] = []
    acked = 0
    is_done = Event()

    def delivered(error: KafkaError | None, _: object) -> None:
        nonlocal acked
        if error is None:
            acked += 1
        else:
            failed.append(error)

    def has_acked(before: int) -> bool:
        return acked > before + 20

    def produce() -> None:
        # No error is hidden by a retry.
        producer = Producer({**cluster.client, "acks": "all", "retries": 0, "connections.max.idle.ms": 1_000})
        while not is_done.is_set():
            producer.produce(TOPIC, b"x" * 100, on_delivery=delivered)
            producer.poll(0.01)
        assert producer.flush(TIMEOUT_S) == 0

    thread = Thread(target=produce)
    thread.start()
    try:
        for number in cluster.ports:
            issued = renewed(cluster, number)
            cluster.read_anew(number)
            until(partial(shows, cluster, number, issued), f"broker {number} shows its new certificate")
            until(partial(has_acked, acked), "more records acknowledged")
    finally:
        is_done.set()
        thread.join(TIMEOUT_S)
    assert not failed


@pytest.mark.parametrize(
    ("common_name", "how", "says"),
    [
        ("another-broker", {}, "ssl.allow.dn.changes"),
        ("broker-1", {"hosts": ("localhost",)}, "ssl.allow.san.changes"),
    ],
)
def test_a_key_store_with_another_identity_is_refused_and_the_old_one_is_kept(
    cluster: TlsProcesses, common_name: str, how: dict[str, object], says: str
) -> None:
    shown = cluster.presented_certificate(1)
    path = cluster.files.certify(common_name, **how).write(cluster.files.folder / "other.pem")
    with pytest.raises(KafkaException, match=says):
        cluster.set(1, "listener.name.client.ssl.keystore.location", str(path))
    assert cluster.presented_certificate(1) == shown


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("listener.name.client.ssl.keystore.location", "/nowhere/store.pem", "cannot be read"),
        ("listener.name.client.ssl.enabled.protocols", "TLSv1.2", "cannot change while its listener is open"),
        ("listener.name.client.ssl.keystore.password", "a planted secret", "a PEM key store has no password"),
    ],
)
def test_invalid_stores_are_refused_when_they_are_set(cluster: TlsProcesses, key: str, value: str, says: str) -> None:
    with pytest.raises(KafkaException, match=says) as caught:
        cluster.set(2, key, value)
    assert "a planted secret" not in str(caught.value)
    assert subject_of(cluster.presented_certificate(2)) == "CN=broker-2,OU=tests,O=Pessoa"


def test_a_trust_store_that_does_not_trust_the_nodes_is_refused(cluster: TlsProcesses) -> None:
    foreign = Authority("another").write(cluster.files.folder / "foreign.pem")
    with pytest.raises(KafkaException, match="does not trust what its key store shows"):
        cluster.set(3, "listener.name.client.ssl.truststore.location", str(foreign))


LOGIN = "org.apache.kafka.common.security"
SCRAM = f'{LOGIN}.scram.ScramLoginModule required username="node" password="between-brokers";'
PLAIN = f'{LOGIN}.plain.PlainLoginModule required username="c" password="to-controllers" user_c="to-controllers";'


def test_three_brokers_use_sasl_over_tls_on_every_listener(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path, Authority("the authority of a test"))
    settings = {
        **files.node(files.issue("every-broker")),
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.plaintext.scram-sha-512.sasl.jaas.config": SCRAM,
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": PLAIN,
    }
    users = ("SCRAM-SHA-512=[name=node,password=between-brokers]", "SCRAM-SHA-512=[name=ana,password=secret]")
    words = tuple(word for user in users for word in ("--add-scram", user))
    roles = {1: "broker,controller", 2: "broker", 3: "broker"}
    with RoleProcesses(tmp_path, Layout(roles, format_words=words, settings=settings)) as nodes:
        client = {
            **librdkafka(files),
            "bootstrap.servers": nodes.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ana",
            "sasl.password": "secret",
        }
        admin = AdminClient(dict(client))
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(TIMEOUT_S)
        delivered: list[KafkaError | None] = []
        producer = Producer({**client, "acks": "all"})
        for number in range(100):
            producer.produce("t", f"{number}", on_delivery=lambda error, _: delivered.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        assert delivered == [None] * 100
