"""A rolling restart under load, compared with Apache's: SIGTERM to each broker in turn, when the one before is back.

Three kinds of clients, each with a rolling restart of its own, send and read one topic with acks=all, idempotently:

wire         our codec and no client library (`tests/chaos/counting_clients.py`): it counts every request
librdkafka   a producer, and a group of each protocol
java         Apache's verifiable producer and verifiable consumers of both protocols

refused      connections to a port without a listener
unanswered   requests whose connection ended before their answer
errors       answers with an error code, all of which clients retry by themselves
failed       errors that the client library reported to the application
pause        the longest time in which one partition had no record acknowledged, or none read
"""

from __future__ import annotations

import json
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from bench.apache import QUIET
from bench.clusters import compare, create_topic, is_whole, wait_until
from tests.apache.broker import java_command
from tests.chaos.counting_clients import CUT, ERROR, REFUSED, CountingClients
from tests.support.logged_process import LoggedProcess

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from bench.apache import Figures
    from bench.clusters import Cluster
    from bench.report import Report

PARTITIONS = 6
PROTOCOLS = ("classic", "consumer")
# The rate of each producer, to all partitions together.
RECORDS_PER_S = 100
# The pause between two brokers, in which clients find the new leaders.
REST_S = 1.0


def run(report: Report) -> None:
    compare(report, measure)


def measure(cluster: Cluster) -> Figures:
    figures: Figures = {}
    for kind in (WireLoad, LibrdkafkaLoad, JavaLoad):
        create_topic(cluster, kind.name, PARTITIONS, min_insync_replicas="2")
        load = kind(cluster.bootstrap)
        try:
            wait_until(load.has_begun, f"{kind.name}: the first records")
            began_s = time.time()
            took_s = restart_each(cluster, kind.name)
        finally:
            load.finish()
        found = {("restart of 3", "s"): took_s, **load.counts()}
        for what, times in load.times().items():
            found[f"pause of {what}", "s"] = longest_pause_s(times, began_s)
        figures |= {(f"{kind.name}: {case}", unit): value for (case, unit), value in found.items()}
    return figures


def restart_each(cluster: Cluster, topic: str) -> float:
    """Restart each broker in turn; return how many seconds that took, without the pauses."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
    took_s = 0.0
    for number in (1, 2, 3):
        time.sleep(REST_S)
        began_s = time.perf_counter()
        cluster.stop(number)
        cluster.start(number)
        wait_until(lambda: _is_in_sync(admin, topic), f"broker {number} is back")
        took_s += time.perf_counter() - began_s
    time.sleep(REST_S)
    return took_s


def _is_in_sync(admin: Any, topic: str) -> bool:
    from confluent_kafka import KafkaException

    try:
        return is_whole(admin, topic, PARTITIONS)
    except KafkaException:
        return False


def longest_pause_s(times: dict[int, list[float]], since_s: float) -> float:
    """Return the longest pause of any partition, of those that ended after `since_s`."""
    gaps = (after - before for one in times.values() for before, after in pairwise(sorted(one)) if after > since_s)
    return max(gaps, default=0.0)


class Load(ABC):
    """A kind of clients that work from creation until `finish`. Times are of the wall clock, as in Java's output."""

    name: str

    @abstractmethod
    def has_begun(self) -> bool: ...

    @abstractmethod
    def finish(self) -> None: ...

    @abstractmethod
    def counts(self) -> Figures: ...

    @abstractmethod
    def times(self) -> dict[str, dict[int, list[float]]]:
        """Return for each kind of work and partition the times at which a record was acknowledged or read."""


class WireLoad(Load):
    name = "wire"

    def __init__(self, bootstrap: str) -> None:
        self._clients = CountingClients(bootstrap, self.name, PARTITIONS)
        self._clients.__enter__()

    def has_begun(self) -> bool:
        return self._clients.acknowledged > RECORDS_PER_S

    def finish(self) -> None:
        self._clients.__exit__()

    def counts(self) -> Figures:
        self._clients.check()
        journal = self._clients.journal
        return {
            ("requests", ""): sum(journal.requests.values()),
            ("refused", ""): len(journal.of_kind(REFUSED)),
            ("unanswered", ""): len(journal.of_kind(CUT)),
            ("errors", ""): len(journal.of_kind(ERROR)),
        }

    def times(self) -> dict[str, dict[int, list[float]]]:
        journal, to_wall_s = self._clients.journal, time.time() - time.monotonic()
        by_what = {"acks": journal.acknowledged_at_s, "reading": journal.read_at_s}
        return {
            what: {partition: [at_s + to_wall_s for at_s in times] for partition, times in found.items()}
            for what, found in by_what.items()
        }


