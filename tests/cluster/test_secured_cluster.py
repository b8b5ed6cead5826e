"""Three brokers with logins and ACLs on every listener, from the first start to working clients.

The nodes log in as `node`, which is a super user as `admin` is. Other users get rights with kafka-acls.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pessoa.testing import Cluster
from tests.apache.broker import run_tool
from tests.support.clients import POLL_S, TIMEOUT_S, until
from tests.tools.stage import run_ours

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
USERS = ("admin", "ana", "bob", "transactor", "node")
PLAIN = f'{LOGIN} required username="node" password="node-secret" ' + " ".join(
    f'user_{name}="{name}-secret"' for name in USERS
)
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{PLAIN};",
    "listener.name.controller.plain.sasl.jaas.config": f"{PLAIN};",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:admin",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as found:
        yield found


def client(cluster: Cluster, user: str, broker_id: int | None = None) -> dict[str, str]:
    servers = cluster.bootstrap_servers if broker_id is None else cluster[broker_id].bootstrap_servers
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-secret",
    }


def properties(folder: Path, user: str) -> str:
    path = folder / f"{user}.properties"
    login = f'{LOGIN} required username="{user}" password="{user}-secret";'
    lines = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return str(path)


def acls(cluster: Cluster, folder: Path, *words: str, user: str = "admin") -> str:
    to = ["--bootstrap-server", cluster.bootstrap_servers, "--command-config", properties(folder, user)]
    done = run_ours("kafka-acls", *to, *words)
    return done.out + done.err


def wait_for_entries(cluster: Cluster, count: int) -> None:
    until(
        lambda: [cluster[one].inspect(lambda broker: len(broker.image.acls.by_id)) for one in cluster],
        lambda counts: counts == [count] * 3,
        f"{count} entries on all brokers",
    )


def entry_count(cluster: Cluster) -> int:
    return max(cluster[one].inspect(lambda broker: len(broker.image.acls.by_id)) for one in cluster)


def create(cluster: Cluster, user: str, name: str, broker_id: int | None = None) -> KafkaError | None:
    admin = AdminClient(dict(client(cluster, user, broker_id)))
    try:
        admin.create_topics([NewTopic(name, 3, 3)])[name].result(TIMEOUT_S)
    except KafkaException as problem:
        error = problem.args[0]
        assert isinstance(error, KafkaError)
        return error
    return None


def produce(settings: dict[str, str], topic: str, value: bytes) -> KafkaError | None:
    heard: list[KafkaError | None] = []
    producer = Producer({**settings, "acks": "all", "allow.auto.create.topics": False})
    producer.produce(topic, value, on_delivery=lambda error, _: heard.append(error))
    producer.flush(TIMEOUT_S)
    (error,) = heard
    return error


def read_one(settings: dict[str, str], topic: str, group: str) -> bytes | KafkaError:
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | KafkaError] = []

    def poll() -> int:
        message = consumer.poll(POLL_S)
        if message is not None:
            error = message.error()
            found.append(error if error is not None else message.value() or b"")
        return len(found)

    try:
        until(poll, lambda number: number > 0, f"an answer about {topic}")
        if isinstance(found[0], bytes):
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found[0]


def test_a_forwarded_request_is_checked_as_its_clients_on_whichever_broker_it_comes(
    cluster: Cluster, tmp_path: Path
) -> None:
    for broker_id in cluster:
        denied = create(cluster, "ana", f"ana-{broker_id}", broker_id)
        assert denied is not None
        assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    before = entry_count(cluster)
    acls(cluster, tmp_path, "--add", "--allow-principal", "User:ana", "--operation", "Create",
         "--topic", "ana-", "--resource-pattern-type", "prefixed")  # fmt: skip
    wait_for_entries(cluster, before + 1)
    for broker_id in cluster:
        assert create(cluster, "ana", f"ana-{broker_id}", broker_id) is None
        denied = create(cluster, "bob", f"ana-bob-{broker_id}", broker_id)
        assert denied is not None


def test_a_producer_and_a_consumer_work_with_the_rights_that_kafka_acls_gives_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert create(cluster, "admin", "orders") is None
    denied = produce(client(cluster, "ana"), "orders", b"early")
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    before = entry_count(cluster)
    acls(cluster, tmp_path, "--add", "--allow-principal", "User:ana", "--producer", "--topic", "orders")
    acls(cluster, tmp_path, "--add", "--allow-principal", "User:bob", "--consumer", "--topic", "orders", "--group", "b")
    wait_for_entries(cluster, before + 6)
    assert produce(client(cluster, "ana") | {"enable.idempotence": "true"}, "orders", b"one") is None
    # The first group of the cluster: bob may not create __consumer_offsets, and need not.
    assert read_one(client(cluster, "bob"), "orders", "b") == b"one"
    stopped = read_one(client(cluster, "bob"), "orders", "another")
    assert isinstance(stopped, KafkaError)
    assert stopped.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    hidden = read_one(client(cluster, "ana"), "ana-hidden", "b")
    assert isinstance(hidden, KafkaError)
    listed = AdminClient(dict(client(cluster, "bob"))).list_topics(timeout=TIMEOUT_S).topics
    assert list(listed) == ["orders"]


def test_a_transaction_needs_rights_to_its_id_and_its_topics(cluster: Cluster, tmp_path: Path) -> None:
    assert create(cluster, "admin", "ledger") is None
    settings = client(cluster, "transactor") | {"transactional.id": "books"}
    with pytest.raises(KafkaException) as refused:
        Producer(settings).init_transactions(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    before = entry_count(cluster)
    acls(cluster, tmp_path, "--add", "--allow-principal", "User:transactor", "--producer", "--topic", "ledger",
         "--transactional-id", "books")  # fmt: skip
    wait_for_entries(cluster, before + 5)
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("ledger", b"entry")
    producer.commit_transaction(TIMEOUT_S)
    acls(cluster, tmp_path, "--add", "--allow-principal", "User:bob", "--consumer", "--topic", "ledger", "--group", "b")
    wait_for_entries(cluster, before + 7)
    assert read_one(client(cluster, "bob") | {"isolation.level": "read_committed"}, "ledger", "b") == b"entry"


def test_rights_hold_after_the_controller_is_gone_and_are_taken_away(cluster: Cluster, tmp_path: Path) -> None:
    assert create(cluster, "admin", "kept") is None
    before = entry_count(cluster)
    acls(cluster, tmp_path, "--add", "--allow-principal", "User:ana", "--operation", "Write", "--topic", "kept")
    wait_for_entries(cluster, before + 1)
    assert produce(client(cluster, "ana"), "kept", b"first") is None
    leader = cluster[1].inspect(lambda broker: -1 if broker.quorum is None else broker.quorum.leader_id)
    cluster.kill(leader)
    assert produce(client(cluster, "ana"), "kept", b"second") is None
    denied = create(cluster, "bob", "never")
    assert denied is not None
    assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    cluster.start(leader)
    acls(cluster, tmp_path, "--remove", "--force", "--allow-principal", "User:ana", "--operation", "Write",
         "--topic", "kept")  # fmt: skip
    wait_for_entries(cluster, before)
    refused = produce(client(cluster, "ana"), "kept", b"third")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_kafka_acls_itself_needs_rights(cluster: Cluster, tmp_path: Path) -> None:
    before = entry_count(cluster)
    said = acls(
        cluster, tmp_path, "--add", "--allow-principal", "User:bob", "--operation", "All", "--topic", "*", user="bob"
    )
    assert "CLUSTER_AUTHORIZATION_FAILED" in said or "authoriz" in said.lower()
    assert "authoriz" in acls(cluster, tmp_path, "--list", user="bob").lower()
    assert entry_count(cluster) == before


@pytest.mark.apache
def test_apaches_kafka_acls_lists_what_ours_has_made(cluster: Cluster, tmp_path: Path) -> None:
    before = entry_count(cluster)
    acls(cluster, tmp_path, "--add", "--deny-principal", "User:bob", "--operation", "Read", "--group", "closed",
         "--deny-host", "10.0.0.1")  # fmt: skip
    wait_for_entries(cluster, before + 1)
    words = [
        "--bootstrap-server",
        cluster.bootstrap_servers,
        "--command-config",
        properties(tmp_path, "admin"),
        "--list",
    ]
    theirs = run_tool("kafka-acls", *words, check=True).stdout
    assert "closed" in theirs
    ours = acls(cluster, tmp_path, "--list")
    assert sorted(line.strip() for line in ours.splitlines()) == sorted(line.strip() for line in theirs.splitlines())
