"""What every test shares: Hypothesis profiles, and how a test says that it needs Java.

Profiles: `ci` is the default and derandomised, so the same commit always runs the same examples, and a failure is
news about the code and not about luck. `fuzz` (`make fuzz`) draws new examples every time, PESSOA_FUZZ_EXAMPLES of
them, and prints the blob that replays a failure.

A test marked `apache` runs Apache Kafka's own programs. Where no Java 17 or newer is found, it is skipped with a
sentence that says so; PESSOA_REQUIRE_JAVA=1 turns the skip into a failure, for machines where Java must be there.

The folders: unit/ mirrors the package; property/ compares with dumb or foreign implementations; simulation/ runs
clusters from a seed; differential/ runs one script on Apache Kafka and on us; conformance/ runs real clients;
services/, pipelines/ and browser/ go with what they name.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

FUZZ_EXAMPLES = int(os.environ.get("PESSOA_FUZZ_EXAMPLES", "5000"))
OLDEST_JAVA = 17

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile(
    "fuzz",
    max_examples=FUZZ_EXAMPLES,
    deadline=None,
    print_blob=True,
    # With this many examples some draws are slow or large; that is the point.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("ci")


def java_version_in(text: str) -> int:
    """The feature release in what `java -version` prints: 17 for "17.0.15", 8 for "1.8.0_392", 0 if there is none."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


@cache
def java_or_reason() -> tuple[Path | None, str]:
    """The `java` to use, or None and the sentence that says why there is none."""
    java_home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{java_home}/bin") if java_home else None
    found = found or shutil.which("java")
    if found is None:
        return None, f"needs Java {OLDEST_JAVA} or newer, and there is no java on PATH or in JAVA_HOME"
    printed = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    version = java_version_in(printed)
    if version < OLDEST_JAVA:
        return None, f"needs Java {OLDEST_JAVA} or newer, and {found} is Java {version or 'of an unknown version'}"
    return Path(found), ""


@pytest.fixture(scope="session")
def java() -> Path:
    """The path of a `java` that is new enough; a test that asks for it should be marked `apache`."""
    path, reason = java_or_reason()
    if path is None:
        pytest.skip(reason)
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanting_java = [item for item in items if item.get_closest_marker("apache")]
    if not wanting_java:
        return
    path, reason = java_or_reason()
    if path is not None:
        return
    if os.environ.get("PESSOA_REQUIRE_JAVA") == "1":
        raise pytest.UsageError(f"PESSOA_REQUIRE_JAVA=1, but {len(wanting_java)} tests cannot run: {reason}")
    for item in wanting_java:
        item.add_marker(pytest.mark.skip(reason=reason))
