"""Fixtures for tests of ksql on Spark: a broker for each module, and the shared Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pessoa.testing import Broker
from tests.support.spark import spark, spark_address, spark_log

__all__ = ["broker", "spark", "spark_address", "spark_log"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running
