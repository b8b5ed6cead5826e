"""The REST proxy: v2 reads of JSON records by several consumer instances at once."""

from __future__ import annotations

import json
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.apache import HOST, create_topic, running_pessoa, scaled
from bench.http_load import running_service
from bench.report import OURS
from tests.apache.broker import reserve_port

if TYPE_CHECKING:
    from bench.report import Report

TOPIC = "rest"
RECORDS = 60_000
INSTANCES = 6
V2 = "application/vnd.kafka.v2+json"
JSON = "application/vnd.kafka.json.v2+json"
# A limit of the response, so that a read has an ordinary size, and many reads are needed.
READ_BYTES = 20_000


def run(report: Report) -> None:
    port = reserve_port()
    base = f"http://{HOST}:{port}"
    with tempfile.TemporaryDirectory() as folder, running_pessoa(Path(folder)) as side:
        create_topic(side, TOPIC, INSTANCES)
        arguments = ("rest-proxy", "--bootstrap-server", side.bootstrap, "--port", str(port))
        with running_service(*arguments, port=port) as proxy, ThreadPoolExecutor(INSTANCES) as threads:
            per_partition = scaled(RECORDS) // INSTANCES
            fill(side.bootstrap, per_partition)
            before = proxy.cpu_seconds()
            started = time.perf_counter()
            found = list(threads.map(lambda number: read_all(base, number, per_partition), range(INSTANCES)))
            seconds = time.perf_counter() - started
            used = proxy.cpu_seconds() - before
            latencies = sorted(each for latencies in found for each in latencies)
            case = f"REST v2 consume, {INSTANCES} instances, reads of {READ_BYTES // 1000} kB"
            report.add(case, OURS, len(latencies) / seconds, "req/s")
            report.add(f"{case}, records", OURS, per_partition * INSTANCES / seconds, "rec/s")
            report.add(f"{case}, records per CPU second", OURS, per_partition * INSTANCES / used, "rec/s")
            report.add(f"{case}, p50", OURS, latencies[len(latencies) // 2] * 1000, "ms")
            report.add(f"{case}, p99", OURS, latencies[int(len(latencies) * 0.99)] * 1000, "ms")
            report.add("REST proxy, memory after reading", OURS, proxy.memory_mb(), "MB")


def fill(bootstrap: str, per_partition: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    value = json.dumps({"name": "x" * 80, "n": 1}).encode()
    for partition in range(INSTANCES):
        for _ in range(per_partition):
            producer.produce(TOPIC, value, partition=partition)
            producer.poll(0)
    producer.flush()


def read_all(base: str, partition: int, count: int) -> list[float]:
    """Read one partition through a consumer instance of its own; return the seconds of each read."""
    body = {"format": "json", "auto.offset.reset": "earliest", "fetch.min.bytes": 1}
    uri = ask("POST", f"{base}/consumers/bench-{partition}", body)["base_uri"]
    ask("POST", f"{uri}/assignments", {"partitions": [{"topic": TOPIC, "partition": partition}]})
    seen = 0
    latencies = []
    while seen < count:
        started = time.perf_counter()
        seen += len(ask("GET", f"{uri}/records?max_bytes={READ_BYTES}", None))
        latencies.append(time.perf_counter() - started)
    ask("DELETE", uri, None)
    return latencies


def ask(method: str, url: str, body: Any) -> Any:
    headers = {"Content-Type": V2, "Accept": JSON if method == "GET" else V2}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method)) as answer:
        content = answer.read()
    return json.loads(content) if content else None
