"""Real clients over TLS: with and without certificates of their own, with right ones and with wrong ones.

One broker has three listeners that speak TLS: CLIENT asks for no certificate, MUTUAL requires one, and ELSEWHERE shows
a certificate that is for another host.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from pessoa.broker.stages.node_listeners import NodeListeners
from pessoa.testing import Broker
from tests.apache.broker import reserve_port
from tests.apache.broker import run_tool as run_apache
from tests.support.certificates import Authority
from tests.support.clients import until
from tests.support.tls_settings import PASSWORD, TlsFiles, librdkafka

if TYPE_CHECKING:
    from pessoa.broker.assembly import AnyBroker

TIMEOUT_S = 60
# kafka-python reads its schemas through a deprecated function of importlib.resources, and leaves sockets open.
kafka_python = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


class Secured(NamedTuple):
    files: TlsFiles
    ports: dict[str, int]
    broker: Broker

    def server(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def certificate(self, which: str) -> Path | None:
        foreign = TlsFiles(self.files.folder, Authority("another"))
        match which:
            case "right":
                return self.files.issue("ana")
            case "expired":
                return self.files.issue("late", days=-1)
            case "foreign":
                return foreign.issue("stranger")
        return None


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    files = TlsFiles(tmp_path_factory.mktemp("tls"), Authority("the authority of a test"))
    ports = {name: reserve_port() for name in ("CLIENT", "MUTUAL", "ELSEWHERE")}
    elsewhere = files.issue("elsewhere", hosts=("elsewhere.test",))
    settings = {
        **files.node(files.issue("broker-1")),
        "listeners": ",".join([*(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
                               "CONTROLLER://127.0.0.1:0"]),
        "listener.security.protocol.map": "CLIENT:SSL,MUTUAL:SSL,ELSEWHERE:SSL,CONTROLLER:SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*?),OU=tests.*$/$1/U,DEFAULT",
        "listener.name.elsewhere.ssl.keystore.location": str(elsewhere),
    }  # fmt: skip
    with Broker(settings) as broker:
        yield Secured(files, ports, broker)


# confluent-kafka


def confluent_round_trip(settings: dict[str, str], topic: str) -> None:
    delivered: list[KafkaError | None] = []
    producer = Producer({**settings, "log_level": 0, "message.timeout.ms": 20_000})
    producer.produce(topic, b"over TLS" * 10_000, on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert delivered == [None]
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.value() == b"over TLS" * 10_000
    consumer.close()


@pytest.mark.parametrize(("listener", "which"), [("CLIENT", "none"), ("MUTUAL", "right")])
def test_confluent_kafka_produces_and_consumes_over_tls(secured: Secured, listener: str, which: str) -> None:
    settings = librdkafka(secured.files, secured.certificate(which))
    confluent_round_trip({"bootstrap.servers": secured.server(listener), **settings}, f"confluent-{listener}")


def refused_admin(secured: Secured, listener: str, settings: dict[str, str], problems: list[KafkaError]) -> AdminClient:
    """Return an admin client that could not connect to the broker; its poll appends the reasons to `problems`."""
    config: dict[str, Any] = {"bootstrap.servers": secured.server(listener), "log_level": 0, **settings}
    config["error_cb"] = problems.append
    admin = AdminClient(config)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    return admin


WRONG = [
    pytest.param("MUTUAL", "none", id="no certificate"),
    pytest.param("MUTUAL", "expired", id="an expired certificate"),
    pytest.param("MUTUAL", "foreign", id="a certificate of another authority"),
    pytest.param("ELSEWHERE", "none", id="a server that is for another host"),
]


@pytest.mark.parametrize(("listener", "which"), WRONG)
def test_confluent_kafka_does_not_connect_when_its_certificate_or_the_brokers_is_wrong(
    secured: Secured, listener: str, which: str
) -> None:
    settings = librdkafka(secured.files, secured.certificate(which))
    problems: list[KafkaError] = []
    admin = refused_admin(secured, listener, settings, problems)
    until(lambda: (admin.poll(0.1), problems)[1], bool, "why the client failed")
    assert "SSL routines" in str(problems)


def test_confluent_kafka_that_does_not_know_the_authority_refuses_the_broker(secured: Secured) -> None:
    foreign = TlsFiles(secured.files.folder, Authority("another"))
    trust = foreign.authority.write(secured.files.folder / "foreign.pem")
    problems: list[KafkaError] = []
    admin = refused_admin(secured, "CLIENT", librdkafka(secured.files, trust=trust), problems)
    until(lambda: (admin.poll(0.1), problems)[1], bool, "why the client failed")
    assert "certificate verify failed" in str(problems)


def principals(broker: Broker) -> set[str]:
    """Return the principals of the open connections."""

    def look(running: AnyBroker) -> set[str]:
        listeners = [stage for stage in running._stages if isinstance(stage, NodeListeners)]
        held = [one for stage in listeners for one in stage.all]
        return {protocol.connection.principal for one in held for protocol in one.listener.connections}

    return broker.inspect(look)


def test_the_principal_of_a_client_certificate_is_mapped_by_the_rules_of_its_listener(secured: Secured) -> None:
    settings = librdkafka(secured.files, secured.files.issue("maria"))
    admin = AdminClient({"bootstrap.servers": secured.server("MUTUAL"), **settings})

    def look() -> set[str]:
        # A client leaves the connection that it began with when it knows the cluster.
        admin.list_topics(timeout=TIMEOUT_S)
        return principals(secured.broker)

    until(look, lambda found: "User:MARIA" in found, "a connection with the principal")


# kafka-python and aiokafka


def context_of(secured: Secured, which: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(secured.files.trust))
    own = secured.certificate(which)
    if own is not None:
        context.load_cert_chain(own)
    return context


def kafka_python_round_trip(secured: Secured, listener: str, which: str, topic: str) -> bytes:
    from kafka import KafkaConsumer, KafkaProducer

    settings = {"bootstrap_servers": secured.server(listener), "security_protocol": "SSL",
                "ssl_context": context_of(secured, which), "bootstrap_timeout_ms": 5_000}  # fmt: skip
    producer = KafkaProducer(**settings)
    producer.send(topic, b"x" * 100_000).get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **settings)
    value: bytes = next(consumer).value
    consumer.close()
    return value


@kafka_python
@pytest.mark.parametrize(("listener", "which"), [("CLIENT", "none"), ("MUTUAL", "right")])
def test_kafka_python_produces_and_consumes_over_tls(secured: Secured, listener: str, which: str) -> None:
    assert kafka_python_round_trip(secured, listener, which, f"kafka-python-{listener}") == b"x" * 100_000


@kafka_python
@pytest.mark.parametrize(("listener", "which"), WRONG)
def test_kafka_python_does_not_connect_when_its_certificate_or_the_brokers_is_wrong(
    secured: Secured, listener: str, which: str
) -> None:
    from kafka.errors import KafkaError as KafkaPythonError

    with pytest.raises((KafkaPythonError, ssl.SSLError)):
        kafka_python_round_trip(secured, listener, which, "never")


async def aiokafka_round_trip(secured: Secured, listener: str, which: str, topic: str) -> bytes:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    settings = {"bootstrap_servers": secured.server(listener), "security_protocol": "SSL",
                "ssl_context": context_of(secured, which)}  # fmt: skip
    producer = AIOKafkaProducer(**settings)
    try:
        await producer.start()
        await producer.send_and_wait(topic, b"x" * 100_000)
    finally:
        await producer.stop()
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
    value: bytes = message.value
    return value


@pytest.mark.parametrize(("listener", "which"), [("CLIENT", "none"), ("MUTUAL", "right")])
async def test_aiokafka_produces_and_consumes_over_tls(secured: Secured, listener: str, which: str) -> None:
    assert await aiokafka_round_trip(secured, listener, which, f"aiokafka-{listener}") == b"x" * 100_000


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(("listener", "which"), WRONG)
async def test_aiokafka_does_not_connect_when_its_certificate_or_the_brokers_is_wrong(
    secured: Secured, listener: str, which: str
) -> None:
    from aiokafka.errors import KafkaError as AioKafkaError

    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with pytest.raises((AioKafkaError, OSError)):
        await aiokafka_round_trip(secured, listener, which, "never")


# Apache's tools: Java's TLS, with Java's own stores


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments, "-noprompt"], check=True, capture_output=True)


def java_settings(secured: Secured, which: str, kind: str) -> dict[str, str]:
    """Return client settings with a trust store and, for a certificate, a key store in a format of Java's."""
    folder = secured.files.folder
    trust = folder / f"trust.{kind.lower()}"
    if not trust.exists():
        keytool("-importcert", "-alias", "authority", "-file", str(secured.files.trust), "-storetype", kind,
                "-keystore", str(trust), "-storepass", PASSWORD)  # fmt: skip
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": PASSWORD,
        "ssl.truststore.type": kind,
    }
    if which == "right":
        own = secured.files.certify("ana").write_pkcs12(folder / "ana.p12", PASSWORD, secured.files.authority)
        settings |= {"ssl.keystore.location": str(own), "ssl.keystore.password": PASSWORD, "ssl.key.password": PASSWORD,
                     "ssl.keystore.type": "PKCS12"}  # fmt: skip
    return settings


