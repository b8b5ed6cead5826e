"""Operators keep nothing outside of their state: every case has the same result when tasks are restarted.

The state is bytes, copied on every access, and rows are encoded between `prepare` and `take`, as on Spark.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pessoa.ksql.case_files import Case, read_cases
from pessoa.ksql.operators.case_runner import run_case
from tests.unit.ksql.restarting_query import RestartingQuery

CASES = [
    pytest.param(case, id=f"{path.stem}: {case.name}")
    for path in sorted((Path(__file__).parents[2] / "ksql/cases").rglob("*.case"))
    for case in read_cases(path.read_text())
    # What has no state, and what is an error, is the same anyhow.
    if case.error is None and any(word in case.statements for word in ("GROUP BY", "JOIN", "TABLE"))
]


@pytest.mark.parametrize("case", CASES)
def test_a_case_has_the_same_result_with_a_new_task_for_every_row(case: Case) -> None:
    run_case(_without_rows(case), RestartingQuery)


@pytest.mark.parametrize("case", CASES)
def test_a_case_has_the_same_result_with_tasks_restarted_at_random(case: Case) -> None:
    for seed in range(2):
        run_case(_without_rows(case), lambda *given, seed=seed: RestartingQuery(*given, chance=0.3, seed=seed))


def _without_rows(case: Case) -> Case:
    """Return the case without the expected rows of a push query, which are no records; its expected log stays."""
    return replace(case, rows=None)
