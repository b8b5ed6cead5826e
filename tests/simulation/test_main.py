"""The command that `make sim` runs."""

from __future__ import annotations

import subprocess
import sys


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def test_a_range_of_seeds_is_run_on_two_processes() -> None:
    finished = simulate("--seeds", "1-3", "--workers", "2")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.startswith("3 seeds, 0 failed;")


def test_running_one_seed_prints_its_plan_and_events() -> None:
    finished = simulate("--seed", "5", "--trace")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert finished.stdout.startswith("Plan(seed=5,")
    assert "nemesis: " in finished.stdout
    assert "Report(seed=5," in finished.stdout
