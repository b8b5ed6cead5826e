"""A Java that starts fast for Apache Kafka's programs: small, with a class archive that it maps into memory.

A broker needs about seven thousand classes before it serves; reading them from jars, checking and linking them is half
of the processor time of its start. Java can write the loaded classes into a file (class data sharing) and
map that file the next time. So the first process that needs Apache's programs and finds no such file makes it: one
Java runs a broker and tools against it, and writes the archive when it ends. A process that starts meanwhile does
without. The archive's name in the cache is a hash of the Java version and the jars, because Java
silently ignores an archive that does not fit; its classes are found by their place in the class path, so every
program has the same class path.

One thing differs with an archive: the order in which Java lists the methods of a class, and so the order in which some
tools write the fields of their JSON. A test that compares that uses `plain_java`.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from pessoa.pipelines.jars import cache_directory
from tests.apache.jars import fetch, java, own_jar, why_unavailable

# Quick to start and small, rather than fast at full speed: C1 only, no parallel collector.
SMALL_JVM = ("-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xlog:cds*=off")
START_TIMEOUT_S = 120.0
POLL_INTERVAL_S = 0.05


def small_java() -> list[str]:
    """Return the flags and the class path, with the archive if there is one."""
    archive = class_archive()
    return [*([f"-XX:SharedArchiveFile={archive}"] if archive is not None else []), *plain_java()]


def plain_java() -> list[str]:
    """Return the flags and the class path of a Java that does not use the class archive."""
    return [*SMALL_JVM, *_class_path()]


@functools.cache
def _class_path() -> list[str]:
    return ["-cp", os.pathsep.join(map(str, [*fetch(), own_jar()]))]


@functools.cache
def _archive_path() -> Path:
    version = subprocess.run([str(java()), "-version"], capture_output=True, text=True, timeout=30).stderr
    jars = [(str(jar), (status := jar.stat()).st_size, status.st_mtime_ns) for jar in [*fetch(), own_jar()]]
    name = hashlib.sha256(repr((version, jars, SMALL_JVM)).encode()).hexdigest()[:16]
    return cache_directory() / f"classes-{name}.jsa"


def class_archive() -> Path | None:
    """Return the archive, made first if the cache lacks it; None while another process makes it or if that failed."""
    path = _archive_path()
    if not path.exists():
        _try_to_make(path)
    return path if path.exists() else None


# Cached, because a process in which it has failed once would fail again.
@functools.cache
def _try_to_make(path: Path) -> None:
    with path.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if path.exists():
            return
        with TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            _rehearse(Path(folder), made)
            if made.exists():
                made.rename(path)


def _rehearse(folder: Path, archive: Path) -> None:
    """Run a broker and its usual clients, to load the classes that tests will need."""
    from tests.apache.broker import ApacheKafka, random_id
    from tests.apache.tool_server import ToolServer

    options = [f"-XX:ArchiveClassesAtExit={archive}", *plain_java()]
    kafka = ApacheKafka(data=[folder / "data"])
    (node,) = kafka.nodes
    with ToolServer(jvm=options) as tools:
        kafka.write_properties()
        tools.run("kafka-storage", "format", "-t", random_id(), "-c", str(node.properties_path))
        tools.run("&kafka.Kafka", str(node.properties_path))
        deadline = time.monotonic() + START_TIMEOUT_S
        while node.count_of_brokers_it_sees() == 0 and time.monotonic() < deadline:
            time.sleep(POLL_INTERVAL_S)
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        tools.run("kafka-topics", *server, "--create", "--topic", "t")
        tools.run("kafka-console-producer", *server, "--topic", "t", stdin="one\ntwo\n")
        limits = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "20000")
        tools.run("kafka-console-consumer", *server, "--topic", "t", "--group", "g", *limits)
        tools.run("kafka-consumer-groups", *server, "--describe", "--group", "g")
        tools.run("kafka-configs", *server, "--describe", "--topic", "t")
        tools.leave()


def _leave(*_: object) -> NoReturn:
    """Exit by an exception, so that the Java that makes the archive is stopped and its folder deleted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def main() -> None:
    signal.signal(signal.SIGTERM, _leave)
    print(why_unavailable() or class_archive())


if __name__ == "__main__":
    main()
