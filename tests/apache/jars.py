"""The jars of Apache Kafka, pinned, and the Java that runs them.

`jars.lock` names every jar and its SHA-256. `fetch()` gets those that the cache lacks: with Maven, which knows where
its repository is, or from the root that PESSOA_MAVEN names. A jar gets its final name only after its checksum was
right, by a rename, so whatever stands in the cache under its final name is whole: later runs trust the name and need
no network. A file lock lets several test processes ask at once while one of them downloads.

    PESSOA_CACHE   where caches live           (~/.cache/pessoa); the jars are in its folder `jars`
    PESSOA_MAVEN   the root of a repository to download from, instead of asking `mvn`

`python -m tests.apache.jars` fills the cache and prints the class path.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

KAFKA_VERSION = "4.3.1"
LOCK_FILE = Path(__file__).with_name("jars.lock")

# Apache Kafka 4 brokers and tools are compiled for Java 17.
OLDEST_JAVA = 17
PARALLEL_DOWNLOADS = 6
DOWNLOAD_TIMEOUT_S = 30
DOWNLOAD_ATTEMPTS = 3
CHUNK_BYTES = 1 << 16
DEPENDENCY_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
MAVEN_TIMEOUT_S = 300


class JarsUnavailableError(Exception):
    """A jar is neither in the cache nor to be had from the repository; the message is a sentence for the reader."""


@dataclass(frozen=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path_in_repository(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


def locked(lock_file: Path = LOCK_FILE) -> list[Jar]:
    """Every jar of the lock file, in its order."""
    jars = []
    for line in lock_file.read_text(encoding="ascii").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        coordinate, sha256 = line.split()
        group, artifact, version = coordinate.split(":")
        jars.append(Jar(group, artifact, version, sha256))
    return jars


def cache_directory() -> Path:
    configured = os.environ.get("PESSOA_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "pessoa"


def fetch(jars: list[Jar] | None = None) -> list[Path]:
    """Returns the jars' paths in the cache after downloading those that are missing. Raises JarsUnavailableError."""
    wanted = locked() if jars is None else jars
    directory = cache_directory() / "jars"
    paths = [directory / jar.file_name for jar in wanted]
    if all(path.exists() for path in paths):
        return paths
    directory.mkdir(parents=True, exist_ok=True)
    with _one_process_at_a_time(directory / ".lock"):
        # Asked again under the lock: another process may have downloaded them while this one waited.
        missing = [(jar, path) for jar, path in zip(wanted, paths, strict=True) if not path.exists()]
        if missing:
            _get_all(missing)
    return paths


def classpath() -> str:
    return os.pathsep.join(str(path) for path in fetch())


@contextmanager
def _one_process_at_a_time(lock_path: Path) -> Iterator[None]:
    with lock_path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _get_all(missing: list[tuple[Jar, Path]]) -> None:
    root = os.environ.get("PESSOA_MAVEN")
    if root:
        _download_all(missing, root.rstrip("/"))
    else:
        _copy_with_maven(missing)


def _copy_with_maven(missing: list[tuple[Jar, Path]]) -> None:
    """One call of Maven for all of them; it downloads what its own repository on this machine lacks."""
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError("Maven (mvn) is not on PATH, and PESSOA_MAVEN names no repository.")
    progress = _Progress(len(missing))
    with TemporaryDirectory(dir=missing[0][1].parent) as folder:
        pom = Path(folder) / "pom.xml"
        pom.write_text(_pom([jar for jar, _ in missing], folder), encoding="utf-8")
        command = [maven, "--batch-mode", "--quiet", "--file", str(pom), f"{DEPENDENCY_PLUGIN}:copy"]
        copied = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_TIMEOUT_S)
        if copied.returncode:
            raise JarsUnavailableError(f"Maven could not get them: {copied.stdout.strip()[-500:]}")
        for jar, path in missing:
            found = Path(folder) / jar.file_name
            _check(hashlib.sha256(found.read_bytes()).hexdigest(), jar, jar.file_name)
            progress.jar_done(found.stat().st_size)
            found.rename(path)
    progress.close()


