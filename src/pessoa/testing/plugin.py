"""Fixtures for pytest, registered when Pessoa is installed.

    kafka            a broker for the whole test session: quick, and shared
    kafka_topic      the name of a fresh topic on `kafka`, created with one partition
    kafka_broker     a broker of the test's own
    kafka_cluster    three brokers of the test's own, to be killed and cut off
    schema_registry  a registry on `kafka`, for the whole session
    rest_proxy       a REST proxy on `kafka` and `schema_registry`, for the whole session
    ksql             a ksql server on `kafka` and `schema_registry`, for the whole session

    def test_orders(kafka: Broker, kafka_topic: str) -> None:
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        ...

Nothing of Pessoa is imported until a test asks for one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pessoa.testing.broker import Broker
    from pessoa.testing.cluster import Cluster
    from pessoa.testing.in_process_services import KsqlServer, RestProxy, SchemaRegistry


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Keep pytest from rewriting the assertions of Pessoa, as it would for the whole package of a plugin.

    Brokers import most of themselves late and in threads of their own, and two threads that parse at once may fail with
    "AST constructor recursion depth mismatch" (CPython 3.11). It would also cost each session a second.
    """
    marked = getattr(pluginmanager.rewrite_hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("pessoa")


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A running broker, shared by all tests of the session: `kafka.bootstrap_servers`."""
    from pessoa.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka_broker() -> Iterator[Broker]:
    """A running broker for this test alone."""
    from pessoa.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def kafka_cluster() -> Iterator[Cluster]:
    """A running cluster of three brokers for this test alone."""
    from pessoa.testing.cluster import Cluster

    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def kafka_topic(kafka: Broker, request: pytest.FixtureRequest) -> str:
    """The name of a topic that exists and is empty."""
    import re
    from uuid import uuid4

    from confluent_kafka.admin import AdminClient

    from pessoa.client.topic_creation import TopicSpec, ensure_topic

    stem = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:200]
    name = f"{stem}-{uuid4().hex[:8]}"
    ensure_topic(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), TopicSpec(name, 1, 1))
    return name


@pytest.fixture(scope="session")
def schema_registry(kafka: Broker) -> Iterator[SchemaRegistry]:
    """A running schema registry, shared by all tests of the session: `schema_registry.url`."""
    from pessoa.testing.in_process_services import SchemaRegistry

    with SchemaRegistry(kafka.bootstrap_servers) as registry:
        yield registry


@pytest.fixture(scope="session")
def rest_proxy(kafka: Broker, schema_registry: SchemaRegistry) -> Iterator[RestProxy]:
    """A running REST proxy, shared by all tests of the session: `rest_proxy.url`."""
    from pessoa.testing.in_process_services import RestProxy

    with RestProxy(kafka.bootstrap_servers, schema_registry=schema_registry.url) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def ksql(kafka: Broker, schema_registry: SchemaRegistry) -> Iterator[KsqlServer]:
    """A running ksql server, shared by all tests of the session: `ksql.run("CREATE STREAM …;")`."""
    from pessoa.testing.in_process_services import KsqlServer

    with KsqlServer(kafka.bootstrap_servers, schema_registry=schema_registry.url) as server:
        yield server
