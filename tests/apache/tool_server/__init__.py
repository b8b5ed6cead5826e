"""Apache Kafka's tools in one warm Java process: `with ToolServer() as tools: tools.run("kafka-topics", "--list", …)`.

A Java tool takes two seconds to start and a tenth of one to run, and a comparison per flag needs hundreds of runs. So
`ToolServer.java` beside this file keeps one process and runs tool after tool in it. Where a tool ends the process, its
output is in files by then, its exit code is the process's, and the next run starts a new one.
"""

from __future__ import annotations

import base64
import os
import subprocess
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.apache.broker import SMALL_JVM, TOOL_TIMEOUT_S, TOOLS
from tests.apache.jars import classpath, compiled, java

SOURCE = Path(__file__).with_name("ToolServer.java")
_LOGGING = Path(__file__).parents[1] / "log4j2.properties"


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class ToolServer:
    def __init__(self, *, log_level: str = "OFF") -> None:
        """Log lines are not what a comparison is about; who wants them finds them in `err`."""
        self._log_level = log_level
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
        """A tool that is not done in time is killed, and its code says so."""
        folder = Path(self._directory.name)
        out, err, given = folder / "out", folder / "err", folder / "in"
        for path in (out, err):
            path.write_text("")
        given.write_text(stdin, encoding="utf-8")
        words = (TOOLS.get(tool, tool), str(out), str(err), str(given), *arguments)
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
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
            path = os.pathsep.join((str(compiled(SOURCE)), classpath()))
            flags = [
                *SMALL_JVM,
                f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
                f"-Dpessoa.log.level={self._log_level}",
            ]
            flags += ["--add-opens", "java.base/java.lang=ALL-UNNAMED"]
            self._process = subprocess.Popen(
                [str(java()), *flags, "-cp", path, "ToolServer"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return self._process

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