def _pom(jars: list[Jar], folder: str) -> str:
    items = "".join(
        f"<artifactItem><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version></artifactItem>"
        for jar in jars
    )
    plugin_group, plugin_artifact, plugin_version = DEPENDENCY_PLUGIN.split(":")
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>pessoa</groupId><artifactId>jars</artifactId>"
        "<version>1</version><packaging>pom</packaging><build><plugins><plugin>"
        f"<groupId>{plugin_group}</groupId><artifactId>{plugin_artifact}</artifactId><version>{plugin_version}</version>"
        f"<configuration><artifactItems>{items}</artifactItems><outputDirectory>{folder}</outputDirectory>"
        "</configuration></plugin></plugins></build></project>"
    )


def _check(sha256: str, jar: Jar, name: str) -> None:
    if sha256 != jar.sha256:
        raise JarsUnavailableError(f"{name} has the SHA-256 {sha256}, and the lock file demands {jar.sha256}.")


def _download_all(missing: list[tuple[Jar, Path]], root: str) -> None:
    progress = _Progress(len(missing))
    with ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool:
        for done in [pool.submit(_download, jar, path, root, progress) for jar, path in missing]:
            try:
                done.result()
            except JarsUnavailableError:
                pool.shutdown(cancel_futures=True)
                raise
    progress.close()


def _download(jar: Jar, path: Path, root: str, progress: _Progress) -> None:
    url = f"{root}/{jar.path_in_repository}"
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        for attempt in range(1, DOWNLOAD_ATTEMPTS + 1):
            try:
                sha256 = _copy(url, partial)
                break
            except (OSError, http.client.HTTPException) as error:
                if attempt == DOWNLOAD_ATTEMPTS:
                    raise JarsUnavailableError(f"{url} could not be downloaded: {error}.") from error
        _check(sha256, jar, url)
        size = partial.stat().st_size
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)
    progress.jar_done(size)


def _copy(url: str, target: Path) -> str:
    """Downloads into the file and returns the SHA-256 of what came."""
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as response, target.open("wb") as file:
        while chunk := response.read(CHUNK_BYTES):
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


class _Progress:
    """One line on standard error that grows on a terminal; elsewhere only its last state is printed."""

    def __init__(self, total_count: int) -> None:
        self._total_count = total_count
        self._done_count = 0
        self._done_bytes = 0
        self._mutex = threading.Lock()

    def jar_done(self, size: int) -> None:
        with self._mutex:
            self._done_count += 1
            self._done_bytes += size
            if sys.stderr.isatty():
                print(f"\r{self}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        print(f"\r{self}" if sys.stderr.isatty() else str(self), file=sys.stderr, flush=True)

    def __str__(self) -> str:
        megabytes = self._done_bytes / 1e6
        return f"Apache Kafka {KAFKA_VERSION}: {self._done_count}/{self._total_count} jars, {megabytes:.1f} MB"


def java() -> Path | None:
    """The `java` to run: that of JAVA_HOME, then that of PATH, if it is new enough. See `why_no_java`."""
    return _found_java()[0]


def why_no_java() -> str | None:
    """A sentence about why `java()` is None; None where there is one."""
    return _found_java()[1]


@functools.cache
def _found_java() -> tuple[Path | None, str | None]:
    return search_java()


def search_java() -> tuple[Path | None, str | None]:
    """Looks anew: the `java`, or None and the sentence that says where it was looked for."""
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
    """The feature release (17 for "17.0.15", 8 for "1.8.0_292"), or 0 if the program does not answer."""
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', answer)
    return int(match[1]) if match else 0


def javac() -> Path | None:
    """The compiler that stands beside `java()`; a runtime alone has none."""
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


@functools.cache
def why_unavailable() -> str | None:
    """A sentence about why Apache Kafka cannot be run here (no Java, no compiler, no jars); None where it can.

    Asking downloads the jars, so that a test which goes on after None does not wait in the middle.
    """
    if (reason := why_no_java()) is not None:
        return reason
    if not has_javac():
        return f"The judge is compiled with javac, and {java()} has none beside it."
    try:
        fetch()
    except JarsUnavailableError as missing:
        return f"The jars of Apache Kafka {KAFKA_VERSION} are not in {cache_directory()}, and {missing}"
    return None


if __name__ == "__main__":
    print(classpath())
