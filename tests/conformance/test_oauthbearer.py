"""Real clients that log in with a bearer token, right or wrong, over SASL_PLAINTEXT and SASL_SSL.

One broker has both listeners. Its keys are in a file; tokens are issued by an identity provider on loopback, which
librdkafka and Java can request them from by themselves.
"""

from __future__ import annotations

import ssl
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.testing import Broker
from tests.apache.broker import TOOLS, java_command, reserve_port
from tests.apache.class_archive import small_java
from tests.support.certificates import Authority
from tests.support.clients import POLL_S, TIMEOUT_S, unique, until
from tests.support.tls_settings import TlsFiles
from tests.support.tokens import AUDIENCE, ISSUER, IdentityProvider, Issuer, rsa_key, unsigned
from tests.tools.stage import run_ours

with warnings.catch_warnings():
    # It reads its schemas through a deprecated function of importlib.resources, some of them when first used.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError as PythonKafkaError
    from kafka.net.sasl.oauth import AbstractTokenProvider

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
VALUES = [b"%d" % number for number in range(10)]
APACHE = "org.apache.kafka.common.security.oauthbearer"
TOOL_TIMEOUT_S = 180
FOREIGN = Issuer(key=rsa_key("foreign"))
# What is wrong → the token.
WRONG: dict[str, Callable[[Issuer], str]] = {
    "of another issuer's key": lambda _: FOREIGN.token(),
    "expired": lambda issuer: issuer.token(exp=int(time.time()) - 100),
    "for another audience": lambda issuer: issuer.token(aud="other"),
    "unsigned": lambda issuer: unsigned(issuer.claims()),
}


class Cluster(NamedTuple):
    issuer: Issuer
    provider: IdentityProvider
    files: TlsFiles
    ports: dict[str, int]

    def server(self, protocol: str) -> str:
        return f"127.0.0.1:{self.ports[protocol]}"

    def confluent(self, protocol: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.server(protocol),
            "security.protocol": protocol,
            "sasl.mechanism": "OAUTHBEARER",
            **({"ssl.ca.location": str(self.files.trust)} if protocol == "SASL_SSL" else {}),
        }

    def with_callback(self, protocol: str, token: str) -> dict[str, Any]:
        return {**self.confluent(protocol), "oauth_cb": lambda _: (token, time.time() + 3600)}

    def with_oidc(self, protocol: str) -> dict[str, Any]:
        return {
            **self.confluent(protocol),
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "client",
            "sasl.oauthbearer.client.secret": "the secret of the client",
            "sasl.oauthbearer.token.endpoint.url": self.provider.url("/token"),
        }

    def python(self, protocol: str) -> dict[str, Any]:
        """Return the settings of kafka-python and aiokafka, which have the same names."""
        tls = {"ssl_context": ssl.create_default_context(cafile=str(self.files.trust))}
        return {
            "bootstrap_servers": self.server(protocol),
            "security_protocol": protocol,
            "sasl_mechanism": "OAUTHBEARER",
            **(tls if protocol == "SASL_SSL" else {}),
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("oauth")
    files = TlsFiles(folder, Authority("the authority of a test"))
    issuer = Issuer()
    keys = issuer.write(folder / "jwks.json")
    ports = {name: reserve_port() for name in PROTOCOLS}
    of_listeners: dict[str, str] = {}
    for name in PROTOCOLS:
        prefix = f"listener.name.{name.lower()}.oauthbearer."
        of_listeners |= {
            f"{prefix}sasl.oauthbearer.jwks.endpoint.url": f"file:{keys}",
            f"{prefix}sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{prefix}sasl.oauthbearer.expected.issuer": ISSUER,
            f"{prefix}sasl.server.callback.handler.class": f"{APACHE}.OAuthBearerValidatorCallbackHandler",
        }
    settings = {
        **files.node(files.issue("broker-1")),
        **of_listeners,
        "listeners": ",".join(
            [*(f"{name}://127.0.0.1:{port}" for name, port in ports.items()), "INNER://127.0.0.1:0",
             "CONTROLLER://127.0.0.1:0"]
        ),
        "listener.security.protocol.map": (
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,INNER:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INNER",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "pessoa.sasl.oauthbearer.allowed.files": str(keys),
    }  # fmt: skip
    with IdentityProvider(issuer).serving() as provider, Broker(settings):
        yield Cluster(issuer, provider, files, ports)


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = unique("oauth")
    admin = AdminClient(cluster.with_callback("SASL_PLAINTEXT", cluster.issuer.token()))
    # Without a poll its callback is not called.
    admin.poll(0)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    return name


def exchange_with_confluent(settings: dict[str, Any], topic: str) -> None:
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


def test_confluent_kafka_logs_in_with_the_token_of_its_callback(cluster: Cluster, topic: str, protocol: str) -> None:
    exchange_with_confluent(cluster.with_callback(protocol, cluster.issuer.token()), topic)


def test_confluent_kafka_asks_the_identity_provider_for_a_token(cluster: Cluster, topic: str, protocol: str) -> None:
    exchange_with_confluent(cluster.with_oidc(protocol), topic)
    assert cluster.provider.forms[-1]["grant_type"] == ["client_credentials"]


@pytest.mark.parametrize("wrong", WRONG)
def test_confluent_kafka_is_refused_with_a_wrong_token(cluster: Cluster, protocol: str, wrong: str) -> None:
    errors: list[KafkaError] = []
    settings = cluster.with_callback(protocol, WRONG[wrong](cluster.issuer))
    settings |= {"error_cb": errors.append, "log_level": 0}
    admin = AdminClient(settings)
    until(lambda: admin.poll(POLL_S), lambda _: errors, "an error")
    assert errors[0].name() == "_AUTHENTICATION"
    assert "invalid_token" in errors[0].str()
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.5)


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1", "identityPoolId": "pool 1"}


def test_kafka_python_logs_in_with_a_token_and_extensions(cluster: Cluster, topic: str, protocol: str) -> None:
    settings = {**cluster.python(protocol), "sasl_oauth_token_provider": Provider(cluster.issuer.token())}
    producer = KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings)
    try:
        assert [next(consumer).value for _ in VALUES] == VALUES
    finally:
        consumer.close()


