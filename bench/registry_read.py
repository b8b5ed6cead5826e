"""The schema registry: GET of a schema by its id, as deserialisers request it, in front of our broker.

The aim is 5,000 reads in a second on one core. Registry, broker and load share this machine's cores, so the reads per
second of the registry's own CPU time are reported as well: that is the rate of one core.
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from bench.apache import HOST, running_pessoa, scaled
from bench.http_load import load, request, running_service
from bench.report import OURS
from tests.apache.broker import reserve_port

if TYPE_CHECKING:
    from bench.report import Report

CONNECTIONS = 32
SCHEMAS = 100
READS = 40_000
AIM_PER_S = 5_000
FIELDS = [{"name": f"field{number}", "type": ["null", "string"], "default": None} for number in range(20)]


def register(port: int, number: int) -> int:
    schema = {"type": "record", "name": f"Record{number}", "fields": FIELDS}
    body = json.dumps({"schema": json.dumps(schema)}).encode()
    asked = urllib.request.Request(
        f"http://{HOST}:{port}/subjects/s{number}/versions", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        schema_id: int = json.load(answer)["id"]
    return schema_id


def run(report: Report) -> None:
    port = reserve_port()
    with tempfile.TemporaryDirectory() as folder, running_pessoa(Path(folder)) as side:
        arguments = ("schema-registry", "--bootstrap-server", side.bootstrap, "--host", HOST, "--port", str(port))
        with running_service(*arguments, port=port) as registry:
            ids = [register(port, number) for number in range(SCHEMAS)]
            data = request("GET", f"/schemas/ids/{ids[-1]}")
            load(port, data, CONNECTIONS, scaled(READS) // 4)
            before = registry.cpu_seconds()
            outcome = load(port, data, CONNECTIONS, scaled(READS))
            used = registry.cpu_seconds() - before
            case = f"registry GET by id, {CONNECTIONS} clients"
            report.add(case, OURS, outcome.per_second, "req/s")
            report.add(f"{case}, per CPU second", OURS, scaled(READS) / used, "req/s")
            report.add(f"{case}, p50", OURS, outcome.percentile_ms(50), "ms")
            report.add(f"{case}, p99", OURS, outcome.percentile_ms(99), "ms")
            report.add("schema registry, memory after load", OURS, registry.memory_mb(), "MB")
    verdict = "reached" if scaled(READS) / used >= AIM_PER_S else "missed"
    print(f"  aim of {AIM_PER_S:,} reads/s on one core: {verdict}")
