"""docs/CORRECTNESS.md names files and tests; they exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in (ROOT / "docs/CORRECTNESS.md").read_text().splitlines()
    if line.startswith("|") and "`" in line
]
NAMED = re.compile(r"`([^`]+)`")


def test_every_row_has_a_rule_a_file_and_a_test() -> None:
    assert len(ROWS) > 80
    assert [row for row in ROWS if len(row) != 3 or not NAMED.search(row[1]) or not NAMED.search(row[2])] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_files_and_tests_that_a_row_names_exist(row: tuple[str, str, str]) -> None:
    _, files, tests = row
    for name in NAMED.findall(files):
        where = ROOT / name if name.startswith("tests/") else ROOT / "src/pessoa" / name
        assert where.is_file(), f"{where} is named in docs/CORRECTNESS.md"
    for name in NAMED.findall(tests):
        file, _, test = name.partition("::")
        source = (ROOT / "tests" / file).read_text()
        assert re.search(rf"^(async )?def {re.escape(test)}\(", source, re.MULTILINE), f"{name} does not exist"
