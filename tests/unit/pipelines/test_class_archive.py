"""The class data archive of Java: created while a process runs, used by later ones with the same Java and jars."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pessoa.pipelines import class_archive
from pessoa.pipelines.class_archive import ARCHIVES_KEPT, ClassArchive
from pessoa.pipelines.jars import jar_of
from pessoa.pipelines.java import find_java
from pessoa.pipelines.spark_server import JAVA_CLASSES
from tests.support.topics import eventually


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PESSOA_CACHE", str(tmp_path))
    monkeypatch.delenv("PESSOA_CLASS_ARCHIVE", raising=False)
    monkeypatch.setattr(class_archive, "MAKE_AFTER_S", 0.01)


def archive() -> ClassArchive:
    return ClassArchive(find_java(), [jar_of(JAVA_CLASSES)])


def run_java(*options: str) -> int:
    command = [str(find_java().executable), *options, "-cp", str(jar_of(JAVA_CLASSES)), "-version"]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_an_archive_is_made_from_what_java_has_loaded_and_the_next_start_uses_it() -> None:
    first = archive()
    assert run_java(*first.options(may_make=True)) == 0
    first.make_later()
    eventually(first.path.exists)
    first.stop()
    assert archive().options(may_make=False) == [f"-XX:SharedArchiveFile={first.path}"]
    # With "on", a Java that cannot use the archive does not start.
    assert run_java("-Xshare:on", *archive().options(may_make=False)) == 0
    assert [path.name for path in first.path.parent.iterdir()] == [first.path.name]


def test_an_interrupted_class_archive_leaves_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "MAKE_AFTER_S", 600.0)
    stopped = archive()
    assert run_java(*stopped.options(may_make=True)) == 0
    stopped.make_later()
    stopped.stop()
    assert not list(stopped.path.parent.iterdir())


def test_no_class_archive_is_made_with_may_make_false_and_none_is_used_if_archives_are_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = archive()
    assert there.options(may_make=False) == []
    there.path.parent.mkdir(parents=True)
    there.path.touch()
    assert there.options(may_make=False)
    monkeypatch.setenv("PESSOA_CLASS_ARCHIVE", "off")
    assert there.options(may_make=True) == []
    monkeypatch.setenv("PESSOA_CLASS_ARCHIVE", "use")
    assert there.options(may_make=True) == [f"-XX:SharedArchiveFile={there.path}"]
    there.path.unlink()
    assert there.options(may_make=True) == []


def test_other_jars_get_another_class_archive(tmp_path: Path) -> None:
    jar = tmp_path / "some.jar"
    jar.write_bytes(b"one")
    one = ClassArchive(find_java(), [jar]).path
    jar.write_bytes(b"three")
    assert ClassArchive(find_java(), [jar]).path != one


def test_archives_that_were_not_used_for_long_are_removed_and_those_of_dead_processes_too() -> None:
    folder = archive().path.parent
    folder.mkdir(parents=True)
    for age in range(ARCHIVES_KEPT + 1):
        path = folder / f"{age}.jsa"
        path.touch()
        os.utime(path, (1e9 - age, 1e9 - age))
    ended = subprocess.Popen(["true"])
    ended.wait()
    for number in (ended.pid, os.getpid()):
        (folder / f"0.{number}.classes").touch()
    first = archive()
    assert run_java(*first.options(may_make=True)) == 0
    first.make_later()
    eventually(first.path.exists)
    first.stop()
    eventually(lambda: sorted(path.name for path in folder.glob("*.jsa")) == sorted([first.path.name, "0.jsa"]))
    assert {path.name for path in folder.glob("*.classes")} == {f"0.{os.getpid()}.classes"}
