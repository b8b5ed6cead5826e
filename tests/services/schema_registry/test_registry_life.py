"""Restarts (also on Apache Kafka), several registries in one group, topics of the JVM registry, users and TLS."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pessoa.client.topic_creation import TopicUnavailable
from pessoa.schema_registry.registry_config import Config, make_config
from pessoa.testing.broker import Broker
from tests.apache.broker import ApacheKafka
from tests.services.schema_registry.serving import registry, registry_client

INT, LONG = '{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}', '"long"'


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def register(client: httpx.Client, subject: str, schema: str) -> int:
    response = client.post(f"/subjects/{subject}/versions", json={"schema": schema})
    assert response.status_code == 200, response.text
    schema_id: int = response.json()["id"]
    return schema_id


def records_of(bootstrap_servers: str) -> list[tuple[bytes | None, bytes | None]]:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("_schemas", 0, 0)])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append((message.key(), message.value()))
    consumer.close()
    return found


def check_state_after_restart(bootstrap_servers: str) -> None:
    with registry_client(bootstrap_servers) as client:
        assert register(client, "a", INT) == 1
        assert register(client, "b", LONG) == 2
        client.put("/config/a", json={"compatibility": "FULL"})
        client.delete("/subjects/b")
        client.delete("/subjects/b?permanent=true")
    with registry_client(bootstrap_servers) as client:
        assert client.get("/subjects").json() == ["a"]
        assert client.get("/schemas/ids/1").json()["schema"] == INT
        assert client.get("/config/a").json() == {"compatibilityLevel": "FULL"}
        assert register(client, "c", '"string"') == 3


def test_a_restarted_registry_restores_its_schemas_and_config(bootstrap: str) -> None:
    check_state_after_restart(bootstrap)


@pytest.mark.apache
def test_a_restarted_registry_on_apache_kafka_restores_its_schemas_and_config() -> None:
    with ApacheKafka() as kafka:
        check_state_after_restart(kafka.bootstrap_servers)
        written = {key for key, _ in records_of(kafka.bootstrap_servers)}
    assert b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}' in written


def test_a_follower_registry_forwards_writes_to_the_leader_and_reads_them_at_once(bootstrap: str) -> None:
    with registry_client(bootstrap) as one, registry_client(bootstrap) as two:
        for number in range(10):
            writer, reader = (one, two) if number % 2 else (two, one)
            schema = f'{{"type":"fixed","name":"F","size":{number}}}'
            schema_id = register(writer, f"s{number}", schema)
            assert writer.get(f"/subjects/s{number}/versions/1").json()["id"] == schema_id
            assert register(reader, f"s{number}", schema) == schema_id
        incompatible = one.post("/subjects/s1/versions", json={"schema": '"int"'})
        assert (incompatible.status_code, two.post("/subjects/s1/versions", json={"schema": '"int"'}).status_code) == (
            409,
            409,
        )
        leaders = [client.get("/metrics").text.count("registry_is_leader 1.0") for client in (one, two)]
        assert sorted(leaders) == [0, 1]
    keys = [key for key, _ in records_of(bootstrap) if key is not None and b"SCHEMA" in key]
    assert len(keys) == len(set(keys)) == 10


def test_a_starting_registry_answers_reads_only_when_it_can_accept_writes() -> None:
    # Kafka's default: a new group waits this long for more members before it has a leader.
    delay = {"group.initial.rebalance.delay.ms": "3000"}
    with Broker(delay) as broker, registry_client(broker.bootstrap_servers) as client:
        # A script that waits for a registry starts writing after the first answer.
        assert client.get("/subjects").json() == []
        assert "registry_is_leader 1.0" in client.get("/metrics").text
        assert client.get("/health").json() == {"status": "ok"}
        assert register(client, "a", INT) == 1


def test_a_registry_that_is_not_eligible_refuses_writes_without_a_leader_and_forwards_them_to_one(
    bootstrap: str,
) -> None:
    with registry_client(bootstrap, Config(is_eligible=False, leader_timeout_ms=300)) as client:
        refused = client.post("/subjects/a/versions", json={"schema": INT})
        assert (refused.status_code, refused.json()["error_code"]) == (500, 50004)
        assert client.get("/health").status_code == 503
    with (
        registry_client(bootstrap, Config(is_eligible=False)) as idle,
        registry_client(bootstrap) as leader,
    ):
        assert register(idle, "a", INT) == 1
        assert leader.get("/subjects").json() == ["a"]


# Records as the JVM registry writes them, with the fields of newer and of older releases.
FOREIGN = [
    (b'{"keytype":"NOOP","magic":0}', None),
    (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"subject":null,"compatibilityLevel":"FORWARD"}'),
    (
        b'{"keytype":"SCHEMA","subject":"t-value","version":1,"magic":1}',
        b'{"subject":"t-value","version":1,"id":7,"md5":"1yRgdH","schema":"\\"int\\"","deleted":false}',
    ),
    (
        b'{"keytype":"SCHEMA","subject":"p","version":1,"magic":1}',
        (
            b'{"subject":"p","version":1,"id":8,"schemaType":"PROTOBUF","references":[],'
            b'"schema":"syntax = \\"proto3\\";\\n\\nmessage M {\\n  int32 a = 1;\\n}\\n","deleted":false}'
        ),
    ),
    (
        b'{"keytype":"SCHEMA","subject":"gone","version":1,"magic":1}',
        b'{"subject":"gone","version":1,"id":9,"schema":"\\"long\\"","deleted":false}',
    ),
    (b'{"keytype":"DELETE_SUBJECT","subject":"gone","magic":0}', b'{"subject":"gone","version":1}'),
    (b'{"keytype":"MODE","subject":"ro","magic":0}', b'{"subject":"ro","mode":"READONLY"}'),
    (b'{"keytype":"UNHEARD_OF","magic":3}', b"{}"),
    (b"\xff\xfe", b"\x00"),
]


def test_a_schemas_topic_of_the_jvm_registry_is_read_and_continued(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("_schemas", 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])["_schemas"].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in FOREIGN:
        producer.produce("_schemas", key=key, value=value)
    assert producer.flush(60) == 0
    with registry_client(bootstrap) as client:
        assert client.get("/config").json() == {"compatibilityLevel": "FORWARD"}
        assert client.get("/subjects").json() == ["p", "t-value"]
        assert client.get("/subjects?deleted=true").json() == ["gone", "p", "t-value"]
        assert client.get("/schemas/ids/7").json()["schema"] == '"int"'
        assert client.get("/schemas/ids/9").json()["schema"] == '"long"'
        assert client.get("/mode/ro").json() == {"mode": "READONLY"}
        same = 'syntax="proto3"; message M { int32 a = 1; }'
        body = {"schema": same, "schemaType": "PROTOBUF"}
        assert client.post("/subjects/p", json=body).json()["id"] == 8
        assert register(client, "other", '"int"') == 7
        assert register(client, "new", '"bytes"') == 10
        assert client.delete("/subjects/t-value").json() == [1]
        assert "registry_unreadable_records 2.0" in client.get("/metrics").text
    written = dict(records_of(bootstrap)[len(FOREIGN) :])
    assert json.loads(written[b'{"keytype":"SCHEMA","subject":"new","version":1,"magic":1}'] or b"") == {
        "subject": "new", "version": 1, "id": 10, "schema": '"bytes"', "deleted": False,
    }  # fmt: skip
    assert (
        written[b'{"keytype":"DELETE_SUBJECT","subject":"t-value","magic":0}'] == b'{"subject":"t-value","version":1}'
    )


def test_a_schemas_topic_without_compaction_is_refused(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("_schemas", 1, 1)])["_schemas"].result()
    with pytest.raises(TopicUnavailable, match="must be compact"), registry(bootstrap):
        pytest.fail("it started")


def test_only_configured_users_are_let_in_and_followers_forward_their_credentials(
    bootstrap: str, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.write_text("alice: secret\n")
    config = make_config({"authentication.method": "BASIC", "pessoa.authentication.users.file": str(users)})
    with registry_client(bootstrap, config) as one, registry_client(bootstrap, config) as two:
        assert one.get("/subjects").status_code == 401
        for client in (one, two):
            client.auth = httpx.BasicAuth("alice", "secret")
        assert register(one, "a", INT) == 1
        assert register(two, "b", LONG) == 2


def self_signed(folder: Path) -> Path:
    """Write a PEM file with a key and a self-signed certificate for 127.0.0.1; return its path."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "registry")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "registry.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_https_is_served_with_a_pem_file(bootstrap: str, tmp_path: Path) -> None:
    pem = str(self_signed(tmp_path))
    config = make_config({"listeners": "https://127.0.0.1:0", "ssl.keystore.location": pem})
    trusted = ssl.create_default_context(cafile=pem)
    with (
        registry(bootstrap, config, tls=config.http.tls) as server,
        httpx.Client(base_url=server.url, verify=trusted, timeout=60) as client,
    ):
        assert server.url.startswith("https://")
        assert register(client, "a", INT) == 1
