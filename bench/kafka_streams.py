"""Kafka Streams (Java) as a variant in the measurements of pipelines: KafkaStreamsApp.java, compiled once a run.

It needs two jars in addition to those of Apache Kafka (`tests/apache/jars.py`). The producer of Kafka Streams waits
100 ms for more records by default; so there are two variants, with linger.ms=0 and with the default.
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
# The variants, and linger.ms of their producers.
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


def variants() -> tuple[str, ...]:
    """Return the variants that can be measured here: all, or none without Java and its compiler."""
    found = java()
    if found is None or not shutil.which("javac", path=str(found.resolve().parent)):
        print("  without Kafka Streams: there is no Java compiler")
        return ()
    return tuple(LINGER_MS)


@contextmanager
def running(
    side: Side, variant: str, kind: str, source: str, target: str, folder: Path | None = None, name: str = ""
) -> Iterator[Process]:
    """Start Kafka Streams, yield its process, and stop it. `kind` is copy, count (in windows) or total. With the name
    and folder of an earlier run it continues with that run's state."""
    with tempfile.TemporaryDirectory(prefix="pessoa-bench-streams-", ignore_cleanup_errors=True) as own:
        state = folder or Path(own)
        arguments = [kind, source, target, str(state), LINGER_MS[variant], name or f"bench-{kind}-{time.time_ns()}"]
        command = [str(java()), "-Xmx512m", "-cp", f"{compiled()}{os.pathsep}{class_path()}", "KafkaStreamsApp"]
        program = LoggedProcess([*command, side.bootstrap, *arguments], Path(own) / "output", name="Kafka Streams")
        with stopped_at_the_end(program):
            program.wait_for(r"(?<!\S)RUNNING(?!\S)", START_TIMEOUT_S)
            yield Process(program.pid)


def class_path() -> str:
    return os.pathsep.join([classpath(), *map(str, fetch(JARS, need="Kafka Streams needs {}"))])


@cache
def compiled() -> str:
    """Return the folder with the compiled program, which is removed when this process ends."""
    folder = tempfile.mkdtemp(prefix="pessoa-bench-classes-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    found = java()
    assert found is not None
    compiler = found.resolve().with_name("javac")
    subprocess.run([str(compiler), "-cp", class_path(), "-d", folder, str(SOURCE_FILE)], check=True)
    return folder
