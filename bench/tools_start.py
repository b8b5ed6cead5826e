"""The most used command-line tools, from start to end, compared with Apache's: each with a broker of its own side.

The figures are those of a user of ours or of Apache's. Our tools are run as the installed commands, Apache's as its
scripts run them.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.apache import APACHE, ROUNDS, Side, print_verdicts, sides
from bench.broker_start import TOOL_JVM
from bench.report import OURS
from tests.apache.broker import TOOLS, java_command

if TYPE_CHECKING:
    from bench.report import Report

QUESTIONS = {
    "topics --list": ("kafka-topics", "--list"),
    "topics --describe": ("kafka-topics", "--describe"),
    "groups --list": ("kafka-consumer-groups", "--list"),
    "groups --describe": ("kafka-consumer-groups", "--describe", "--group", "readers"),
}
AT_LEAST = dict.fromkeys(QUESTIONS, 10.0)
TIMES = 5


def run(report: Report) -> None:
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for name, start in sides().items():
            with tempfile.TemporaryDirectory(prefix="pessoa-bench-") as folder, start(Path(folder) / "data") as side:
                prepare(side)
                for case, (tool, *words) in QUESTIONS.items():
                    times = [seconds_of(side, tool, *words) for _ in range(TIMES)]
                    found.setdefault((case, name), []).append(statistics.median(times))
    for (case, name), values in found.items():
        report.add(case, name, statistics.median(values), "s")
    print_verdicts(report, AT_LEAST)


def prepare(side: Side) -> None:
    """Create a few topics, and a group that has committed offsets of one of them."""
    for number in range(3):
        ours(side, "kafka-topics", "--create", "--topic", f"orders-{number}", "--partitions", "3")
    ours(side, "kafka-console-producer", "--topic", "orders-0", given=b"one\ntwo\n")
    ours(side, "kafka-console-consumer", "--topic", "orders-0", "--group", "readers", "--from-beginning",
         "--max-messages", "2")  # fmt: skip


def ours(side: Side, tool: str, *words: str, given: bytes = b"") -> None:
    command = [str(Path(sys.executable).with_name(tool)), "--bootstrap-server", side.bootstrap, *words]
    subprocess.run(command, input=given, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def seconds_of(side: Side, tool: str, *words: str) -> float:
    arguments = [*words, "--bootstrap-server", side.bootstrap]
    if side.name == APACHE:
        command = java_command(TOOLS[tool], *arguments, jvm=TOOL_JVM)
    else:
        assert side.name == OURS
        command = [str(Path(sys.executable).with_name(tool)), *arguments]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started
