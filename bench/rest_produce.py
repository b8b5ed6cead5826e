"""The REST proxy: v2 produces of 1 and of 100 records, in front of our broker.

The aim is 3,000 one-record produces in a second on one core. Proxy, broker and load share this machine's cores, so the
produces per second of the proxy's own CPU time are reported as well: that is the rate of one core.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench.apache import HOST, create_topic, running_pessoa, scaled
from bench.http_load import load, request, running_service
from bench.report import OURS
from tests.apache.broker import reserve_port

if TYPE_CHECKING:
    from bench.report import Report

TOPIC = "rest"
CONNECTIONS = 32
# (records in a body, requests in all)
CASES = ((1, 20_000), (100, 3_000))
JSON = "application/vnd.kafka.json.v2+json"
AIM_PER_S = 3_000


def run(report: Report) -> None:
    port = reserve_port()
    with tempfile.TemporaryDirectory() as folder, running_pessoa(Path(folder)) as side:
        create_topic(side, TOPIC, 6)
        arguments = ("rest-proxy", "--bootstrap-server", side.bootstrap, "--port", str(port))
        with running_service(*arguments, port=port) as proxy:
            for records, count in CASES:
                body = json.dumps({"records": [{"value": {"name": "x" * 80, "n": n}} for n in range(records)]})
                data = request("POST", f"/topics/{TOPIC}", body.encode(), Content_Type=JSON)
                load(port, data, CONNECTIONS, scaled(count) // 4)
                before = proxy.cpu_seconds()
                outcome = load(port, data, CONNECTIONS, scaled(count))
                used = proxy.cpu_seconds() - before
                case = f"REST v2 produce, {records} record{'s' if records > 1 else ''} a body, {CONNECTIONS} clients"
                report.add(case, OURS, outcome.per_second, "req/s")
                report.add(f"{case}, per CPU second", OURS, scaled(count) / used, "req/s")
                report.add(f"{case}, p50", OURS, outcome.percentile_ms(50), "ms")
                report.add(f"{case}, p99", OURS, outcome.percentile_ms(99), "ms")
            report.add("REST proxy, memory after load", OURS, proxy.memory_mb(), "MB")
    [(_, first), *_] = report.measured.items()
    verdict = "reached" if first[OURS] >= AIM_PER_S else "missed"
    print(f"  aim of {AIM_PER_S:,} one-record produces/s: {verdict} ({HOST}, one proxy)")
