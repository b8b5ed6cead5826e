"""A guardian's program ends with its owner, however the owner ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pessoa.pipelines import spark_server
from tests.support.service_process import children, is_alive
from tests.support.topics import eventually

GUARDIAN = Path(spark_server.__file__).with_name("guardian.py")
SLEEP = "import time; time.sleep(600)"


def test_the_guarded_program_and_its_children_end_with_the_owner() -> None:
    # The owner is a process of its own, so that it can be killed.
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); {SLEEP}"
    owner_code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-S', '-E', {str(GUARDIAN)!r}, sys.executable, '-c', {program!r}],"
        " stdin=subprocess.PIPE, start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", owner_code])
    try:
        [guardian] = eventually(lambda: children(owner.pid))
        [middle] = eventually(lambda: children(guardian))
        [last] = eventually(lambda: children(middle))
    finally:
        owner.kill()
        owner.wait()
    eventually(lambda: not any(map(is_alive, (guardian, middle, last))))


def test_a_guardian_ends_with_the_exit_code_of_its_program() -> None:
    command = [sys.executable, "-S", "-E", str(GUARDIAN), sys.executable, "-c", "raise SystemExit(7)"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guardian:
        assert guardian.wait(60) == 7
