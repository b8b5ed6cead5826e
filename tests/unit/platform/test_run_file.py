from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pessoa.platform.run_file import (
    AlreadyRunning,
    Run,
    RunLock,
    RunningService,
    is_ours,
    is_running,
    read_run,
    stop_orphans,
    write_run,
)

# A process that looks like one of ours, and one that does not. The last word is only looked at by its name.
OURS = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)", "pessoa"]
ANOTHER = [*OURS[:-1], "something-else"]


def service(pid: int) -> RunningService:
    return RunningService("broker-1", "localhost:9092", pid, "ready", "/log", 0.5, 2)


def test_a_run_file_is_read_back_as_written(tmp_path: Path) -> None:
    run = Run(7, "ready", 1.5, [service(8)])
    write_run(tmp_path, run)
    assert read_run(tmp_path) == run


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', '{"services": [{"name": "x"}]}'])
def test_a_damaged_run_file_counts_as_missing(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert read_run(tmp_path) is None
    assert stop_orphans(tmp_path) == []


def test_the_platform_counts_as_running_while_the_lock_is_held(tmp_path: Path) -> None:
    assert not is_running(tmp_path)
    with RunLock(tmp_path):
        write_run(tmp_path, Run(7, "ready", 1.5))
        assert is_running(tmp_path)
        with pytest.raises(AlreadyRunning, match=r"is already running in .* \(process 7\)"), RunLock(tmp_path):
            pass
    assert not is_running(tmp_path)
    assert read_run(tmp_path) is None


def test_a_stale_run_file_stops_no_process_of_another_program_that_has_the_same_pid(tmp_path: Path) -> None:
    with subprocess.Popen(ANOTHER, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        write_run(tmp_path, Run(7, "ready", 1.5, [service(process.pid)]))
        with RunLock(tmp_path):
            assert stop_orphans(tmp_path) == []
        assert process.poll() is None
        process.kill()


def test_orphans_are_stopped_and_named(tmp_path: Path) -> None:
    # Through a process that ends at once, so that init adopts it and it becomes no zombie of the test.
    code = f"from subprocess import *; print(Popen({OURS!r}, stdout=DEVNULL, stderr=DEVNULL).pid)"
    pid = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    write_run(tmp_path, Run(7, "ready", 1.5, [service(pid)]))
    with RunLock(tmp_path):
        assert stop_orphans(tmp_path) == ["broker-1"]
    assert not is_ours(pid)


def test_the_test_process_does_not_count_as_a_process_of_the_platform() -> None:
    assert not is_ours(os.getpid())
