"""Run one pipeline file in a local Spark, then on a Spark standalone cluster with two workers, then locally again.

Its checkpoints move with it: an exactly-once copy writes each record once over all three runs, and a windowed count
continues from the state of the run before. On the cluster the executors of other queries are killed: Spark retries
their tasks, or, where it may not, the engine restarts the query and its status has the reason.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import httpx

from pessoa.pipelines.api import pipelines_app
from pessoa.pipelines.engine import Engine
from pessoa.pipelines.plan import BYTES, Aggregate, Column, Sink, Source
from pessoa.pipelines.queries import QuerySpec
from pessoa.pipelines.spark_server import SparkOptions
from pessoa.testing import Broker
from pessoa.web.asgi_app import App
from pessoa.web.serving import ThreadedServer
from tests.support.spark import SMALL, SMALL_JVM
from tests.support.spark_cluster import StandaloneCluster
from tests.support.topics import eventually, fill, make_topic, read_all

FLOWS = Path(__file__).with_name("flows.py")
PATIENCE_S = 600.0
RUN_RECORDS = 400
KEYS = 7


def test_queries_continue_from_their_checkpoints_when_moved_to_a_spark_cluster_and_back(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    for topic in ("input", "shouted", "counted"):
        make_topic(servers, topic)
    home, away = tmp_path / "home", tmp_path / "away"
    # All records are of one minute, so a key has one count; of a recent minute, so that retention keeps them.
    minute_ms = (int(time.time()) // 60 - 60) * 60_000
    written = 0

    def run(engine: Engine) -> None:
        """Write more records to the input, and wait until both queries have written all results."""
        nonlocal written
        numbers = range(written, written + RUN_RECORDS)
        pairs = ((b"k%d" % (number % KEYS), b"word %d" % number) for number in numbers)
        written += fill(servers, "input", pairs, [minute_ms] * RUN_RECORDS)
        shout = QuerySpec("shout", start_function=f"{FLOWS}:shout", topic="shouted", delivery="exactly-once", slots=2)
        count = QuerySpec("count", start_function=f"{FLOWS}:windowed_count", topic="counted", output_mode="update")
        for spec in (shout, count):
            engine.start(spec)
        eventually(is_all_there, PATIENCE_S, about=engine.queries)

    def is_all_there() -> bool:
        shouted = sorted(message.value() for message in read_all(servers, "shouted"))
        # A record that was written twice would stay so for ever.
        assert len(shouted) <= written
        counts = {message.key(): message.value() for message in read_all(servers, "counted")}
        expected = Counter(b"k%d" % (number % KEYS) for number in range(written))
        return shouted == sorted(b"WORD %d" % number for number in range(written)) and counts == {
            key: b"%d=%d" % (minute_ms // 1000, count) for key, count in expected.items()
        }

    with Engine(servers, home=home, spark_remote=spark_address, state_topic=None) as engine:
        run(engine)
    home.rename(away)
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        options = SparkOptions(
            master=cluster.master,
            memory="1g",
            settings={
                **(SMALL.settings or {}),
                "spark.executor.memory": "512m",
                "spark.executor.extraJavaOptions": " ".join(SMALL_JVM),
            },
            java_options=SMALL_JVM,
        )
        impatient = replace(options, settings={**(options.settings or {}), "spark.task.maxFailures": "1"})
        with Engine(servers, home=away, spark=impatient, state_topic=None) as engine:
            run(engine)
            check_that_a_lost_executor_is_reported(cluster, engine, servers)
        assert cluster.executors() == {"worker-0", "worker-1"}
        with Engine(servers, home=tmp_path / "other", spark=options, state_topic=None) as engine:
            check_that_killed_executors_lose_nothing(cluster, engine, servers)
    away.rename(home)
    with Engine(servers, home=home, spark_remote=spark_address, state_topic=None) as engine:
        run(engine)


def check_that_a_lost_executor_is_reported(cluster: StandaloneCluster, engine: Engine, servers: str) -> None:
    """Kill the executors of a real-time query whose tasks Spark may not retry.

    Its status has the reason of the restart, and no record is lost.
    """
    for topic in ("told", "retold"):
        make_topic(servers, topic, partitions=1)
    # The first batch lasts as long as the test may, so that an executor has the task of the query all the time.
    copying = Sink(Source("told", BYTES, BYTES), "retold", BYTES, BYTES)
    engine.start(QuerySpec("told", plan=copying, trigger_ms=int(PATIENCE_S * 1000)))

    def is_retold(*values: bytes) -> bool:
        return {message.value() for message in read_all(servers, "retold")} == set(values)

    async def make() -> App:
        return pipelines_app(engine)

    with ThreadedServer(make) as server:

        def status() -> dict[str, object]:
            found: dict[str, object] = httpx.get(f"{server.url}/queries/told", timeout=PATIENCE_S).json()
            return found

        fill(servers, "told", [(b"k", b"before")])
        eventually(lambda: is_retold(b"before"), PATIENCE_S, about=status)
        assert (status()["state"], status()["restarts"], status()["error"]) == ("RUNNING", 0, "")
        for executor in cluster.executor_pids():
            os.kill(executor, signal.SIGKILL)
        eventually(lambda: status()["restarts"], PATIENCE_S, about=status)
        fill(servers, "told", [(b"k", b"after")])
        eventually(lambda: is_retold(b"before", b"after"), PATIENCE_S, about=status)
        eventually(lambda: status()["state"] == "RUNNING", PATIENCE_S, about=status)
        assert str(status()["error"]).startswith("an executor of Spark's cluster was lost: "), status()


def check_that_killed_executors_lose_nothing(cluster: StandaloneCluster, engine: Engine, servers: str) -> None:
    """Kill the executors of two queries: no record is lost, and none is doubled with exactly-once."""
    make_topic(servers, "fed")
    for topic in ("tallied", "single", "copied"):
        make_topic(servers, topic, partitions=1)
    fill(servers, "fed", ((b"k%d" % (number % KEYS), b"word %d" % number) for number in range(1000)))
    counting = Sink(Aggregate(Source("fed"), (Column("count", "count(*)"),)), "tallied")
    engine.start(QuerySpec("tally", plan=counting, delivery="exactly-once", slots=1, trigger_ms=200))
    engine.start(QuerySpec("live", plan=Sink(Source("single", BYTES, BYTES), "copied", BYTES, BYTES), trigger_ms=5000))
    assert engine.query("live").status().speed == "real-time"

    def counts() -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for message in read_all(servers, "tallied"):
            found.setdefault(message.key(), []).append(json.loads(message.value())["count"])
        return found

    def are_counted(total: int) -> bool:
        return sum(seen[-1] for seen in counts().values()) == total

    def is_copied(*values: bytes) -> bool:
        return {message.value() for message in read_all(servers, "copied")} == set(values)

    fill(servers, "single", [(b"k", b"before")])
    eventually(lambda: are_counted(1000) and is_copied(b"before"), PATIENCE_S, about=engine.queries)
    before = cluster.executor_pids()
    assert len(before) == 2
    for executor in before:
        os.kill(executor, signal.SIGKILL)
    fill(servers, "fed", ((b"k%d" % (number % KEYS), b"word %d" % number) for number in range(1000, 1500)))
    fill(servers, "single", [(b"k", b"after")])
    eventually(lambda: are_counted(1500) and is_copied(b"before", b"after"), PATIENCE_S, about=engine.queries)
    # A batch that was written twice would have emitted a count twice.
    assert all(seen == sorted(set(seen)) for seen in counts().values()), counts()
    # Spark itself gives the tasks to new executors, also those of a real-time query.
    assert {status.state for status in engine.queries()} == {"RUNNING"}
    assert not set(before) & set(cluster.executor_pids())
