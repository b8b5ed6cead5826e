"""What the tests with real clients share: marks and their table, tests that are coroutines, topics, a lossy network.

`kafka` is the broker of `pessoa.testing.plugin`, one for all tests of a process; so every test has topics and groups of
its own. A test that restarts its broker, or needs settings, makes one for itself.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conformance.features import Shown, checked, shown_by, table
from tests.support.clients import create_topic
from tests.support.lossy_proxy import LossyProxy

if TYPE_CHECKING:
    from pessoa.testing import Broker

PARTITIONS = 3
# Generous, because on two busy cores any process may be delayed by seconds; a passing test takes less than one.
COROUTINE_TIMEOUT_S = 180


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "client(name): the Kafka client that a test drives")
    config.addinivalue_line("markers", "feature(*names): the lines of docs/CLIENTS.md that a test shows")


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), COROUTINE_TIMEOUT_S))
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    for shown in shown_by(item):
        item.user_properties.append(("shows", f"{shown.client}/{shown.feature}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    cells: dict[Shown, str] = {}
    for outcome, sign in (("passed", "✓"), ("skipped", "skipped"), ("failed", "✗"), ("error", "✗")):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties:
                if name == "shows":
                    cells[checked(*str(value).split("/"))] = sign
    if cells:
        terminalreporter.write_sep("=", "client × feature")
        for line in table(cells):
            terminalreporter.write_line(line)


@pytest.fixture
def topic(kafka: Broker) -> str:
    """The name of an empty topic with three partitions on `kafka`."""
    return create_topic(kafka, PARTITIONS)


@pytest.fixture
def lossy_kafka() -> Iterator[LossyProxy]:
    """Yield a proxy that drops responses on request; clients reach the broker behind it only through the proxy."""
    from pessoa.testing import Broker

    with LossyProxy() as proxy, Broker({"advertised.listeners": proxy.as_listener}) as broker:
        proxy.target_port = broker.port
        yield proxy
        proxy.hang_up()


@pytest.fixture(scope="session")
def grouping_kafka() -> Iterator[Broker]:
    """Yield a broker whose KIP-848 members send heartbeats every 200 ms, and so learn of a rebalance soon."""
    from pessoa.testing import Broker

    interval_ms = "200"
    with Broker(
        {
            "group.consumer.heartbeat.interval.ms": interval_ms,
            "group.consumer.min.heartbeat.interval.ms": interval_ms,
        }
    ) as broker:
        yield broker
