"""INSERT INTO … VALUES, and the lines of /inserts-stream: a row becomes a record of the source's topic."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, Message

from pessoa.ksql.analysis.analyser import analyse
from pessoa.ksql.analysis.source_catalogue import Catalogue, Source
from pessoa.ksql.evaluate.expression_functions import compile_expression
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.server.kafka_clients import KafkaClients
from pessoa.ksql.server.ksql_problems import BAD_STATEMENT, SERVER_ERROR, KsqlProblem
from pessoa.ksql.server.push_queries import SystemSurroundings
from pessoa.ksql.server.source_codecs import SourceCodecs
from pessoa.ksql.syntax.parser import ParsedStatement
from pessoa.ksql.types.evaluation_failures import EvaluationFailure
from pessoa.ksql.types.sql_types import Value

_ACKNOWLEDGED_S = 30.0


class Inserter:
    def __init__(self, clients: KafkaClients, schemas: SchemaSource) -> None:
        self._clients = clients
        self._codecs = SourceCodecs(schemas)
        self._around = SystemSurroundings()

    def insert(self, parsed: ParsedStatement, catalogue: Catalogue) -> None:
        """Write the record of a statement, and return when brokers have it."""
        planned = analyse(parsed, catalogue).insert
        assert planned is not None
        row: dict[str, Value] = {}
        try:
            for name, typed in planned.columns:
                row[name] = compile_expression(typed, self._around)({})
            rowtime = None if planned.rowtime is None else compile_expression(planned.rowtime, self._around)({})
        except EvaluationFailure as failure:
            raise KsqlProblem(BAD_STATEMENT, f"Failed to insert values into '{planned.target.name}'. {failure}",
                              parsed.text) from None  # fmt: skip
        assert rowtime is None or isinstance(rowtime, int)
        self.write(planned.target, row, rowtime, parsed.text)

    def write(self, target: Source, row: Mapping[str, Value], rowtime: int | None, text: str | None = None) -> None:
        """Write a row, and return when brokers have it; a KsqlProblem if they have not."""
        codec = self._codecs.of(target)
        key = codec.encode_key([row.get(one.name) for one in target.key])
        values = [row.get(one.name) for one in target.value]
        value = codec.encode_value(values)
        done = threading.Event()
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)
            done.set()

        producer = self._clients.producer
        producer.produce(
            target.topic, value, key, on_delivery=delivered,
            timestamp=rowtime if rowtime is not None else time.time_ns() // 1_000_000,
        )  # fmt: skip
        deadline_s = time.monotonic() + _ACKNOWLEDGED_S
        while not done.is_set() and time.monotonic() < deadline_s:
            producer.poll(0.05)
        if failures or not done.is_set():
            why = failures[0].str() if failures else "no broker acknowledged it"
            raise KsqlProblem(SERVER_ERROR, f"Failed to insert values into '{target.name}'. {why}", text)
