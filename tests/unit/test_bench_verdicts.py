from __future__ import annotations

import os

from bench.apache import Process, verdicts
from bench.report import Report


def measured(ours: float, apache: float, unit: str) -> Report:
    report = Report()
    report.add("case", "pessoa", ours, unit)
    report.add("case", "apache", apache, unit)
    return report


def test_a_rate_is_met_when_it_is_so_many_times_higher() -> None:
    assert list(verdicts(measured(150, 100, "rec/s"), {"case": 1.5})) == [
        "met     case (rec/s): 1.50× Apache Kafka, wanted 1.50×"
    ]
    assert list(verdicts(measured(149, 100, "rec/s"), {"case": 1.5})) == [
        "MISSED  case (rec/s): 1.49× Apache Kafka, wanted 1.50×"
    ]


def test_a_duration_is_met_when_it_is_so_many_times_lower() -> None:
    assert list(verdicts(measured(0.35, 3.8, "s"), {"case": 10})) == [
        "met     case (s): 10.86× Apache Kafka, wanted 10.00×"
    ]


def test_what_was_not_promised_or_not_compared_gets_no_verdict() -> None:
    alone = Report()
    alone.add("case", "pessoa", 1, "s")
    assert list(verdicts(alone, {"case": 10})) == []
    assert list(verdicts(measured(1, 2, "s"), {"another case": 10})) == []


def test_the_kernel_says_what_a_process_has_used() -> None:
    process = Process(os.getpid())
    assert process.memory_mb() > 1
    assert 0 < process.cpu_seconds() <= sum(os.times()[:2]) + 0.1
