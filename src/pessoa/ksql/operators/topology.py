"""A query as stages: each takes records of topics, and ends where rows must be repartitioned behind state.

    source topics ─ Stage.prepare ─ rows ─ (shuffle by TaskRow.task) ─ Task.take ─ sink topic, or internal topic ─ …

- `Stage.prepare` has no state and can run anywhere. It gives each row the key that decides about its task.
- A `Task` has the state of one partition, stream time included, and nothing beside it: a task that is made anew from
  the same state goes on as if nothing had happened.
- An internal topic is Kafka Streams' repartition topic: a later stage reads it as one of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.analysis.source_catalogue import Source
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord, OutputRecord
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.operators.state_store import StateStore
from pessoa.ksql.operators.task_rows import TaskRow


@dataclass(frozen=True)
class StageInput:
    """A topic that a stage reads: a source's, or an internal one of an earlier stage."""

    # None: internal.
    source: Source | None
    # Of an internal topic: its name's suffix, which `StageOutput.internal` of the earlier stage has too.
    internal: str = ""
    # Whether rows are given a new key, and so may change their task.
    repartitioned: bool = False

    @property
    def topic(self) -> str:
        """The topic's name; for an internal topic, its suffix."""
        return self.internal if self.source is None else self.source.topic


@dataclass(frozen=True)
class StageOutput:
    """The destination of a stage's records: the query's sink (a source, or None for a push query), or an internal
    topic."""

    sink: Source | None = None
    internal: str = ""


class Task(Protocol):
    def take(self, row: TaskRow) -> list[OutputRecord]:
        """Process a row: return its output records, and update the state. Rows must arrive in stream order."""


class Stage(Protocol):
    @property
    def inputs(self) -> tuple[StageInput, ...]: ...

    @property
    def output(self) -> StageOutput: ...

    @property
    def has_state(self) -> bool:
        """Whether the order of rows and the state matter; if False, any process may take any row."""

    def prepare(self, input_index: int, record: KafkaRecord) -> list[TaskRow]:
        """Return the rows of a record of that input: none, if it is filtered out or cannot be read."""

    def make_task(self, state: StateStore) -> Task: ...

    def task_count(self, partitions: Mapping[str, int]) -> int:
        """Return how many tasks the stage has, given the partitions of every topic (`StageInput.topic`)."""


@dataclass(frozen=True)
class Topology:
    # Each stage reads only sources and stages before it; the last one writes the sink.
    stages: tuple[Stage, ...]


def build_topology(plan: LogicalPlan, settings: QuerySettings, schemas: SchemaSource) -> Topology:
    """Return the stages of a query, with everything compiled that does not depend on records."""
    from pessoa.ksql.operators.topology_builder import TopologyBuilder

    return TopologyBuilder(plan, settings, schemas).build()
