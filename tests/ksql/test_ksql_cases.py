"""Every case of tests/ksql/cases, in process. A case file's form is described in pessoa/ksql/case_files.py."""

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
# Looked at before any test runs: some load functions of their own.
FUNCTIONS = known_names()


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{name}: {case.name}") for name, case in CASES])
def test_case(case: Case) -> None:
    run_case(case)


def test_every_function_is_in_a_case() -> None:
    text = "\n".join(case.statements.upper() for _, case in CASES)
    called = set(re.findall(r"\b([A-Z_0-9]+)\(", text))
    assert [name for name in FUNCTIONS if name not in called] == []


def test_there_are_at_least_600_cases() -> None:
    assert len(CASES) >= 600
