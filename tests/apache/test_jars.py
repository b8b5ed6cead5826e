"""The lock file, and the search for Java. Downloading jars is tested with Spark's jars."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apache import jars


def test_every_locked_jar_has_a_complete_checksum_and_a_unique_file_name() -> None:
    locked = jars.locked()
    assert len({jar.file_name for jar in locked}) == len(locked) > 40
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in locked)


def test_every_kafka_jar_has_the_same_version() -> None:
    versions = {jar.version for jar in jars.locked() if jar.group == "org.apache.kafka"}
    assert versions == {jars.KAFKA_VERSION}


@pytest.mark.parametrize(
    ("printed", "version"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_292"', 8), ("no such thing", 0)],
)
def test_the_java_version_is_parsed_from_the_output_of_java(tmp_path: Path, printed: str, version: int) -> None:
    fake = tmp_path / "java"
    fake.write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
    fake.chmod(0o755)
    assert jars.java_version(fake) == version


def test_the_java_version_of_a_missing_program_is_0(tmp_path: Path) -> None:
    assert jars.java_version(tmp_path / "java") == 0


def test_the_error_without_java_names_where_it_was_searched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java, reason = jars.search_java()
    assert java is None
    assert reason == "Apache Kafka 4.3.1 needs Java 17 or newer: JAVA_HOME has none; PATH has none."


def test_an_old_java_home_is_skipped_for_a_newer_java_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for folder, version in (("home/bin", "11.0.2"), ("path", "21.0.1")):
        fake = tmp_path / folder / "java"
        fake.parent.mkdir(parents=True)
        fake.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        fake.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    assert jars.search_java() == (tmp_path / "path" / "java", None)
