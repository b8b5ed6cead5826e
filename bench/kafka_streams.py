"""Kafka Streams (Java) as one more hand in the pipelines' measurements: KafkaStreamsApp.java, run from its source.

Its jars are two beside those of Apache Kafka (`tests/apache/jars.py`). Its producer waits 100 ms for more records,
unless it is told not to; so there are two hands, one that does not wait and one as Kafka Streams comes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.apache import Process, Side
from pessoa.pipelines.jars import fetch
from pessoa.pipelines.spark_versions import Jar
from tests.apache.jars import classpath, java

SOURCE_FILE = Path(__file__).with_name("KafkaStreamsApp.java")
START_TIMEOUT_S = 60.0
# The hands, and how long their producers wait for more records.
LINGER_MS = {"Kafka Streams, no linger": "0", "Kafka Streams as it comes": "100"}
JARS = (
    Jar(
        "org.apache.kafka",
        "kafka-streams",
        "4.3.1",
        "bd73f3805e116f711e8456ee89a8a5b43ff5dcf5a5bb865afae29deae89e7c4b",
    ),
    Jar("org.rocksdb", "rocksdbjni", "10.1.3", "e7f925287d9fe2574fb7c7a86f7facaa9b8ab602a2eed0e598bf633528121498"),
)


def hands() -> tuple[str, ...]:
    """Those that can be measured here: they need Java with its compiler."""
    found = java()
    if found is None or not shutil.which("javac", path=str(found.resolve().parent)):
        print("  without Kafka Streams: there is no Java compiler")
        return ()
    return tuple(LINGER_MS)


@contextmanager
def running(side: Side, hand: str, kind: str, source: str, target: str) -> Iterator[Process]:
    """`kind` is copy or count."""
    path = os.pathsep.join([classpath(), *map(str, fetch(JARS, need="Kafka Streams needs {}"))])
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-streams-", ignore_cleanup_errors=True) as folder:
        command = [str(java()), "-Xmx512m", "-cp", path, str(SOURCE_FILE)]
        arguments = [side.bootstrap, kind, source, target, folder, LINGER_MS[hand]]
        output = Path(folder) / "output"
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [*command, *arguments], stdout=sink, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
            )
        try:
            wait_until_running(process, output)
            yield Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_until_running(process: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while "RUNNING" not in (said := output.read_text(errors="replace")).split():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"Kafka Streams did not start:\n{said[-2000:]}")
        time.sleep(0.05)
