"""Registry and proxy in front of an Apache Kafka that requires authentication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from pessoa.schema_registry.registry_config import make_config
from tests.apache.broker import HOST, ApacheKafka, reserve_port
from tests.services.certificates import Authority
from tests.services.rest_proxy.stage import V2_BINARY, Rest, proxy_in_front_of
from tests.services.schema_registry.serving import registry_client

pytestmark = pytest.mark.apache

USER, PASSWORD = "alice", "a good pass;word"
LOGIN = "org.apache.kafka.common.security"


class Secure(NamedTuple):
    """The addresses of a cluster's listeners, and the certificates that clients need."""

    addresses: dict[str, str]
    authority: str
    certificate: str

    def settings(self, listener: str, mechanism: str) -> dict[str, str]:
        """Return the settings of a client for this listener, under the names of Kafka's Java client."""
        found = {"security.protocol": listener}
        if listener.endswith("SSL"):
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.authority}
        if listener == "SSL":
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.certificate}
        if mechanism:
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            found |= {
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f'{LOGIN}.{module} required username="{USER}" password="{PASSWORD}";',
            }
        return found


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    names = ("PLAINTEXT", "CONTROLLER", "SSL", "SASL_SSL", "SASL_PLAINTEXT")
    ports = {name: reserve_port() for name in names}
    listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
    plain = f'{LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    scram = f"{LOGIN}.scram.ScramLoginModule required;"
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.sign("broker"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.path,
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain,
    }
    for listener in ("sasl_ssl", "sasl_plaintext"):
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            properties[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = scram
    kafka = ApacheKafka(properties=properties)
    kafka.nodes[0].port, kafka.nodes[0].controller_port = ports["PLAINTEXT"], ports["CONTROLLER"]
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(USER, ScramCredentialInfo(kind, 4096), PASSWORD.encode())
            admin.alter_user_scram_credentials([change])[USER].result(60)
        addresses = {name: f"{HOST}:{port}" for name, port in ports.items()}
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            # The controller answers before the broker knows the user; librdkafka tries again until the login succeeds.
            login = {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
            way = {"bootstrap.servers": addresses["SASL_PLAINTEXT"], "security.protocol": "SASL_PLAINTEXT"}
            AdminClient({**way, **login, "log_level": 0}).list_topics(timeout=120)
        yield Secure(addresses, authority.path, authority.sign("client"))


WAYS = [
    ("SSL", ""),
    ("SASL_SSL", "PLAIN"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
]


def proxy(secure: Secure, listener: str, mechanism: str) -> proxy_in_front_of:
    settings = secure.settings(listener, mechanism)
    return proxy_in_front_of(secure.addresses[listener], **{f"client_{key}": value for key, value in settings.items()})


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_rest_proxy_produces_consumes_and_administers_on_a_secured_cluster(
    secure: Secure, listener: str, mechanism: str
) -> None:
    with proxy(secure, listener, mechanism) as rest:
        topic = f"{listener}-{mechanism or 'TLS'}"
        cluster = rest.cluster
        made = rest.send("POST", f"{cluster}/topics", {"topic_name": topic}, "application/json")
        assert made.status_code == 201, made.text
        rest.wait_for_topic(topic)
        rest.produce(topic, "aGVsbG8=", content_type=V2_BINARY)
        # Configs are read by our own client, everything else by librdkafka.
        configs = rest.get(f"{cluster}/topics/{topic}/configs").json()["data"]
        assert "retention.ms" in {each["name"] for each in configs}
        assert read_one(rest, topic) == "aGVsbG8="


def read_one(rest: Rest, topic: str) -> str:
    consumer = rest.consumer(format="binary")
    consumer.post("/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    [record] = consumer.read(1, accept=V2_BINARY)
    consumer.delete()
    value: str = record["value"]
    return value


@pytest.mark.parametrize(("listener", "mechanism"), [("SSL", ""), ("SASL_SSL", "SCRAM-SHA-512")])
def test_registry_stores_its_schemas_on_a_secured_cluster(secure: Secure, listener: str, mechanism: str) -> None:
    settings = {f"kafkastore.{key}": value for key, value in secure.settings(listener, mechanism).items()}
    config = make_config({**settings, "schema.registry.group.id": listener, "kafkastore.topic": f"_schemas-{listener}"})
    with registry_client(secure.addresses[listener], config) as client:
        answer = client.post("/subjects/s/versions", json={"schema": '"int"'})
        assert (answer.status_code, answer.json()["id"]) == (200, 1), answer.text
        assert client.get("/schemas/ids/1").json()["schema"] == '"int"'
