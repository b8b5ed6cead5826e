"""The cost of logins and ACLs for a producer: SASL_PLAINTEXT with SCRAM and an authorizer, compared with a broker
without both.

Both brokers run at the same time and get the same requests in turn (`bench/bursts.py`), which shows a difference of
some percent even on a busy machine; the verdicts use these figures. kafka-producer-perf-test, in turn on both, shows
what a user sees; its figures vary by a tenth from run to run, and by far more on a busy machine.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bench.apache import ROUNDS, create_topic, scaled
from bench.bursts import ONE_RECORD, PRODUCE_100, PRODUCE_1000, Variant, alternate, kept_percent
from bench.loads import produce
from bench.report import OURS, PERCENT_KEPT
from bench.secured import LOGIN, PLAINTEXT, secured_sides

if TYPE_CHECKING:
    from bench.apache import Side
    from bench.report import Report

PLAIN, SECURED = "plaintext", "SASL + ACLs"
AT_LEAST_PERCENT = 95.0
JAVA = "Java"
RECORDS = {100: 2_000_000, 1000: 500_000}
PARTITIONS = 6


def run(report: Report) -> None:
    plain, secured = secured_sides(has_acls=False), secured_sides(has_acls=True)
    for name in plain:
        with ExitStack() as running:
            folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="pessoa-bench-")))
            without = running.enter_context(plain[name](folder / "plain" / "data"))
            having = running.enter_context(secured[name](folder / "secured" / "data"))
            variants = {
                PLAIN: Variant(without.through(PLAINTEXT), {}),
                SECURED: Variant(having.through(LOGIN), having.java_settings(LOGIN)),
            }
            measure_bursts(report, name, variants)
            measure_java(report, name, {variant: one.side for variant, one in variants.items()})
    for (case, unit), subjects in report.measured.items():
        if unit == PERCENT_KEPT and not case.startswith(JAVA):
            verdict = "met" if subjects[OURS] >= AT_LEAST_PERCENT else "MISSED"
            print(f"  {verdict:<6}  {case}: {subjects[OURS]:.1f} % with {SECURED}, wanted {AT_LEAST_PERCENT:.0f} %")


def measure_bursts(report: Report, name: str, variants: dict[str, Variant]) -> None:
    for shape in (PRODUCE_100, PRODUCE_1000, ONE_RECORD):
        found = alternate(variants, shape, f"bench-{shape.records}")
        for variant, measured in found.items():
            if shape is ONE_RECORD:
                report.add(f"{shape.name}, {variant}", name, measured.rate, "req/s")
                report.add(f"{shape.name}, {variant}", name, measured.cpu_of_burst_s / shape.burst * 1e6, "CPU µs")
            else:
                megabytes = shape.gigabytes / shape.burst * 1000
                report.add(f"{shape.name}, {variant}", name, measured.rate * megabytes, "MB/s")
                report.add(f"{shape.name}, {variant}", name, measured.cpu_of_burst_s / shape.gigabytes, "CPU s/GB")
        report.add(shape.name, name, kept_percent(found[PLAIN], found[SECURED]), PERCENT_KEPT)


def measure_java(report: Report, name: str, sides: dict[str, Side]) -> None:
    for record_bytes, count in RECORDS.items():
        topic, case = f"bench-java-{record_bytes}", f"{JAVA} produces {record_bytes} B, acks=all"
        rates: dict[str, list[float]] = {variant: [] for variant in sides}
        for side in sides.values():
            create_topic(side, topic, PARTITIONS)
            produce(side, topic, scaled(count) // 4, record_bytes)
        for number in range(ROUNDS):
            for variant in list(sides)[:: -1 if number % 2 else 1]:
                done = produce(sides[variant], topic, scaled(count), record_bytes)
                rates[variant].append(done.mb_per_s)
        for variant, values in rates.items():
            report.add(f"{case}, {variant}", name, statistics.median(values), "MB/s")
        pairs = zip(rates[PLAIN], rates[SECURED], strict=True)
        report.add(case, name, 100 * statistics.median(other / one for one, other in pairs), PERCENT_KEPT)
