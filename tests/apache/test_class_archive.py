"""The class archive: Java uses it, no process waits while another makes it, and a stopped maker cleans up."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apache import class_archive
from tests.apache.jars import java

pytestmark = pytest.mark.apache


# Longer than making the archive may take: the start of its broker, and then each of its tools.
PATIENCE_S = 3 * class_archive.START_TIMEOUT_S
ROOT = Path(__file__).parents[2]

# As `python -m tests.apache.class_archive`, for an archive of the test's own.
MAKER = """
import sys
from pathlib import Path
from tests.apache import class_archive
class_archive._archive_path = lambda: Path(sys.argv[1])
class_archive.main()
"""


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:.0f} s"
        time.sleep(class_archive.POLL_INTERVAL_S)


def test_java_loads_the_classes_of_apaches_tools_from_the_class_archive() -> None:
    wait_for(class_archive.class_archive, "an archive, which another worker may be making")
    # A main class of Apache's that prints its version and ends.
    program = ("-Xlog:class+load:stdout", "org.apache.kafka.tools.TopicCommand", "--version")
    done = subprocess.run([str(java()), *class_archive.small_java(), *program], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if " org.apache.kafka.tools.TopicCommand " in line]
    assert [line.partition(" source: ")[2] for line in lines] == ["shared objects file (top)"]


def test_a_process_that_starts_while_another_makes_the_class_archive_runs_without_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "classes.jsa"
    monkeypatch.setattr(class_archive, "_archive_path", lambda: path)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert class_archive.class_archive() is None
        assert not any(flag.startswith("-XX:SharedArchiveFile") for flag in class_archive.small_java())


def test_a_process_that_is_stopped_while_it_makes_the_archive_leaves_no_java_and_no_folder(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    maker = subprocess.Popen([sys.executable, "-c", MAKER, str(archive)], cwd=ROOT, env=environment)
    try:
        wait_for(lambda: any(tmp_path.glob("*/data/meta.properties")), "a Java that has formatted a directory")
        assert len(rehearsing(tmp_path)) == 1
        maker.terminate()
        assert maker.wait(PATIENCE_S) == 128 + signal.SIGTERM
    finally:
        maker.kill()
        maker.wait()
        left = rehearsing(tmp_path)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    assert left == []
    assert [path.name for path in tmp_path.iterdir()] == ["classes.lock"]


def rehearsing(folder: Path) -> list[int]:
    """Return the processes that make an archive under the folder."""
    wanted = f"-XX:ArchiveClassesAtExit={folder}/".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(wanted) for word in words):
            found.append(int(process.name))
    return found
