"""One broker and one registry for all tests of this folder; each test uses unique subjects."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import httpx
import pytest

from pessoa.testing.broker import Broker
from pessoa.web.serving import ThreadedServer
from tests.services.schema_registry.serving import registry


@pytest.fixture(scope="package")
def server() -> Iterator[ThreadedServer]:
    with Broker() as broker, registry(broker.bootstrap_servers) as server:
        yield server


@pytest.fixture
def http(server: ThreadedServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


@pytest.fixture
def subject() -> str:
    return f"s-{uuid4().hex[:12]}"
