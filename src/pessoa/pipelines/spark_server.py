"""Spark as a child process: a Spark Connect server that lives exactly as long as the process that started it.

    SparkServer.start(home)  ──►  guardian ──► java … SparkConnectServer        log: <home>/spark.log
    server.session()         ──►  a session over gRPC on the loopback, behind a token

The server is started with `java` itself, not with spark-submit: that wants a module which small runtimes lack. The port
is the system's to choose, and is read from the server's log. A process that reaches the port could run code as our
user, so the server demands a token that only this process and its children know.

`local[*]` uses all cores of this machine, with room for more tasks than cores (task_slots.py). For a Spark cluster,
`spark.master` names it, or the pipelines are pointed at a server that is run elsewhere (`spark.remote`), and then there
is nothing to start here.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pessoa.pipelines.class_archive import ClassArchive
from pessoa.pipelines.jars import JarsUnavailable, Progress, fetch, jar_of, spark_jars
from pessoa.pipelines.java import Java, find_java, options
from pessoa.pipelines.task_slots import with_room

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOST = "127.0.0.1"
MAIN_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
# Our own, for Spark's producers and its files: the sources, and what `javac --release 17 -g:none` made of them.
JAVA_CLASSES = Path(__file__).with_name("java_classes")
# Java's second compiler waits until code has run ten times as often as by its own numbers. A query brings classes of
# its own, and compiling those of thirty queries twice took longer than all else in their start (docs/decisions/0020).
PATIENT_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 20.0
POLL_INTERVAL_S = 0.05
LOG_LINES_SHOWN = 15
RETRIES = 4
LONGEST_BACKOFF_MS = 1000
_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105
_STARTED = re.compile(rb"Spark Connect server started at: \S*?:(\d+)\s")

# Warnings, and the one line that names the port.
_LOGGING = f"""\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
logger.server.name = {MAIN_CLASS}
logger.server.level = info
"""

# How state is kept. Every session with a Spark that is not ours has these as well: real-time mode asks for them.
STATE_SETTINGS: Mapping[str, str] = {
    # Of any size, on disk, and with changelogs: a batch writes what it has changed and not a snapshot.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # A query whose state has this format may change its speed and keep its state.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
}

# What differs from Spark's defaults, and why.
SETTINGS: Mapping[str, str] = {
    "spark.app.name": "pessoa",
    "spark.ui.enabled": "false",
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.connect.grpc.binding.address": HOST,
    "spark.connect.grpc.binding.port": "0",
    # An engine that sends no requests for a while has not ended.
    "spark.connect.session.manager.defaultSessionTimeout": "24h",
    **STATE_SETTINGS,
    # 200 tasks a batch is for a hundred machines.
    "spark.sql.shuffle.partitions": "4",
    # The classes that Spark writes for a plan are kept, for so many of them; a windowed count has about twenty. With
    # Spark's 100, thirty queries in real-time mode threw out each other's: every batch compiled its plan again.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # A row in real-time mode leaves a shuffle after so many milliseconds at most; it is 25 with Spark's own number.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "2",
    # As many as there are cores otherwise, and `local[256]` counts as 256 cores. They hand on messages, and are idle.
    "spark.rpc.netty.dispatcher.numThreads": "8",
    "spark.sql.session.timeZone": "UTC",
    # A Python worker has 15 s to call back otherwise, which a busy machine may need for its imports.
    "spark.python.authenticate.socketTimeout": "2m",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}


def local_settings(cores: int) -> dict[str, str]:
    """Return the settings that differ if all tasks run on this machine."""
    return {
        # State in more partitions than there are cores is no faster, and each is a task, a store and its files.
        "spark.sql.shuffle.partitions": str(min(4, max(2, cores))),
        # Hadoop's own starts a program (`chmod`) for each file of a checkpoint.
        "spark.hadoop.fs.file.impl": "pessoa.LocalFiles",
    }


class SparkUnavailable(Exception):
    """Spark did not start, or has ended; the message has its last output."""


@dataclass(frozen=True, slots=True)
class SparkOptions:
    master: str = "local[*]"
    memory: str = "1g"
    settings: Mapping[str, str] | None = None
    java_options: Sequence[str] = ()


_DEFAULT_OPTIONS = SparkOptions()


class SparkServer:
    def __init__(
        self, process: subprocess.Popen[bytes], port: int, token: str, log_path: Path, ready_s: float,
        archive: ClassArchive,
    ) -> None:  # fmt: skip
        self.port = port
        self.log_path = log_path
        self.ready_after_s = ready_s
        self._process = process
        self._token = token
        self._archive = archive
        self._stopping = threading.Lock()

    def __repr__(self) -> str:
        state = "running" if self.is_running else "gone"
        return f"<SparkServer on {HOST}:{self.port}, process {self._process.pid}: {state}>"

    @classmethod
    def start(
        cls, home: Path, chosen: SparkOptions = _DEFAULT_OPTIONS, progress: Progress = lambda *_: None
    ) -> SparkServer:
        """Start a server, and return it when it serves sessions. Raises NoJava, JarsUnavailable or SparkUnavailable."""
        home.mkdir(parents=True, exist_ok=True)
        token = secrets.token_urlsafe(24)
        jars = fetch(progress=progress)
        java = find_java()
        class_path = [*sorted(spark_jars().glob("*.jar")), *jars, jar_of(JAVA_CLASSES)]
        archive = ClassArchive(java, class_path)
        # Other options would make another archive, and there is to be one.
        kept = archive.options(may_make=not chosen.java_options)
        command = command_line(home, chosen, java, class_path, kept, jars)
        log_path = home / "spark.log"
        began_s = time.monotonic()
        with log_path.open("ab") as log:
            position = log.tell()
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(token),
                cwd=home,
                start_new_session=True,
            )
        port = _wait_for_port(process, log_path, position, began_s + START_TIMEOUT_S)
        archive.make_later()
        return cls(process, port, token, log_path, time.monotonic() - began_s, archive)

    @property
    def pid(self) -> int:
        """The pid of the guardian, which leads the process group of the server."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def address(self) -> str:
        """The Spark Connect URL for clients; it contains the token."""
        # The client sends a token without TLS only to a host of this name.
        return f"sc://localhost:{self.port}/;token={self._token}"

    def session(self) -> SparkSession:
        """Return a new session; each has its own temporary views and settings."""
        return session_at(self.address)

    def stop(self) -> None:
        """Ask the server to end, and kill it if it does not."""
        with self._stopping:
            self._archive.stop()
            if self.is_running:
                self._process.terminate()
                try:
                    self._process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    self.kill()
            if self._process.stdin is not None:
                self._process.stdin.close()

    def kill(self) -> None:
        """Kill the whole process group at once, as the kernel's OOM killer would."""
        if self.is_running:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def session_at(address: str) -> SparkSession:
    """Return a session with the Spark Connect server at `sc://host:port`. Raises SparkUnavailable."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise JarsUnavailable(
            f"Pipelines run on Spark, and PySpark is not installed ({missing}). Run: pip install 'pessoa[spark]'"
        ) from None
    builder: Any = SparkSession.builder
    session: SparkSession = builder.remote(address).create()
    try:
        _shorten_retries(session)
        # The client connects to the server with its first request.
        _ = session.version
    except Exception as refused:
        forget(session)
        raise SparkUnavailable(f"Spark does not answer at {address.partition('/;')[0]}: {refused}") from refused
    return session


def import_client_aside() -> None:
    """Import PySpark's client in a thread of its own. `session_at` reports an error of the import."""
    threading.Thread(target=_import_client, name="pessoa-import-pyspark", daemon=True).start()


