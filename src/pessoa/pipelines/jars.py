"""The jars that Spark lacks to read and write Kafka: pinned, checked, fetched once.

PySpark's wheel brings Spark itself; its Kafka source and sink are four more jars (spark_versions.py). `fetch()` gets
those that the cache lacks. A jar gets its final name by a rename, after its SHA-256 was right, so what stands in the
cache under that name is whole: later starts trust the name and need no network. A file lock lets one process download
while others wait.

    PESSOA_CACHE   where caches live (~/.cache/pessoa); the jars are in its folder `jars`
    PESSOA_MAVEN   the root of a Maven repository to download from

Without PESSOA_MAVEN they come through Maven, if `mvn` is there (it knows its user's mirrors), or else through Ivy,
which stands among Spark's own jars: both know where the world keeps its jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import os
import shutil
import subprocess
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pessoa.pipelines.java import NoJava, find_java
from pessoa.pipelines.spark_versions import KAFKA_JARS, Jar

DOWNLOAD_TIMEOUT_S = 30
TOOL_TIMEOUT_S = 300
DOWNLOAD_ATTEMPTS = 3
CHUNK_BYTES = 1 << 16
MAVEN_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
# The most missing jars that a message names.
NAMES_SHOWN = 4


class JarsUnavailable(Exception):
    """A jar is not in the cache and cannot be downloaded; the message says what to do."""


# Called after each downloaded jar with the count so far, the total count, and the jar's bytes.
Progress = Callable[[int, int, int], None]
# Puts the jars into a folder, and yields each that has arrived.
Getter = Callable[[Sequence[Jar], Path], Iterator[Jar]]


def cache_directory() -> Path:
    configured = os.environ.get("PESSOA_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "pessoa"


def spark_jars() -> Path:
    """Return the folder of the jars in PySpark's wheel."""
    import importlib.util

    # Found without importing it: pyspark takes a second.
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsUnavailable("Pipelines run on Spark, and PySpark is not installed. Run: pip install 'pessoa[spark]'")
    return Path(spec.origin).parent / "jars"


def fetch(
    jars: Sequence[Jar] = KAFKA_JARS,
    progress: Progress = lambda *_: None,
    need: str = "Spark needs {} to speak to Kafka",
) -> list[Path]:
    """Return the jars' paths in the cache, after downloading those that are missing. Raises JarsUnavailable, whose
    message says by `need` what the jars are needed for."""
    directory = cache_directory() / "jars"
    paths = [directory / jar.file_name for jar in jars]
    if all(path.exists() for path in paths):
        return paths
    directory.mkdir(parents=True, exist_ok=True)
    with _one_process_at_a_time(directory / ".lock"):
        # Asked again under the lock: another process may have downloaded them while this one waited.
        missing = [jar for jar, path in zip(jars, paths, strict=True) if not path.exists()]
        if missing:
            _get_all(missing, directory, progress, need)
    return paths


