"""Which request logs each of several brokers in one process writes, and the effect of their loggers' levels."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import wraps
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from pessoa.base import log_levels
from pessoa.base.clock import ManualClock
from pessoa.broker.logs import node_logs
from pessoa.broker.logs.node_logs import NodeLogs
from pessoa.broker.observers import Observers
from pessoa.log.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from pessoa.broker.stages.node_context import NodeContext

ACCESS_LOGGER = "kafka.request.logger"


nodes: list[NodeLogs] = []


@pytest.fixture(autouse=True)
def stop_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the nodes and reset the logger's level after the test; brokers of other tests in this process are
    ignored."""
    monkeypatch.setattr(node_logs, "_nodes", [])
    yield
    for one in nodes:
        one.abandon()
    nodes.clear()
    logging.getLogger("pessoa.test").setLevel(logging.NOTSET)
    log_levels.changed.pop("pessoa.test", None)


class Node:
    """The parts of a node that its logs need."""

    def __init__(self, *named: str) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk(now_ms=self.clock.now_ms)
        self.observers = Observers()
        self.config = SimpleNamespace(current=settings(*named), on_change=[])
        self.logs = NodeLogs(cast("NodeContext", self))
        nodes.append(self.logs)

    def name(self, *named: str) -> None:
        self.config.current = settings(*named)
        for tell in tuple(self.config.on_change):
            tell(self.config.current)

    def fail_to_log_in(self) -> None:
        self.observers.note_log_in("SASL", "10.0.0.7", "PLAIN", None, "SASL_AUTHENTICATION_FAILED")

    @property
    def written(self) -> str:
        """Return the names of the request logs that are enabled."""
        return ", ".join(sorted(repr(self.observers)[12:-1].split(", ")))


def settings(*named: str) -> SimpleNamespace:
    return SimpleNamespace(
        pessoa_logs=named,
        pessoa_logs_max_bytes=1 << 20,
        pessoa_logs_max_files=2,
        pessoa_logs_format="json",
        pessoa_logs_dir="/logs",
    )


def in_loop(test: Callable[[], None]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        async def body() -> None:
            test()

        asyncio.run(body())

    return run


@in_loop
def test_stopping_a_broker_does_not_turn_off_the_logs_of_other_brokers_in_its_process() -> None:
    one, other = Node("access", "audit", "authorizer", "error"), Node("access", "audit", "authorizer", "error")
    one.logs.abandon()
    log_levels.set_level("pessoa.test", "INFO")
    assert (one.written, other.written) == ("none", "access, audit")
    assert logging.getLogger(ACCESS_LOGGER).level == logging.DEBUG
    assert logging.getLogger("kafka.authorizer.logger").level == logging.INFO
    assert len(other.logs._handlers) == 2
    other.logs.abandon()
    assert logging.getLogger(ACCESS_LOGGER).level == logging.CRITICAL


@in_loop
def test_brokers_of_a_process_write_what_each_of_them_names() -> None:
    one, other = Node("access"), Node("audit")
    log_levels.set_level("pessoa.test", "INFO")
    assert (one.written, other.written) == ("access", "audit")
    other.name("audit", "agent")
    assert (one.written, other.written) == ("access", "agent, audit")


@in_loop
def test_deleting_the_level_of_a_logger_restores_the_logs_of_the_setting() -> None:
    node = Node("audit")
    for level, written in (("FATAL", "none"), (None, "audit"), ("FATAL", "none")):
        log_levels.set_level("pessoa.audit", level)
        assert node.written == written
    log_levels.set_level("pessoa.audit", None)
    for level, written in (("DEBUG", "access, audit"), (None, "audit")):
        log_levels.set_level(ACCESS_LOGGER, level)
        assert node.written == written
    assert log_levels.logger_levels()[ACCESS_LOGGER] == "FATAL"
    assert log_levels.logger_levels()["pessoa.audit"] == "INFO"


@in_loop
def test_a_change_of_the_setting_overrides_a_logger_level() -> None:
    node = Node()
    log_levels.set_level(ACCESS_LOGGER, "FATAL")
    node.name("access")
    assert node.written == "access"
    node.name()
    assert node.written == "none"


@in_loop
def test_a_logger_level_is_reset_when_the_last_broker_of_the_process_stops() -> None:
    node = Node()
    log_levels.set_level(ACCESS_LOGGER, "DEBUG")
    node.logs.abandon()
    again = Node()
    assert again.written == "none"


@in_loop
def test_an_abandoned_broker_writes_nothing_and_has_no_timer() -> None:
    node = Node("audit")
    for _ in range(3):
        node.fail_to_log_in()
    node.logs.abandon()
    assert "0 waiting" in repr(node.clock)
    assert not node.disk.exists("/logs/audit.log")


def test_a_broker_that_is_closed_writes_the_log_ins_that_it_has_counted() -> None:
    async def run() -> Node:
        node = Node("audit")
        for _ in range(3):
            node.fail_to_log_in()
        await node.logs.close()
        return node

    node = asyncio.run(run())
    assert b'"count":2' in node.disk.read_file("/logs/audit.log")
    assert "0 waiting" in repr(node.clock)
