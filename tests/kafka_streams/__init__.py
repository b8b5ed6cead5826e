"""A Kafka Streams application (Java) as a process that a test can ask and kill: StreamsApp.java, beside this file."""

from __future__ import annotations

import os
from pathlib import Path

from tests.apache.broker import java_command
from tests.apache.jars import fetch, locked
from tests.support.topics import eventually
from tests.support.typed_process import TypedProcess

SOURCE = Path(__file__).with_name("StreamsApp.java")
LOCK_FILE = Path(__file__).with_name("jars.lock")
# Compiled and started beside other tests, on two cores.
START_S = 120.0


class StreamsApp(TypedProcess):
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
        output, errors = state.with_suffix(".output"), state.with_suffix(".errors")
        super().__init__(command, output, errors=errors, name=application_id)

    def wait_until_running(self) -> None:
        # And has not left this state.
        self.wait_for(r"(?m)^state RUNNING\n(?![\s\S]*^state )", START_S)

    def get(self, word: str) -> int | None:
        """Ask the application's own store, as an interactive query does."""
        answered_count = len(self._answers)
        self.type(f"get {word}")
        eventually(lambda: len(self._answers) > answered_count, START_S, about=self)
        asked, _, count = self._answers[answered_count].rpartition(" ")
        assert asked == word
        return None if count == "-" else int(count)

    @property
    def _answers(self) -> list[str]:
        return [line for line in self.lines if not line.startswith("state ")]

    def end(self) -> None:
        """Stop the application as its user would."""
        self.end_input()
        assert self.wait_for_end(START_S) == 0, self._tail()
