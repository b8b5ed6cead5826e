"""Operators keep nothing outside of their state: every case gives the same when tasks are dropped and made anew.

The state is bytes, copied on every access, and rows go from `prepare` to `take` as bytes, as they do on Spark.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from pathlib import Path

import pytest

from pessoa.ksql.analysis.logical_plan import LogicalPlan
from pessoa.ksql.case_files import Case, read_cases
from pessoa.ksql.operators.case_runner import run_case
from pessoa.ksql.operators.compiled_stages import StageTask
from pessoa.ksql.operators.in_process import InProcessQuery
from pessoa.ksql.operators.query_settings import QuerySettings
from pessoa.ksql.operators.records import KafkaRecord, OutputRecord
from pessoa.ksql.operators.schema_source import SchemaSource
from pessoa.ksql.operators.state_store import MemoryState
from pessoa.ksql.operators.task_rows import TaskRow

CASES = [
    pytest.param(case, id=f"{path.stem}: {case.name}")
    for path in sorted((Path(__file__).parents[2] / "ksql/cases").rglob("*.case"))
    for case in read_cases(path.read_text())
    # What has no state, and what is an error, is the same anyhow.
    if case.error is None and any(word in case.statements for word in ("GROUP BY", "JOIN", "TABLE"))
]


class RestartingQuery(InProcessQuery):
    """A query whose tasks are made anew before a row, with a chance, and whose rows travel as bytes."""

    def __init__(
        self, plan: LogicalPlan, settings: QuerySettings, schemas: SchemaSource, partitions: Mapping[str, int] | int,
        *, chance: float = 1.0, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(plan, settings, schemas, partitions)
        self._states: dict[tuple[int, int], dict[tuple[str, bytes], bytes]] = {}
        self._chance = chance
        self._random = random.Random(seed)

    def _take(
        self, number: int, index: int, record: KafkaRecord, pending: deque[KafkaRecord], out: list[OutputRecord]
    ) -> None:
        stage = self.stages[number]
        count = self._task_counts[number]
        for row in [TaskRow.from_bytes(one.to_bytes()) for one in stage.prepare(index, record)]:
            task = self._task(number, row.task(count))
            records = task.take(row)
            if stage.output.internal:
                pending.extend(self._internal(stage.output.internal, one) for one in records)
            else:
                out.extend(records)

    def _task(self, number: int, task_number: int) -> StageTask:
        place = number, task_number
        if place not in self._tasks or self._random.random() < self._chance:
            # Other objects than before, in another dict.
            copied = {
                (str(name), bytes(key)): bytes(value) for (name, key), value in self._states.get(place, {}).items()
            }
            self._states[place] = copied
            self._tasks[place] = self.stages[number].make_task(MemoryState(copied))
        return self._tasks[place]


@pytest.mark.parametrize("case", CASES)
def test_a_case_gives_the_same_with_a_task_made_anew_for_every_row(case: Case) -> None:
    run_case(_without_rows(case), RestartingQuery)


@pytest.mark.parametrize("case", CASES)
def test_a_case_gives_the_same_with_tasks_restarted_at_random(case: Case) -> None:
    for seed in range(2):
        run_case(_without_rows(case), lambda *given, seed=seed: RestartingQuery(*given, chance=0.3, seed=seed))


def _without_rows(case: Case) -> Case:
    """Return the case without the rows of a push query, which are no records; its log stays."""
    from dataclasses import replace

    return replace(case, rows=None)
