"""The mirror source copies the ACLs of mirrored topics between two of our brokers with authorizers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from pessoa.connect.connector import Offsets
from pessoa.connect.connectors.mirror_source import MirrorSourceConnector
from pessoa.testing import Broker
from tests.support.topics import eventually, make_topic

AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker(AUTHORIZED) as source, Broker(AUTHORIZED) as target:
        yield source, target


def entry(
    topic: str, principal: str, operation: str, permission: str = "ALLOW", pattern: str = "LITERAL"
) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType[pattern], f"User:{principal}", "*", AclOperation[operation],
        AclPermissionType[permission],
    )  # fmt: skip


def allow(broker: Broker, *entries: AclBinding) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for created in admin.create_acls(list(entries)).values():
        created.result(30)


def entries_of(broker: Broker) -> set[tuple[str, str, str, str, str]]:
    anything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None,  # type: ignore[arg-type]
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    found = admin.describe_acls(anything).result(30)
    return {
        (each.name, each.principal, each.operation.name, each.permission_type.name, each.resource_pattern_type.name)
        for each in found
    }


def run_mirror(stack: ExitStack, source: Broker, target: Broker, **settings: str) -> MirrorSourceConnector:
    connector = MirrorSourceConnector()
    config = {
        "source.cluster.alias": "porto",
        "target.cluster.alias": "aqui",
        "source.cluster.bootstrap.servers": source.bootstrap_servers,
        "target.cluster.bootstrap.servers": target.bootstrap_servers,
        "replication.factor": "1",
        "sync.topic.acls.interval.seconds": "1",
        **{name.replace("_", "."): text for name, text in settings.items()},
    }
    connector.start(MirrorSourceConnector.CONFIG.parse(config), Offsets())
    stack.callback(connector.stop)
    return connector


def test_acls_of_mirrored_topics_are_copied_without_permission_to_write(brokers: tuple[Broker, Broker]) -> None:
    source, target = brokers
    for topic in ("pedidos", "segredos.internal"):
        make_topic(source.bootstrap_servers, topic)
    allow(
        source, entry("pedidos", "ana", "READ"), entry("pedidos", "rui", "ALL"), entry("pedidos", "eva", "WRITE"),
        entry("pedidos", "mal", "WRITE", "DENY"), entry("ped", "ivo", "READ", pattern="PREFIXED"),
        entry("segredos.internal", "ana", "READ"), entry("outros", "ana", "READ"),
    )  # fmt: skip
    with ExitStack() as stack:
        connector = run_mirror(stack, source, target, topics="pedidos|segredos.*")
        wanted = {
            ("porto.pedidos", "User:ana", "READ", "ALLOW", "LITERAL"),
            ("porto.pedidos", "User:rui", "READ", "ALLOW", "LITERAL"),
            ("porto.pedidos", "User:mal", "WRITE", "DENY", "LITERAL"),
        }
        eventually(lambda: [*connector.poll()] == [] and entries_of(target) == wanted, about=lambda: entries_of(target))
        allow(source, entry("pedidos", "zé", "DESCRIBE"))
        wanted.add(("porto.pedidos", "User:zé", "DESCRIBE", "ALLOW", "LITERAL"))
        eventually(lambda: [*connector.poll()] == [] and entries_of(target) == wanted, about=lambda: entries_of(target))


def test_topics_are_mirrored_to_a_target_without_an_authorizer_and_a_log_line_reports_it(
    brokers: tuple[Broker, Broker], caplog: pytest.LogCaptureFixture
) -> None:
    source, _ = brokers
    make_topic(source.bootstrap_servers, "pedidos")
    allow(source, entry("pedidos", "ana", "READ"))
    with Broker() as target, ExitStack() as stack:
        connector = run_mirror(stack, source, target)
        eventually(lambda: [*connector.poll()] == [] and "aqui has no authorizer" in caplog.text)
        known = AdminClient({"bootstrap.servers": target.bootstrap_servers}).list_topics(timeout=30).topics
    assert "porto.pedidos" in known
