"""Produce requests of one record each: how many a broker answers in a second, compared with Apache Kafka.

This measures the cost of a request, not of its bytes: reading a frame, decoding, appending, encoding, writing. With one
request in flight each waits for the one before, as in a program that waits for every acknowledgement; with many in
flight a broker can serve several in one turn of its event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.apache import Figures, Side, compare, create_topic, print_verdicts, scaled
from bench.wire_load import ProduceLoad, produce_request

if TYPE_CHECKING:
    from bench.report import Report

TOPIC = "requests"
RECORD_BYTES = 100
# (requests in flight, requests in all)
CASES = ((1, 20_000), (64, 60_000))
AT_LEAST = {"one-record requests, 64 in flight": 1.5}


def run(report: Report) -> None:
    compare(report, measure)
    print_verdicts(report, AT_LEAST)


def measure(side: Side) -> Figures:
    create_topic(side, TOPIC, 1)
    figures: Figures = {}
    load = ProduceLoad(side.port, produce_request(TOPIC, 1, 1, RECORD_BYTES))
    for in_flight, count in CASES:
        # Java compiles Apache's code while it runs: as many requests come first and are not measured.
        load.requests_per_s(in_flight, scaled(count))
        figures[f"one-record requests, {in_flight} in flight", "req/s"] = load.requests_per_s(in_flight, scaled(count))
    load.close()
    return figures
