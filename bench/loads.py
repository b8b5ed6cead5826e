"""Loads by Apache's own performance tools, and the figures that these print.

The tools run in processes of their own, with the heap and the collector that Apache's scripts give them. The first
records of a load are not in its figures: a Java program is slow until its code is compiled.
"""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from bench.apache import JVM
from tests.apache.broker import TOOLS, java_command

if TYPE_CHECKING:
    from bench.apache import Side

TOOL_JVM = ("-Xmx512M", *JVM)
TOOL_TIMEOUT_S = 300.0
# The share of the records of a load that come first and are not measured.
WARMUP_SHARE = 0.25

_STEADY = re.compile(r"steady state records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\)")
# Apache counts in MiB; our MB is a million bytes.
MIB = 1024 * 1024 / 1e6


class Produced(NamedTuple):
    records_per_s: float
    mb_per_s: float


def produce(
    side: Side, topic: str, records: int, record_bytes: int, *, acks: str = "all", codec: str = "none"
) -> Produced:
    """Run kafka-producer-perf-test without a limit of its rate; return its figures."""
    output = run_tool(
        "kafka-producer-perf-test",
        *("--bootstrap-server", side.bootstrap),
        *("--topic", topic),
        *("--num-records", str(records)),
        *("--record-size", str(record_bytes)),
        *("--warmup-records", str(round(records * WARMUP_SHARE))),
        *("--throughput", "-1"),
        *("--command-property", f"acks={acks}", f"compression.type={codec}"),
        *_client_settings(side),
    )
    found = _STEADY.search(output)
    if found is None:
        raise SystemExit(f"the producer says nothing that can be read:\n{output}")
    return Produced(float(found[1]), float(found[2]) * MIB)


def consume(side: Side, topic: str, records: int, group: str) -> float:
    """Run kafka-consumer-perf-test from the earliest offset; return MB/s from the assignment of the partitions on."""
    output = run_tool(
        "kafka-consumer-perf-test",
        *("--bootstrap-server", side.bootstrap),
        *("--topic", topic),
        *("--num-records", str(records)),
        *("--group", group),
        *_client_settings(side),
        "--hide-header",
    )
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetched MB/s, fetched records/s
    for line in reversed(output.splitlines()):
        cells = line.split(", ")
        if len(cells) == 10:
            if int(cells[4]) < records:
                raise SystemExit(f"of {records} records {cells[4]} were consumed:\n{output}")
            return float(cells[8]) * MIB
    raise SystemExit(f"the consumer says nothing that can be read:\n{output}")


def _client_settings(side: Side) -> tuple[str, ...]:
    return () if side.java_client is None else ("--command-config", str(side.java_client))


def run_tool(tool: str, *arguments: str) -> str:
    done = subprocess.run(
        java_command(TOOLS[tool], *arguments, jvm=TOOL_JVM),
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise SystemExit(f"{tool} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout
