"""The same pipeline file in one process (local) and on a Spark standalone cluster with two workers."""

from __future__ import annotations

from pathlib import Path

from pessoa.pipelines.engine import Engine
from pessoa.pipelines.queries import QuerySpec
from pessoa.pipelines.spark_server import SparkOptions
from pessoa.testing import Broker
from tests.support.spark import SMALL, SMALL_JVM
from tests.support.spark_cluster import StandaloneCluster
from tests.support.topics import eventually, fill, make_topic, read_all

FLOW = f"{Path(__file__).with_name('flows.py')}:shout"
PATIENCE_S = 600.0


def test_a_pipeline_file_writes_the_same_on_one_machine_and_on_two_workers(
    broker: Broker, spark_address: str, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    for topic in ("input", "from-local", "from-cluster"):
        make_topic(servers, topic)
    fill(servers, "input", ((b"k%d" % (number % 7), b"word %d" % number) for number in range(1000)))
    expected = sorted(b"WORD %d" % number for number in range(1000))

    def run(engine: Engine, topic: str) -> None:
        engine.start(
            QuerySpec("shout", start_function=FLOW, topic=topic, delivery="exactly-once", slots=2, trigger_ms=200)
        )
        eventually(lambda: written(topic) == expected, PATIENCE_S, about=engine.queries)

    def written(topic: str) -> list[bytes]:
        return sorted(message.value() for message in read_all(servers, topic))

    with Engine(servers, home=tmp_path / "local", spark_remote=spark_address, state_topic=None) as engine:
        run(engine, "from-local")
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
        with Engine(servers, home=tmp_path / "driver", spark=options, state_topic=None) as engine:
            run(engine, "from-cluster")
        assert cluster.executors() == {"worker-0", "worker-1"}