@pytest.mark.apache
@pytest.mark.parametrize(("listener", "which", "kind"), [("CLIENT", "none", "JKS"), ("MUTUAL", "right", "PKCS12")])
def test_apaches_console_tools_produce_and_consume_over_tls(
    secured: Secured, listener: str, which: str, kind: str
) -> None:
    config = secured.files.properties(f"java-{listener}", java_settings(secured, which, kind))
    topic, server = f"java-{listener}", secured.server(listener)
    run_apache("kafka-console-producer", "--bootstrap-server", server, "--topic", topic, "--command-config", config,
               stdin="over TLS\n", check=True)  # fmt: skip
    read = run_apache("kafka-console-consumer", "--bootstrap-server", server, "--topic", topic, "--from-beginning",
                      "--max-messages", "1", "--command-config", config, check=True)  # fmt: skip
    assert read.stdout.strip() == "over TLS"


@pytest.mark.apache
@pytest.mark.parametrize(
    ("listener", "says"),
    [("MUTUAL", "certificate_required|SSL handshake failed"), ("ELSEWHERE", "SSL handshake failed")],
)
def test_apaches_tools_do_not_connect_when_their_certificate_is_missing_or_the_brokers_is_wrong(
    secured: Secured, listener: str, says: str
) -> None:
    config = secured.files.properties("java-wrong", java_settings(secured, "none", "PKCS12"))
    ended = run_apache("kafka-topics", "--bootstrap-server", secured.server(listener), "--list",
                       "--command-config", config)  # fmt: skip
    assert ended.returncode != 0
    assert any(one in ended.stdout + ended.stderr for one in says.split("|"))


