"""The runner of persistent queries: the interface between the ksql server and the engine that processes the records.

The server decides which queries there are (the command topic says so) and asks a runner to run them; the runner knows
no catalogue, no commands and no clients. `ksql/spark/spark_query_runner.py` runs them on Spark.

    start ─▶ STARTING ─▶ RUNNING ◀─▶ PAUSED (pause, resume)
                 └──────────┴─▶ ERROR (retried by the runner; `error` says why)
    terminate: gone from any state

A query is known by its id for as long as the command topic knows it; `start` after a restart of the server continues
where the query stopped. Methods may be called from any thread and may block; never two at once for one id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pessoa.ksql.analysis.logical_plan import LogicalPlan

RunnerState = Literal["RUNNING", "PAUSED", "ERROR", "STARTING"]


@dataclass(frozen=True)
class PersistentQuery:
    id: str
    # The statement as it stands in the command topic.
    sql: str
    plan: LogicalPlan
    # Of the statement: SET 'auto.offset.reset' and the rest, under the names without `ksql.streams.`.
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunnerStatus:
    state: RunnerState
    error: str = ""
    # "real-time" or "micro-batches", and the reason.
    speed: str = ""
    why: str = ""
    rows_per_second: float = 0.0
    # (topic, partition) → records that the query has not read.
    lag: Mapping[tuple[str, int], int] = field(default_factory=dict)
    started_ms: int = 0


class QueryRunner(Protocol):
    def start(self, query: PersistentQuery) -> None:
        """Begin to run the query; return before it has read its first record. Raises KsqlError if it cannot run."""

    def pause(self, query_id: str) -> None: ...

    def resume(self, query_id: str) -> None: ...

    def terminate(self, query_id: str, delete_state: bool) -> None:
        """Stop the query for good; with `delete_state`, delete its checkpoint and internal topics as well."""

    def status(self, query_id: str) -> RunnerStatus:
        """Return the status of the query; ERROR for an unknown id."""

    def explain(self, plan: LogicalPlan) -> list[str]:
        """Return lines for EXPLAIN: whether the plan runs in real-time mode or in micro-batches, why, and the
        engine's own plan."""

    def close(self) -> None:
        """Stop running all queries; their state is kept, and `start` continues them."""
