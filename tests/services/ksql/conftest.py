"""One broker, one registry and one ksql server for all tests of this folder; each test uses unique names."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from pessoa.testing import Broker, SchemaRegistry
from tests.services.ksql.serving import Ksql, ksql_server


@pytest.fixture(scope="package")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="package")
def registry(broker: Broker) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(broker.bootstrap_servers) as registry:
        yield registry


@pytest.fixture(scope="package")
def ksql(broker: Broker, registry: SchemaRegistry, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ksql]:
    settings = {
        "ksql.schema.registry.url": registry.url,
        "ksql.service.id": "shared_",
        "ksql.output.topic.name.prefix": "",
    }
    with ksql_server(broker.bootstrap_servers, tmp_path_factory.mktemp("ksql"), settings) as client:
        yield client


@pytest.fixture
def name() -> str:
    """Return a unique name in upper case, as ksql stores names."""
    return f"S{uuid4().hex[:10].upper()}"