# What the broker must refuse


def connects(secured: Secured, change: Callable[[ssl.SSLContext], None]) -> bool:
    context = ssl.create_default_context(cafile=str(secured.files.trust))
    change(context)
    try:
        with (
            socket.create_connection(("127.0.0.1", secured.ports["CLIENT"]), TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost"),
        ):
            return True
    except (ssl.SSLError, ConnectionError):
        return False


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_1_0_and_1_1_are_refused(secured: Secured) -> None:
    def only(version: ssl.TLSVersion) -> Callable[[ssl.SSLContext], None]:
        def change(context: ssl.SSLContext) -> None:
            # Allow the ciphers that OpenSSL no longer offers by default.
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version

        return change

    assert connects(secured, only(ssl.TLSVersion.TLSv1_2))
    assert connects(secured, only(ssl.TLSVersion.TLSv1_3))
    assert not connects(secured, only(ssl.TLSVersion.TLSv1))
    assert not connects(secured, only(ssl.TLSVersion.TLSv1_1))


def test_tls_renegotiation_is_refused(secured: Secured) -> None:
    ended = subprocess.run(
        ["openssl", "s_client", "-connect", secured.server("CLIENT"), "-tls1_2", "-legacy_renegotiation"],
        input="R\n", capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert "RENEGOTIATING" in ended.stdout + ended.stderr
    assert "no renegotiation" in ended.stdout + ended.stderr


def test_a_plaintext_client_gets_no_response_from_a_tls_listener(secured: Secured) -> None:
    with socket.create_connection(("127.0.0.1", secured.ports["CLIENT"]), TIMEOUT_S) as plain:
        plain.sendall(bytes.fromhex("0000000b001200000000000100 0161".replace(" ", "")))
        heard = b""
        while part := plain.recv(4096):
            heard += part
    # An alert of TLS at most.
    assert len(heard) < 16
