from __future__ import annotations

import os

from bench.apache import Process, verdicts
from bench.report import Report


def measured(ours: float, apache: float, unit: str) -> Report:
    report = Report()
    report.add("case", "pessoa", ours, unit)
    report.add("case", "apache", apache, unit)
    return report


def test_a_promised_rate_is_met_when_it_is_the_required_factor_higher() -> None:
    assert list(verdicts(measured(150, 100, "rec/s"), {"case": 1.5})) == [
        "met     case (rec/s): 1.50× Apache Kafka, wanted 1.50×"
    ]
    assert list(verdicts(measured(149, 100, "rec/s"), {"case": 1.5})) == [
        "MISSED  case (rec/s): 1.49× Apache Kafka, wanted 1.50×"
    ]


def test_a_promised_duration_is_met_when_it_is_the_required_factor_lower() -> None:
    assert list(verdicts(measured(0.35, 3.8, "s"), {"case": 10})) == [
        "met     case (s): 10.86× Apache Kafka, wanted 10.00×"
    ]


def test_a_number_without_a_promise_or_a_comparison_gets_no_verdict() -> None:
    alone = Report()
    alone.add("case", "pessoa", 1, "s")
    assert list(verdicts(alone, {"case": 10})) == []
    assert list(verdicts(measured(1, 2, "s"), {"another case": 10})) == []


def test_the_cpu_time_and_memory_of_a_process_are_read_from_the_kernel() -> None:
    process = Process(os.getpid())
    assert process.memory_mb() > 1
    assert 0 < process.cpu_seconds() <= sum(os.times()[:2]) + 0.1
