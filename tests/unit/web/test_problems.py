"""Rows of problems: every row of every service gives the exception with its status and code."""

from __future__ import annotations

import pytest

from pessoa.rest_proxy import proxy_problems as rest_problems
from pessoa.schema_registry import registry_problems
from pessoa.web.problems import Problem

ROWS = {
    f"{module.__name__.split('.')[1]}: {name}": row
    for module in (registry_problems, rest_problems)
    for name, row in vars(module).items()
    if isinstance(row, Problem)
}


@pytest.mark.parametrize("name", ROWS)
def test_a_problem_row_makes_an_exception_with_its_status_code_and_arguments(name: str) -> None:
    row = ROWS[name]
    facts = [f"{{fact {number}}}" for number in range(row.sentence.count("{}"))]
    made = row(*facts)
    assert (made.status, made.code) == (row.status, row.code)
    assert all(fact in made.message for fact in facts)
    # A code is its status, or begins with it; 40001 is the one that v3 answers with another.
    assert str(row.code).startswith(str(row.status)) or row.code == 40001


def test_a_reference_is_shown_as_scripts_look_for_it() -> None:
    made = registry_problems.reference_exists("s", 3)
    assert "{magic=1,keytype=SCHEMA,subject=s,version=3}" in made.message


def test_a_problem_without_the_arguments_of_its_message_raises_an_error() -> None:
    with pytest.raises(AssertionError, match="not found"):
        registry_problems.subject_not_found()