def _import_client() -> None:
    with suppress(ImportError):
        import pyspark.sql.connect.session  # noqa: F401


def forget(session: Any) -> None:
    """Stop using a session, without a request to its server.

    PySpark keeps the first session as the default of the process and of a thread, for functions that are given none,
    until it is stopped. A dead session that is not stopped would be used by the next caller.
    """
    session.release_session_on_close = False
    session.stop()


@contextmanager
def in_use(session: SparkSession) -> Iterator[None]:
    """Make a session the one that PySpark's functions use in this thread, within the block."""
    from pyspark.sql.connect.session import SparkSession

    place: Any = SparkSession._active_session
    before = getattr(place, "session", None)
    place.session = session
    try:
        yield
    finally:
        place.session = before


def _shorten_retries(session: Any) -> None:
    """Set retries with which the client gives up on a silent server much sooner than by default (ten minutes)."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES, max_backoff=LONGEST_BACKOFF_MS)])


def command_line(
    home: Path, chosen: SparkOptions, java: Java, class_path: Sequence[Path], more: Sequence[str], jars: Sequence[Path]
) -> list[str]:
    logging = home / "log4j2.properties"
    logging.write_text(_LOGGING, encoding="utf-8")
    is_local = chosen.master.startswith("local")
    # Executors elsewhere fetch the jars from the driver; in the driver itself they stand on the class path.
    settings = {
        **SETTINGS,
        **(local_settings(os.cpu_count() or 1) if is_local else {"spark.jars": ",".join(map(str, jars))}),
        "spark.master": with_room(chosen.master),
        "spark.local.dir": str(home / "scratch"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.pyspark.python": sys.executable,
        **(chosen.settings or {}),
    }
    return [
        *(sys.executable, "-S", "-E", str(Path(__file__).with_name("guardian.py"))),
        *(str(java.executable), f"-Xmx{chosen.memory}", *options(), *PATIENT_COMPILER, *more, *chosen.java_options),
        f"-Dlog4j2.configurationFile={logging.as_uri()}",
        f"-Dderby.system.home={home}",
        *(f"-D{key}={value}" for key, value in settings.items()),
        *("-cp", os.pathsep.join(map(str, class_path)), MAIN_CLASS),
    ]


def _environment(token: str) -> dict[str, str]:
    # PYSPARK_PYTHON is for the workers that Spark starts: they must find pessoa, so they are this Python.
    return {**os.environ, _TOKEN: token, "PYSPARK_PYTHON": sys.executable}


def _wait_for_port(process: subprocess.Popen[bytes], log_path: Path, position: int, deadline_s: float) -> int:
    while True:
        is_over = process.poll() is not None
        with log_path.open("rb") as log:
            log.seek(position)
            said = log.read()
        if match := _STARTED.search(said):
            return int(match[1])
        if is_over or time.monotonic() > deadline_s:
            if not is_over:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            last = "\n".join(said.decode(errors="replace").splitlines()[-LOG_LINES_SHOWN:])
            raise SparkUnavailable(f"Spark did not start; its log, {log_path}, ends with:\n{last}")
        time.sleep(POLL_INTERVAL_S)
