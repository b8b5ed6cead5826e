"""Pessoa as `pip install pessoa` installs it, without the extras and without this repository.

`tools/check-versions` copies this file out of the repository and runs it in an environment with the wheel, its
dependencies, and pytest. So it imports nothing from `tests` and needs nothing of `dev`. In the repository it runs
like any other test, on the editable install.
"""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.metadata import distribution

from confluent_kafka import Consumer, Message, Producer

from pessoa.testing.broker import Broker
from pessoa.testing.cluster import Cluster

PATIENCE_S = 120

# Modules that need an extra: code that Spark sends to its workers, the control centre's pages, and HTTP/2 for ksql.
OF_EXTRAS = (
    "pessoa.pipelines.ordered_state_processor",
    "pessoa.pipelines.row_process_state",
    "pessoa.pipelines.table_join_state",
    "pessoa.control_center.pages.",
    "pessoa.web.http2",
)

EVERY_MODULE = f"""
import importlib, pkgutil, sys
import pessoa

names = [module.name for module in pkgutil.walk_packages(pessoa.__path__, "pessoa.")]
for name in names:
    if not name.startswith({OF_EXTRAS!r}) and not name.endswith(".__main__"):
        importlib.import_module(name)
print(len(names), "pyspark" in sys.modules)
"""


def run_strictly(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a Python process in which every warning is an error, also about files that were left open."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", *words], capture_output=True, text=True, timeout=PATIENCE_S
    )


def test_every_module_imports_without_a_warning_and_without_spark() -> None:
    ended = run_strictly("-c", EVERY_MODULE)
    assert (ended.returncode, ended.stderr) == (0, "")
    count, has_spark = ended.stdout.split()
    assert int(count) > 600
    assert has_spark == "False"


def test_every_console_command_refers_to_a_function() -> None:
    commands = [entry for entry in distribution("pessoa").entry_points if entry.group == "console_scripts"]
    assert {"pessoa", "kafka-topics", "kafka-topics.sh", "schema-registry-start"} <= {entry.name for entry in commands}
    for entry in commands:
        assert callable(entry.load()), entry.name


def test_pessoa_help_prints_the_usage_without_a_warning() -> None:
    ended = run_strictly("-c", "import sys; from pessoa.cli.main import main; sys.exit(main(['--help']))")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Usage: ")


def test_a_record_is_produced_and_consumed_through_the_shared_broker_fixture(kafka: Broker, kafka_topic: str) -> None:
    assert produce_and_consume(kafka.bootstrap_servers, kafka_topic) == b"one"


def test_a_record_is_produced_and_consumed_through_a_broker_of_the_test(kafka_broker: Broker) -> None:
    assert produce_and_consume(kafka_broker.bootstrap_servers, "orders") == b"one"


def test_a_record_is_produced_and_consumed_through_a_cluster_of_the_test(kafka_cluster: Cluster) -> None:
    assert produce_and_consume(kafka_cluster.bootstrap_servers, "orders") == b"one"


def produce_and_consume(servers: str, topic: str) -> bytes | None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    producer.produce(topic, b"one")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    message: Message | None = None
    # In a cluster the first broker may not know the topic yet, which the consumer reports as an error.
    while message is None or message.error() is not None:
        assert time.monotonic() < deadline, f"nothing came out of {topic}: {message and message.error()}"
        message = consumer.poll(1)
    consumer.close()
    value: bytes | None = message.value()
    return value
