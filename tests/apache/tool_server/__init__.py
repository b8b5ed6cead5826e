"""Apache Kafka's tools in one warm Java process: `with ToolServer() as tools: tools.run("kafka-topics", "--list", …)`.

A Java tool takes two seconds to start and a tenth of one to run, and comparing every flag needs hundreds of runs. So
`ToolServer.java` beside this file keeps one process and runs tool after tool in it. If a tool ends the process, its
output is already in files, its exit code is the process's, and the next run starts a new one.
"""

from __future__ import annotations

import base64
import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.apache.broker import STOP_TIMEOUT_S, TOOL_TIMEOUT_S, TOOLS, java_command
from tests.apache.class_archive import small_java

# See the head of ToolServer.java.
_OPENED = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class ToolServer:
    def __init__(self, *, log_level: str = "OFF", jvm: Sequence[str] | None = None) -> None:
        """By default logging is off, because log lines would be in `err` and are not compared."""
        self._log_level = log_level
        self._jvm = jvm
        self._process: subprocess.Popen[str] | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="apache-tools-")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._end()
        self._directory.cleanup()

    def run(self, tool: str, *arguments: str, stdin: str = "", timeout_s: float = TOOL_TIMEOUT_S) -> Outcome:
        """Run a tool and return its outcome; a tool that exceeds the timeout is killed, which its code shows."""
        folder = Path(self._directory.name)
        out, err, given = folder / "out", folder / "err", folder / "in"
        for path in (out, err):
            path.write_text("")
        given.write_text(stdin, encoding="utf-8")
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        words = (TOOLS.get(tool, tool), str(out), str(err), str(given), *arguments)
        line = " ".join(base64.b64encode(word.encode()).decode() for word in words)
        process.stdin.write(line + "\n")
        process.stdin.flush()
        alarm = threading.Timer(timeout_s, process.kill)
        alarm.start()
        try:
            answer = process.stdout.readline()
        finally:
            alarm.cancel()
        if answer:
            code = int(answer)
        else:
            code = process.wait()
            self._end()
        return Outcome(code, out.read_text(encoding="utf-8"), err.read_text(encoding="utf-8"))

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            options = [*(small_java() if self._jvm is None else self._jvm), *_OPENED]
            command = java_command("ToolServer", jvm=options, log_level=self._log_level)
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
        return self._process

    def leave(self) -> None:
        """Let the process end by itself, so that Java does what it does at its end, such as writing a class archive."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
        self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
