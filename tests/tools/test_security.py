"""Our tools through TLS and SASL, on an Apache broker with a listener for each security protocol.

Both clients are tested with the properties file that Kafka's documentation describes: our blocking client in
kafka-topics, and librdkafka in the console tools.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.apache.broker import ApacheKafka, reserve_port
from tests.apache.tool_server import Outcome
from tests.support.certificates import Authority
from tests.support.clients import until
from tests.tools.stage import run_ours

pytestmark = pytest.mark.apache

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "open sesame"
ODD_NAME = "ana=b,c"


class Secured(NamedTuple):
    folder: Path
    ports: dict[str, int]

    def server(self, protocol: str) -> str:
        return f"127.0.0.1:{self.ports[protocol]}"

    def properties(self, protocol: str, **more: str) -> str:
        """Write a properties file for a security protocol and return its path; keywords have underscores for dots."""
        values = {"security.protocol": protocol, "default.api.timeout.ms": "60000"}
        if protocol.endswith("SSL"):
            values |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.folder / "authority.pem")}
        values |= {key.replace("_", "."): value for key, value in more.items()}
        path = self.folder / f"client-{len(list(self.folder.iterdir()))}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        return str(path)

    def ask(self, protocol: str, **more: str) -> Outcome:
        return run_ours("kafka-topics", "--bootstrap-server", self.server(protocol), "--list",
                        "--command-config", self.properties(protocol, **more))  # fmt: skip


def login(module: str, name: str, password: str = PASSWORD) -> str:
    return f'{module} required username="{name}" password="{password}";'


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority("the authority of a test")
    authority.write(folder / "authority.pem")
    authority.certify("a client").write_pkcs12(folder / "client.p12", PASSWORD, authority)
    subprocess.run(["keytool", "-importcert", "-noprompt", "-storetype", "JKS", "-alias", "authority", "-file",
                    folder / "authority.pem", "-keystore", folder / "trust.jks", "-storepass", PASSWORD],
                   check=True, capture_output=True)  # fmt: skip
    Authority("another authority").write(folder / "stranger.pem")
    authority.issue(folder / "broker.pem", "broker")
    authority.issue(folder / "client.pem", "client")
    ports = {name: reserve_port() for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
    controller = f"CONTROLLER://127.0.0.1:{reserve_port()}"
    properties = {
        "listeners": f"{listeners},{controller}",
        "advertised.listeners": f"{listeners},{controller}",
        "controller.quorum.voters": f"1@{controller.removeprefix('CONTROLLER://')}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "authority.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    }
    for name in ("sasl_plaintext", "sasl_ssl"):
        start = f"listener.name.{name}"
        properties[f"{start}.plain.sasl.jaas.config"] = f'{PLAIN} required user_ana="{PASSWORD}";'
        for kind in ("256", "512"):
            properties[f"{start}.scram-sha-{kind}.sasl.jaas.config"] = f"{SCRAM} required;"
    kafka = ApacheKafka(properties=properties)
    kafka.nodes[0].port = ports["PLAINTEXT"]
    with kafka:
        # A request may have only one credential of a user.
        for name, kind in product(("ana", ODD_NAME), ("256", "512")):
            made = run_ours("kafka-configs", "--bootstrap-server", kafka.bootstrap_servers, "--alter", "--user", name,
                            "--add-config", f"SCRAM-SHA-{kind}=[iterations=4096,password={PASSWORD}]")  # fmt: skip
            assert made.code == 0, made
        made = run_ours("kafka-topics", "--bootstrap-server", kafka.bootstrap_servers, "--create", "--topic", "orders")
        assert made.code == 0, made
        secured = Secured(folder, ports)
        # The controller answers before the broker knows users and topics.
        for protocol, more in (WAYS["SCRAM-256"], WAYS["SCRAM-512"], WAYS["an odd name"]):
            until(
                lambda protocol=protocol, more=more: secured.ask(protocol, **more),  # type: ignore[misc]
                lambda found: "orders" in found.out.splitlines(),
                "that users and topics are known",
            )
        yield secured


WAYS = {
    "PLAIN": ("SASL_PLAINTEXT", {"sasl_mechanism": "PLAIN", "sasl_jaas_config": login(PLAIN, "ana")}),
    "SCRAM-256": ("SASL_PLAINTEXT", {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": login(SCRAM, "ana")}),
    "SCRAM-512": ("SASL_PLAINTEXT", {"sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": login(SCRAM, "ana")}),
    "TLS and SCRAM": ("SASL_SSL", {"sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": login(SCRAM, "ana")}),
    "TLS and PLAIN": ("SASL_SSL", {"sasl_mechanism": "PLAIN", "sasl_jaas_config": login(PLAIN, "ana")}),
    "an odd name": ("SASL_PLAINTEXT", {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": login(SCRAM, ODD_NAME)}),
    "both ends have certificates": ("SSL", {"ssl_keystore_type": "PEM", "ssl_keystore_location": "@D/client.pem"}),
    "both ends have stores of Java's": (
        "SSL",
        {
            "ssl_truststore_type": "JKS",
            "ssl_truststore_location": "@D/trust.jks",
            "ssl_truststore_password": PASSWORD,
            # What keytool writes into a store without a type is PKCS12.
            "ssl_keystore_type": "JKS",
            "ssl_keystore_location": "@D/client.p12",
            "ssl_keystore_password": PASSWORD,
            "ssl_key_password": PASSWORD,
        },
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_kafka_topics_lists_topics_with_every_authentication_method(secured: Secured, way: str) -> None:
    protocol, more = WAYS[way]
    found = secured.ask(protocol, **{key: value.replace("@D", str(secured.folder)) for key, value in more.items()})
    assert found.code == 0, found
    assert "orders" in found.out.splitlines()


@pytest.mark.parametrize(
    "way", ["SCRAM-256", "TLS and PLAIN", "both ends have certificates", "both ends have stores of Java's"]
)
def test_console_tools_produce_and_consume_through_tls_and_sasl(secured: Secured, way: str) -> None:
    protocol, more = WAYS[way]
    more = {key: value.replace("@D", str(secured.folder)) for key, value in more.items()}
    where = ("--bootstrap-server", secured.server(protocol), "--topic", re.sub(r"\W", "-", way),
             "--command-config", secured.properties(protocol, **more))  # fmt: skip
    assert run_ours("kafka-console-producer", *where, stdin="one\ntwo\n").code == 0
    read = run_ours("kafka-console-consumer", *where, "--from-beginning", "--max-messages", "2",
                    "--timeout-ms", "60000")  # fmt: skip
    assert read == Outcome(0, "one\ntwo\n", "Processed a total of 2 messages\n")


def test_key_and_certificates_of_a_client_may_be_inline_in_the_properties_file(secured: Secured) -> None:
    key, _, chain = (secured.folder / "client.pem").read_text().partition("-----BEGIN CERTIFICATE-----")
    # A backslash at the end continues a value on the next line.
    inline = {"ssl_keystore_key": key, "ssl_keystore_certificate_chain": f"-----BEGIN CERTIFICATE-----{chain}"}
    lines = {name: text.strip().replace("\n", "\\n\\\n") for name, text in inline.items()}
    found = secured.ask("SSL", ssl_keystore_type="PEM", **lines)
    assert found.code == 0, found
    assert "orders" in found.out.splitlines()


@pytest.mark.parametrize(
    ("protocol", "more", "sentence"),
    [
        (
            "SASL_PLAINTEXT",
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": login(SCRAM, "ana", "wrong")},
            "SaslAuthenticationException: Authentication failed",
        ),
        (
            "SASL_PLAINTEXT",
            {"sasl_mechanism": "PLAIN", "sasl_jaas_config": login(PLAIN, "mallory")},
            "SaslAuthenticationException: Authentication failed: Invalid username or password",
        ),
        (
            "SASL_PLAINTEXT",
            {"sasl_mechanism": "OAUTHBEARER", "sasl_jaas_config": login(PLAIN, "ana")},
            "SaslAuthenticationException: Client SASL mechanism 'OAUTHBEARER' not enabled in the server",
        ),
        ("SASL_PLAINTEXT", {"sasl_mechanism": "PLAIN"}, "ConfigException: sasl.jaas.config has no username"),
        (
            "SASL_SSL",
            {"ssl_truststore_location": "@D/stranger.pem", "sasl_mechanism": "PLAIN",
             "sasl_jaas_config": login(PLAIN, "ana")},
            "SslAuthenticationException: SSL handshake failed: CERTIFICATE_VERIFY_FAILED",
        ),
        ("SSL", {"ssl_truststore_type": "JKS"}, "it is neither PKCS12 nor JKS; it looks like PEM"),
        (
            "SSL",
            {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": "@D/client.p12", "ssl_keystore_password": "x"},
            "client.p12: the password is wrong",
        ),
        ("SSL", {"ssl_truststore_location": "/nope.pem"}, "cannot be read"),
    ],
)  # fmt: skip
def test_a_client_that_is_refused_prints_the_reason_and_exits_with_1(
    secured: Secured, protocol: str, more: dict[str, str], sentence: str
) -> None:
    found = secured.ask(protocol, **{key: value.replace("@D", str(secured.folder)) for key, value in more.items()})
    assert found.code == 1
    assert sentence in found.out + found.err
