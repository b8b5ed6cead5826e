"""The two sides of a comparison of clusters: three brokers of ours and three of Apache Kafka, each in its own process.

As with one broker (`bench/apache.py`), the two sides never run at the same time, and both have their own defaults and
the settings of Apache's `server.properties`. Apache's scripts would also start three Java processes with 1 GB each.

A cluster is whole when every broker names all three in its Metadata: only then are all registered and unfenced.
"""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.apache import (
    APACHE,
    BEFORE,
    CHECKOUT_BEFORE,
    HOST,
    QUIET,
    ROUNDS,
    SERVER_JVM,
    START_TIMEOUT_S,
    STOP_TIMEOUT_S,
    Process,
    Side,
    compare_sides,
    wrapper_before,
)
from bench.report import OURS
from tests.apache.broker import ApacheKafka
from tests.apache.jars import java, why_no_java
from tests.chaos.processes import BROKERS, BrokerProcesses, Home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from bench.apache import Figures
    from bench.report import Report

POLL_INTERVAL_S = 0.005
# The chaos tests shorten these; here they are Kafka's defaults.
_DEFAULTS = {
    "broker.heartbeat.interval.ms": "2000",
    "broker.session.timeout.ms": "9000",
    "min.insync.replicas": "1",
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
}


class Cluster:
    """Three running brokers, ours or Apache's; `kill` sends SIGKILL, `stop` sends SIGTERM and waits for the end."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        pid_of: Callable[[int], int],
        kill: Callable[[int], None],
        stop: Callable[[int], object],
        start: Callable[[int], None],
        started_in_s: float,
    ) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.started_in_s = started_in_s
        self._pid_of = pid_of
        self.kill = kill
        self.stop = stop
        self.start = start

    def __repr__(self) -> str:
        return f"<Cluster {self.name} at {self.bootstrap}>"

    def memory_mb(self) -> float:
        return sum(Process(self._pid_of(number)).memory_mb() for number in (1, 2, 3))

    def cpu_seconds(self) -> float:
        return sum(Process(self._pid_of(number)).cpu_seconds() for number in (1, 2, 3))

    def as_side(self) -> Side:
        """Return the cluster as a `Side` for the loads, which need only its address."""
        port = int(self.bootstrap.split(",")[0].rpartition(":")[2])
        return Side(self.name, port, Process(self._pid_of(1)))


@contextmanager
def running_pessoa(folder: Path, *, name: str = OURS, wrapper: tuple[str, ...] = ()) -> Iterator[Cluster]:
    homes = {number: Home(folder / f"data-{number}", command=wrapper) for number in BROKERS}
    brokers = BrokerProcesses(folder, _DEFAULTS, homes)
    began = time.perf_counter()
    try:
        for number in brokers:
            brokers.start(number)
        for number in brokers:
            _wait_until_it_sees_all_nodes(brokers.address(number))
        took_s = time.perf_counter() - began
        yield Cluster(name, brokers.bootstrap_servers, brokers.pid, brokers.kill, brokers.stop, brokers.start, took_s)
    finally:
        brokers.close()


@contextmanager
def running_apache(folder: Path) -> Iterator[Cluster]:
    kafka = ApacheKafka(data=[folder / str(number) for number in (1, 2, 3)], jvm=SERVER_JVM)
    try:
        # Formatting has to run once before, and is not part of the start.
        kafka.start()
        kafka.stop(kill=True)
        began = time.perf_counter()
        kafka.start()
        took_s = time.perf_counter() - began

        def pid_of(number: int) -> int:
            process = kafka.node(number).process
            assert process is not None
            return process.pid

        def kill(number: int) -> None:
            process = kafka.node(number).process
            assert process is not None
            process.kill()
            process.wait()

        def stop(number: int) -> None:
            node = kafka.node(number)
            node.signal(signal.SIGTERM)
            node.wait_for_end(time.monotonic() + STOP_TIMEOUT_S)

        def start(number: int) -> None:
            kafka.node(number).start(SERVER_JVM)

        yield Cluster(APACHE, kafka.bootstrap_servers, pid_of, kill, stop, start, took_s)
    finally:
        kafka.stop(kill=True)
        kafka.close()


def sides() -> dict[str, Callable[[Path], AbstractContextManager[Cluster]]]:
    if CHECKOUT_BEFORE:
        return {OURS: running_pessoa, BEFORE: partial(running_pessoa, name=BEFORE, wrapper=wrapper_before())}
    if java() is None:
        print(f"  without Apache Kafka: {why_no_java()}")
        return {OURS: running_pessoa}
    return {OURS: running_pessoa, APACHE: running_apache}


def compare(report: Report, measure: Callable[[Cluster], Figures], rounds: int = ROUNDS) -> None:
    compare_sides(report, measure, sides(), rounds)


def create_topic(cluster: Cluster, name: str, partitions: int, **config: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    admin.create_topics([NewTopic(name, partitions, 3, config=settings)])[name].result(120)
    wait_until(lambda: is_whole(admin, name, partitions), f"all replicas of {name} in sync")


def is_whole(admin: object, topic: str, partitions: int) -> bool:
    from confluent_kafka.admin import AdminClient

    assert isinstance(admin, AdminClient)
    found = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return len(found) == partitions and all(one.leader > 0 and len(one.isrs) == 3 for one in found.values())


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 2 * START_TIMEOUT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(POLL_INTERVAL_S)


def _wait_until_it_sees_all_nodes(address: str) -> None:
    import socket
    import struct

    body = struct.pack(">hhihi", 3, 1, 0, -1, 0)

    def sees_three() -> bool:
        try:
            with socket.create_connection((HOST, int(address.rpartition(":")[2])), timeout=5) as connection:
                connection.sendall(struct.pack(">i", len(body)) + body)
                return connection.makefile("rb").read(12)[8:] == b"\0\0\0\3"
        except OSError:
            return False

    wait_until(sees_three, f"{address} sees three brokers", START_TIMEOUT_S)
