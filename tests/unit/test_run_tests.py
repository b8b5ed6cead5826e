"""Which parts `make test` runs for which arguments: tools/run-tests with a Python that only records its arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPARK = "tests/streams"
COMPUTING = ("tests/unit", "tests/property")

PYTHON = """#!/bin/sh
echo "$@" >>"{calls}"
"""


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    return tmp_path / "calls"


def run(calls: Path, *arguments: str) -> list[str]:
    """Return the arguments of every pytest that tools/run-tests starts, without the first ones that all have."""
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
    seeds, browser = "tests/simulation/test_seeds.py", "tests/browser"
    ignored = " ".join(f"--ignore={path}" for path in (*COMPUTING, seeds, browser, SPARK))
    assert run(calls, *arguments) == sorted(
        (
            f"-n 2 --dist worksteal {seeds}{words}",
            f"-n 3 --dist worksteal {' '.join(COMPUTING)}{words}",
            f"-n 4 --dist worksteal {ignored}{words}",
            f"{browser} --ignore={SPARK}{words}",
            f"{SPARK}{words}",
        )
    )


@pytest.mark.parametrize("arguments", [("tests/unit",), ("-x", "tests/unit/wire"), ("-k", "a", "README.md::test_it")])
def test_if_paths_are_given_only_they_are_run(calls: Path, arguments: tuple[str, ...]) -> None:
    assert run(calls, *arguments) == [" ".join(("-n 2", *arguments))]


def test_a_dry_run_of_make_test_shows_the_command_and_does_not_run_it(calls: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    # Nothing could run with this BIN, so a line that is run after all fails.
    command = ["make", "-n", "test", f"BIN={calls.parent / 'nowhere'}"]
    shown = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert "tools/run-tests " in shown.stdout


# Fails the tests whose names stand in `names`, and passes or fails when one of them is run alone.
FAILING = """#!/bin/sh
echo "$@" >>"{calls}"
case "$*" in
*"-q "*) exit {alone} ;;
*pytest*) [ "$*" = "{killed}" ] && exit 1; echo ended >>"$PESSOA_FAILED_TESTS.ended" ;;
esac
case "$*" in
*--ignore=* | *tests/tools*) cat "{names}" >>"$PESSOA_FAILED_TESTS"; exit {code} ;;
esac
"""
RACY = ["tests/cluster/test_moves.py::test_a", "tests/conformance/test_kcat.py::test_b[1]"]


def run_failing(
    calls: Path,
    names: list[str],
    *arguments: str,
    code: int = 1,
    alone: int = 0,
    killed: str = "none",
    make: str = "true",
) -> tuple[int, str]:
    """Return the exit code and the recorded test names; `killed` are arguments of a pytest that does not run to its
    end."""
    listed, python, kept = (calls.with_name(name) for name in ("names", "python", "kept"))
    listed.write_text("".join(f"{name}\n" for name in names))
    python.write_text(FAILING.format(calls=calls, names=listed, code=code, alone=alone, killed=killed))
    python.chmod(0o755)
    environment = {**os.environ, "BIN": str(calls.parent), "MAKE": make, "PESSOA_PASSED_ONLY_ALONE": str(kept)}
    ran = subprocess.run(
        [ROOT / "tools/run-tests", "2", SPARK, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )
    retried = kept.read_text() if kept.exists() else ""
    assert ("== passed only alone:" in ran.stdout) == bool(retried)
    return ran.returncode, retried


def test_a_run_succeeds_if_its_failed_racy_tests_pass_alone_and_their_names_are_written(calls: Path) -> None:
    assert run_failing(calls, RACY) == (0, "".join(f"{name}\n" for name in RACY))
    assert [line for line in calls.read_text().splitlines() if "::" in line] == [
        f"-m pytest -q {name}" for name in RACY
    ]


def test_racy_tests_of_a_named_folder_are_run_once_more_alone(calls: Path) -> None:
    assert run_failing(calls, RACY, "tests/tools") == (0, "".join(f"{name}\n" for name in RACY))


@pytest.mark.parametrize("arguments", [(), ("tests/tools",)], ids=["whole", "a named folder"])
def test_a_run_stays_red_if_pytest_itself_failed(calls: Path, arguments: tuple[str, ...]) -> None:
    assert run_failing(calls, RACY, *arguments, code=3) == (3, "")


def test_a_run_stays_red_if_a_hanging_test_has_ended_one_of_its_parts(calls: Path) -> None:
    assert run_failing(calls, RACY, killed=f"-m pytest {SPARK}") == (1, "")


def test_a_run_stays_red_if_lint_fails_though_its_racy_tests_pass_alone(calls: Path) -> None:
    assert run_failing(calls, RACY, make="false") == (1, "".join(f"{name}\n" for name in RACY))


def test_a_file_that_cannot_be_imported_is_among_the_failed_of_a_run_that_ended(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    failed = tmp_path / "failed"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "tests.conftest", str(tmp_path)]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PESSOA_FAILED_TESTS": str(failed)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 1, ran.stdout
    assert failed.read_text().strip().endswith("test_broken.py")
    assert failed.with_name("failed.ended").read_text() == "ended\n"


@pytest.mark.parametrize(
    ("names", "code", "alone"),
    [
        pytest.param(RACY, 1, 1, id="fail alone too"),
        pytest.param(["tests/unit/log/test_rot.py::test_a"], 1, 0, id="unit"),
        pytest.param([*RACY, "tests/property/test_raft.py::test_a"], 1, 0, id="one of them a property"),
        pytest.param(["tests/simulation/test_loop.py::test_a"], 1, 0, id="simulation"),
        pytest.param(["tests/differential/test_wire_against_apache.py::test_a"], 1, 0, id="differential of decisions"),
        pytest.param([f"{RACY[0]}{number}" for number in range(9)], 1, 0, id="too many"),
        pytest.param([*RACY, "tests/unit/log/test_rot.py"], 1, 0, id="a unit test that cannot be imported"),
        pytest.param([], 1, 0, id="no failed test is named"),
    ],
)
def test_a_run_fails_if_a_second_run_does_not_prove_that_the_failure_was_a_race(
    calls: Path, names: list[str], code: int, alone: int
) -> None:
    assert run_failing(calls, names, code=code, alone=alone) == (code, "")
