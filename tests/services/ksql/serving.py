"""A ksql server in the test's process; its persistent queries run in threads instead of on Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from confluent_kafka import Producer

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.operators.in_process import InProcessQuery
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.schema_source import MemorySchemas
from pessoa.ksql.query_runner import PersistentQuery, RunnerStatus
from pessoa.ksql.server.kafka_clients import KafkaClients
from pessoa.ksql.server.ksql_service import make_ksql_app
from pessoa.ksql.server.ksql_state import sources_of
from pessoa.ksql.server.server_config import KsqlConfig, make_config
from pessoa.ksql.server.topic_reader import SourceReader
from pessoa.web.serving import ThreadedServer, bind

T = TypeVar("T")
DEADLINE_S = 120.0


def wait_for(look: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {DEADLINE_S:.0f} s")


class ThreadRunner:
    """Runs each persistent query in a thread, from the first record of its topics, at least once."""

    def __init__(self, config: KsqlConfig) -> None:
        self._clients = KafkaClients(config)
        self._readers: dict[str, SourceReader] = {}
        self.paused: set[str] = set()
        self.terminated: list[str] = []

    def start(self, query: PersistentQuery) -> None:
        begins = {one.topic: True for one in sources_of(query.plan.root)}
        reader = SourceReader(self._clients, begins, f"test-{query.id}")
        reader.open()
        self._readers[query.id] = reader
        threading.Thread(target=self._run, args=(query, reader), daemon=True).start()

    def _run(self, query: PersistentQuery, reader: SourceReader) -> None:
        assert query.plan.sink is not None
        running = InProcessQuery(query.plan, QuerySettings(), MemorySchemas(), reader.partitions)
        producer = Producer({**self._clients.settings, "linger.ms": 0})
        for batch in reader.read():
            for record in batch:
                for out in running.take(record):
                    producer.produce(query.plan.sink.topic, out.value, out.key, timestamp=out.timestamp_ms)
            producer.flush(10)

    def pause(self, query_id: str) -> None:
        self.paused.add(query_id)

    def resume(self, query_id: str) -> None:
        self.paused.discard(query_id)

    def terminate(self, query_id: str, delete_state: bool) -> None:
        self._readers.pop(query_id).stop.set()
        if delete_state:
            self.terminated.append(query_id)

    def status(self, query_id: str) -> RunnerStatus:
        return RunnerStatus("PAUSED" if query_id in self.paused else "RUNNING", speed="in process")

    def explain(self, plan: LogicalPlan) -> list[str]:
        return ["runs in a thread of the test"]

    def close(self) -> None:
        for reader in self._readers.values():
            reader.stop.set()
        self._readers.clear()


class Ksql(httpx.Client):
    """An HTTP client of a ksql server."""

    def run(self, text: str, properties: Mapping[str, str] | None = None, **more: Any) -> list[dict[str, Any]]:
        answer = self.post("/ksql", json={"ksql": text, "streamsProperties": dict(properties or {}), **more})
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()
        return found

    def refused(self, text: str) -> dict[str, Any]:
        """Send statements that must be refused; return the error."""
        answer = self.post("/ksql", json={"ksql": text})
        assert answer.status_code != 200, answer.text
        body: dict[str, Any] = answer.json()
        assert body["error_code"] // 100 == answer.status_code
        return body

    def rows(self, sql: str, properties: Mapping[str, str] | None = None) -> list[list[Any]]:
        """Return the rows of a pull query, or of a push query with LIMIT."""
        answer = self.post("/query-stream", json={"sql": sql, "properties": dict(properties or {})})
        assert answer.status_code == 200, answer.text
        head, *rows = [json.loads(line) for line in answer.text.splitlines()]
        assert "columnNames" in head, head
        return rows

    def all_rows(self, sql: str) -> list[list[Any]]:
        """Return the rows of a query that reads from the earliest offset."""
        return self.rows(sql, {"auto.offset.reset": "earliest"})


@contextmanager
def ksql_server(
    bootstrap_servers: str, home: Path, settings: Mapping[str, str] | None = None,
    make_runner: Callable[[KsqlConfig], Any] = ThreadRunner,
) -> Iterator[Ksql]:  # fmt: skip
    own = dict(settings or {})
    # Without a prefix all servers of a broker would write to the same output topics.
    own.setdefault("ksql.output.topic.name.prefix", own.get("ksql.service.id", ""))
    config = make_config({"bootstrap.servers": bootstrap_servers, "pessoa.home": str(home), **own})
    listening = bind("127.0.0.1", 0)
    port = listening.getsockname()[1]
    server = ThreadedServer(
        lambda: make_ksql_app(config, port, make_runner=make_runner), listening=listening, tls=config.http.tls
    )
    with server, Ksql(base_url=server.url, timeout=DEADLINE_S) as client:
        yield client
