"""A Kafka Streams application (Java) as a process that a test can ask and kill: StreamsApp.java, beside this file."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path
from queue import Queue
from types import TracebackType
from typing import Self

from tests.apache.broker import STOP_TIMEOUT_S, java_command
from tests.apache.jars import fetch, locked

SOURCE = Path(__file__).with_name("StreamsApp.java")
LOCK_FILE = Path(__file__).with_name("jars.lock")
# Compiled and started beside other tests, on two cores.
START_S = 120.0


class StreamsApp:
    def __init__(
        self,
        servers: str,
        application_id: str,
        state: Path,
        *,
        protocol: str = "classic",
        shape: str = "counts",
        prefix: str = "",
        guarantee: str = "at_least_once",
        **settings: str,
    ) -> None:
        """Settings are named with underscores for their points."""
        jars = os.pathsep.join(map(str, fetch([*locked(), *locked(LOCK_FILE)])))
        words = [servers, application_id, protocol, str(state), shape, prefix, guarantee]
        words += [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        command = java_command(str(SOURCE), *words, jvm=["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", jars])
        self.application_id = application_id
        self._states: list[str] = []
        self._moved = threading.Condition()
        self._answers: Queue[str] = Queue()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._errors: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __repr__(self) -> str:
        return f"<StreamsApp {self.application_id}: {self._states[-1:]}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "state":
                with self._moved:
                    self._states.append(rest)
                    self._moved.notify_all()
            else:
                self._answers.put(line.strip())
        with self._moved:
            self._states.append("ENDED")
            self._moved.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)

    def wait_until_running(self) -> None:
        with self._moved:
            arrived = self._moved.wait_for(lambda: "ENDED" in self._states or self._states[-1:] == ["RUNNING"], START_S)
        assert arrived and self._states[-1] == "RUNNING", f"{self}: {self._states}\n{''.join(self._errors[-60:])}"  # noqa: PT018

    def get(self, word: str) -> int | None:
        """Ask the application's own store, as an interactive query does."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"get {word}\n")
        self._process.stdin.flush()
        asked, _, count = self._answers.get(timeout=START_S).rpartition(" ")
        assert asked == word
        return None if count == "-" else int(count)

    def kill(self) -> None:
        """As by kill -9."""
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        for reader in self._readers:
            reader.join(STOP_TIMEOUT_S)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def close(self) -> None:
        """End as an application does that its user stops."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(START_S) == 0, "".join(self._errors[-60:])
