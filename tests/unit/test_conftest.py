"""The rules of tests/conftest.py, in a small test run of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SUITE = """
import pytest
from hypothesis import settings

@pytest.mark.apache
def test_needs_apache():
    pass

def test_needs_nothing():
    assert settings().derandomize is {derandomized}
    assert settings().max_examples == {examples}
"""


def run_suite(
    tmp_path: Path, environment: dict[str, str], *arguments: str, derandomized: bool = True, examples: int = 100
) -> tuple[int, str]:
    (tmp_path / "test_suite.py").write_text(SUITE.format(derandomized=derandomized, examples=examples))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest", "-c"]
    command += [str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), *arguments, str(tmp_path)]
    run = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    return run.returncode, run.stdout


@pytest.fixture
def no_java(tmp_path: Path) -> dict[str, str]:
    empty = tmp_path / "empty"
    empty.mkdir()
    return {"PATH": str(empty), "JAVA_HOME": ""}


def test_an_apache_test_is_skipped_with_a_reason_without_java(tmp_path: Path, no_java: dict[str, str]) -> None:
    code, output = run_suite(tmp_path, no_java)
    assert code == 0, output
    assert "needs Java 17 or newer" in output
    assert "1 passed, 1 skipped" in output


def test_an_apache_test_fails_without_java_if_apache_is_required(tmp_path: Path, no_java: dict[str, str]) -> None:
    code, output = run_suite(tmp_path, {**no_java, "PESSOA_REQUIRE_APACHE": "1"})
    assert code == 1, output
    assert "PESSOA_REQUIRE_APACHE=1, but: " in output


def test_the_fuzz_profile_draws_as_many_fresh_examples_as_the_environment_says(
    tmp_path: Path, no_java: dict[str, str]
) -> None:
    code, output = run_suite(
        tmp_path,
        {**no_java, "PESSOA_FUZZ_EXAMPLES": "1234"},
        "--hypothesis-profile=fuzz",
        derandomized=False,
        examples=1234,
    )
    assert code == 0, output


def test_the_names_of_failed_tests_are_written_to_the_requested_file_except_for_nested_runs(
    tmp_path: Path, no_java: dict[str, str]
) -> None:
    named = tmp_path / "failed"
    environment = {**no_java, "PESSOA_REQUIRE_APACHE": "1", "PESSOA_FAILED_TESTS": str(named)}
    assert run_suite(tmp_path, environment)[0] == 1
    assert named.read_text() == "test_suite.py::test_needs_apache\n"
    assert "PESSOA_FAILED_TESTS" not in os.environ
