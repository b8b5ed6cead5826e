"""Fixtures for tests of pipelines: a broker for each module, and the shared Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pessoa.testing import Broker
from tests.support.spark import spark, spark_address

__all__ = ["broker", "spark", "spark_address"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
