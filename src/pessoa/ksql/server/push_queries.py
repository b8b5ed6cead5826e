"""Push queries: SELECT … EMIT CHANGES, run in this process for one client until it goes (docs/decisions/0017).

Each has a thread with a consumer of its own (`topic_reader.py`), which feeds the pure runtime of
`ksql/operators/in_process.py`; state lives in memory and ends with the query. Streams begin where `auto.offset.reset`
says; tables that are joined are read from their first record, since a join needs what they hold. The offsets are found
before the client is told that its query runs: with `latest` it sees every row that is written from then on.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pessoa.ksql.analysis.logical_plan import JoinStep, LogicalPlan, ReadSource, Step
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord, ProcessingFailure, QueryFailure
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.server.kafka_clients import KafkaClients, KafkaRefused
from pessoa.ksql.server.ksql_problems import TOO_MANY_PUSH_QUERIES, KsqlProblem
from pessoa.ksql.server.ksql_state import sources_of
from pessoa.ksql.server.query_rows import ResultRow, RowFeed
from pessoa.ksql.server.topic_reader import SourceReader
from pessoa.ksql.syntax.statement_nodes import SourceKind
from pessoa.ksql.system_evaluation_context import SystemEvaluationContext

if TYPE_CHECKING:
    from pessoa.ksql.operators.in_process import InProcessQuery

log = logging.getLogger("pessoa.ksql")
processing_log = logging.getLogger("processing")

_RESET = "auto.offset.reset"


class RunningQuery:
    """A push query, or a pull query over a stream (`to_end`), whose rows go to one client."""

    def __init__(
        self, query_id: str, sql: str, plan: LogicalPlan, reader: SourceReader, make: InProcessQuery, feed: RowFeed
    ) -> None:
        self.id = query_id
        self.sql = sql
        self.plan = plan
        self.feed = feed
        self._reader = reader
        self._query = make
        self._thread = threading.Thread(target=self._run, name=query_id, daemon=True)

    def __repr__(self) -> str:
        return f"<RunningQuery {self.id} {self.feed!r}>"

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Signal the thread to end; its consumer closes soon after."""
        self.feed.close()
        self._reader.stop.set()

    def _run(self) -> None:
        left = self.plan.limit
        try:
            if left == 0:
                self._reader.close()
                self.feed.end(limit=True)
                return
            for batch in self._reader.read():
                rows = list(self._rows_of(batch))
                if left is not None:
                    rows = rows[:left]
                    left -= len(rows)
                if self.feed.closed.is_set() or (rows and not self.feed.put(rows)):
                    # /close-query leaves a client that waits for the end.
                    break
                if left == 0:
                    self.feed.end(limit=True)
                    return
            self.feed.end()
        except (QueryFailure, KafkaRefused) as failure:
            self.feed.end(str(failure))
        except Exception as failure:
            log.exception("the query %s failed", self.id)
            self.feed.end(f"the query failed: {failure}")

    def _rows_of(self, batch: list[KafkaRecord]) -> Iterator[ResultRow]:
        for record in batch:
            self._query.take(record)
            for row in self._query.rows:
                yield ResultRow(row.values, row.is_tombstone)


class PushQueries:
    """The push queries that run on this server."""

    def __init__(self, clients: KafkaClients, schemas: SchemaSource, most: int, default_reset: str) -> None:
        self._clients = clients
        self._schemas = schemas
        self._limit = most
        self._default_reset = default_reset
        self._lock = threading.Lock()
        self._running: dict[str, RunningQuery] = {}

    def __repr__(self) -> str:
        return f"<PushQueries {sorted(self._running)}>"

    def listed(self) -> list[tuple[str, str]]:
        return [(one.id, one.sql) for one in list(self._running.values())]

    def start(
        self, sql: str, plan: LogicalPlan, properties: Mapping[str, str], feed: RowFeed, *, to_end: bool = False
    ) -> RunningQuery:
        """Start a query. Raises KsqlProblem or KafkaRefused if it cannot begin."""
        from pessoa.ksql.operators.in_process import InProcessQuery

        with self._lock:
            if len(self._running) >= self._limit and not to_end:
                raise KsqlProblem(
                    TOO_MANY_PUSH_QUERIES,
                    f"Maximum number of push queries exceeded: max.push.queries is {self._limit}. Close others first.",
                    sql,
                )
        first = next(sources_of(plan.root))
        query_id = f"transient_{first.name}_{secrets.randbits(62)}"
        begins = _start_positions(plan, to_end or properties.get(_RESET, self._default_reset) == "earliest")
        reader = SourceReader(self._clients, begins, f"_confluent-ksql-{query_id}", to_end=to_end)
        reader.open()
        settings = QuerySettings(SystemEvaluationContext(), _log_failure, dict(properties))
        try:
            made = InProcessQuery(plan, settings, self._schemas, reader.partitions)
        except Exception:
            reader.close()
            raise
        running = RunningQuery(query_id, sql, plan, reader, made, feed)
        with self._lock:
            self._running[query_id] = running
        running.start()
        return running

    def close(self, query_id: str) -> bool:
        """End a query. Return False if there is none of this id."""
        with self._lock:
            running = self._running.pop(query_id, None)
        if running is None:
            return False
        running.close()
        return True

    def close_all(self) -> None:
        for query_id, _ in self.listed():
            self.close(query_id)


def _start_positions(plan: LogicalPlan, from_start: bool) -> dict[str, bool]:
    joined = _joined_tables(plan.root)
    return {one.topic: from_start or one.name in joined for one in sources_of(plan.root)}


def _joined_tables(step: Step) -> set[str]:
    match step:
        case ReadSource():
            return set()
        case JoinStep():
            return {one.name for one in sources_of(step) if one.kind is SourceKind.TABLE}
    return _joined_tables(step.below)


def _log_failure(failure: ProcessingFailure) -> None:
    processing_log.warning(
        "%s: %s (%s-%d at %d)", failure.kind.name, failure.message, failure.topic, failure.partition, failure.offset
    )
