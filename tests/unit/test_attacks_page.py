"""docs/ATTACKS.md has a row for each of the 25 attacks, and the tests that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split("|"))
    for line in (ROOT / "docs/ATTACKS.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| [\d–]", line)
]
TEST = re.compile(r"`([^`]+\.py)::(\w+)`")


def numbers(cell: str) -> list[int]:
    first, _, last = cell.partition("-")
    return list(range(int(first), int(last or first) + 1)) if first.isdigit() else []


def test_every_attack_has_a_row() -> None:
    assert [number for row in ROWS for number in numbers(row[0])] == list(range(1, 26))
    assert {len(row) for row in ROWS} == {4}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_tests_that_a_row_names_exist(row: tuple[str, str, str, str]) -> None:
    named = TEST.findall(row[3])
    assert named
    for file, test in named:
        source = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {test}\(", source, re.MULTILINE), f"{file}::{test} does not exist"
