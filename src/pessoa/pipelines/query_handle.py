"""One query of an engine while the engine has it: what was asked for, what it is doing, and what is tried next.

Its fields are the engine's to change, under the engine's lock (engine.py); `status` may be asked by any thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pessoa.pipelines.launching import speed_of
from pessoa.pipelines.plan_topics import topics_written
from pessoa.pipelines.queries import QuerySpec, QueryStatus, State, Target
from pessoa.pipelines.query_progress import Progress
from pessoa.pipelines.topic_ids import topics_read

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Query:
    def __init__(self, spec: QuerySpec, target: Target) -> None:
        self.spec = spec
        self.target: Target = target
        self.state: State = "STARTING" if target == "RUNNING" else target
        self.error = ""
        self.progress = Progress()
        # All restarts, and those in a row without a batch between them.
        self.restarts = 0
        self.attempts = 0
        self.next_start_s = 0.0
        # Whether the topic that an exactly-once query needs was seen since it last failed.
        self.has_markers = False
        # Whether the topics that it reads were seen to be those that it began with, since it last ran.
        self.has_topics = False
        # The partitions of the topics that it reads, if it was asked since it last failed; and the task slots it holds.
        self.partitions: Mapping[str, int] | None = None
        self.task_slots = 0
        # Whether the running query loads the tables, and whether they are loaded for the next start.
        self.is_loading = False
        self.has_loaded = False
        # Whether it is being deleted: no other request may change it any more.
        self.is_leaving = False
        # Spark's query, while there is one.
        self.running: StreamingQuery | None = None
        self.first_batch_id = -1
        self.next_report_s = 0.0

    def __repr__(self) -> str:
        return f"<Query {self.spec.id} {self.state}, batch {self.progress.batch_id}>"

    @property
    def is_prepared(self) -> bool:
        has_markers = self.has_markers or self.spec.delivery != "exactly-once"
        has_topics = self.has_topics or not self.topics()
        return has_topics and has_markers and (self.partitions is not None or not self.is_real_time)

    @property
    def is_real_time(self) -> bool:
        return speed_of(self.spec) == "real-time"

    def topics(self) -> set[str]:
        """Return the topics that the query reads, as far as its plan or progress show; none for connectors, which
        have their own."""
        if self.spec.writer is not None or self.spec.table is not None:
            return set()
        return topics_read(self.spec.plan) | {topic for topic, _, _ in self.progress.offsets}

    def doing(self) -> str:
        """Return the backlog or the tables that the query reads before it is up to date; empty if there are none."""
        if self.running is None:
            return ""
        if not self.is_loading:
            return self.progress.catching_up()
        return f"reads the tables that it looks up first: {self.progress.state_rows:,} rows are there"

    def is_due(self) -> bool:
        """Whether the query should run, does not, and its restart pause is over."""
        should_run = self.target == "RUNNING" and self.state != "FAILED"
        return should_run and self.running is None and time.monotonic() >= self.next_start_s

    def status(self) -> QueryStatus:
        plan = self.spec.plan
        sinks = {self.spec.topic or "", *(topics_written(plan) if plan is not None else ())} - {""}
        return QueryStatus(
            self.spec.id, self.state, self.spec.delivery, speed_of(self.spec), self.restarts, self.error,
            self.spec.group, self.progress, self.task_slots if self.running is not None else 0, self.doing(),
            tuple(sorted(self.topics())), tuple(sorted(sinks)),
        )  # fmt: skip
