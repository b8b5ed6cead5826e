"""The start of one broker, compared with Apache Kafka: until the first Metadata response, its memory then, and a
tool's.

first start    on an empty directory; for Apache Kafka including its format tool, which has to run before
start          on the directory that the first start left
tool           kafka-dump-log, from start to end, on the metadata log of the broker
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.apache import APACHE, JVM, ROUNDS, print_verdicts, sides
from bench.report import OURS
from tests.apache.broker import TOOLS, java_command

if TYPE_CHECKING:
    from bench.report import Report

# The options that kafka-run-class gives to a tool.
TOOL_JVM = ("-Xmx256M", *JVM)
METADATA_LOG = "__cluster_metadata-0/00000000000000000000.log"

FIRST, START, MEMORY, TOOL = "first start", "start", "memory idle", "tool"
AT_LEAST = {FIRST: 10.0, START: 10.0, MEMORY: 10.0, TOOL: 10.0}


def run(report: Report) -> None:
    for name, start in sides().items():
        found: dict[tuple[str, str], list[float]] = {}
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(prefix="pessoa-bench-") as folder:
                data = Path(folder) / "data"
                for case in (FIRST, START):
                    started = time.perf_counter()
                    with start(data) as side:
                        found.setdefault((case, "s"), []).append(time.perf_counter() - started)
                        memory_mb = side.process.memory_mb()
                found.setdefault((MEMORY, "MB"), []).append(memory_mb)
                if name in (OURS, APACHE):
                    found.setdefault((TOOL, "s"), []).append(seconds_of_tool(name, data / METADATA_LOG))
        for (case, unit), values in found.items():
            report.add(case, name, statistics.median(values), unit)
    print_verdicts(report, AT_LEAST)


def seconds_of_tool(name: str, log: Path) -> float:
    arguments = ["--cluster-metadata-decoder", "--files", str(log)]
    commands = {
        OURS: [str(Path(sys.executable).with_name("kafka-dump-log")), *arguments],
        APACHE: java_command(TOOLS["kafka-dump-log"], *arguments, jvm=TOOL_JVM) if name == APACHE else [],
    }
    started = time.perf_counter()
    subprocess.run(commands[name], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started
