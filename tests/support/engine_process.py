"""`pessoa pipelines serve` as a process that a test may kill, and the way to speak to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.support import spark

DEADLINE_S = 240.0
_LISTENING = re.compile(r"pipelines is listening on (\S+)")
# For JAVA_TOOL_OPTIONS.
SMALL_JVM = " ".join(spark.SMALL_JVM)


class EngineProcess:
    def __init__(self, servers: str, home: Path, *options: str) -> None:
        self.home = home
        self._command = [
            *(sys.executable, "-m", "pessoa", "pipelines", "serve", "--bootstrap-server", servers),
            *("--home", str(home), "--port", "0", "--spark-master", "local[2]"),
            *("--spark-set", "spark.sql.shuffle.partitions=2"),
            *options,
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> None:
        assert self._process is None, "the engine is running"
        output = self.home.with_suffix(".output")
        with output.open("ab") as sink:
            position = sink.tell()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, "JAVA_TOOL_OPTIONS": SMALL_JVM, "PYTHONUNBUFFERED": "1"},
            )
        deadline = time.monotonic() + DEADLINE_S
        while True:
            said = output.read_bytes()[position:].decode(errors="replace")
            if match := _LISTENING.search(said):
                self.url = match[1]
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the engine did not start:\n{said}")
            time.sleep(0.05)

    def kill(self) -> None:
        """As the kernel would: no goodbye."""
        assert self._process is not None, "the engine is not running"
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(DEADLINE_S)
            finally:
                self._process.kill()
                self._process.wait()
                self._process = None

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = httpx.request(method, self.url + path, json=body, timeout=DEADLINE_S)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def spark_pid(self) -> int | None:
        """Of the Java that is Spark: the engine's child is its guardian, and Java is the guardian's."""
        assert self._process is not None, "the engine is not running"
        for guardian in children(self._process.pid):
            for java in children(guardian):
                return java
        return None


def children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
            int(each)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            if thread.name != str(pid)
            for each in (thread / "children").read_text().split()
        ]
    except FileNotFoundError:
        return []
