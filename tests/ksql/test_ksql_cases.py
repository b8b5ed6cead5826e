"""Every case of tests/ksql/cases in the pure runtime. pessoa/ksql/case_files.py describes the format of case files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pessoa.ksql.case_files import Case, read_cases
from pessoa.ksql.functions.function_table import known_names
from pessoa.ksql.operators.case_runner import run_case

FOLDER = Path(__file__).parent / "cases"


def all_cases() -> list[tuple[str, Case]]:
    return [
        (path.relative_to(FOLDER).with_suffix("").as_posix(), case)
        for path in sorted(FOLDER.rglob("*.case"))
        for case in read_cases(path.read_text())
    ]


CASES = all_cases()
# Listed before any test runs, because some tests load user functions.
FUNCTIONS = known_names()


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{name}: {case.name}") for name, case in CASES])
def test_a_ksql_case_gives_its_expected_outputs_or_error(case: Case) -> None:
    run_case(case)


def test_every_ksql_function_is_called_in_a_case() -> None:
    text = "\n".join(case.statements.upper() for _, case in CASES)
    called = set(re.findall(r"\b([A-Z_0-9]+)\(", text))
    assert [name for name in FUNCTIONS if name not in called] == []


def test_there_are_at_least_600_cases() -> None:
    assert len(CASES) >= 600