def jar_of(folder: Path) -> Path:
    """Return a jar in the cache with the classes of a folder: Java archives no class that it loads from a folder."""
    classes = {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.class"))}
    digest = hashlib.sha256(repr(classes).encode()).hexdigest()
    directory = cache_directory() / "jars"
    jar = directory / f"pessoa-{digest[:16]}.jar"
    if not jar.exists():
        directory.mkdir(parents=True, exist_ok=True)
        partial = directory / f"{jar.name}.{os.getpid()}"
        with zipfile.ZipFile(partial, "w") as file:
            for name, content in classes.items():
                file.writestr(name, content)
        partial.rename(jar)
    return jar


@contextmanager
def _one_process_at_a_time(lock_path: Path) -> Iterator[None]:
    with lock_path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _get_all(wanted: Sequence[Jar], directory: Path, progress: Progress, need: str) -> None:
    complaints = []
    missing = list(wanted)
    for name, get in _getters():
        with TemporaryDirectory(dir=directory) as folder:
            try:
                # Each jar is kept when it arrives, so the next way need not get it again.
                for jar in get(tuple(missing), Path(folder)):
                    size = _keep(jar, Path(folder) / jar.file_name, directory)
                    missing.remove(jar)
                    progress(len(wanted) - len(missing), len(wanted), size)
            except _Failed as failure:
                complaints.append(f"{name}: {failure}")
            else:
                return
    names = [jar.file_name for jar in missing]
    more = [f"{len(names) - NAMES_SHOWN} more"] if len(names) > NAMES_SHOWN else []
    raise JarsUnavailable(
        f"{need.format(', '.join([*names[:NAMES_SHOWN], *more]))}, and could not download them "
        f"({'; '.join(complaints)}). Connect to the network once, name a Maven repository with PESSOA_MAVEN, or copy "
        f"the files to {directory}."
    )


class _Failed(Exception):
    """One way of getting the jars failed; the next one is tried."""


def _keep(jar: Jar, found: Path, directory: Path) -> int:
    digest = hashlib.sha256(found.read_bytes()).hexdigest()
    if digest != jar.sha256:
        raise _Failed(f"{jar.file_name} has the SHA-256 {digest}, which is not the pinned {jar.sha256}")
    size = found.stat().st_size
    found.rename(directory / jar.file_name)
    return size


def _getters() -> list[tuple[str, Getter]]:
    root = os.environ.get("PESSOA_MAVEN")
    if root:
        return [(root, lambda jars, folder: _download(jars, folder, root.rstrip("/")))]
    found: list[tuple[str, Getter]] = []
    if shutil.which("mvn"):
        found.append(("Maven", _with_maven))
    return [*found, ("Ivy", _with_ivy)]


def _download(jars: Sequence[Jar], folder: Path, root: str) -> Iterator[Jar]:
    for jar in jars:
        url = f"{root}/{jar.path_in_repository}"
        for attempt in range(1, DOWNLOAD_ATTEMPTS + 1):
            try:
                _copy(url, folder / jar.file_name)
                break
            except (OSError, ValueError, http.client.HTTPException) as error:
                if attempt == DOWNLOAD_ATTEMPTS:
                    raise _Failed(f"{url}: {error}") from error
        yield jar


def _copy(url: str, target: Path) -> None:
    # The root is the user's own setting: file:// is as welcome as https://.
    with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as response, target.open("wb") as file:  # noqa: S310
        while chunk := response.read(CHUNK_BYTES):
            file.write(chunk)


def _with_maven(jars: Sequence[Jar], folder: Path) -> Iterator[Jar]:
    """Get all jars with one call of Maven, which downloads those that its local repository lacks."""
    pom = folder / "pom.xml"
    pom.write_text(_pom(jars, folder), encoding="utf-8")
    _run_download(["mvn", "--batch-mode", "--quiet", "--file", str(pom), f"{MAVEN_PLUGIN}:copy"], folder, jars)
    yield from jars


def _pom(jars: Sequence[Jar], folder: Path) -> str:
    items = "".join(
        f"<artifactItem><groupId>{jar.group}</groupId><artifactId>{jar.artifact}</artifactId>"
        f"<version>{jar.version}</version></artifactItem>"
        for jar in jars
    )
    group, artifact, version = MAVEN_PLUGIN.split(":")
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>pessoa</groupId><artifactId>jars</artifactId>"
        "<version>1</version><packaging>pom</packaging><build><plugins><plugin>"
        f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"<configuration><artifactItems>{items}</artifactItems><outputDirectory>{folder}</outputDirectory>"
        "</configuration></plugin></plugins></build></project>"
    )


def _with_ivy(jars: Sequence[Jar], folder: Path) -> Iterator[Jar]:
    try:
        java = find_java()
    except NoJava as missing:
        raise _Failed(str(missing)) from None
    ivy = next(spark_jars().glob("ivy-*.jar"), None)
    if ivy is None:
        raise _Failed("Spark's jars have no Ivy among them")
    wanted = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false"'
        ' conf="default->master"/>'
        for jar in jars
    )
    module = folder / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="pessoa" module="jars"/>'
        f"<dependencies>{wanted}</dependencies></ivy-module>",
        encoding="utf-8",
    )
    words = ["-ivy", str(module), "-cache", str(folder / "ivy"), "-types", "jar", "-warn"]
    pattern = f"{folder}/[artifact]-[revision].[ext]"
    command = [str(java.executable), "-cp", str(ivy), "org.apache.ivy.Main", *words, "-retrieve", pattern]
    _run_download(command, folder, jars)
    yield from jars


def _run_download(command: list[str], folder: Path, jars: Sequence[Jar]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, cwd=folder, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise _Failed(str(failure)) from failure
    absent = [jar.file_name for jar in jars if not (folder / jar.file_name).exists()]
    if done.returncode or absent:
        output_lines = (done.stdout + done.stderr).strip().splitlines()
        raise _Failed(output_lines[-1] if output_lines else f"{absent[0]} did not come")
