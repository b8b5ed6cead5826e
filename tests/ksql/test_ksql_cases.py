"""Every case of tests/ksql/cases, in process. A case file's form is described in pessoa/ksql/case_files.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from pessoa.ksql.case_files import Case, read_cases
from pessoa.ksql.operators.case_runner import run_case

FOLDER = Path(__file__).parent / "cases"


def all_cases() -> list[tuple[str, Case]]:
    return [
        (path.relative_to(FOLDER).with_suffix("").as_posix(), case)
        for path in sorted(FOLDER.rglob("*.case"))
        for case in read_cases(path.read_text())
    ]


CASES = all_cases()


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{name}: {case.name}") for name, case in CASES])
def test_case(case: Case) -> None:
    run_case(case)
