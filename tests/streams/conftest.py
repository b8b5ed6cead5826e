"""Fixtures for tests of the Streams API: a broker and a schema registry for each module, and the shared Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pessoa.testing import Broker
from tests.services.schema_registry.serving import registry
from tests.support.spark import spark, spark_address

__all__ = ["broker", "registry_url", "spark", "spark_address"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def registry_url(broker: Broker) -> Iterator[str]:
    with registry(broker.bootstrap_servers) as server:
        yield server.url
