"""Run the worker and the transforms of Apache Kafka's Connect 4.3.1, from the jars in `jars.lock` beside this file."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.apache.broker import reserve_port
from tests.apache.jars import fetch, java, locked
from tests.support.logged_process import LoggedProcess

LOCK_FILE = Path(__file__).with_name("jars.lock")
JUDGE = Path(__file__).with_name("judge") / "TransformJudge.java"
START_TIMEOUT_S = 300.0
SMALL_JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def classpath() -> str:
    return os.pathsep.join(str(path) for path in fetch(locked(LOCK_FILE)))


def command(*words: str) -> list[str]:
    executable = java()
    assert executable is not None
    return [str(executable), *SMALL_JVM, "-cp", classpath(), *words]


def judge(lines: str) -> str:
    done = subprocess.run(command(str(JUDGE)), input=lines, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def apache_worker(bootstrap_servers: str, folder: Path, more: Mapping[str, str] | None = None) -> Iterator[str]:
    """Start a distributed worker of Apache's and yield its URL once it is healthy."""
    port = reserve_port()
    properties = folder / "worker.properties"
    settings = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "apache-connect",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.flush.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        "plugin.discovery": "service_load",
        "listeners": f"http://127.0.0.1:{port}",
        **(more or {}),
    }
    for kind in ("offset", "config", "status"):
        settings[f"{kind}.storage.topic"] = f"apache-connect-{kind}"
        settings[f"{kind}.storage.replication.factor"] = "1"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    url = f"http://127.0.0.1:{port}"
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    with LoggedProcess(command(main, str(properties)), folder / "apache-connect.log") as process:
        _wait_until_healthy(url, process)
        yield url


def _wait_until_healthy(url: str, process: LoggedProcess) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.is_running:
        try:
            if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    raise AssertionError("Apache's worker did not start")
