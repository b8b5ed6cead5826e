"""Kafka Streams (Java) as one more hand in the pipelines' measurements: KafkaStreamsApp.java, compiled once a run.

Its jars are two beside those of Apache Kafka (`tests/apache/jars.py`). Its producer waits 100 ms for more records,
unless it is told not to; so there are two hands, one that does not wait and one as Kafka Streams comes.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from bench.apache import Process, Side, stopped_at_the_end
from pessoa.pipelines.jars import fetch
from pessoa.pipelines.spark_versions import Jar
from tests.apache.jars import classpath, java
from tests.support.logged_process import LoggedProcess

SOURCE_FILE = Path(__file__).with_name("KafkaStreamsApp.java")
START_TIMEOUT_S = 60.0
# The hands, and how long their producers wait for more records.
NO_LINGER = "Kafka Streams, no linger"
LINGER_MS = {NO_LINGER: "0", "Kafka Streams as it comes": "100"}
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
def running(
    side: Side, hand: str, kind: str, source: str, target: str, folder: Path | None = None, name: str = ""
) -> Iterator[Process]:
    """`kind` is copy, count (in windows) or total. The same name and folder go on from the state that is there."""
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-streams-", ignore_cleanup_errors=True) as own:
        state = folder or Path(own)
        arguments = [kind, source, target, str(state), LINGER_MS[hand], name or f"bench-{kind}-{time.time_ns()}"]
        command = [str(java()), "-Xmx512m", "-cp", f"{compiled()}{os.pathsep}{class_path()}", "KafkaStreamsApp"]
        program = LoggedProcess([*command, side.bootstrap, *arguments], Path(own) / "output", name="Kafka Streams")
        with stopped_at_the_end(program):
            program.wait_for(r"(?<!\S)RUNNING(?!\S)", START_TIMEOUT_S)
            yield Process(program.pid)


def class_path() -> str:
    return os.pathsep.join([classpath(), *map(str, fetch(JARS, need="Kafka Streams needs {}"))])


@cache
def compiled() -> str:
    """The folder with the compiled program, which is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="pessoa-bench-classes-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    found = java()
    assert found is not None
    compiler = found.resolve().with_name("javac")
    subprocess.run([str(compiler), "-cp", class_path(), "-d", folder, str(SOURCE_FILE)], check=True)
    return folder
