"""INSERT INTO … VALUES, and the lines of /inserts-stream: a row becomes a record of the source's topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, Message

from pessoa.ksql.analysis.analyser import analyse
from pessoa.ksql.analysis.source_catalogue import Catalogue, Source
from pessoa.ksql.operators.inserted_rows import encode_row, inserted_row
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.server.kafka_clients import KafkaClients
from pessoa.ksql.server.ksql_problems import SERVER_ERROR, KsqlProblem
from pessoa.ksql.server.source_codecs import SourceCodecs
from pessoa.ksql.syntax.parser import ParsedStatement
from pessoa.ksql.system_evaluation_context import SystemEvaluationContext
from pessoa.ksql.types.sql_types import Value

_ACKNOWLEDGED_S = 30.0


class Inserter:
    def __init__(self, clients: KafkaClients, schemas: SchemaSource) -> None:
        self._clients = clients
        self._codecs = SourceCodecs(schemas)
        self._around = SystemEvaluationContext()

    def insert(self, parsed: ParsedStatement, catalogue: Catalogue) -> None:
        """Write the record of a statement, and return when brokers have acknowledged it."""
        planned = analyse(parsed, catalogue).insert
        assert planned is not None
        row, time_ms = inserted_row(planned, self._around)
        self.write(planned.target, row, time_ms)

    def write(self, target: Source, row: Mapping[str, Value], time_ms: int | None = None) -> None:
        """Write a row, and return when brokers have acknowledged it. Raises KsqlError if the row cannot be encoded,
        and KsqlProblem if no broker acknowledges it."""
        codec = self._codecs.of(target)
        key, value = encode_row(target, row, codec.key, codec.value)
        done = threading.Event()
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)
            done.set()

        producer = self._clients.producer
        producer.produce(
            target.topic, value, key, on_delivery=delivered,
            timestamp=self._around.now_ms if time_ms is None else time_ms,
        )  # fmt: skip
        deadline_s = time.monotonic() + _ACKNOWLEDGED_S
        while not done.is_set() and time.monotonic() < deadline_s:
            producer.poll(0.05)
        if failures or not done.is_set():
            why = failures[0].str() if failures else "no broker acknowledged it"
            raise KsqlProblem(SERVER_ERROR, f"Failed to insert values into '{target.name}'. {why}")
