"""The jars of Apache Kafka, pinned, and the Java that runs them.

`jars.lock` names every jar and its SHA-256. `fetch()` downloads those that the cache lacks, like Spark's jars: see
`pessoa.pipelines.jars`, also for PESSOA_CACHE and PESSOA_MAVEN. `python -m tests.apache.jars` fills the cache and
prints the class path.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile

from pessoa.pipelines import jars as pinned
from pessoa.pipelines.jars import JarsUnavailable
from pessoa.pipelines.spark_versions import Jar

KAFKA_VERSION = "4.3.1"
LOCK_FILE = Path(__file__).with_name("jars.lock")

# Apache Kafka 4 brokers and tools are compiled for Java 17.
OLDEST_JAVA = 17


def locked(lock_file: Path = LOCK_FILE) -> list[Jar]:
    """Return every jar of the lock file, in its order."""
    jars = []
    for line in lock_file.read_text(encoding="ascii").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        coordinate, sha256 = line.split()
        group, artifact, version = coordinate.split(":")
        jars.append(Jar(group, artifact, version, sha256))
    return jars


def fetch(jars: Sequence[Jar] | None = None) -> list[Path]:
    """Return the jars' paths in the cache after downloading the missing ones. May raise JarsUnavailable."""
    return pinned.fetch(locked() if jars is None else jars, _tell, f"Apache Kafka {KAFKA_VERSION} needs {{}} to run")


def _tell(count: int, total: int, size: int) -> None:
    """Print the progress in one line on a terminal; elsewhere print only the end of the download."""
    if sys.stderr.isatty() or count == total:
        ends_line = count == total or not sys.stderr.isatty()
        line = f"\rApache Kafka {KAFKA_VERSION}: {count}/{total} jars"
        print(line, end="\n" if ends_line else "", file=sys.stderr, flush=True)


def classpath() -> str:
    return os.pathsep.join(str(path) for path in fetch())


def java() -> Path | None:
    """Return the `java` of JAVA_HOME, or of PATH, if it is new enough; else None, see `why_no_java`."""
    return _found_java()[0]


def why_no_java() -> str | None:
    """Return a sentence about why `java()` is None, or None if there is a Java."""
    return _found_java()[1]


@functools.cache
def _found_java() -> tuple[Path | None, str | None]:
    return search_java()


def search_java() -> tuple[Path | None, str | None]:
    """Search for Java without the cache: return it, or None and a sentence about where it was searched."""
    looked = []
    for place, found in (("JAVA_HOME", _java_of_home()), ("PATH", shutil.which("java"))):
        if found is None:
            looked.append(f"{place} has none")
            continue
        version = java_version(Path(found))
        if version >= OLDEST_JAVA:
            return Path(found), None
        looked.append(f"{place} has {found}, which " + (f"is Java {version}" if version else "does not run"))
    return None, f"Apache Kafka {KAFKA_VERSION} needs Java {OLDEST_JAVA} or newer: {'; '.join(looked)}."


def _java_of_home() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else None


def java_version(executable: Path) -> int:
    """Return the feature release (17 for "17.0.15", 8 for "1.8.0_292"), or 0 if the program does not run."""
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else 0


def javac() -> Path | None:
    """Return the compiler beside `java()`; a runtime environment has none."""
    runtime = java()
    if runtime is None:
        return None
    # A distribution's java is a link to the real one, and links javac only if the compiler is installed.
    for directory in (runtime.parent, runtime.resolve().parent):
        compiler = directory / "javac"
        if compiler.exists():
            return compiler
    return None


def has_javac() -> bool:
    return javac() is not None


class DoesNotCompile(Exception):
    """Our Java sources do not compile; the message has the output of the compiler."""


@functools.cache
def own_jar() -> Path:
    """Return the jar of our own Java programs beside this file, making it first if the cache lacks it."""
    sources = sorted(Path(__file__).parent.glob("*/*.java"))
    text = b"".join(path.read_bytes() for path in (*sources, LOCK_FILE))
    cache = pinned.cache_directory()
    jar = cache / f"tests-apache-{hashlib.sha256(text).hexdigest()[:16]}.jar"
    if jar.exists():
        return jar
    compiler = javac()
    if compiler is None:
        raise DoesNotCompile(f"{sources[0].name} is compiled with javac, and {java()} has none beside it.")
    path = classpath()
    with TemporaryDirectory(dir=cache) as scratch:
        classes = Path(scratch) / "classes"
        # Compiled for the oldest supported Java, because the cache is kept when Java changes.
        release = ["--release", str(OLDEST_JAVA), "-proc:none"]
        command = [str(compiler), *release, "-d", str(classes), "-cp", path, *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise DoesNotCompile(f"The compiler says:\n{done.stderr}")
        made = Path(scratch) / jar.name
        with ZipFile(made, "w") as archive:
            for path_of_class in sorted(classes.rglob("*.class")):
                archive.write(path_of_class, path_of_class.relative_to(classes))
        # Another process made the same jar first; keep that one, because the class archive checks the jar's time.
        with contextlib.suppress(FileExistsError):
            os.link(made, jar)
    return jar


@functools.cache
def why_unavailable() -> str | None:
    """Return a sentence about why Apache Kafka cannot run here (no Java, no compiler, no jars), or None if it can.

    This downloads the jars, so that a test which continues does not wait for them later.
    """
    if (reason := why_no_java()) is not None:
        return reason
    if not has_javac():
        return f"The judge is compiled with javac, and {java()} has none beside it."
    try:
        fetch()
    except JarsUnavailable as missing:
        return str(missing)
    return None


if __name__ == "__main__":
    print(classpath())