class LibrdkafkaLoad(Load):
    name = "librdkafka"

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": self._on_error}
        self._times: dict[str, dict[int, list[float]]] = {
            what: defaultdict(list) for what in ("acks", *(f"{protocol} group" for protocol in PROTOCOLS))
        }
        self._failed = self._refused = 0
        self._is_done = Event()
        self._threads = [Thread(target=self._produce), *(Thread(target=self._consume, args=[p]) for p in PROTOCOLS)]
        for thread in self._threads:
            thread.start()

    def _on_error(self, error: KafkaError) -> None:
        self._refused += "refused" in error.str()

    def _note_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed += 1
        else:
            self._note("acks", message)

    def _note(self, what: str, message: Message) -> None:
        partition = message.partition()
        assert partition is not None
        self._times[what][partition].append(time.time())

    def _produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"enable.idempotence": True, "linger.ms": 0, **self._settings})
        number = 0
        while not self._is_done.is_set():
            producer.produce(self.name, b"x", partition=number % PARTITIONS, on_delivery=self._note_delivery)
            number += 1
            producer.poll(1 / RECORDS_PER_S)
        self._failed += producer.flush(60)

    def _consume(self, protocol: str) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer({"group.id": f"rd-{protocol}", "group.protocol": protocol, **self._settings})
        consumer.subscribe([self.name])
        while not self._is_done.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._note(f"{protocol} group", message)
            elif message is not None:
                self._failed += 1
        consumer.close()

    def has_begun(self) -> bool:
        return all(len(found) == PARTITIONS for found in self._times.values())

    def finish(self) -> None:
        self._is_done.set()
        for thread in self._threads:
            thread.join()

    def counts(self) -> Figures:
        return {("failed", ""): self._failed, ("refused", ""): self._refused}

    def times(self) -> dict[str, dict[int, list[float]]]:
        return self._times


class JavaLoad(Load):
    """Apache's verifiable clients. Each writes its results as JSON, and its network client's log at INFO, to one
    file."""

    name = "java"

    def __init__(self, bootstrap: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pessoa-bench-java-")
        # Without this the program would not retry, unlike a producer with default settings.
        config = Path(self._folder.name) / "producer.properties"
        config.write_text("retries=2147483647\nenable.idempotence=true\n", encoding="utf-8")
        common = ("--bootstrap-server", bootstrap, "--topic", self.name)
        self._processes = [
            self._start(
                "acks", "VerifiableProducer", *common, "--throughput", str(RECORDS_PER_S), "--repeating-keys", "100",
                "--command-config", str(config),
            ),
            *(
                self._start(
                    f"{protocol} group", "VerifiableConsumer", *common, "--group-id", f"java-{protocol}",
                    "--group-protocol", protocol, "--enable-autocommit", "--reset-policy", "latest",
                )
                for protocol in PROTOCOLS
            ),
        ]  # fmt: skip

    def _start(self, what: str, program: str, *arguments: str) -> LoggedProcess:
        command = java_command(f"org.apache.kafka.tools.{program}", *arguments, log_level="INFO")
        process = LoggedProcess(command, self._output(what), name=program)
        process.start()
        return process

    def _output(self, what: str) -> Path:
        return Path(self._folder.name) / f"{what}.txt"

    def has_begun(self) -> bool:
        return all(len(found) == PARTITIONS for found in self.times().values())

    def finish(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait_for_end(60)
        self._found = self._look()
        self._folder.cleanup()

    def counts(self) -> Figures:
        return self._found[1]

    def times(self) -> dict[str, dict[int, list[float]]]:
        return self._found[0] if hasattr(self, "_found") else self._look()[0]

    def _look(self) -> tuple[dict[str, dict[int, list[float]]], Figures]:
        times: dict[str, dict[int, list[float]]] = {}
        failed = refused = unanswered = errors = 0
        for what in ("acks", *(f"{protocol} group" for protocol in PROTOCOLS)):
            of_partition = times[what] = defaultdict(list)
            for line in self._output(what).read_text(encoding="utf-8", errors="replace").splitlines():
                refused += "could not be established" in line
                unanswered += "Cancelled in-flight" in line
                errors += "Got error produce response" in line
                failed += '"producer_send_error"' in line
                for partition, at_s in _done(line):
                    of_partition[partition].append(at_s)
        counts = {"failed": failed, "refused": refused, "unanswered": unanswered, "errors of produce": errors}
        return times, {(what, ""): count for what, count in counts.items()}


def _done(line: str) -> list[tuple[int, float]]:
    """Return the partitions and times of the records that were acknowledged or read according to a line of output."""
    if '"producer_send_success"' not in line and '"records_consumed"' not in line:
        return []
    try:
        told = json.loads(line)
    except ValueError:
        # The program has not written the whole line yet.
        return []
    at_s = told["timestamp"] / 1000
    return [(one["partition"], at_s) for one in told.get("partitions", [told])]