def test_kafka_python_is_refused_with_a_wrong_token(cluster: Cluster, protocol: str) -> None:
    settings = {**cluster.python(protocol), "sasl_oauth_token_provider": Provider(FOREIGN.token())}
    with pytest.raises(PythonKafkaError):
        KafkaProducer(**settings, bootstrap_timeout_ms=2_000)


class AioProvider(AioTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


async def test_aiokafka_logs_in_with_a_token(cluster: Cluster, topic: str, protocol: str) -> None:
    settings = {**cluster.python(protocol), "sasl_oauth_token_provider": AioProvider(cluster.issuer.token())}
    async with AIOKafkaProducer(**settings) as producer:
        for value in VALUES:
            await producer.send_and_wait(topic, value)
    async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
        assert [(await consumer.getone()).value for _ in VALUES] == VALUES


async def test_aiokafka_is_refused_with_a_wrong_token(cluster: Cluster, protocol: str) -> None:
    provider = AioProvider(FOREIGN.token())
    producer = AIOKafkaProducer(**cluster.python(protocol), sasl_oauth_token_provider=provider)
    try:
        with pytest.raises(AioKafkaError):
            await producer.start()
    finally:
        await producer.stop()


# Apache's tools: a Java process each, because the allowed sources of tokens are a system property.


def run_java(tool: str, allowed: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    flags = [*small_java(), f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={allowed}"]
    command = java_command(TOOLS[tool], *words, jvm=flags, log_level="ERROR")
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)


def java_properties(cluster: Cluster, protocol: str, folder: Path, url: str) -> str:
    tls = cluster.files.java_client() if protocol == "SASL_SSL" else {}
    settings = {
        **tls,
        "security.protocol": protocol,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{APACHE}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.credentials.client.id": "client",
        "sasl.oauthbearer.client.credentials.client.secret": "the secret of the client",
        "sasl.jaas.config": f"{APACHE}.OAuthBearerLoginModule required;",
        "default.api.timeout.ms": "60000",
    }
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    return str(path)


@pytest.mark.apache
def test_apaches_producer_and_consumer_log_in_with_tokens(
    cluster: Cluster, topic: str, protocol: str, tmp_path: Path
) -> None:
    """The producer requests a token from the identity provider, the consumer has its token in a file."""
    lines = [value.decode() for value in VALUES]
    url = cluster.provider.url("/token")
    words = ("--bootstrap-server", cluster.server(protocol), "--topic", topic, "--command-config")
    config = java_properties(cluster, protocol, tmp_path, url)
    done = run_java("kafka-console-producer", url, *words, config, stdin="".join(f"{line}\n" for line in lines))
    assert done.returncode == 0, done.stderr
    (tmp_path / "token.jwt").write_text(cluster.issuer.token())
    url = f"file://{tmp_path / 'token.jwt'}"
    config = java_properties(cluster, protocol, tmp_path, url)
    limits = ("--from-beginning", "--max-messages", str(len(lines)), "--timeout-ms", "100000")
    done = run_java("kafka-console-consumer", url, *words, config, *limits)
    assert done.stdout.splitlines() == lines, done.stderr


@pytest.mark.apache
def test_apaches_tools_are_refused_with_a_wrong_token(cluster: Cluster, protocol: str, tmp_path: Path) -> None:
    (tmp_path / "token.jwt").write_text(FOREIGN.token())
    url = f"file://{tmp_path / 'token.jwt'}"
    config = java_properties(cluster, protocol, tmp_path, url)
    words = ("--bootstrap-server", cluster.server(protocol), "--command-config", config, "--list")
    done = run_java("kafka-topics", url, *words)
    assert done.returncode != 0
    assert '{"status":"invalid_token"}' in done.stdout + done.stderr


# Our own tools, with the files of Java's: the blocking client behind kafka-topics, librdkafka behind the console tools.


@pytest.mark.parametrize("source", ["file", "endpoint"])
def test_our_tools_log_in_with_a_token(
    cluster: Cluster, topic: str, protocol: str, source: str, tmp_path: Path
) -> None:
    (tmp_path / "token.jwt").write_text(cluster.issuer.token())
    url = f"file://{tmp_path / 'token.jwt'}" if source == "file" else cluster.provider.url("/token")
    where = ("--bootstrap-server", cluster.server(protocol))
    config = ("--command-config", java_properties(cluster, protocol, tmp_path, url))
    listed = run_ours("kafka-topics", *where, *config, "--list")
    assert topic in listed.out.splitlines(), listed
    lines = [value.decode() for value in VALUES]
    text = "".join(f"{line}\n" for line in lines)
    written = run_ours("kafka-console-producer", *where, *config, "--topic", topic, stdin=text)
    assert written.code == 0, written
    limits = ("--from-beginning", "--max-messages", str(len(lines)), "--timeout-ms", "100000")
    read = run_ours("kafka-console-consumer", *where, *config, "--topic", topic, *limits)
    assert read.out.splitlines() == lines, read


def test_our_tools_are_refused_with_a_wrong_token_and_do_not_print_it(
    cluster: Cluster, protocol: str, tmp_path: Path
) -> None:
    token = FOREIGN.token()
    (tmp_path / "token.jwt").write_text(token)
    config = java_properties(cluster, protocol, tmp_path, f"file://{tmp_path / 'token.jwt'}")
    words = ("--bootstrap-server", cluster.server(protocol), "--command-config", config, "--list")
    done = run_ours("kafka-topics", *words)
    assert done.code != 0
    assert '{"status":"invalid_token"}' in done.out + done.err
    assert token not in done.out + done.err
    assert token.split(".")[2] not in done.out + done.err
