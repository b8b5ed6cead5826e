"""Which parts `make test` runs for which arguments: tools/run-tests with a Python that only writes down its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPARK = "tests/streams"

PYTHON = """#!/bin/sh
echo "$@" >>"{calls}"
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def run(calls: Path, *arguments: str) -> list[str]:
    """The words of every pytest that is started, without the beginning that all share."""
    python = calls.with_name("python")
    python.write_text(PYTHON.format(calls=calls))
    python.chmod(0o755)
    environment = {**os.environ, "BIN": str(calls.parent), "MAKE": "true"}
    subprocess.run([ROOT / "tools/run-tests", "2", SPARK, *arguments], env=environment, check=True, timeout=60)
    begin = "-m pytest "
    return sorted(line.removeprefix(begin) for line in calls.read_text().splitlines() if line.startswith(begin))


@pytest.mark.parametrize(
    "arguments", [(), ("-x",), ("-k", "tests"), ("-m", "docs"), ("-x", "-k", "bench"), ("--ignore", "tests/tools")]
)
def test_without_a_path_every_part_runs_with_the_arguments(calls: Path, arguments: tuple[str, ...]) -> None:
    words = "".join(f" {argument}" for argument in arguments)
    seeds = "tests/simulation/test_seeds.py"
    assert run(calls, *arguments) == sorted(
        (
            f"-n 2 --dist worksteal {seeds}{words}",
            f"-n 3 --dist worksteal --ignore={seeds} --ignore={SPARK}{words}",
            f"{SPARK}{words}",
        )
    )


@pytest.mark.parametrize("arguments", [("tests/unit",), ("-x", "tests/unit/wire"), ("-k", "a", "README.md::test_it")])
def test_the_paths_among_the_arguments_are_all_that_runs(calls: Path, arguments: tuple[str, ...]) -> None:
    assert run(calls, *arguments) == [" ".join(("-n 2", *arguments))]


def test_a_dry_run_of_make_test_shows_the_command_and_does_not_run_it(calls: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    # Nothing could run with this BIN, so a line that is run after all fails.
    command = ["make", "-n", "test", f"BIN={calls.parent / 'nowhere'}"]
    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert "tools/run-tests " in shown.stdout
