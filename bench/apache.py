"""The two sides of a comparison: one broker of ours and one of Apache Kafka, each a process of its own.

    compare(report, measure)

starts one side on an empty directory, calls `measure`, which puts load on it, stops it, and does the same with the
other side; in the next round the other side is first. The report gets the median of the rounds. The two sides never run
at the same time: the machine has few cores, and the load generator needs one of them.

Apache Kafka runs as its scripts start it: a heap of 1 GB, G1, and its own defaults. Both sides have the settings of the
`server.properties` that Apache ships, in which group.initial.rebalance.delay.ms is 0.

    PESSOA_BENCH_SCALE    how much load: 1 is the full measurement, 0.2 a quick one (default 1)
    PESSOA_BENCH_ROUNDS   how often each side is started (default 3)
    PESSOA_BENCH_BEFORE   another checkout of this repository: its broker is the other side, instead of Apache Kafka's

`verdicts` compares the figures with the promised factors ("ours, at least").
"""

from __future__ import annotations

import compileall
import os
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import pessoa
from bench.report import MORE_IS_BETTER, OURS
from tests.apache.broker import ApacheKafka, reserve_port
from tests.apache.jars import java, why_no_java
from tests.support.logged_process import LoggedProcess
from tests.support.logged_process import pessoa as pessoa_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from bench.report import Report

APACHE = "apache"
HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.005

SCALE = float(os.environ.get("PESSOA_BENCH_SCALE", "1"))
ROUNDS = int(os.environ.get("PESSOA_BENCH_ROUNDS", "3"))
# The name of the other side, and where its checkout is.
BEFORE = "before"
CHECKOUT_BEFORE = os.environ.get("PESSOA_BENCH_BEFORE", "")

# kafka-run-class gives these to every program, and kafka-server-start adds the heap.
JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
)
SERVER_JVM = ("-Xms1G", "-Xmx1G", *JVM)
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

# How Linux computes the id of a CPU clock from a process id (`clock_getcpuclockid`, which Python does not have).
_CPUCLOCK_SCHED = 2


def scaled(count: int) -> int:
    return max(1, round(count * SCALE))


class Process(NamedTuple):
    """Memory and CPU time of a running process, from the kernel."""

    pid: int

    def memory_mb(self) -> float:
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError(f"process {self.pid} has no memory")

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads, also of those that have ended, with a resolution that suits short
        bursts."""
        return time.clock_gettime((~self.pid << 3) | _CPUCLOCK_SCHED)


class Side(NamedTuple):
    """A running broker, and how clients connect to one of its listeners."""

    name: str
    port: int
    process: Process
    # What clients need besides the address: settings of librdkafka, and a properties file for Java.
    client: Mapping[str, str] = NO_SETTINGS
    java_client: Path | None = None

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"


# Starting.


@contextmanager
def running_pessoa(
    data: Path, more: Mapping[str, str] = NO_SETTINGS, *, name: str = OURS, wrapper: Sequence[str] = ()
) -> Iterator[Side]:
    """Start our broker with the settings `more`, yield it, and stop it. Its listeners, if set, include PLAINTEXT."""
    listeners = more.get("listeners") or f"PLAINTEXT://{HOST}:{reserve_port()}"
    port = port_of("PLAINTEXT", listeners)
    settings = {"log.dirs": str(data), "group.initial.rebalance.delay.ms": "0", **more, "listeners": listeners}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [*wrapper, *pessoa_command("broker", *words)]
    broker = LoggedProcess(command, data.with_suffix(".output"), name="the broker")
    with stopped_at_the_end(broker):
        wait_for_metadata(port, broker)
        yield Side(name, port, Process(broker.pid))


@contextmanager
def stopped_at_the_end(process: LoggedProcess) -> Iterator[None]:
    """Start the process; at the end ask it to stop, and kill it if it does not."""
    with process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait_for_end(STOP_TIMEOUT_S)


@contextmanager
def running_apache(data: Path, more: Mapping[str, str] = NO_SETTINGS) -> Iterator[Side]:
    """Start Apache's broker with the settings `more`, yield it, and stop it. Its listeners, if set, include PLAINTEXT
    and CONTROLLER."""
    kafka = ApacheKafka(data=[data], jvm=SERVER_JVM, properties=more)
    if "listeners" in more:
        node = kafka.nodes[0]
        node.port = port_of("PLAINTEXT", more["listeners"])
        node.controller_port = port_of("CONTROLLER", more["listeners"])
    with kafka:
        process = kafka.nodes[0].process
        assert process is not None
        yield Side(APACHE, kafka.port, Process(process.pid))


def port_of(listener: str, listeners: str) -> int:
    """Return the port of a listener in the value of the setting: NAME://host:port, separated by commas."""
    return next(int(one.rpartition(":")[2]) for one in listeners.split(",") if one.startswith(f"{listener}:"))


