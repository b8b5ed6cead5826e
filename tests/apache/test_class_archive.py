"""The archive of classes: Java takes Apache's from it, and nobody waits for the one who makes it."""

from __future__ import annotations

import fcntl
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apache import class_archive
from tests.apache.jars import java

pytestmark = pytest.mark.apache


# Longer than a rehearsal may take: its broker's start, and then each of its tools.
PATIENCE_S = 3 * class_archive.START_TIMEOUT_S


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:.0f} s"
        time.sleep(class_archive.POLL_INTERVAL_S)


def test_java_takes_the_classes_of_a_broker_and_of_its_clients_from_the_archive() -> None:
    wait_for(class_archive.class_archive, "an archive, which another worker may be making")
    # A main class of Apache's that says its version and ends.
    program = ("-Xlog:class+load:stdout", "org.apache.kafka.tools.TopicCommand", "--version")
    done = subprocess.run([str(java()), *class_archive.small_java(), *program], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if " org.apache.kafka.tools.TopicCommand " in line]
    assert [line.partition(" source: ")[2] for line in lines] == ["shared objects file (top)"]


def test_who_comes_while_another_makes_the_archive_does_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "classes.jsa"
    monkeypatch.setattr(class_archive, "_archive_path", lambda: path)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert class_archive.class_archive() is None
        assert not any(flag.startswith("-XX:SharedArchiveFile") for flag in class_archive.small_java())
