"""`pessoa connect` as a process that a test may kill: with a Spark of its own, as a user has it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx

from tests.connect.serving import DEADLINE_S, wait_until
from tests.support.engine_process import SMALL_JVM

_LISTENING = re.compile(r"is listening on (\S+)")


class WorkerProcess:
    def __init__(self, bootstrap_servers: str, home: Path, **settings: str) -> None:
        self._output = home.with_suffix(".output")
        self._command = [
            *(sys.executable, "-m", "pessoa", "connect", "--bootstrap-server", bootstrap_servers),
            *("--host", "127.0.0.1", "--port", "0", "--override", f"pessoa.home={home}"),
        ]
        for name, text in settings.items():
            self._command += ["--override", f"{name.replace('_', '.')}={text}"]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __repr__(self) -> str:
        return f"<WorkerProcess {self.url}: {'running' if self._process else 'gone'}>"

    def start(self) -> None:
        assert self._process is None, "the worker is running"
        with self._output.open("ab") as sink:
            position = sink.tell()
            process = self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, "JAVA_TOOL_OPTIONS": SMALL_JVM, "PYTHONUNBUFFERED": "1"},
            )

        def listens() -> bool:
            said = self._output.read_bytes()[position:].decode(errors="replace")
            assert process.poll() is None, f"the worker did not start:\n{said}"
            match = _LISTENING.search(said)
            self.url = match[1] if match else ""
            return bool(match)

        wait_until(listens, "the worker listens")
        wait_until(self._is_healthy, "the worker is healthy")

    def _is_healthy(self) -> bool:
        return httpx.get(f"{self.url}/health", timeout=DEADLINE_S).status_code == 200

    def put(self, connector: str, **config: str) -> None:
        settings = {key.replace("_", "."): text for key, text in config.items()}
        answer = httpx.put(f"{self.url}/connectors/{connector}/config", json=settings, timeout=DEADLINE_S)
        assert answer.status_code == 201, answer.text

    def kill(self) -> None:
        """As the kernel would: no goodbye."""
        assert self._process is not None, "the worker is not running"
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