def wrapper_before() -> tuple[str, ...]:
    """Return the command with which Python imports the package of PESSOA_BENCH_BEFORE. Its modules are compiled first,
    as those of this checkout are, so that no start of a broker compiles them."""
    source = Path(CHECKOUT_BEFORE).resolve() / "src"
    if not (source / "pessoa").is_dir():
        raise SystemExit(f"PESSOA_BENCH_BEFORE names no checkout of this repository: {source}/pessoa is missing")
    for tree in (source, Path(pessoa.__file__).parent):
        compileall.compile_dir(tree, quiet=2)
    return ("/usr/bin/env", f"PYTHONPATH={source}")


def sides() -> dict[str, Callable[[Path], AbstractContextManager[Side]]]:
    """Return the starters of the two sides, or only of ours without Java."""
    if CHECKOUT_BEFORE:
        return {OURS: running_pessoa, BEFORE: partial(running_pessoa, name=BEFORE, wrapper=wrapper_before())}
    if java() is None:
        print(f"  without Apache Kafka: {why_no_java()}")
        return {OURS: running_pessoa}
    return {OURS: running_pessoa, APACHE: running_apache}


def wait_for_metadata(port: int, broker: LoggedProcess) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not knows_itself(port):
        if not broker.is_running or time.monotonic() > deadline:
            raise SystemExit(f"the broker did not start:\n{broker.said}")
        time.sleep(POLL_INTERVAL_S)


def knows_itself(port: int) -> bool:
    """Return whether the broker answers Metadata version 1, without topics, and names itself."""
    body = struct.pack(">hhihi", 3, 1, 0, -1, 0)
    try:
        with socket.create_connection((HOST, port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(body)) + body)
            answer = connection.makefile("rb").read(12)
    except OSError:
        return False
    return answer[8:] == b"\0\0\0\1"


# Comparing.

T = TypeVar("T")
# The figures of one round: (case, unit) → value.
Figures = dict[tuple[str, str], float]


def compare(report: Report, measure: Callable[[Side], Figures]) -> None:
    compare_sides(report, measure, sides())


def compare_sides(
    report: Report,
    measure: Callable[[T], Figures],
    starters: Mapping[str, Callable[[Path], AbstractContextManager[T]]],
    rounds: int = ROUNDS,
) -> None:
    """Start each side on an empty directory, in every other round in the opposite order; report the medians."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for number in range(rounds):
        for name in list(starters)[:: -1 if number % 2 else 1]:
            with (
                tempfile.TemporaryDirectory(prefix="pessoa-bench-") as folder,
                starters[name](Path(folder) / "data") as side,
            ):
                figures = measure(side)
            for key, value in figures.items():
                found.setdefault(key, {}).setdefault(name, []).append(value)
    for (case, unit), by_side in found.items():
        for name, values in by_side.items():
            report.add(case, name, statistics.median(values), unit)


def print_verdicts(report: Report, at_least: Mapping[str, float]) -> None:
    """Print the verdicts. `at_least` has for some cases the promised factor by which we are better than Apache
    Kafka."""
    for line in verdicts(report, at_least):
        print(f"  {line}")


def verdicts(report: Report, at_least: Mapping[str, float]) -> Iterator[str]:
    for (case, unit), subjects in report.measured.items():
        if case not in at_least or not subjects.get(OURS) or not subjects.get(APACHE):
            continue
        times = subjects[OURS] / subjects[APACHE]
        if unit not in MORE_IS_BETTER:
            times = 1 / times
        verdict = "met" if times >= at_least[case] else "MISSED"
        yield f"{verdict:<6}  {case} ({unit}): {times:.2f}× Apache Kafka, wanted {at_least[case]:.2f}×"


# What parts do with both sides.

# librdkafka logs the queues that it purges when it ends. Errors are enough.
QUIET = {"log_level": 3}


def create_topic(side: Side, name: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": side.bootstrap, **side.client, **QUIET})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
