"""A broker in a process of its own, to be killed and started again on the same port with the same directory.

It is no LoggedProcess: the disk may be full or the size of files limited, so its output goes through a pipe.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

_START_TIMEOUT_S = 60.0
_IS_READY = re.compile(rb"broker \d+ of cluster \S+ is ready")


class KillableBroker:
    """`with KillableBroker(tmp_path) as broker: … broker.kill(); broker.start()`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self.lines: list[bytes] = []
        # A free port, closed again: the system gives it to no other socket soon, because it assigns ports in turn.
        with socket.create_server(("127.0.0.1", 0)) as any_port:
            self.port: int = any_port.getsockname()[1]

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    def start(self) -> None:
        ready = self._launch()
        assert ready.wait(_START_TIMEOUT_S), b"".join(self.lines[-50:]).decode()
        assert self._process is not None
        assert self._process.poll() is None, b"".join(self.lines[-50:]).decode()

    def start_with_largest_file(self, size: int) -> int:
        """Start the broker with a limit of `size` bytes for every file, wait until that has ended it, and return its
        exit code."""
        self._launch("prlimit", f"--fsize={size}:")
        return self.wait_for_end()

    def start_expecting_failure(self) -> int:
        """Start the broker on a directory on which it must fail; return its exit code."""
        self._launch()
        return self.wait_for_end()

    def _launch(self, *wrapper: str) -> threading.Event:
        """Start the process and return an event that is set when the broker is ready or has ended."""
        assert self._process is None, "the broker runs"
        self._directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:0",
            "log.dirs": str(self._directory),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
        }
        command = [*wrapper, sys.executable, "-m", "pessoa", "broker"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self._process, ready), daemon=True)
        self._reader.start()
        return ready

    def _read(self, process: subprocess.Popen[bytes], ready: threading.Event) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self.lines.append(line)
            if _IS_READY.search(line):
                ready.set()
        ready.set()

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    def kill(self) -> None:
        """End the broker with SIGKILL, so that it closes no connection and flushes nothing."""
        assert self._process is not None
        assert self._process.poll() is None, b"".join(self.lines[-50:]).decode()
        self._process.send_signal(signal.SIGKILL)
        self.wait_for_end()

    def wait_for_end(self) -> int:
        """Wait until the broker has ended by itself; return its exit code."""
        process = self._process
        assert process is not None
        code = process.wait(_START_TIMEOUT_S)
        self._process = None
        assert self._reader is not None
        self._reader.join(_START_TIMEOUT_S)
        assert process.stderr is not None
        process.stderr.close()
        return code

    def crash(self) -> None:
        """Kill the broker with SIGKILL and start it again."""
        self.kill()
        self.start()

    def errors(self) -> list[str]:
        """Return the errors that the broker has logged since its first start."""
        return [line.decode() for line in self.lines if b" ERROR " in line or b" CRITICAL " in line]
