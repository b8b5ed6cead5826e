"""The ksql server without Spark: start, INSERT, pull queries by key on a table of a million keys, push queries.

Pull queries: one row by its key over HTTP, p50 and rate; the aim is 3 ms. Push queries: 20 at the same time, each over
its own connection; the time from the statement to the first row (aim 1.5 s), and from produce to the row at the client
(aim 12 ms at p50). Server, broker and clients share this machine's cores.
"""

from __future__ import annotations

import http.client
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.apache import HOST, running_pessoa, scaled
from bench.http_load import load, request, running_service
from bench.report import OURS
from tests.apache.broker import reserve_port

if TYPE_CHECKING:
    from bench.report import Report

KEYS = 1_000_000
PULLS = 4_000
INSERTS = 1_000
PUSH_QUERIES = 20
PUSHED = 200
LOAD_S = 180.0
_ROWS = {"Content-Type": "application/json", "Accept": "application/vnd.ksqlapi.delimited.v1"}


def ksql(port: int, text: str) -> list[dict[str, Any]]:
    connection = http.client.HTTPConnection(HOST, port, timeout=LOAD_S)
    connection.request("POST", "/ksql", json.dumps({"ksql": text}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = json.loads(answer.read())
    assert answer.status == 200, body
    connection.close()
    found: list[dict[str, Any]] = body
    return found


def rows(port: int, sql: str) -> list[Any]:
    connection = http.client.HTTPConnection(HOST, port, timeout=LOAD_S)
    connection.request("POST", "/query-stream", json.dumps({"sql": sql}), _ROWS)
    lines = connection.getresponse().read().splitlines()
    connection.close()
    return [json.loads(line) for line in lines[1:]]


def fill(servers: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    for number in range(count):
        producer.produce(topic, b'{"N":%d,"NAME":"customer"}' % number, b"k%d" % number)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(LOAD_S) == 0


def run(report: Report) -> None:
    port = reserve_port()
    with tempfile.TemporaryDirectory() as folder, running_pessoa(Path(folder)) as side:
        arguments = ("ksql-server", "--bootstrap-server", side.bootstrap, "--host", HOST, "--port", str(port),
                     "--override", f"pessoa.home={folder}/ksql")  # fmt: skip
        started = time.monotonic()
        with running_service(*arguments, port=port) as server:
            report.add("ksql server, start to first answer", OURS, time.monotonic() - started, "s")
            _insert(report, port)
            _pull(report, port, side.bootstrap)
            _push(report, port, side.bootstrap)
            report.add("ksql server, memory after load", OURS, server.memory_mb(), "MB")


def _insert(report: Report, port: int) -> None:
    ksql(port, "CREATE STREAM I (K VARCHAR KEY, N INT) WITH (KAFKA_TOPIC='i', VALUE_FORMAT='JSON', PARTITIONS=1);")
    body = json.dumps({"ksql": "INSERT INTO I VALUES ('k', 1);"}).encode()
    data = request("POST", "/ksql", body, Content_Type="application/json")
    load(port, data, 1, scaled(INSERTS) // 4)
    outcome = load(port, data, 1, scaled(INSERTS))
    report.add("ksql INSERT VALUES, one client", OURS, outcome.per_second, "1/s")
    outcome = load(port, data, 16, scaled(INSERTS) * 2)
    report.add("ksql INSERT VALUES, 16 clients", OURS, outcome.per_second, "1/s")


def _pull(report: Report, port: int, servers: str) -> None:
    count = scaled(KEYS)
    ksql(port, "CREATE TABLE W (K VARCHAR PRIMARY KEY, N INT, NAME VARCHAR) WITH (KAFKA_TOPIC='big', "
               "VALUE_FORMAT='JSON', PARTITIONS=4);")  # fmt: skip
    fill(servers, "big", count)
    started = time.monotonic()
    ksql(port, "CREATE SOURCE TABLE T (K VARCHAR PRIMARY KEY, N INT, NAME VARCHAR) WITH (KAFKA_TOPIC='big', "
               "VALUE_FORMAT='JSON');")  # fmt: skip
    while rows(port, f"SELECT N FROM T WHERE K = 'k{count - 1}';") != [[count - 1]]:
        assert time.monotonic() - started < LOAD_S
        time.sleep(0.1)
    report.add(f"ksql table of {count:,} keys, read from its topic", OURS, time.monotonic() - started, "s")
    sql = f"SELECT * FROM T WHERE K = 'k{count // 2}';"
    data = request("POST", "/query-stream", json.dumps({"sql": sql}).encode(), Content_Type="application/json")
    load(port, data, 1, scaled(PULLS) // 4)
    outcome = load(port, data, 1, scaled(PULLS))
    report.add("ksql pull query by key, one client, p50", OURS, outcome.percentile_ms(50), "ms")
    report.add("ksql pull query by key, one client, p99", OURS, outcome.percentile_ms(99), "ms")
    report.add("ksql pull query by key, 16 clients", OURS, load(port, data, 16, scaled(PULLS)).per_second, "1/s")


class _Client(threading.Thread):
    """A client with a push query over a connection of its own: time of the first row, and latency of each row."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port = port
        self.first_s = 0.0
        self.delays_ms: list[float] = []

    def run(self) -> None:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=LOAD_S)
        asked = {"sql": "SELECT AT FROM P EMIT CHANGES;", "properties": {"auto.offset.reset": "earliest"}}
        started = time.monotonic()
        connection.request("POST", "/query-stream", json.dumps(asked), _ROWS)
        answer = connection.getresponse()
        answer.readline()
        while line := answer.readline():
            (at,) = json.loads(line)
            if at == 0:
                self.first_s = time.monotonic() - started
            elif at < 0:
                break
            else:
                self.delays_ms.append(time.time() * 1000 - at / 1000)
        connection.close()


def _push(report: Report, port: int, servers: str) -> None:
    from confluent_kafka import Producer

    ksql(port, "CREATE STREAM P (AT BIGINT) WITH (KAFKA_TOPIC='p', VALUE_FORMAT='JSON', PARTITIONS=1);")
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def send(value: int) -> None:
        producer.produce("p", b'{"AT":%d}' % value)
        producer.flush(30)

    send(0)
    clients = [_Client(port) for _ in range(PUSH_QUERIES)]
    for one in clients:
        one.start()
    deadline = time.monotonic() + LOAD_S
    while not all(one.first_s for one in clients):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for _ in range(scaled(PUSHED)):
        send(int(time.time() * 1_000_000))
        time.sleep(0.02)
    send(-1)
    for one in clients:
        one.join(LOAD_S)
    delays = sorted(delay for one in clients for delay in one.delays_ms)
    case = f"ksql push query, {PUSH_QUERIES} at once"
    report.add(f"{case}, first row, median", OURS, statistics.median(one.first_s for one in clients), "s")
    report.add(f"{case}, first row, slowest", OURS, max(one.first_s for one in clients), "s")
    report.add(f"{case}, p50", OURS, delays[len(delays) // 2], "ms")
    report.add(f"{case}, p99", OURS, delays[len(delays) * 99 // 100], "ms")
