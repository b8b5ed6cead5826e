"""Start a Kafka Streams application in Java (StreamsApp.java) as a process that a test can query and kill."""

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
        """`settings` are properties of Kafka Streams, with underscores instead of dots in their names."""
        jars = os.pathsep.join(map(str, fetch([*locked(), *locked(LOCK_FILE)])))
        words = [servers, application_id, protocol, str(state), shape, prefix, guarantee]
        words += [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        command = java_command(str(SOURCE), *words, jvm=["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", jars])
        output, errors = state.with_suffix(".output"), state.with_suffix(".errors")
        super().__init__(command, output, errors=errors, name=application_id)

    def wait_until_running(self) -> None:
        # RUNNING must be the last state that was printed.
        self.wait_for(r"(?m)^state RUNNING\n(?![\s\S]*^state )", START_S)

    def get(self, word: str) -> int | None:
        """Return the count of a word in the local store of the application (an interactive query); None if absent."""
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
        """Close the standard input of the application and wait until it has shut down cleanly."""
        self.end_input()
        assert self.wait_for_end(START_S) == 0, self._tail()
